"""Files that ONNX Runtime's quantizer wrote run as they state: beside ONNX Runtime without its optimisations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from neurenix.hardware import get_backend
from tests.machine import HAS_INT8

pytest.importorskip("torch", reason="the networks are PyTorch's")
pytest.importorskip("sklearn", reason="the digits are scikit-learn's")
onnxruntime = pytest.importorskip("onnxruntime")
quantization = pytest.importorskip("onnxruntime.quantization")

from benchmarks.digits import Digits, images, network  # noqa: E402

#: dtypes of activations and weights.
TYPES = [("QUInt8", "QInt8"), ("QInt8", "QInt8"), ("QUInt8", "QUInt8")]


class Reader(quantization.CalibrationDataReader):  # type: ignore[misc,name-defined]
    """Batches of digits."""

    def __init__(self, batches: list[Any]) -> None:
        self.left = iter([{"input": batch} for batch in batches])

    def get_next(self) -> Any:
        return next(self.left, None)


@pytest.fixture(scope="module", params=["resnet", "transformer"])
def plain(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Digits, Path]:
    """Digits, and an untrained network as ONNX."""
    import torch

    torch.manual_seed(5)
    x, labels = images()
    digits = Digits(network(request.param).eval(), x[:1000], x[1000:], labels[1000:])
    return digits, digits.export(tmp_path_factory.mktemp("plain") / "plain.onnx")


def compare(digits: Digits, path: Path) -> dict[str, float]:
    """Asserts that ours and ONNX Runtime's outputs differ by what roundings at halves do; the shares by dtype."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    want = session.run(None, {"input": digits.test})[0]
    model = get_backend("cpu").optimize_model(path, {"input": digits.test.shape})
    got = model(digits.test)
    # Where a sum is next to half a step, the step may be the other one, and what is behind it changes with it.
    differences = np.abs(got - want)
    assert np.mean(differences) <= 0.02 * np.std(want) and np.max(differences) <= 0.25 * np.std(want)
    assert np.mean(np.argmax(got, 1) == np.argmax(want, 1)) > 0.99
    shares: dict[str, float] = model.report()["arithmetic_per_dtype"]
    return shares


@pytest.mark.parametrize("form", ["QDQ", "QOperator"])
@pytest.mark.parametrize("types", TYPES)
def test_static(plain: tuple[Digits, Path], tmp_path: Path, form: str, types: tuple[str, str]) -> None:
    digits, source = plain
    path = tmp_path / "static.onnx"
    kind = quantization.QuantType
    if form == "QOperator":
        # It wants to know the type of each tensor.
        quantization.quant_pre_process(source, tmp_path / "typed.onnx", skip_symbolic_shape=True)
        source = tmp_path / "typed.onnx"
    quantization.quantize_static(
        source, path, Reader(digits.batches()), quant_format=getattr(quantization.QuantFormat, form),
        per_channel=types[1] == "QInt8", activation_type=kind[types[0]], weight_type=kind[types[1]],
        reduce_range=not HAS_INT8,
    )  # fmt: skip
    shares = compare(digits, path)
    if HAS_INT8 and types[1] == "QInt8":
        assert shares["int8"] > 0.7, shares


@pytest.mark.parametrize("weights", ["QInt8", "QUInt8"])
def test_dynamic(plain: tuple[Digits, Path], tmp_path: Path, weights: str) -> None:
    digits, source = plain
    path = tmp_path / "dynamic.onnx"
    # ONNX Runtime has no ConvInteger of int8 weights on the processor.
    kinds = ["MatMul"] if weights == "QInt8" else ["MatMul", "Conv"]
    quantization.quantize_dynamic(
        source, path, weight_type=quantization.QuantType[weights], op_types_to_quantize=kinds,
        reduce_range=not HAS_INT8,
    )  # fmt: skip
    ops = {node.op_type for node in onnx.load(path).graph.node}
    assert "DynamicQuantizeLinear" in ops
    compare(digits, path)
