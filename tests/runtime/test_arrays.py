"""Arrays of every kind and layout arrive as their values say."""

import ml_dtypes
import numpy as np
import pytest

import neurenix as nx

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
