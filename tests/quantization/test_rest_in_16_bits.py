"""precision="int8+bf16" and its like: products of 8 bits, and floats of 16 bits around them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import neurenix as nx
from neurenix import _native
from neurenix.hardware import OptimizedModel, get_backend
from neurenix.hardware.options import COMBINED, Options, eight_bits_of, rest_of
from neurenix.hardware.tensorrt import BuilderFlag
from neurenix.hardware.tensorrt.config import IBuilderConfig
from tests.machine import needs_int8

QUICK: dict[str, Any] = {"optimization_level": 0, "timing_cache": False, "threads": 2}
DTYPES = {"bf16": "bfloat16", "fp16": "float16"}


@pytest.mark.parametrize(
    ("given", "want"),
    [
        ("int8+fp16", "int8+fp16"),
        (" FP16 + int8", "int8+fp16"),
        ({"int8", "bf16"}, "int8+bf16"),
        (["bf16", "fp8"], "fp8+bf16"),
        (("fp32", "fp16", "fp8"), "fp8+fp16"),
        ("int8+fp32", "int8"),
        ({"fp32"}, "fp32"),
        (["mixed"], "mixed"),
    ],
)
def test_words_of_8_and_16_bits_stand_together(given: Any, want: str) -> None:
    options = Options.of(precision=given)
    assert options.precision == want
    if want in COMBINED:
        assert options.compute() == DTYPES[rest_of(want)] and eight_bits_of(want) == want[: want.index("+")]
    else:
        assert options.compute() == "float32"


@pytest.mark.parametrize(
    "given",
    [
        "int8+int8",
        "int8+fp16+int8",
        "fp32+fp32",
        "int8+tf32",
        "int8+fp8",
        "mixed+fp16",
        "fp16+bf16",
        {"int8", "fp16", "bf16"},
        [],
        "int8+fp16+fp8",
    ],
)
def test_other_words_do_not(given: Any) -> None:
    with pytest.raises(nx.InvalidArgumentError, match=r"(?s)can't be combined.*int8 or fp8 with fp16 or bf16"):
        Options.of(precision=given)


def test_a_wrong_word_among_others_is_named() -> None:
    with pytest.raises(nx.InvalidArgumentError, match=r"(?s)'fp61'.*fp16"):
        Options.of(precision="int8+fp61")
    with pytest.raises(nx.InvalidArgumentError, match=r"int8\+fp16"):
        Options.of(precision="int8fp16")


def test_flags_of_tensorrt_stand_together() -> None:
    flag = BuilderFlag
    for flags, want in [
        ((flag.INT8,), "int8"),
        ((flag.INT8, flag.BF16), "int8+bf16"),
        ((flag.INT8, flag.FP16, flag.BF16), "int8+fp16"),
        ((flag.INT8, flag.TF32), "int8"),
        ((flag.FP8,), "fp8"),
        ((flag.FP8, flag.FP16), "fp8+fp16"),
        ((flag.FP8, flag.INT8), "int8"),
    ]:
        config = IBuilderConfig()
        for one in flags:
            config.set_flag(one)
        assert config._final()["precision"] == want


def test_enabled_precisions_of_torch_tensorrt_stand_together() -> None:
    torch = pytest.importorskip("torch")
    from neurenix.torch.settings import precision_of

    for dtypes, want in [
        ({torch.half, torch.int8}, "int8+fp16"),
        ({torch.int8, torch.bfloat16, torch.float32}, "int8+bf16"),
        ({torch.half, torch.bfloat16, torch.int8}, "int8+fp16"),
        ({torch.int8, torch.float32}, "int8"),
        ({torch.float8_e4m3fn, torch.half}, "fp8+fp16"),
        ({torch.int8}, "int8"),
    ]:
        assert precision_of(dtypes) == want


def residual() -> tuple[nx.Network, tuple[int, ...]]:
    """Residual blocks behind a stem, a pool of averages and a product."""
    rng, shape = np.random.default_rng(3), (2, 3, 16, 16)
    made = nx.Network("residual")
    x = made.add_input("x", np.float32, shape)

    def conv(x: Any, name: str, inputs: int, outputs: int, size: int = 3) -> Any:
        weights = rng.normal(size=(outputs, inputs, size, size)) / np.sqrt(size * size * inputs)
        tensors = [x, made.add_constant(f"{name}.w", weights.astype(np.float32))]
        tensors.append(made.add_constant(f"{name}.b", rng.normal(size=outputs).astype(np.float32) / 4))
        return made.add_layer("Conv", tensors, {"pads": [size // 2] * 4}, name=name)[0]

    def op(name: str, tensors: list[Any], **attrs: Any) -> Any:
        return made.add_layer(name, tensors, attrs)[0]

    x = op("MaxPool", [op("Relu", [conv(x, "stem", 3, 16)])], kernel_shape=[2, 2], strides=[2, 2])
    for at, (inputs, outputs) in enumerate([(16, 16), (16, 32)]):
        short = x if inputs == outputs else conv(x, f"short{at}", inputs, outputs, 1)
        y = op("Relu", [conv(x, f"first{at}", inputs, outputs)])
        x = op("Relu", [op("Add", [conv(y, f"second{at}", outputs, outputs), short])])
    x = op("GlobalAveragePool", [x])
    x = op("Softmax", [conv(x, "head", 32, 10, 1)], axis=1)
    made.mark_output(x, "y")
    return made, shape


def encoder() -> tuple[nx.Network, tuple[int, ...]]:
    """Two layers of an encoder: attention and a perceptron, each with a residual and a norm behind."""
    rng, tokens, width, heads = np.random.default_rng(4), 12, 32, 4
    shape = (2, tokens, width)
    made = nx.Network("encoder")
    x = made.add_input("x", np.float32, shape)

    def constant(name: str, array: Any, dtype: Any = np.float32) -> Any:
        return made.add_constant(name, np.asarray(array, dtype))

    def op(name: str, tensors: list[Any], **attrs: Any) -> Any:
        return made.add_layer(name, tensors, attrs)[0]

    def linear(x: Any, name: str, inputs: int, outputs: int) -> Any:
        w = constant(f"{name}.w", rng.normal(size=(inputs, outputs)) / np.sqrt(inputs))
        return op("Add", [op("MatMul", [x, w]), constant(f"{name}.b", rng.normal(size=outputs) / 4)])

    def norm(x: Any, name: str) -> Any:
        scale, bias = constant(f"{name}.s", np.ones(width)), constant(f"{name}.n", np.zeros(width))
        return op("LayerNormalization", [x, scale, bias], axis=-1)

    def split(x: Any, name: str, perm: list[int]) -> Any:
        dims = constant(name, [2, tokens, heads, width // heads], np.int64)
        return op("Transpose", [op("Reshape", [x, dims])], perm=perm)

    for at in range(2):
        q, k, v = (linear(x, f"{name}{at}", width, width) for name in "qkv")
        q, v = split(q, f"qs{at}", [0, 2, 1, 3]), split(v, f"vs{at}", [0, 2, 1, 3])
        k = split(k, f"ks{at}", [0, 2, 3, 1])
        scores = op("Mul", [op("MatMul", [q, k]), constant(f"f{at}", (width / heads) ** -0.5)])
        y = op("Transpose", [op("MatMul", [op("Softmax", [scores], axis=-1), v])], perm=[0, 2, 1, 3])
        y = op("Reshape", [y, constant(f"d{at}", shape, np.int64)])
        x = norm(op("Add", [linear(y, f"out{at}", width, width), x]), f"first{at}")
        y = op("Gelu", [linear(x, f"up{at}", width, 4 * width)])
        x = norm(op("Add", [linear(y, f"down{at}", 4 * width, width), x]), f"second{at}")
    made.mark_output(x, "y")
    return made, shape


NETWORKS = {"residual": residual, "encoder": encoder}


def batches(shape: tuple[int, ...], count: int = 4) -> list[Any]:
    rng = np.random.default_rng(5)
    return [rng.normal(size=shape).astype(np.float32) for _ in range(count)]


def build(name: str, precision: str | None = None, **options: Any) -> OptimizedModel:
    network, shape = NETWORKS[name]()
    given = {} if precision is None else {"calibration": batches(shape)}
    return get_backend("cpu").optimize_model(network, None, precision, **QUICK, **given, **options)


def decibels(got: Any, want: Any) -> float:
    return float(10 * np.log10(np.mean(np.asarray(want) ** 2) / np.mean((np.asarray(got) - want) ** 2)))


def products(model: OptimizedModel) -> list[str]:
    """The kernels that multiply integers of 8 bits."""
    return [kernel["kernel"] for kernel in model.report()["kernels"] if kernel["kernel"].startswith("int8 ")]


@needs_int8
@pytest.mark.parametrize("rest", ["bf16", "fp16"])
@pytest.mark.parametrize("name", list(NETWORKS))
def test_as_many_products_have_8_bits_and_results_are_as_near(name: str, rest: str) -> None:
    floats, eight, both = build(name), build(name, "int8"), build(name, f"int8+{rest}")
    assert len(products(both)) == len(products(eight)) > 5
    # Of one batch of two it is a matter of luck.
    several = batches(NETWORKS[name]()[1], 8)

    def near(model: OptimizedModel) -> float:
        return decibels(*(np.stack([np.asarray(each(x)) for x in several]) for each in (model, floats)))

    assert near(both) > near(eight) - 1.0 > 15
    report = both.report()
    assert report["precision"] == f"int8+{rest}"
    notes = " ".join(report["notes"])
    assert "stay float32" not in notes and "went back to float32" not in notes
    assert f"int8+{rest}: the signal-to-noise ratio" in notes
    # What kernels of 8 bits compute is not told as float32, though its layers are written so.
    told = sum(row["arithmetic"] for row in report["full_precision"])
    assert told <= report["arithmetic_per_dtype"].get("float32", 0.0) + 1e-9
    if _native.computes("cpu", DTYPES[rest]):
        assert report["layers_per_dtype"][DTYPES[rest]] > 0.05
    else:
        # As int8 alone, which is said.
        assert "float32 is computed instead" in notes and products(both) == products(eight)
        np.testing.assert_array_equal(both(several[0]), eight(several[0]))


@needs_int8
def test_what_kernels_do_with_sums_stays_whole() -> None:
    """The residual network is the same kernels as with int8 alone; those in front of 16 bits store them themselves."""
    both, eight = products(build("residual", "int8+bf16")), products(build("residual", "int8"))
    assert [kernel.removesuffix("+Cast") for kernel in both[:-1]] == eight[:-1]
    if _native.computes("cpu", "bfloat16"):
        assert any(kernel.endswith("+Cast") for kernel in both)


@needs_int8
def test_a_saved_engine_keeps_both_words(tmp_path: Path) -> None:
    model = build("residual", "int8+bf16")
    model.save(tmp_path / "both.engine")
    opened = get_backend("cpu").load(tmp_path / "both.engine")
    x = batches(NETWORKS["residual"]()[1], 1)[0]
    np.testing.assert_array_equal(opened(x), model(x))
    assert opened.report()["precision"] == "int8+bf16"


def test_weights_alone_go_with_16_bits() -> None:
    network, shape = encoder()
    model = get_backend("cpu").optimize_model(network, None, "int8+bf16", **QUICK)
    x = batches(shape, 1)[0]
    assert decibels(model(x), build("encoder")(x)) > 25
    assert model.report()["precision"] == "int8+bf16" and not products(model)


@needs_int8
def test_mixed_tries_16_bits_around_8() -> None:
    model = build("residual", "mixed", accuracy_budget=15)
    notes = [note for note in model.report()["notes"] if note.startswith("mixed: ")]
    for dtype in DTYPES.values():
        tried = any(note.startswith(f"mixed: int8 + {dtype}") for note in notes)
        assert tried == _native.computes("cpu", dtype)
