"""Arrays of every kind and layout arrive as their values say."""

import ml_dtypes
import numpy as np
import pytest

import neurenix as nx
from neurenix import arrays
from neurenix.hardware.tensorrt import TensorRTBackend

NAMES = ("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu", "float4_e2m1fn")
NARROW = [np.dtype(getattr(ml_dtypes, name)) for name in (*NAMES, "int4", "uint4", "int2", "uint2")]
DTYPES = [
    np.dtype(t) for t in ("f4", "f8", "f2", ml_dtypes.bfloat16, "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "?")
]


def through(array: object) -> np.ndarray:
    got = nx.Network().add_constant("c", array).numpy()
    assert got is not None
    return got


@pytest.mark.parametrize("dtype", [*DTYPES, *NARROW], ids=str)
def test_every_dtype_and_layout_of_numpy(dtype: np.dtype) -> None:
    base = np.arange(24).reshape(2, 3, 4).astype(dtype)
    unaligned = np.frombuffer(b"\0" + base.tobytes(), np.uint8)[1:].view(dtype).reshape(base.shape)
    views = [base, base.transpose(2, 0, 1), base[:, ::-1], base[1:, ::2, 1::2], base[:0], base[0, 0, 0], unaligned]
    views.append(np.broadcast_to(base[:, :1], base.shape))
    if dtype.kind != "V" and dtype.itemsize > 1:
        views.append(base.astype(dtype.newbyteorder(">")))
    for view in views:
        got = through(view)
        assert got.dtype == dtype
        assert got.shape == view.shape
        assert got.tobytes() == view.astype(dtype).tobytes()


FLOAT8 = [name for name in NAMES if name.startswith("float8")]


@pytest.mark.parametrize("name", ["float32", "float64", "float16", "bfloat16", "int64", "uint8", "bool", *FLOAT8])
def test_torch_tensors_of_every_layout(name: str) -> None:
    torch = pytest.importorskip("torch")
    base = torch.arange(24).reshape(2, 3, 4).to(getattr(torch, name))
    for view in (base, base.permute(2, 0, 1), base[:, 1:, ::2], base[:, :1].expand(2, 3, 4), base[:0], base[0, 0, 0]):
        got = through(view)
        assert got.dtype.name == name
        assert np.array_equal(got.astype(np.float64), view.double().numpy(), equal_nan=True)


def test_a_parameter_needs_no_detach() -> None:
    torch = pytest.importorskip("torch")
    assert np.array_equal(through(torch.nn.Parameter(torch.ones(3))), np.ones(3, np.float32))


def test_a_copied_constant_does_not_follow_its_source() -> None:
    source = np.zeros(4, np.float32)
    tensor = nx.Network().add_constant("c", source)
    source[:] = 1
    assert not np.any(tensor.numpy())


def test_a_shared_constant_outlives_its_name() -> None:
    network = nx.Network()
    tensor = network.add_constant("c", np.frombuffer(np.arange(9, dtype="f4").tobytes(), "f4"), copy=False)
    assert np.array_equal(tensor.numpy(), np.arange(9, dtype="f4"))


def doubler(dtype: str) -> nx.Network:
    network = nx.Network()
    x = network.add_input("x", dtype, ("n",))
    network.mark_output(network.add_layer("Add", [x, x])[0], "y")
    return network


def test_signs_that_torch_left_open_are_done() -> None:
    torch = pytest.importorskip("torch")
    imaginary = torch.tensor([1 + 2j, 3 - 4j]).conj().imag
    assert imaginary.is_neg()
    want = np.array([-4.0, 8.0], np.float32)
    network = doubler("float32")
    assert np.array_equal(network.evaluate({"x": imaginary})["y"], want)
    model = TensorRTBackend(providers=["cpu"]).optimize_model(network)
    assert np.array_equal(model.run({"x": imaginary})["y"].numpy(), want)
    assert np.array_equal(model(imaginary), want)
    assert np.array_equal(model.engine.create_execution_context().execute(imaginary), want)
    assert np.array_equal(through(imaginary), want / 2)
    assert np.array_equal(arrays.to_numpy(imaginary), want / 2)
    assert np.array_equal(arrays.to_numpy(imaginary.to(torch.bfloat16)).astype(np.float32), want / 2)
    assert np.array_equal(arrays.to_numpy(torch.tensor([1 + 2j]).conj()), [1 - 2j])


def test_tensors_without_elements_are_refused_by_name() -> None:
    torch = pytest.importorskip("torch")
    nothing = torch.zeros(3, device="meta")
    model = TensorRTBackend(providers=["cpu"]).optimize_model(doubler("float32"))
    for call in (lambda: model.run({"x": nothing}), lambda: model.engine.create_execution_context().execute(nothing)):
        with pytest.raises(nx.InvalidArgumentError, match="it lies on torch's meta device") as caught:
            call()
        assert caught.value.tensor == "x"
    with pytest.raises(nx.InvalidArgumentError, match="meta device"):
        arrays.to_numpy(nothing)


@pytest.mark.parametrize("value", [[1.5, 2.0], (1.0, 2.0), 1.5, [[0.0]], [np.float32(2)]])
@pytest.mark.parametrize("dtype", ["int64", "int32", "uint8", "bool"])
def test_floats_are_not_cut_to_integers(value: object, dtype: str) -> None:
    network = nx.Network()
    x = network.add_input("ids", dtype, np.shape(value))
    network.mark_output(network.add_layer("Cast", [x], {"to": np.dtype("float32")})[0], "y")
    model = TensorRTBackend(providers=["cpu"]).optimize_model(network)
    with pytest.raises(nx.DTypeError) as caught:
        model.run({"ids": value})
    error = caught.value
    assert (error.tensor, error.expected, error.got) == ("ids", dtype, "floating-point numbers")
    with pytest.raises(nx.DTypeError, match="the array has the wrong dtype") as caught:
        model.run({"ids": np.asarray(value, np.float32)})
    assert (caught.value.tensor, caught.value.expected, caught.value.got) == ("ids", dtype, "float32")


def test_integers_are_numbers_of_any_dtype() -> None:
    model = TensorRTBackend(providers=["cpu"]).optimize_model(doubler("float32"))
    assert np.array_equal(model.run({"x": [1, 2]})["y"], np.array([2, 4], np.float32))
    model = TensorRTBackend(providers=["cpu"]).optimize_model(doubler("int64"))
    assert np.array_equal(model.run({"x": [1, 2]})["y"], np.array([2, 4]))
    assert model.run({"x": []})["y"].shape == (0,)


def test_the_hint_at_a_wrong_dtype_is_a_call_that_the_array_has() -> None:
    torch = pytest.importorskip("torch")
    model = TensorRTBackend(providers=["cpu"]).optimize_model(doubler("int64"))
    for value in (torch.ones(2), np.ones(2, np.float32)):
        with pytest.raises(nx.DTypeError) as caught:
            model.run({"x": value})
        call = str(caught.value.hint).rpartition("with ")[2]
        assert str(eval(call, {"x": value, "torch": torch}).dtype).endswith("int64")
