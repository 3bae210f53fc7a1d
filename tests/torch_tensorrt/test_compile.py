"""`neurenix.torch_tensorrt.compile`: results against torch, its names, and what it refuses."""

from __future__ import annotations

import copy
import logging
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("onnxscript")

import torch

import neurenix as nx
import neurenix.torch_tensorrt as torch_tensorrt
from neurenix.hardware import tensorrt as trt
from neurenix.torch import counters
from neurenix.torch_tensorrt import Input
from tests.torch_tensorrt.models import QUICK, Nested, net, pictures

FIXED = {"inputs": [Input(shape=[2, 3, 16, 16])]}
RANGE = {"inputs": [Input(min_shape=[1, 3, 16, 16], opt_shape=[4, 3, 16, 16], max_shape=[8, 3, 16, 16])]}

pytestmark = pytest.mark.filterwarnings("ignore:TorchScript is deprecated", "ignore:`torch.jit")


def compiled(model: Any, **given: Any) -> Any:
    return torch_tensorrt.compile(model, **{**QUICK, **given})


def same(found: Any, wanted: Any, tolerance: float = 1e-5) -> None:
    torch.testing.assert_close(found, wanted.detach(), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("ir", ["default", "dynamo", "ts", "torch_compile"])
@pytest.mark.parametrize("given", [FIXED, RANGE], ids=["fixed", "range"])
def test_each_way_computes_what_torch_does(ir: str, given: dict[str, Any]) -> None:
    model = net()
    made = compiled(model, ir=ir, **given)
    batches = (2,) if given is FIXED else (1, 3, 8)
    with torch.no_grad():
        for batch in batches:
            x = pictures(batch)
            same(made(x), model(x))


def test_tensors_are_inputs(caplog: pytest.LogCaptureFixture) -> None:
    model, x = net(), pictures()
    made = compiled(model, inputs=[x])
    same(made(x), model(x))
    same(compiled(model, arg_inputs=(x,))(x), model(x))
    assert not [one for one in caplog.records if one.name.startswith("neurenix")]


def test_half_precision_takes_and_gives_what_inputs_say() -> None:
    """As in the manual: a float32 model with `Input(dtype=torch.float16)`."""
    model, x = net(), pictures().half()
    made = compiled(model, inputs=[Input(shape=[2, 3, 16, 16], dtype=torch.half)], enabled_precisions={torch.half})
    same(made(x).float(), model(x.float()), 1e-2)


def test_bfloat16_is_computed_in(caplog: pytest.LogCaptureFixture) -> None:
    model, x = net(), pictures()
    made = compiled(model, enabled_precisions={torch_tensorrt.dtype.bf16, torch.float32}, **FIXED)
    error = (made(x) - model(x)).abs().max().item()
    # Else a warning says what is computed in.
    assert error < 5e-2 and (error > 1e-5) != ("no arithmetic for bfloat16" in caplog.text)


def test_arguments_by_name_and_in_lists() -> None:
    torch.manual_seed(0)
    model = Nested().eval()
    made = compiled(
        model,
        arg_inputs=[Input(min_shape=[2, 8], opt_shape=[4, 8], max_shape=[9, 8])],
        kwarg_inputs={"scale": Input(shape=[10]), "rest": [Input(shape=[10]), torch.ones(10)]},
    )
    named = {"scale": torch.randn(10), "rest": [torch.randn(10), torch.randn(10)]}
    for batch in (2, 7):
        x = torch.randn(batch, 8)
        found, wanted = made(x, **named), model(x, **named)
        same(found["scaled"], wanted["scaled"])
        assert len(found["sums"]) == 2
        for one, other in zip(found["sums"], wanted["sums"], strict=True):
            same(one, other)


def test_what_no_engine_takes_runs_in_torch() -> None:
    model, x = net(cut=True), pictures()
    made = compiled(model, **FIXED)
    same(made(x), model(x))
    assert len(made.engines) == 2
    assert [one.operator for one in made.report.refusals] == ["aten.nanmedian.default"]
    with pytest.raises(nx.UnsupportedError, match="operators that run in torch"):
        compiled(model, require_full_compilation=True, **FIXED)


def test_operators_stay_in_torch_when_asked() -> None:
    model, x = net(), pictures()
    made = compiled(model, torch_executed_ops={torch.ops.aten.linear.default, "torch.ops.aten.addmm"}, **FIXED)
    same(made(x), model(x))
    assert {one.reason for one in made.report.refusals} == {"it is named in torch_executed_ops"}


def test_dryrun_builds_nothing(tmp_path: Path) -> None:
    model, x, path = net(), pictures(), tmp_path / "report.txt"
    made = compiled(model, dryrun=str(path), **FIXED)
    same(made(x), model(x))
    assert made.engines == [] and "dryrun" in path.read_text()


def test_a_failed_build_is_told_once_and_counted(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from neurenix.torch import conversion

    def fail(*args: Any) -> None:
        raise nx.UnsupportedError("not today")

    monkeypatch.setattr(conversion, "_built", fail)
    model, x = net(), pictures()
    before = counters().get("fallbacks", 0)
    with caplog.at_level(logging.WARNING, "neurenix"):
        made = compiled(model, **FIXED)
    same(made(x), model(x))
    assert [one.getMessage() for one in caplog.records if one.name.startswith("neurenix")] == [
        "program partition 0 runs in torch: it can't be built: UnsupportedError: not today"
    ]
    assert counters()["fallbacks"] == before + 1 and made.report.partitions[0].runs == "torch"
    with pytest.raises(nx.UnsupportedError, match="not today"):
        compiled(model, pass_through_build_failures=True, **FIXED)


def test_weights_are_replaced() -> None:
    first, second, x = net(), net(seed=1), pictures()
    made = compiled(first, immutable_weights=False, **FIXED)
    program = torch_tensorrt.dynamo.trace(second, **FIXED)
    refitted = torch_tensorrt.dynamo.refit_module_weights(made, program, arg_inputs=(x,), verify_output=True)
    same(refitted(x), second(x))
    same(made(x), first(x))
    with pytest.raises(nx.UnsupportedError, match="can't be replaced"):
        torch_tensorrt.dynamo.refit_module_weights(compiled(first, **FIXED), program)
    with pytest.raises(nx.UnsupportedError, match="in a copy"):
        torch_tensorrt.dynamo.refit_module_weights(made, program, in_place=True)


def test_weights_of_parts_that_torch_runs_are_replaced_too() -> None:
    first, second, x = net(cut=True), net(cut=True, seed=1), pictures()
    made = compiled(first, immutable_weights=False, torch_executed_ops={"aten.linear", "aten.addmm"}, **FIXED)
    refitted = torch_tensorrt.dynamo.refit_module_weights(made, torch_tensorrt.dynamo.trace(second, **FIXED))
    same(refitted(x), second(x))
    same(made(x), first(x))


def test_copies_and_pickles_compute_the_same() -> None:
    model, x = net(cut=True), pictures()
    made = compiled(model, **FIXED)
    same(copy.deepcopy(made)(x), model(x))
    same(pickle.loads(pickle.dumps(made))(x), model(x))


def test_bytes_that_are_overwritten_are_opened_anew() -> None:
    first, second, x = net(), net(seed=1), pictures()
    made, other = compiled(first, **FIXED), compiled(second, **FIXED)
    same(made(x), first(x))
    if [one.shape for one in made.buffers()] == [one.shape for one in other.buffers()]:
        made.load_state_dict(other.state_dict())
        same(made(x), second(x))
    else:
        with pytest.raises(RuntimeError, match="size mismatch"):
            made.load_state_dict(other.state_dict())


def test_modes_of_gradients_make_no_difference() -> None:
    model, x = net(), pictures()
    made = compiled(model, **FIXED)
    for mode in (torch.no_grad, torch.inference_mode, torch.enable_grad):
        with mode():
            same(made(x), model(x))
    assert not made(x).requires_grad


def test_a_compiled_module_is_compiled_again() -> None:
    model, x = net(), pictures()
    same(torch.compile(compiled(model, **FIXED), backend="aot_eager")(x), model(x))


def test_a_mutable_module_follows_its_weights() -> None:
    model, x = net(), pictures()
    made = torch_tensorrt.MutableTorchTensorRTModule(model, **QUICK)
    same(made(x), model(x))
    made.load_state_dict(net(seed=1).state_dict())
    same(made(x), net(seed=1)(x))
    with pytest.raises(nx.UnsupportedError, match="not saved"):
        torch_tensorrt.MutableTorchTensorRTModule.save(made, "m.pkl")


def test_the_engine_alone_runs_in_the_runtime_of_tensorrts_shape() -> None:
    model, x = net(), pictures()
    data = torch_tensorrt.convert_method_to_trt_engine(model, "forward", **FIXED, **QUICK)
    engine = trt.Runtime(trt.Logger()).deserialize_cuda_engine(data)
    assert engine is not None
    found = engine.create_execution_context().execute(x.numpy())
    np.testing.assert_allclose(found, model(x).detach().numpy(), atol=1e-5)


def test_what_is_refused() -> None:
    model = net()
    with pytest.raises(nx.InvalidArgumentError, match=r"(?s)no option 'min_blok_size'.*min_block_size"):
        compiled(model, min_blok_size=3, **FIXED)
    with pytest.raises(nx.InvalidArgumentError, match=r"no ir 'dynmo'"):
        compiled(model, ir="dynmo", **FIXED)
    with pytest.raises(nx.InvalidArgumentError, match="the inputs must be known"):
        compiled(model)
    with pytest.raises(nx.InvalidArgumentError, match="this is no input"):
        compiled(model, inputs=[np.zeros((2, 3, 16, 16), np.float32)])
    with pytest.raises(nx.UnsupportedError, match="TorchScript is not compiled"):
        compiled(torch.jit.trace(model, pictures()), **FIXED)
    with pytest.raises(nx.UnsupportedError, match="sparse_weights"):
        compiled(model, sparse_weights=True, **FIXED)
    with pytest.raises(nx.UnsupportedError, match="can't export"):
        compiled(net(), inputs=[Input(shape=[2, 4, 16, 16])])


def test_a_dimension_that_the_module_fixes() -> None:
    class Fixed(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return x + torch.ones(4, 3)

    with pytest.raises(nx.ShapeError, match="fixes a dimension"):
        compiled(Fixed(), inputs=[Input(min_shape=[2, 3], opt_shape=[4, 3], max_shape=[6, 3])])


def test_inputs_of_the_wrong_shape_or_dtype_are_errors_of_ours() -> None:
    made = compiled(net(), **FIXED)
    with pytest.raises(nx.ShapeError):
        made(pictures(3))
    with pytest.raises(nx.InvalidArgumentError, match="another dtype"):
        made(pictures().double())


def test_compile_is_a_name_of_the_package() -> None:
    assert nx.compile is torch_tensorrt.compile


def test_buffers_that_a_call_writes_into_are_no_constants() -> None:
    class Counts(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("seen", torch.zeros(3))
            self.linear = torch.nn.Linear(3, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.seen += x.mean(0)
            return torch.relu(self.linear(x)) * self.seen

    model = Counts().eval()
    reference = copy.deepcopy(model)
    with torch.no_grad():
        made = compiled(model, inputs=[torch.randn(4, 3)])
        for _ in range(3):
            x = torch.randn(4, 3)
            same(made(x), reference(x))


class Scaled(torch.nn.Module):
    """Takes numbers beside a tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(3, 3)

    def forward(self, x: torch.Tensor, doubled: bool = True, by: float = 2.0) -> torch.Tensor:
        """A product, scaled or not."""
        y = torch.relu(self.linear(x))
        return y * by if doubled else y - 1


def test_arguments_that_are_no_tensors_are_constants() -> None:
    model, x = Scaled().eval(), torch.randn(4, 3)
    made = compiled(model, arg_inputs=[x], kwarg_inputs={"doubled": True, "by": 3.0})
    with torch.no_grad():
        same(made(x, doubled=True, by=3.0), model(x, True, 3.0))
        for doubled, by in ((False, 3.0), (True, 2.0), (True, torch.tensor(3.0))):
            with pytest.raises(nx.errors.InvalidArgumentError, match="a constant of the compiled module"):
                made(x, doubled=doubled, by=by)


class Counting(torch.nn.Module):
    """Counts its calls, and writes into what it is given."""

    n: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("n", torch.zeros(6))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.n.add_(1)
        x.mul_(2)
        return x * 3 + self.n


@pytest.mark.parametrize("ir", ["dynamo", "ts"])
def test_compiling_changes_neither_inputs_nor_buffers(ir: str) -> None:
    module, given = Counting(), torch.ones(2, 6)
    made = torch_tensorrt.compile(module, inputs=[given], ir=ir, **QUICK)
    assert torch.equal(given, torch.ones(2, 6)) and torch.equal(module.n, torch.zeros(6))
    assert torch.equal(made(torch.ones(2, 6)), torch.full((2, 6), 7.0))


def test_a_mutable_module_stays_one() -> None:
    model, x = net(), pictures()
    made = torch_tensorrt.MutableTorchTensorRTModule(model, **QUICK)
    for itself in (made.eval(), made.float(), made.requires_grad_(False), made.to("cpu"), made.cpu()):
        assert itself is made
    wanted = model(x)
    for other in (copy.copy(made), copy.deepcopy(made), pickle.loads(pickle.dumps(made))):
        assert isinstance(other, torch_tensorrt.MutableTorchTensorRTModule)
        torch.testing.assert_close(other(x), wanted, rtol=1e-5, atol=1e-5)
    made.more = 3
    del made.more
    assert not hasattr(model, "more") and not hasattr(made, "more")


def test_a_refit_is_verified_whatever_the_outputs_are() -> None:
    class Several(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.l = torch.nn.Linear(8, 8)

        def forward(self, x: torch.Tensor) -> Any:
            return self.l(x), None, torch.full((2,), torch.nan)

    x = torch.randn(2, 8)
    made = torch_tensorrt.compile(Several(), inputs=[x], immutable_weights=False, **QUICK)
    other = torch.export.export(Several(), (x,))
    for given in (None, (x,), (torch_tensorrt.Input(shape=[2, 8]),)):
        refitted = torch_tensorrt.dynamo.refit_module_weights(made, other, arg_inputs=given, verify_output=True)
        torch.testing.assert_close(refitted(x)[0], other.module()(x)[0], rtol=1e-5, atol=1e-5)


def test_an_engine_of_arguments_by_place_or_name() -> None:
    linear, x = torch.nn.Linear(8, 8), torch.randn(2, 8)
    for given in ({"inputs": [x]}, {"arg_inputs": [x]}, {"kwarg_inputs": {"input": x}}):
        assert torch_tensorrt.convert_method_to_trt_engine(linear, "forward", **given, **QUICK)
    with pytest.raises(nx.InvalidArgumentError, match="there is no ir"):
        torch_tensorrt.convert_method_to_trt_engine(linear, "forward", [x], ir="bogus")
    with pytest.raises(nx.InvalidArgumentError, match="this is no module"):
        torch_tensorrt.compile(torch.sin, inputs=[x])
