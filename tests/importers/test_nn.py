"""Modules of neurenix.nn compute what PyTorch's modules of the same name compute on the same weights."""

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import neurenix as nx
import neurenix.nn.functional as F
from neurenix import nn, safetensors

torch = pytest.importorskip("torch")

IMAGE = (2, 4, 8, 8)
#: Name, arguments, shape of the input.
MODULES: list[tuple[str, dict[str, Any], tuple[int, ...]]] = [
    ("Conv1d", {"in_channels": 4, "out_channels": 6, "kernel_size": 3, "padding": 1}, (2, 4, 9)),
    ("Conv2d", {"in_channels": 4, "out_channels": 6, "kernel_size": (3, 1), "stride": 2, "groups": 2}, IMAGE),
    ("Conv2d", {"in_channels": 4, "out_channels": 6, "kernel_size": 3, "padding": "same", "bias": False}, IMAGE),
    ("Conv2d", {"in_channels": 4, "out_channels": 4, "kernel_size": 3, "dilation": 2, "groups": 4}, IMAGE),
    ("Conv3d", {"in_channels": 2, "out_channels": 3, "kernel_size": 3, "padding": 1}, (1, 2, 4, 5, 6)),
    ("ConvTranspose2d", {"in_channels": 4, "out_channels": 6, "kernel_size": 3, "stride": 2, "padding": 1}, IMAGE),
    ("ConvTranspose2d", {"in_channels": 4, "out_channels": 2, "kernel_size": 3, "stride": 2, "output_padding": 1},
     IMAGE),
    ("ConvTranspose2d", {"in_channels": 4, "out_channels": 6, "kernel_size": 3, "groups": 2, "bias": False}, IMAGE),
    ("ConvTranspose3d", {"in_channels": 2, "out_channels": 3, "kernel_size": 2, "stride": 2}, (1, 2, 4, 5, 6)),
    ("Linear", {"in_features": 8, "out_features": 5}, IMAGE),
    ("Linear", {"in_features": 8, "out_features": 5, "bias": False}, (3, 8)),
    ("BatchNorm1d", {"num_features": 4}, (2, 4, 9)),
    ("BatchNorm2d", {"num_features": 4, "eps": 1e-3}, IMAGE),
    ("BatchNorm3d", {"num_features": 2, "affine": False}, (1, 2, 4, 5, 6)),
    ("InstanceNorm2d", {"num_features": 4, "affine": True}, IMAGE),
    ("InstanceNorm2d", {"num_features": 4}, IMAGE),
    ("LayerNorm", {"normalized_shape": (8, 8)}, IMAGE),
    ("LayerNorm", {"normalized_shape": 8, "bias": False}, IMAGE),
    ("RMSNorm", {"normalized_shape": 8, "eps": 1e-6}, IMAGE),
    ("GroupNorm", {"num_groups": 2, "num_channels": 4}, IMAGE),
    ("MaxPool1d", {"kernel_size": 3}, (2, 4, 9)),
    ("MaxPool2d", {"kernel_size": 3, "stride": 2, "padding": 1}, IMAGE),
    ("MaxPool2d", {"kernel_size": 3, "stride": 2, "ceil_mode": True, "dilation": 2}, IMAGE),
    ("MaxPool3d", {"kernel_size": 2}, (1, 2, 4, 5, 6)),
    ("AvgPool2d", {"kernel_size": 3, "stride": 2, "padding": 1}, IMAGE),
    ("AvgPool2d", {"kernel_size": 3, "stride": 2, "padding": 1, "count_include_pad": False}, IMAGE),
    ("AdaptiveAvgPool2d", {"output_size": 1}, IMAGE),
    ("AdaptiveAvgPool2d", {"output_size": (4, None)}, IMAGE),
    ("AdaptiveMaxPool2d", {"output_size": 2}, IMAGE),
    ("Upsample", {"scale_factor": 2}, IMAGE),
    ("Upsample", {"size": (5, 11), "mode": "bilinear"}, IMAGE),
    ("Upsample", {"scale_factor": 2.0, "mode": "bilinear", "align_corners": True}, IMAGE),
    ("Upsample", {"scale_factor": 2.0, "mode": "bicubic"}, IMAGE),
    ("PixelShuffle", {"upscale_factor": 2}, IMAGE),
    ("ZeroPad2d", {"padding": (1, 2, 3, 0)}, IMAGE),
    ("Flatten", {}, IMAGE),
    ("Flatten", {"start_dim": 2}, IMAGE),
    ("Dropout", {}, IMAGE),
    ("PReLU", {"num_parameters": 4}, IMAGE),
    *((name, {}, IMAGE) for name in (
        "ReLU", "ReLU6", "SiLU", "Mish", "SELU", "Hardswish", "Hardsigmoid", "Sigmoid", "Tanh", "Softsign", "Softplus",
        "LeakyReLU", "ELU", "CELU", "GELU", "Hardtanh", "Identity",
    )),
    ("GELU", {"approximate": "tanh"}, IMAGE),
    ("Softmax", {"dim": 1}, IMAGE),
    ("LogSoftmax", {"dim": -1}, IMAGE),
]  # fmt: skip


def torch_module(name: str, arguments: dict[str, Any]) -> Any:
    torch.manual_seed(0)
    module = getattr(torch.nn, name)(**arguments).eval()
    for tensor in (*module.parameters(), *(b for b in module.buffers() if b.is_floating_point())):
        torch.nn.init.uniform_(tensor.data, 0.1, 1.0)
    return module


@pytest.mark.parametrize(("name", "arguments", "shape"), MODULES, ids=lambda v: v if isinstance(v, str) else "")
def test_module(name: str, arguments: dict[str, Any], shape: tuple[int, ...]) -> None:
    theirs, ours = torch_module(name, arguments), getattr(nn, name)(**arguments)
    assert {k for k in theirs.state_dict() if "num_batches" not in k} == set(ours.state_dict())
    ours.load_state_dict(theirs.state_dict())
    x = 3 * torch.randn(shape)
    with torch.no_grad():
        want = theirs(x).numpy()
    network = nn.trace(ours, {"input": shape})
    network_out = network.evaluate({"input": x.numpy()})["output"]
    assert network.outputs["output"].shape == want.shape
    np.testing.assert_allclose(network_out, want, rtol=2e-5, atol=1e-5)


def test_multihead_attention() -> None:
    theirs = torch.nn.MultiheadAttention(8, 2, batch_first=True).eval()
    ours = nn.MultiheadAttention(8, 2, batch_first=True)
    ours.load_state_dict(theirs.state_dict())
    q, k = torch.randn(2, 5, 8), torch.randn(2, 7, 8)
    with torch.no_grad():
        want = theirs(q, k, k, need_weights=False)[0].numpy()

    class First(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = ours

        def forward(self, q: Any, k: Any) -> Any:
            return self.inner(q, k, k)[0]

    for shapes in ({"q": q, "k": k}, {"q": nx.Shape((1, 5, 8), (2, 5, 8), (4, 5, 8)), "k": (2, 7, 8)}):
        if not isinstance(shapes["k"], tuple):
            got = nn.trace(First(), shapes).evaluate({"q": q.numpy(), "k": k.numpy()})["output"]
            np.testing.assert_allclose(got, want, atol=1e-5)


def test_embedding_takes_integers() -> None:
    module = nn.Embedding(10, 4)
    ids = np.array([[1, 2, 9]], np.int64)
    got = nn.trace(module, {"ids": ids}).evaluate({"ids": ids})["output"]
    assert np.array_equal(got, module.weight[ids])
    with pytest.raises(nx.InvalidArgumentError, match="say the dtype by an example"):
        nn.trace(module, {"ids": (1, 3)})


class Everything(nn.Module):
    """Uses the operators and methods of traced tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(np.arange(1, 4, dtype=np.float32).reshape(3, 1, 1))

    def forward(self, x: Any) -> Any:
        a = 1.0 - x * self.scale + self.scale / (abs(x) + 2)
        b = F.cat([a[:, 0:1], a[:, 1, None], a[..., -1:, :, :]], 1).transpose(2, 3)
        c = b.reshape(b.shape[0], 3, -1).permute(0, 2, 1) @ b.flatten(2)
        d = F.where(c > 0, c, 0.5 * c).mean(-1, keepdim=True).expand(-1, -1, 2).squeeze(0) if b.shape[0] == 1 else c
        first, *rest = F.split(a, [1, 2], 1)
        return {"d": d, "e": (-first).exp().sum((2, 3)), "f": rest[0][0, ::-1].unsqueeze(0) ** 2.0}


def test_operators_and_methods() -> None:
    x = np.random.default_rng(0).standard_normal((1, 3, 4, 5)).astype(np.float32)
    scale = np.arange(1, 4, dtype=np.float32).reshape(3, 1, 1)
    a = 1 - x * scale + scale / (np.abs(x) + 2)
    b = a.transpose(0, 1, 3, 2)
    c = b.reshape(1, 3, -1).transpose(0, 2, 1) @ b.reshape(1, 3, -1)
    want = {
        "d": np.broadcast_to(np.where(c > 0, c, c / 2).mean(-1, keepdims=True), (1, 20, 2))[0],
        "e": np.exp(-a[:, :1]).sum((2, 3)),
        "f": a[:, 1:][0, ::-1][None] ** 2,
    }
    network = nn.trace(Everything(), (1, 3, 4, 5))
    got = network.evaluate({"input": x})
    assert list(got) == list(want)
    for name, array in want.items():
        np.testing.assert_allclose(got[name], array, rtol=1e-5)


def test_a_dynamic_batch_stays_dynamic() -> None:
    network = nn.trace(Everything(), nx.Shape((2, 3, 4, 5), (4, 3, 4, 5), (8, 3, 4, 5)))
    assert network.inputs[0].shape == ("batch", 3, 4, 5)
    assert network.outputs["d"].shape == ("batch", 20, 20)


def test_shapes_may_be_text() -> None:
    model = nx.hardware.get_backend("cpu").optimize_model(nn.Linear(4, 2), "input:3x4")
    assert model(np.zeros((3, 4), np.float32)).shape == (3, 2)


def test_layers_and_weights_are_called_as_in_the_module() -> None:
    model = nn.Sequential({"stem": nn.Conv2d(3, 8, 3), "act": nn.ReLU()})
    assert [layer.name for layer in nn.trace(model, (1, 3, 8, 8)).layers] == ["stem", "act"]
    names = [t.name for t in nn.trace(model, (1, 3, 8, 8)).layers[0].inputs if t is not None]
    assert names == ["input", "stem.weight", "stem.bias"]


def six_layers() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 4, 3, padding=1), nn.ReLU(),
        nn.Linear(4 * 4 * 4, 10),
    )  # fmt: skip


def test_a_linear_after_an_image_flattens_and_says_so_once(caplog: pytest.LogCaptureFixture) -> None:
    F._flattened.clear()
    with caplog.at_level(logging.INFO, "neurenix"):
        for _ in range(2):
            network = nn.trace(six_layers(), (2, 3, 8, 8))
    assert network.outputs["output"].shape == (2, 10)
    assert caplog.messages == ["Linear '5': its input [2, 4, 4, 4] is flattened to 64 features"]
    with pytest.raises(nx.ShapeError) as caught:
        nn.trace(six_layers(), (2, 3, 10, 10))
    assert str(caught.value) == (
        "the input of a Linear does not have its features\n"
        "  layer: 5\n"
        "  tensor: 4:out\n"
        "  expected: 64 features in the last dimension, or in the last ones together\n"
        "  got: [2, 4, 5, 5]"
    )


def test_new_weights_repeat() -> None:
    nx.random.seed(0)
    first = six_layers().state_dict()
    nx.random.seed(0)
    second = six_layers().state_dict()
    assert all(np.array_equal(first[name], second[name]) for name in first)
    bound = 1 / np.sqrt(3 * 9)
    assert 0.9 * bound < np.abs(first["0.weight"]).max() <= bound


def test_state_dicts_from_files(tmp_path: Path) -> None:
    theirs = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4)).to(torch.bfloat16)
    torch.save(theirs.state_dict(), tmp_path / "m.pt")
    save_file = pytest.importorskip("safetensors.torch").save_file
    save_file(theirs.state_dict(), tmp_path / "m.safetensors")
    for name in ("m.pt", "m.safetensors"):
        ours = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4))
        ours.load_state_dict(tmp_path / name)
        assert ours.state_dict()["0.weight"].dtype == np.float32
        assert np.array_equal(ours.state_dict()["0.weight"], theirs[0].weight.detach().float().numpy())


def test_weights_that_do_not_fit_change_nothing() -> None:
    model = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 4))
    before = {k: v.copy() for k, v in model.state_dict().items()}
    with pytest.raises(ValueError) as caught:
        model.load_state_dict({"0.weight": np.zeros((3, 2)), "0.bias": np.zeros(3), "2.bias": np.zeros(3)})
    assert str(caught.value) == (
        "the weights do not fit the model\n"
        "  expected: also 1.weight, 1.bias\n"
        "  got: also 2.bias\n"
        "  hint: load_state_dict(..., strict=False) takes what fits"
    )
    with pytest.raises(nx.ShapeError, match="a weight has another shape"):
        model.load_state_dict({"0.weight": np.zeros((3, 2)), "0.bias": np.zeros(4)}, strict=False)
    with pytest.raises(nx.DTypeError):
        model.load_state_dict({"0.weight": np.zeros((3, 2), np.int8)}, strict=False)
    assert all(np.array_equal(before[k], v) for k, v in model.state_dict().items())


HEADER = b'{"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}'


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff" * 8,
        (1 << 40).to_bytes(8, "little") + HEADER,
        len(HEADER).to_bytes(8, "little") + HEADER + b"\0" * 7,
        len(HEADER).to_bytes(8, "little") + HEADER.replace(b"[2]", b"[3]") + b"\0" * 8,
        len(HEADER).to_bytes(8, "little") + HEADER.replace(b"[2]", b"[-2]")[:-1] + b"}" + b"\0" * 8,
        len(HEADER).to_bytes(8, "little") + HEADER.replace(b"F32", b"F99") + b"\0" * 8,
        len(HEADER).to_bytes(8, "little") + b"[" * len(HEADER) + b"\0" * 8,
        len(HEADER).to_bytes(8, "little") + HEADER.replace(b"[0,8]", b"[8,0]") + b"\0" * 8,
    ],
    ids=["empty", "short", "huge_header", "short_body", "wrong_shape", "negative", "dtype", "deep", "reversed"],
)
def test_damaged_safetensors_are_refused(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "m.safetensors").write_bytes(data)
    with pytest.raises((nx.FormatError, nx.FileError)):
        safetensors.load(tmp_path / "m.safetensors")


def test_a_module_does_not_run_by_itself() -> None:
    with pytest.raises(nx.InvalidArgumentError, match="it does not run by itself"):
        nn.ReLU()(np.zeros(3))
