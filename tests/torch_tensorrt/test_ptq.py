"""Calibrators: what engines are told of batches, and what int8 makes of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("onnxscript")

import torch

import neurenix as nx
import neurenix.torch_tensorrt as torch_tensorrt
from neurenix.errors import InvalidArgumentError
from neurenix.torch import conversion
from neurenix.torch.dynamo import neurenix
from neurenix.torch_tensorrt import Input, ptq
from tests.torch_tensorrt.models import QUICK, net, pictures

FIXED = {"inputs": [Input(shape=[2, 3, 16, 16])], "enabled_precisions": {torch.int8, torch.float16}}


def test_batches_reach_each_engine_as_its_inputs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a module of two engines the second one gets what torch computes in front of it, batch by batch."""
    seen: list[list[torch.Tensor]] = []
    build = conversion._built

    def built(part: Any, module: Any, args: Any, order: Any, backend: Any, wanted: Any, turn: Any) -> Any:
        given = dict(wanted)
        calibrator = given.pop("calibration")
        assert calibrator.get_algorithm() is ptq.CalibrationAlgo.MINMAX_CALIBRATION
        names = [f"x{place}" for place in order]
        batches = iter(lambda: calibrator.get_batch(names), None)
        # What an engine gets, its part in torch turns into the same results.
        seen.append([module(*batch)[0] for batch in batches])
        calibrator.write_calibration_cache(b"cache")
        return build(part, module, args, order, backend, {**given, "precision": "fp32"}, turn)

    monkeypatch.setattr(conversion, "_built", built)
    model = net(cut=True)
    data = [(pictures(), torch.zeros(2)) for _ in range(3)]

    def loader() -> Iterator[Any]:
        yield from data

    calibrator = ptq.DataLoaderCalibrator(loader(), algo_type=ptq.CalibrationAlgo.MINMAX_CALIBRATION)
    made = torch_tensorrt.compile(model, calibrator=calibrator, **FIXED, **QUICK)
    assert len(made.engines) == 2 and [len(one) for one in seen] == [3, 3]
    for (x, _), found in zip(data, seen[1], strict=True):
        torch.testing.assert_close(found, model(x), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(made(x), model(x).detach(), rtol=1e-5, atol=1e-5)


def test_int8_by_calibration(tmp_path: Path) -> None:
    model = net()
    data = [pictures() for _ in range(4)]
    calibrator = ptq.DataLoaderCalibrator(data, cache_file=tmp_path / "calibration.cache")
    made = torch_tensorrt.compile(model, calibrator=calibrator, **FIXED, **QUICK)
    wanted = model(data[0]).detach()
    error = ((made(data[0]) - wanted).norm() / wanted.norm()).item()
    assert 1e-5 < error < 0.1
    again = torch_tensorrt.compile(
        model, calibrator=ptq.CacheCalibrator(tmp_path / "calibration.cache"), **FIXED, **QUICK
    )
    torch.testing.assert_close(again(data[0]), made(data[0]))


@pytest.mark.parametrize(
    "given",
    [
        {"calibrator": ptq.DataLoaderCalibrator([])},
        {"precision": "mixed"},
        {"precision": "int8", "strict": True},
        {"precision": "int8", "accuracy": ["gptq"]},
    ],
)
def test_torch_compile_takes_no_batches(given: dict[str, Any]) -> None:
    """And says what does, not what it would refuse as well."""
    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed, match="calibrat") as caught:
        torch.compile(net(), backend=neurenix, options=given)(pictures())
    assert "torch_tensorrt.compile" in str(caught.value) and "give calibration=" not in str(caught.value)


def test_a_calibrator_without_8_bits_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="`calibration` is for other precisions"):
        torch_tensorrt.compile(net(), inputs=FIXED["inputs"], calibrator=[pictures()], **QUICK)


def test_caches_stand_in_files_of_their_own(tmp_path: Path) -> None:
    path = tmp_path / "calibration.cache"
    writer = ptq.DataLoaderCalibrator([], cache_file=path)
    assert writer.read_cache(0) is None
    writer.write_cache(0, b"first")
    writer.write_cache(1, b"second")
    assert writer.read_cache(0) is None, "use_cache is False"
    for reader in (ptq.DataLoaderCalibrator([], cache_file=path, use_cache=True), ptq.CacheCalibrator(path)):
        assert (reader.read_cache(0), reader.read_cache(1)) == (b"first", b"second")
    assert path.read_bytes() == b"first"
    with pytest.raises(nx.FileError, match="can't be read"):
        ptq.CacheCalibrator(tmp_path / "missing").read_cache(0)
    with pytest.raises(nx.FileError, match="a device or a pipe"):
        ptq.CacheCalibrator("/dev/zero").read_cache(0)
    with pytest.raises(nx.FileError, match="can't be written"):
        ptq.DataLoaderCalibrator([], cache_file=tmp_path / "missing" / "cache").write_cache(0, b"")


@pytest.mark.parametrize("given", [3, "folder", None])
def test_what_gives_no_batches(given: Any) -> None:
    with pytest.raises(nx.InvalidArgumentError, match="no batches"):
        ptq.DataLoaderCalibrator(given)
    with pytest.raises(nx.InvalidArgumentError, match="no algo_type"):
        ptq.DataLoaderCalibrator([], algo_type="entropy")  # type: ignore[arg-type]


def decibels(model: torch.nn.Module, made: Any, x: torch.Tensor) -> float:
    wanted = model(x).detach().double()
    return float(10 * torch.log10(wanted.square().sum() / (wanted - made(x)).square().sum()))


def test_calibrators_of_ours_keep_their_settings(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, x = net(), pictures()
    batches = [pictures() for _ in range(4)]
    outliers = [100 * batch for batch in batches]
    int8: dict[str, Any] = {"inputs": [x], "enabled_precisions": {torch.int8}} | QUICK

    def quality(calibrator: Any) -> float:
        return decibels(model, torch_tensorrt.compile(net(), calibrator=calibrator, **int8), x)

    good = quality(nx.quantization.MinMaxCalibrator(batches))
    assert quality(nx.quantization.PercentileCalibrator(batches, percentile=50)) < good - 10
    assert quality(nx.quantization.MinMaxCalibrator([*batches, *outliers])) < good - 10
    assert quality(nx.quantization.MinMaxCalibrator([*batches, *outliers], limit=4)) == pytest.approx(good, abs=3)
    assert quality(nx.quantization.MSECalibrator(batches)) > good - 6
    file = tmp_path / "w.cache"
    quality(nx.quantization.EntropyCalibrator(batches, cache_file=file))
    assert file.is_file()
    alone = torch_tensorrt.compile(net(), calibrator=nx.quantization.EntropyCalibrator(cache_file=file), **int8)
    assert len(alone.engines) == 1 and decibels(model, alone, x) > 15


class Native:
    """A calibrator in TensorRT's shape."""

    def __init__(self, batches: Any, cache: bytes | None = None) -> None:
        self.names: list[str] = []
        self.kept = cache
        self._batches = iter(batches)

    def get_batch_size(self) -> int:
        return 2

    def get_batch(self, names: list[str]) -> Any:
        self.names = list(names)
        found = next(self._batches, None)
        return [] if found is None else [found.data_ptr()]

    def read_calibration_cache(self) -> bytes | None:
        return self.kept

    def write_calibration_cache(self, cache: bytes) -> None:
        self.kept = bytes(cache)


def test_calibrators_in_tensorrts_shape(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, x = net(), pictures()
    batches = [pictures() for _ in range(4)]
    int8: dict[str, Any] = {"inputs": [x], "enabled_precisions": {torch.int8}} | QUICK
    first = Native(batches)
    made = torch_tensorrt.compile(net(), calibrator=first, **int8)
    assert first.names == ["x"] and first.kept and len(made.engines) == 1
    again = torch_tensorrt.compile(net(), calibrator=Native([], first.kept), **int8)
    assert len(again.engines) == 1
    assert decibels(model, again, x) == pytest.approx(decibels(model, made, x), abs=1)


class Scaling(torch.nn.Module):
    """Two products, between them what torch runs, and a number that a call changes."""

    n: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = torch.nn.Linear(64, 64), torch.nn.Linear(64, 64)
        self.register_buffer("n", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.n.add_(1)
        return self.second(torch.fft.ifft(torch.fft.fft(self.first(x))).real) + self.n


def test_a_part_that_reads_a_single_number_is_calibrated() -> None:
    batches = [torch.randn(8, 64) for _ in range(2)]
    made = torch_tensorrt.compile(
        Scaling().eval(),
        inputs=batches[:1],
        min_block_size=1,
        enabled_precisions={torch.int8},
        calibrator=batches,
        **QUICK,
    )
    assert [part.runs for part in made.report.partitions] == ["engine", "engine"]
