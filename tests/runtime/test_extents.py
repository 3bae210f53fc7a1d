"""What a symbol turns out to be: extents that do not go together are refused, whatever was taken for granted."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

import neurenix as nx
from neurenix.hardware.tensorrt import TensorRTBackend
from neurenix.importers import from_onnx

onnx = pytest.importorskip("onnx")
from onnx import helper, numpy_helper, parser  # noqa: E402

RNG = np.random.default_rng(0)


def floats(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


def network_of(signature: str, body: str, weights: dict[str, Any] | None = None, opset: int = 23) -> nx.Network:
    model = parser.parse_model(f'<ir_version: 10, opset_import: ["" : {opset}]> m {signature} {{ {body} }}')
    model.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in (weights or {}).items())
    return from_onnx(model)


def built(network: nx.Network, shapes: Any = None, level: int = 0) -> Any:
    return TensorRTBackend(threads=2, optimization_level=level, timing_cache=False).optimize_model(network, shapes)


W64 = {"w": floats(64)}
#: Each reads an input of which a constant says one extent: what it takes, what it does, its weights, shapes that fit.
BROADCAST: dict[str, tuple[str, str, dict[str, Any], dict[str, tuple[int, ...]]]] = {
    "LayerNormalization": ("float[a,n] x", "y = LayerNormalization(x, w)", W64, {"x": (200, 64)}),
    "LayerNormalization with a bias": (
        "float[a,n] x",
        "y = LayerNormalization(x, w, w)",
        W64,
        {"x": (200, 64)},
    ),
    "RMSNormalization": ("float[a,n] x", "y = RMSNormalization(x, w)", W64, {"x": (200, 64)}),
    "Add and LayerNormalization": (
        "float[a,n] x, float[a,n] z",
        "q = Add(x, z) y = LayerNormalization(q, w) p = Neg(q)",
        W64,
        {"x": (200, 64), "z": (200, 64)},
    ),
    "PRelu": ("float[a,n] x", "y = PRelu(x, w)", W64, {"x": (3, 64)}),
    "Gemm": ("float[a,k] x, float[k,n] z", "y = Gemm(x, z, w)", W64, {"x": (3, 5), "z": (5, 64)}),
    "Attention": (
        "float[1,2,q,8] x, float[1,2,n,8] z",
        "y = Attention(x, z, z, m)",
        {"m": floats(5, 64)},
        {"x": (1, 2, 5, 8), "z": (1, 2, 64, 8)},
    ),
    "QuantizeLinear": (
        "float[a,n] x",
        "y = QuantizeLinear<axis = 1>(x, s)",
        {"s": np.full(64, 0.5, np.float32)},
        {"x": (3, 64)},
    ),
    "BatchNormalization": (
        "float[a,n,h] x",
        "y = BatchNormalization(x, w, w, w, v)",
        {**W64, "v": np.ones(64, np.float32)},
        {"x": (2, 64, 3)},
    ),
    "GroupNormalization": ("float[a,n,h] x", "y = GroupNormalization<num_groups = 4>(x, w, w)", W64, {"x": (2, 64, 3)}),
    "InstanceNormalization": ("float[a,n,h] x", "y = InstanceNormalization(x, w, w)", W64, {"x": (2, 64, 3)}),
}  # fmt: skip


@pytest.mark.parametrize("level", [0, 3])
@pytest.mark.parametrize("name", BROADCAST)
def test_an_extent_of_a_weight_is_that_of_the_input(name: str, level: int) -> None:
    """A row was as long as its scale, and inputs of one column were read, and written, far beyond their end."""
    ports, body, weights, shapes = BROADCAST[name]
    results = ", ".join(f"{'int8' if 'Quantize' in name else 'float'}[] {r}" for r in "yqp" if f"{r} =" in body)
    results = results.replace("int8", "uint8")
    network = network_of(f"({ports}) => ({results})", body, weights)
    model = built(network, level=level)
    given = {port: floats(*shape) for port, shape in shapes.items()}
    want = network.evaluate(given)
    for _ in range(3):
        for port, got in model.run(given).items():
            np.testing.assert_allclose(got, want[port], rtol=1e-3, atol=1e-4)
    for rows in (1, 2_000):
        ones = {port: tuple(1 if extent == 64 else extent for extent in shape) for port, shape in shapes.items()}
        ones = {port: tuple(rows if extent == 200 else extent for extent in shape) for port, shape in ones.items()}
        with pytest.raises(nx.ShapeError, match="do not go together"):
            model.run({port: floats(*shape) for port, shape in ones.items()})
        with pytest.raises(nx.ShapeError):
            network.evaluate({port: floats(*shape) for port, shape in ones.items()})


def test_a_parameter_never_widens_its_input() -> None:
    with pytest.raises(nx.ShapeError, match="can't be broadcast"):
        network_of("(float[a,1] x) => (float[] y)", "y = LayerNormalization(x, w)", W64)


def test_a_parameter_of_one_number_goes_with_any_extent() -> None:
    weights = {"w": floats(1)}
    network = network_of("(float[a,n] x) => (float[] y)", "y = RMSNormalization(x, w)", weights)
    model = built(network)
    for shape in ((3, 7), (2, 1), (0, 5)):
        x = floats(*shape)
        np.testing.assert_allclose(model.run({"x": x})["y"], network.evaluate({"x": x})["y"], rtol=1e-4)


def test_groups_that_channels_do_not_divide_into() -> None:
    network = network_of(
        "(float[a,n,h] x, float[n] w) => (float[] y)", "y = GroupNormalization<num_groups = 4>(x, w, w)"
    )
    model = built(network, {"x": (1, 8, 3), "w": (8,)})
    x, w = floats(1, 8, 3), floats(8)
    want = network.evaluate({"x": x, "w": w})["y"]
    np.testing.assert_allclose(model.run({"x": x, "w": w})["y"], want, rtol=1e-3, atol=1e-4)
    with pytest.raises(nx.ShapeError, match="channels do not divide into the groups"):
        model.run({"x": floats(1, 6, 3), "w": floats(6)})


def growing(steps: int, last: str) -> nx.Network:
    """A size, and a third of it more, so many times over; `last` makes the result of it."""
    weights = {"one": np.array([1]), "three": np.array([3]), "zero": np.array([0])}
    body = "s = Shape(x) g0 = Slice(s, zero, one) "
    body += " ".join(f"d{i} = Div(g{i}, three) g{i + 1} = Add(d{i}, g{i})" for i in range(steps))
    result = "int64" if last == "Identity" else "float"
    return network_of(f"(float[n] x) => ({result}[] y)", f"{body} y = {last}(g{steps})", weights)


def grown(size: int, steps: int) -> int:
    for _ in range(steps):
        size += size // 3
    return size


def test_a_size_that_is_computed_in_many_steps_takes_little_memory() -> None:
    """Written out, the size had 2^40 terms; it is computed at run time then, as one that depends on data is."""
    began = time.monotonic()
    assert built(growing(40, "Identity")).run({"x": floats(7)})["y"].tolist() == [grown(7, 40)]
    model = built(growing(20, "ConstantOfShape"))
    for size in (7, 2, 0):
        assert model.run({"x": floats(size)})["y"].shape == (grown(size, 20),)
    assert time.monotonic() - began < 60


def test_a_size_that_is_computed_in_few_steps_is_known_from_the_shapes() -> None:
    network = growing(3, "ConstantOfShape")
    assert str(network.outputs["y"].shape[0]).count("floordiv(n, 3)") > 1
    assert built(network).run({"x": floats(70)})["y"].shape == (grown(70, 3),)


def test_a_shape_whose_expression_is_too_long_is_refused_by_name() -> None:
    """Each Concat is as long as two of the one before and a half of it."""
    nodes = []
    for i in range(40):
        nodes += [
            helper.make_node("MaxPool", [f"t{i}"], [f"p{i}"], f"pool{i}", kernel_shape=[2], strides=[2]),
            helper.make_node("MaxPool", [f"t{i}"], [f"q{i}"], f"other{i}", kernel_shape=[3], strides=[5]),
            helper.make_node("Concat", [f"p{i}", f"q{i}", f"t{i}"], [f"t{i + 1}"], f"joined{i}", axis=2),
        ]
    ends = [helper.make_tensor_value_info(n, 1, [1, 1, "n"] if n == "t0" else None) for n in ("t0", "t40")]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    with pytest.raises(nx.ShapeError, match="the expression of a dimension is too long") as caught:
        from_onnx(model)
    assert caught.value.layer is not None and caught.value.layer.startswith(("joined", "pool", "other"))
