"""Operators that torch's ONNX exporter writes otherwise than torch computes them are imported as torch computes."""

from __future__ import annotations

from itertools import islice
from typing import Any

import pytest

from neurenix.hardware.tensorrt import TensorRTBackend
from neurenix.importers import from_exported_program, from_torch
from tests.optional import torch

pytest.importorskip("onnxscript")

NAN, INF = float("nan"), float("inf")


class Module(torch.nn.Module):  # type: ignore[misc, name-defined]
    """Functions of tensors, side by side in one model: an export takes far longer than any of them."""

    def __init__(self, *cases: tuple[Any, ...]) -> None:
        super().__init__()
        self.cases = [(function, len(given)) for function, *given in cases]

    def forward(self, *given: Any) -> Any:
        left = iter(given)
        return tuple(function(*islice(left, count)) for function, count in self.cases)


def held(**cases: tuple[Any, ...]) -> None:
    """By both importers, without any comparison with torch that could hide it: functions, each with what it takes."""
    module, given = Module(*cases.values()).eval(), tuple(x for _, *tensors in cases.values() for x in tensors)
    for network in (from_torch(module, list(given)), from_exported_program(torch.export.export(module, given))):
        model = TensorRTBackend(threads=1, optimization_level=0, timing_cache=False).optimize_model(
            network, verify=False, providers=("cpu",)
        )
        outputs = model.run({port.name: array for port, array in zip(model.inputs, given, strict=True)})
        for (name, (function, *tensors)), array in zip(cases.items(), outputs.values(), strict=True):
            found, wanted = torch.as_tensor(array), function(*tensors)
            torch.testing.assert_close(
                found, wanted, rtol=1e-6, atol=1e-6, equal_nan=True, msg=lambda text, name=name: f"{name}: {text}"
            )
            if wanted.is_floating_point():
                numbers = ~torch.isnan(wanted)
                assert torch.equal(torch.signbit(found)[numbers], torch.signbit(wanted)[numbers]), name


@pytest.mark.parametrize("mode", ["trunc", "floor"])
def test_quotients_of_integers_keep_all_digits(mode: str) -> None:
    def divided(x: Any, y: Any) -> Any:
        return torch.div(x, y, rounding_mode=mode)

    narrow = torch.tensor([-(2**31), -(2**31), 2**31 - 1, -7, 7, 100000001], dtype=torch.int32)
    wide = torch.tensor([2**40 + 1, -(2**63), -(2**50) - 3, 7])
    held(
        int32=(divided, narrow, torch.tensor([2, -7, 3, 2, -2, 3], dtype=torch.int32)),
        int64=(divided, wide, torch.tensor([3, 7, -2, -2])),
        int32_by_int64=(divided, narrow, torch.tensor([2**40, 3, -3, 2, -2, 9])),
        by_an_integer=(lambda x: torch.div(x, -3, rounding_mode=mode), torch.tensor([2**40 + 1, -(2**50) - 3, 7])),
        by_a_float=(lambda x: torch.div(x, 2.5, rounding_mode=mode), torch.tensor([7, -7, 100])),
        int16=(divided, *(torch.tensor(x, dtype=torch.int16) for x in ([7, -32768, -100], [-2, 7, 3]))),
        int8=(divided, *(torch.tensor(x, dtype=torch.int8) for x in ([7, -128, -100], [-2, 7, 3]))),
        uint8=(divided, *(torch.tensor(x, dtype=torch.uint8) for x in ([7, 255, 100], [2, 7, 3]))),
    )


def test_angles_and_signs_are_those_of_zeros_too() -> None:
    y = [0.0, 0.0, -0.0, -0.0, 0.0, -0.0, 1.0, -1.0, INF, INF, -INF, 1.0, 1.0, NAN, 1.0, 0.0, 3.0, -3.0, 3.0, -3.0]
    x = [-1.0, 0.0, -1.0, 0.0, -0.0, -0.0, -0.0, 0.0, INF, -INF, INF, -INF, INF, 1.0, NAN, 5.0, 2.0, 2.0, -2.0, -2.0]
    held(atan2=(torch.atan2, torch.tensor(y), torch.tensor(x)), signbit=(torch.signbit, torch.tensor(y)))


def test_what_beta_leaves_out_is_not_read() -> None:
    a, b = torch.randn(3, 4, 5), torch.randn(3, 5, 6)
    unread = torch.full((3, 4, 6), NAN)
    held(
        baddbmm=(lambda s, p, q: torch.baddbmm(s, p, q, beta=0, alpha=2), unread, a, b),
        half_of_it=(lambda s, p, q: torch.baddbmm(s, p, q, beta=0.5, alpha=2), torch.randn(3, 4, 6), a, b),
        addbmm=(lambda s, p, q: torch.addbmm(s, p, q, beta=0), unread[0], a, b),
        addmv=(lambda s, p, q: torch.addmv(s, p, q, beta=0), unread[0, :, 0], a[0], b[0, :, 0]),
        addr=(lambda s, p, q: torch.addr(s, p, q, beta=0), unread[0, :, :5], torch.randn(4), torch.randn(5)),
    )


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32"])
def test_bounds_of_clamps_do_not_wrap_around(dtype: str) -> None:
    limits = torch.iinfo(getattr(torch, dtype))
    x = torch.tensor([limits.min, 0, 5, limits.max // 2, limits.max], dtype=getattr(torch, dtype))
    far = 2**40
    held(
        clamp=(lambda x: torch.clamp(x, -far, far), x),
        clamp_of_one_side=(lambda x: x.clamp(max=far) + x.clamp(min=3), x),
        clip=(lambda x: x.clip(min=-far, max=4), x),
        clamp_min_and_max=(lambda x: torch.clamp_max(torch.clamp_min(x, -far), far), x),
    )


def test_bounds_beside_a_float_are_left_alone() -> None:
    from neurenix.importers.torch.bounds import within_dtype

    assert within_dtype(torch.int8, [200.5, 300]) == [200.5, 300]
    assert within_dtype(torch.int8, [None, 300]) == [None, 127]
    assert within_dtype(torch.float32, [-300, 300]) == [-300, 300]


def test_clamps_of_one_tensor_have_bounds_of_their_own() -> None:
    x = torch.arange(-10, 10, dtype=torch.int32)
    held(clamps=(lambda x: torch.clamp(x, -3, 5) + torch.clamp(x, -7, 2), x))


def test_a_program_is_left_as_it_was() -> None:
    x = torch.ones(3, dtype=torch.int8)
    program = torch.export.export(Module((lambda x: torch.clamp(x, -300, 300), x)), (x,))
    from_exported_program(program)
    assert [node.args[1:] for node in program.graph.nodes if "clamp" in node.name] == [(-300, 300)]
