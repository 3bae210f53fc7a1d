"""JAX functions and Flax modules give what jax.jit computes."""

from __future__ import annotations

import importlib.util
from typing import Any

import numpy as np
import pytest

import neurenix as nx
from tests.optional import Lazy

pytestmark = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("jax", "jax2onnx", "flax")),
    reason="needs JAX, Flax and jax2onnx, the extra `jax`",
)
jax: Any = Lazy("jax")
jnp: Any = Lazy("jax.numpy")
nnx: Any = Lazy("flax.nnx")

RNG = np.random.default_rng(0)
X = RNG.normal(size=(3, 8)).astype("float32")
W = RNG.normal(size=(8, 8)).astype("float32")
IMAGE = RNG.normal(size=(2, 32, 32, 3)).astype("float32")


def check(function: Any, given: dict[str, np.ndarray], wanted: dict[str, Any], **more: Any) -> Any:
    network = nx.importers.from_jax(function, **more)
    assert [port.name for port in network.inputs] == list(given)
    engine = nx.optimize(network, {name: array.shape for name, array in given.items()})
    found = engine(given)
    assert list(found) == list(wanted)
    for name, value in wanted.items():
        array = np.asarray(value)
        assert array.std() > 0.1 and found[name].shape == array.shape
        assert np.abs(found[name] - array).max() <= 1e-5 * np.abs(array).max()
    return engine


def resnet() -> Any:
    class Block(nnx.Module):  # type: ignore[misc]
        def __init__(self, inputs: int, outputs: int, stride: int, rngs: Any) -> None:
            self.first = nnx.Conv(inputs, outputs, (3, 3), strides=stride, rngs=rngs)
            self.norm = nnx.BatchNorm(outputs, use_running_average=True, rngs=rngs)
            self.second = nnx.Conv(outputs, outputs, (3, 3), rngs=rngs)
            self.skip = nnx.Conv(inputs, outputs, (1, 1), strides=stride, rngs=rngs)

        def __call__(self, x: Any) -> Any:
            return nnx.relu(self.second(nnx.relu(self.norm(self.first(x)))) + self.skip(x))

    class ResNet(nnx.Module):  # type: ignore[misc]
        def __init__(self, rngs: Any) -> None:
            self.stem = nnx.Conv(3, 16, (7, 7), strides=2, rngs=rngs)
            self.blocks = nnx.List([Block(16, 16, 1, rngs), Block(16, 32, 2, rngs)])
            self.head = nnx.Linear(32, 10, rngs=rngs)

        def __call__(self, x: Any) -> Any:
            x = nnx.max_pool(nnx.relu(self.stem(x)), window_shape=(3, 3), strides=(2, 2), padding="SAME")
            for block in self.blocks:
                x = block(x)
            return self.head(x.mean((1, 2)))

    return ResNet(nnx.Rngs(0))


def test_functions() -> None:
    def gated(x: Any) -> Any:
        return jax.nn.gelu(x @ W, approximate=False) + jnp.exp(-(x**2)).sum(-1, keepdims=True)

    check(gated, {"x": X}, {"output": jax.jit(gated)(X)}, inputs=[X])
    several = jax.jit(lambda x, y: {"a": jnp.tanh(x) * y, "b": jnp.where(x > 0, x, y)})
    check(several, {"x": X, "y": X + 1}, several(X, X + 1), inputs={"x": X, "y": X})
    soft = jax.jit(lambda x: jax.nn.softmax(x @ W))
    engine = check(soft, {"x": X}, {"output": soft(X)}, inputs={"x": ("rows", 8)})
    assert engine.inputs[0].shape == ("rows", 8)
    assert np.allclose(nx.optimize(soft, {"x": (3, 8)})(X), soft(X), atol=1e-6)


def test_flax_resnet_with_an_open_batch() -> None:
    module = resnet()
    engine = check(module, {"x": IMAGE}, {"output": module(IMAGE)}, inputs={"x": ("batch", 32, 32, 3)})
    rows = [line.split()[2] for line in str(engine.report()).splitlines() if " us " in line]
    convolutions = [i for i, kind in enumerate(rows) if kind.startswith("Conv")]
    assert "Transpose" not in rows[convolutions[0] : convolutions[-1]]
    ranged = nx.optimize(module, {"x": ((1, 32, 32, 3), (2, 32, 32, 3), (4, 32, 32, 3))})
    assert np.allclose(ranged(IMAGE[:1]), module(IMAGE[:1]), atol=1e-5)


def test_flax_transformer() -> None:
    class Block(nnx.Module):  # type: ignore[misc]
        def __init__(self, rngs: Any) -> None:
            self.attend = nnx.MultiHeadAttention(4, 32, decode=False, rngs=rngs)
            self.first, self.second = nnx.LayerNorm(32, rngs=rngs), nnx.LayerNorm(32, rngs=rngs)
            self.wide, self.narrow = nnx.Linear(32, 64, rngs=rngs), nnx.Linear(64, 32, rngs=rngs)

        def __call__(self, x: Any) -> Any:
            x = self.first(x + self.attend(x))
            return self.second(x + self.narrow(nnx.gelu(self.wide(x))))

    module, x = Block(nnx.Rngs(0)), RNG.normal(size=(2, 16, 32)).astype("float32")
    engine = check(module, {"x": x}, {"output": module(x)}, input_shapes={"x": ("batch", 16, 32)})
    assert "Attention" in str(engine.report()) and "LayerNormalization" in str(engine.report())


def test_linen() -> None:
    linen: Any = pytest.importorskip("flax.linen")
    module = linen.Sequential([linen.Dense(16), linen.relu, linen.Dense(4)])
    variables = module.init(jax.random.key(0), X)
    network = nx.importers.from_jax(module, [X], variables=variables)
    name = network.inputs[0].name
    assert np.allclose(nx.optimize(network)({name: X})["output"], module.apply(variables, X), atol=1e-5)
    with pytest.raises(nx.InvalidArgumentError, match="does not have its weights"):
        nx.importers.from_jax(module, [X])


def test_refusals() -> None:
    with pytest.raises(nx.UnsupportedError, match="svd") as caught:
        nx.importers.from_jax(lambda x: jnp.linalg.svd(x)[0], [X])
    assert caught.value.hint
    with pytest.raises(nx.InvalidArgumentError, match="fails on such inputs"):
        nx.importers.from_jax(lambda x: x @ W, [X.T])
    with pytest.raises(nx.InvalidArgumentError, match="shapes of the arguments"):
        nx.importers.from_jax(lambda x: x)
    with pytest.raises(nx.InvalidArgumentError, match="no argument 'z'"):
        nx.importers.from_jax(lambda x: x, {"z": X})
    with pytest.raises(nx.InvalidArgumentError, match="no function"):
        nx.importers.from_jax(3, [X])


def same(function: Any, x: np.ndarray = X, **more: Any) -> None:
    """What an engine gives for a function is what JAX gives, NaN where JAX gives it."""
    found = nx.optimize(nx.importers.from_jax(function, **(more or {"inputs": [x]})), {"x": x.shape})(x)
    wanted = np.asarray(jax.jit(function)(x))
    assert found.shape == wanted.shape and np.allclose(found, wanted, 1e-5, 1e-5, equal_nan=True)


def places(x: Any) -> Any:
    """Integers from -18 to 18, more or less."""
    return (x * 9).astype("int32")


def test_slices_lie_inside() -> None:
    same(lambda x: jax.lax.dynamic_slice(x, (0, 7), (1, 2)))
    same(lambda x: jax.lax.dynamic_slice(x, (jnp.argmax(x[0]) + 1, places(x[0, 0])), (2, 5)))
    same(lambda x: jax.lax.dynamic_index_in_dim(x, 9, 1))
    for x in (X, X[:2]):
        same(lambda x: jax.lax.dynamic_slice(x, (0, 6), (x.shape[0], 4)), x, inputs={"x": ("rows", 8)})
        same(lambda x: jax.lax.dynamic_slice(x, (jnp.argmax(x[:, 0]) + 1, 3), (1, 4)), x, inputs={"x": ("rows", 8)})


def test_negative_classes_are_none() -> None:
    same(lambda x: jax.nn.one_hot(jnp.array([-1, 0, 3, 9]), 4) + x[0, 0])
    same(lambda x: jax.nn.one_hot(places(x), 5))
    same(lambda x: jax.nn.one_hot(places(x).astype("int8"), 5, axis=0, dtype="int32"))
    same(jax.vmap(lambda x: jax.nn.one_hot(places(x), 5)))
    same(lambda x: jax.lax.scan(lambda _, row: (0.0, jax.nn.one_hot(places(row), 3)), 0.0, x)[1])


def test_look_ups_lie_inside() -> None:
    same(lambda x: x[:, jnp.array([9, -9, 2])])
    same(lambda x: x[jnp.array([5, 0]), jnp.array([1, 17])])
    same(lambda x: x[:, places(x[0])])
    same(lambda x: x[places(x[0]), places(x[1])])
    same(lambda x: jax.vmap(lambda row, i: row[i])(x, places(x[:, 0])), inputs={"x": ("rows", 8)})
    same(lambda x: jnp.take(x, jnp.array([1, 19]), axis=1, mode="clip"))
    same(lambda x: x[jnp.array([0, 4])], X[:2], inputs={"x": ("rows", 8)})


def test_look_ups_that_fill_in() -> None:
    same(lambda x: x.at[:, jnp.array([1, 17])].get(mode="fill", fill_value=3.0))
    same(lambda x: x.at[places(x[0]), places(x[1])].get(mode="fill", fill_value=3.0))
    same(lambda x: x.at[:, places(x[:, :3])].get(mode="fill"))
    same(lambda x: places(x).at[places(x[0])].get(mode="fill"))
    same(lambda x: jnp.take_along_axis(x, places(x), axis=1))
    same(lambda x: jnp.take(x, jnp.array([1, 19]), axis=1, mode="fill"))
    with pytest.raises(nx.UnsupportedError, match=r"jnp\.take is out of bounds") as caught:
        nx.importers.from_jax(lambda x: jnp.take(x, jnp.array([1, 19]), axis=1), [X])
    assert (caught.value.expected, caught.value.got) == ("-8 to 7", "19") and "mode='clip'" in str(caught.value.hint)


def test_scatters_leave_out_what_lies_outside() -> None:
    same(lambda x: x.at[:, jnp.array([17])].set(0.0))
    same(lambda x: x.at[:, jnp.array([17, 1])].set(jnp.arange(6.0).reshape(3, 2)))
    same(lambda x: x.at[:, places(x[0])].add(2.0))
    same(lambda x: x.at[places(x[:, 0])].mul(2.0))
    same(lambda x: x.at[jnp.array([0, 5]), jnp.array([1, 2])].max(2.0))
    same(lambda x: jax.ops.segment_sum(x, jnp.array([0, -1, 2]), 4))


def test_cumulative_sums_name_their_axis_by_position() -> None:
    same(lambda x: jnp.cumsum(x, 0))
    # What jax2onnx leaves in its place would refuse it.
    assert np.allclose(jnp.cumsum(X, 1), X.cumsum(1), atol=1e-5)
    with pytest.raises(nx.InvalidArgumentError, match="fails on such inputs"):
        nx.importers.from_jax(lambda x: jnp.cumsum(x, 2), [X])


def test_open_dimensions_that_must_be_known() -> None:
    def twice(x: Any) -> Any:
        return jax.image.resize(x, (x.shape[0] * 2, 8), "nearest")

    with pytest.raises(nx.UnsupportedError, match="Symbolic dimension") as caught:
        nx.importers.from_jax(twice, {"x": ("rows", 8)})
    assert "give numbers for the open dimensions (rows)" in str(caught.value.hint)
    same(twice)
