"""Modules of neurenix.nn compute what PyTorch's modules of the same name compute on the same weights."""

import inspect
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import neurenix as nx
import neurenix.nn.functional as F
from neurenix import nn, safetensors
from neurenix.nn import absent
from neurenix.nn.functional import products
from tests.nn.compared import both
from tests.optional import torch

IMAGE = (2, 4, 8, 8)
VOLUME = (1, 2, 4, 5, 6)
LINE = (2, 4, 9)


def conv(**arguments: Any) -> dict[str, Any]:
    return {"in_channels": 4, "out_channels": 6, "kernel_size": 3} | arguments


#: Name, arguments, shape of the input.
MODULES: list[tuple[str, dict[str, Any], tuple[int, ...]]] = [
    ("Conv1d", conv(padding=1), LINE),
    ("Conv1d", conv(padding=2, padding_mode="circular", dilation=2), LINE),
    ("Conv2d", conv(kernel_size=(3, 1), stride=2, groups=2), IMAGE),
    ("Conv2d", conv(), IMAGE[1:]),
    ("Conv2d", conv(padding="same", bias=False), IMAGE),
    ("Conv2d", conv(padding="same", kernel_size=(4, 2), dilation=(1, 3)), IMAGE),
    ("Conv2d", conv(padding="valid"), IMAGE),
    ("Conv2d", conv(padding="same", kernel_size=(4, 3), padding_mode="reflect"), IMAGE),
    ("Conv2d", conv(padding=(1, 2), padding_mode="replicate", stride=2), IMAGE),
    ("Conv2d", conv(out_channels=4, dilation=2, groups=4), IMAGE),
    ("Conv3d", conv(in_channels=2, out_channels=3, padding=1), VOLUME),
    ("Conv3d", conv(in_channels=2, padding=1, padding_mode="circular"), VOLUME),
    ("ConvTranspose1d", conv(stride=3, output_padding=2, dilation=2), LINE),
    ("ConvTranspose2d", conv(stride=2, padding=1), IMAGE),
    ("ConvTranspose2d", conv(stride=2, output_padding=1), IMAGE),
    ("ConvTranspose2d", conv(groups=2, bias=False), IMAGE[1:]),
    ("ConvTranspose3d", conv(in_channels=2, out_channels=3, kernel_size=2, stride=2), VOLUME),
    ("Linear", {"in_features": 8, "out_features": 5}, IMAGE),
    ("Linear", {"in_features": 8, "out_features": 5, "bias": False}, (3, 8)),
    ("Linear", {"in_features": 8, "out_features": 5}, (8,)),
    ("BatchNorm1d", {"num_features": 4}, LINE),
    ("BatchNorm1d", {"num_features": 4}, (5, 4)),
    ("BatchNorm2d", {"num_features": 4, "eps": 1e-3}, IMAGE),
    ("BatchNorm2d", {"num_features": 4, "track_running_stats": False}, IMAGE),
    ("BatchNorm3d", {"num_features": 2, "affine": False}, VOLUME),
    ("SyncBatchNorm", {"num_features": 4}, IMAGE),
    ("InstanceNorm1d", {"num_features": 4}, LINE),
    ("InstanceNorm2d", {"num_features": 4, "affine": True}, IMAGE),
    ("InstanceNorm2d", {"num_features": 4, "track_running_stats": True}, IMAGE),
    ("InstanceNorm2d", {"num_features": 4}, IMAGE[1:]),
    ("InstanceNorm3d", {"num_features": 2, "affine": True}, VOLUME),
    ("LayerNorm", {"normalized_shape": (8, 8)}, IMAGE),
    ("LayerNorm", {"normalized_shape": 8, "bias": False}, IMAGE),
    ("LayerNorm", {"normalized_shape": 8, "elementwise_affine": False}, IMAGE),
    ("RMSNorm", {"normalized_shape": 8, "eps": 1e-6}, IMAGE),
    ("RMSNorm", {"normalized_shape": (8, 8), "elementwise_affine": False, "eps": 1e-3}, IMAGE),
    ("GroupNorm", {"num_groups": 2, "num_channels": 4}, IMAGE),
    ("GroupNorm", {"num_groups": 1, "num_channels": 4, "affine": False}, LINE),
    ("LocalResponseNorm", {"size": 3, "alpha": 0.1}, IMAGE),
    ("MaxPool1d", {"kernel_size": 3}, LINE),
    ("MaxPool2d", {"kernel_size": 3, "stride": 2, "padding": 1}, IMAGE),
    ("MaxPool2d", {"kernel_size": 3, "stride": 2, "ceil_mode": True, "dilation": 2}, IMAGE),
    ("MaxPool2d", {"kernel_size": 2}, IMAGE[1:]),
    ("MaxPool2d", {"kernel_size": 3, "stride": 2, "padding": 1, "return_indices": True}, IMAGE),
    ("MaxPool3d", {"kernel_size": 2, "return_indices": True}, VOLUME),
    ("AvgPool1d", {"kernel_size": 3, "ceil_mode": True}, (2, 4, 10)),
    ("AvgPool2d", {"kernel_size": 3, "stride": 2, "padding": 1}, IMAGE),
    ("AvgPool2d", {"kernel_size": 3, "stride": 2, "padding": 1, "count_include_pad": False}, IMAGE),
    ("AvgPool2d", {"kernel_size": 3, "stride": 2, "padding": 1, "divisor_override": 2}, IMAGE),
    ("AvgPool3d", {"kernel_size": 2, "ceil_mode": True}, VOLUME),
    ("LPPool1d", {"norm_type": 2, "kernel_size": 3}, LINE),
    ("LPPool2d", {"norm_type": 4, "kernel_size": (2, 3), "stride": 2, "ceil_mode": True}, IMAGE),
    ("LPPool3d", {"norm_type": 2, "kernel_size": 2}, VOLUME),
    ("AdaptiveAvgPool1d", {"output_size": 4}, LINE),
    ("AdaptiveAvgPool2d", {"output_size": 1}, IMAGE),
    ("AdaptiveAvgPool2d", {"output_size": (4, None)}, IMAGE),
    ("AdaptiveAvgPool2d", {"output_size": (3, 4)}, IMAGE),
    ("AdaptiveAvgPool2d", {"output_size": (9, 5)}, IMAGE),
    ("AdaptiveAvgPool3d", {"output_size": (3, 2, 6)}, VOLUME),
    ("AdaptiveMaxPool1d", {"output_size": 4}, LINE),
    ("AdaptiveMaxPool2d", {"output_size": 2}, IMAGE),
    ("AdaptiveMaxPool2d", {"output_size": (3, 5)}, IMAGE[1:]),
    ("AdaptiveMaxPool3d", {"output_size": (3, 2, 6)}, VOLUME),
    ("Upsample", {"scale_factor": 2}, IMAGE),
    ("Upsample", {"size": 13}, LINE),
    ("Upsample", {"size": (5, 11), "mode": "nearest-exact"}, IMAGE),
    ("Upsample", {"size": 13, "mode": "linear"}, LINE),
    ("Upsample", {"size": (5, 11), "mode": "bilinear"}, IMAGE),
    ("Upsample", {"scale_factor": (1.5, 2.3), "mode": "bilinear", "recompute_scale_factor": True}, IMAGE),
    ("Upsample", {"scale_factor": 2.0, "mode": "bilinear", "align_corners": True}, IMAGE),
    ("Upsample", {"scale_factor": 2.0, "mode": "bicubic"}, IMAGE),
    ("Upsample", {"size": (3, 5), "mode": "area"}, IMAGE),
    ("Upsample", {"size": 1, "mode": "linear"}, LINE),
    ("Upsample", {"size": (1, 6), "mode": "bilinear"}, IMAGE),
    ("Upsample", {"scale_factor": 0.3, "mode": "bicubic"}, (1, 2, 5, 6)),
    ("Upsample", {"size": 1, "mode": "trilinear"}, VOLUME),
    ("Upsample", {"size": 1, "mode": "bilinear", "align_corners": True}, IMAGE),
    ("Upsample", {"size": (5, 4, 9), "mode": "trilinear"}, VOLUME),
    ("UpsamplingNearest2d", {"scale_factor": 2}, IMAGE),
    ("UpsamplingBilinear2d", {"size": (5, 11)}, IMAGE),
    ("PixelShuffle", {"upscale_factor": 2}, IMAGE),
    ("PixelUnshuffle", {"downscale_factor": 2}, IMAGE),
    ("ChannelShuffle", {"groups": 2}, IMAGE),
    ("Unfold", {"kernel_size": (3, 2), "dilation": 2, "padding": 1, "stride": (1, 2)}, IMAGE),
    ("Fold", {"output_size": (6, 5), "kernel_size": 2, "stride": 2, "padding": 1}, (2, 12, 12)),
    ("ZeroPad1d", {"padding": 2}, LINE),
    ("ZeroPad2d", {"padding": (1, 2, 3, 0)}, IMAGE),
    ("ZeroPad2d", {"padding": (-1, 2, -2, 0)}, IMAGE[1:]),
    ("ZeroPad3d", {"padding": 1}, VOLUME),
    ("ConstantPad1d", {"padding": (1, 2), "value": 3.5}, LINE),
    ("ConstantPad2d", {"padding": 1, "value": -1.0}, IMAGE),
    ("ConstantPad3d", {"padding": (1, 2, 3, 4, 0, 1), "value": 2.0}, VOLUME),
    ("ReflectionPad1d", {"padding": (1, 3)}, LINE),
    ("ReflectionPad1d", {"padding": (8, -2)}, LINE),
    ("ReflectionPad2d", {"padding": (1, 2, 3, 0)}, IMAGE),
    ("ReflectionPad3d", {"padding": 1}, VOLUME),
    ("ReplicationPad1d", {"padding": 3}, LINE),
    ("ReplicationPad2d", {"padding": (1, 2, 3, 0)}, IMAGE),
    ("ReplicationPad3d", {"padding": 2}, VOLUME),
    ("CircularPad1d", {"padding": (2, 1)}, LINE),
    ("CircularPad1d", {"padding": 9}, LINE),
    ("CircularPad2d", {"padding": (1, 2, 3, 0)}, IMAGE),
    ("CircularPad3d", {"padding": 1}, VOLUME),
    ("Flatten", {}, IMAGE),
    ("Flatten", {"start_dim": 2}, IMAGE),
    ("Flatten", {"start_dim": 0, "end_dim": 1}, IMAGE),
    ("Unflatten", {"dim": 1, "unflattened_size": (2, 2)}, IMAGE),
    ("Dropout1d", {"p": 0.3}, LINE),
    *((name, {}, IMAGE) for name in (
        "Dropout", "Dropout2d", "Dropout3d", "AlphaDropout", "FeatureAlphaDropout", "Identity",
        "ReLU", "ReLU6", "SiLU", "Mish", "SELU", "Hardswish", "Hardsigmoid", "Sigmoid", "Tanh", "Softsign", "Softplus",
        "LeakyReLU", "ELU", "CELU", "GELU", "GLU", "Hardtanh", "Hardshrink", "Softshrink", "Tanhshrink", "LogSigmoid",
        "RReLU", "PReLU", "Softmax2d", "Softmax", "LogSoftmax", "Softmin",
    )),
    ("PReLU", {"num_parameters": 4, "init": 0.1}, IMAGE),
    ("LeakyReLU", {"negative_slope": 0.3}, LINE),
    ("ELU", {"alpha": 0.3}, LINE),
    ("CELU", {"alpha": 0.3}, LINE),
    ("GELU", {"approximate": "tanh"}, IMAGE),
    ("GLU", {"dim": 1}, IMAGE),
    ("Hardtanh", {"min_val": -0.2, "max_val": 0.5}, LINE),
    ("Hardshrink", {"lambd": 0.2}, LINE),
    ("Softshrink", {"lambd": 0.2}, LINE),
    ("Softplus", {"beta": 2.0, "threshold": 1.0}, LINE),
    ("Softplus", {"beta": 0.5}, LINE),
    ("Threshold", {"threshold": 0.1, "value": 20.0}, LINE),
    ("RReLU", {"lower": 0.1, "upper": 0.5}, LINE),
    ("Softmax", {}, LINE),
    ("Softmax", {"dim": 1}, IMAGE),
    ("LogSoftmax", {"dim": -1}, IMAGE),
    ("Softmin", {"dim": 1}, IMAGE),
]  # fmt: skip


@pytest.mark.filterwarnings("ignore:Implicit dimension choice", "ignore:Using padding='same'")
@pytest.mark.parametrize(("name", "arguments", "shape"), MODULES, ids=lambda v: v if isinstance(v, str) else "")
def test_module(name: str, arguments: dict[str, Any], shape: tuple[int, ...]) -> None:
    both(name, arguments, 3 * np.random.default_rng(0).standard_normal(shape).astype(np.float32))


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
    products.warned.clear()
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


#: Arguments that are not for users, or that PyTorch itself gave up.
NOT_TAKEN = {"device", "dtype", "_weight", "_freeze", "min_value", "max_value"}


def arguments_of(module: type) -> dict[str, Any]:
    found = list(inspect.signature(module.__init__).parameters.values())[1:]  # type: ignore[misc]
    several = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    named = (p for p in found if p.kind not in several and p.name not in NOT_TAKEN)
    return {p.name: "relu" if p.default is torch.nn.functional.relu else p.default for p in named}


def test_arguments_and_defaults_are_those_of_pytorch() -> None:
    theirs = {name: module for name, module in vars(torch.nn).items() if isinstance(module, type)}
    for name in {name for name in theirs if issubclass(theirs[name], torch.nn.Module)} & set(nn.__all__):
        # Those of PyTorch's recurrent layers stand in no signature.
        if wanted := arguments_of(theirs[name]):
            assert list(arguments_of(getattr(nn, name)).items()) == list(wanted.items()), name


def test_devices_and_dtypes_are_taken_where_pytorch_takes_them() -> None:
    for name in nn.__all__:
        theirs = getattr(torch.nn, name, None)
        if isinstance(theirs, type) and "device" in inspect.signature(theirs.__init__).parameters:  # type: ignore[misc]
            assert {"device", "dtype"} <= set(inspect.signature(getattr(nn, name)).parameters), name
    given: dict[str, Any] = {"device": torch.device("cpu"), "dtype": torch.float32}
    assert nn.Linear(2, 3, **given).weight.dtype == nn.GRU(2, 3, **given).weight_hh_l0.dtype == np.float32
    nn.GroupNorm(2, 4, device="cpu", dtype=np.float32)


def test_each_module_of_pytorch_is_there_or_absent_for_a_reason() -> None:
    names = {name for name, module in vars(torch.nn).items() if isinstance(module, type)} - set(nn.__all__)
    modules = {name for name in names if issubclass(getattr(torch.nn, name), torch.nn.Module)}
    told = {name: absent.why(name, nn.__all__).partition(": ")[2] for name in modules}
    unexplained = {name for name, reason in told.items() if not reason or reason.startswith("the nearest name")}
    assert unexplained == {"Container", "RNNBase", "RNNCellBase"}


def test_what_is_absent_says_why() -> None:
    for name, reason in {
        "FractionalMaxPool2d": "its windows are random",
        "LazyLinear": "take the module of the name without Lazy",
        "CrossEntropyLoss": "there is no training",
        "Convolution2d": "the nearest name is",
    }.items():
        with pytest.raises(AttributeError, match=reason):
            getattr(nn, name)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: nn.Conv2d(4, 6, 3, groups=3), "channels do not divide into the groups"),
        (lambda: nn.Conv2d(4, 6, 3, padding_mode="mirror"), "padding_mode is unknown"),
        (lambda: nn.ConvTranspose2d(4, 6, 3, padding="same"), "padded by numbers of zeros"),
        (lambda: nn.GroupNorm(3, 4), "channels do not divide into the groups"),
        (lambda: nn.Dropout(1.5), "p is a probability"),
        (lambda: nn.Embedding(4, 2, padding_idx=4), "padding_idx is the number of a row"),
        (lambda: nn.Embedding(4, 2, max_norm=1.0), "max_norm changes the table"),
        (lambda: nn.LSTM(4, 2, proj_size=1), "with a projection is not supported"),
        (lambda: nn.RNN(4, 2, nonlinearity="gelu"), "the nonlinearity is unknown"),
        (lambda: nn.MultiheadAttention(6, 4), "do not divide into the heads"),
        (lambda: nn.TransformerEncoderLayer(4, 2, activation="swish"), "the activation is unknown"),
        (lambda: nn.Sequential(nn.ReLU(), len), "part '1' is no module"),
        (lambda: nn.Conv2d(4, 6, 3, padding="same", stride=2), "padding='same' is for a stride of 1"),
        (lambda: nn.Conv2d(4, 6, 0), "kernel_size is out of range"),
        (lambda: nn.Conv2d(4, 6, 3, stride=(1, 0)), "stride is out of range"),
        (lambda: nn.Conv2d(4, 6, 3, padding=-1), "padding is out of range"),
        (lambda: nn.MaxPool2d(2, 0), "stride is out of range"),
        (lambda: nn.AvgPool3d((2, 0, 2)), "kernel_size is out of range"),
        (lambda: nn.Unfold(2, padding=-1), "padding is out of range"),
        (lambda: nn.Upsample(), "give either size or scale_factor"),
        (lambda: nn.Upsample(2, 2.0), "give either size or scale_factor"),
        (lambda: nn.Upsample(2, mode="cubic"), "the mode is unknown"),
        (lambda: nn.Upsample(scale_factor=(2.0, -1.0)), "above 0"),
        (lambda: nn.GELU("erf"), "the approximate is unknown"),
        (lambda: nn.PixelShuffle(0), "upscale_factor is out of range"),
        (lambda: nn.Unflatten(1, (2, -3)), "unflattened_size is out of range"),
        (lambda: nn.Linear(-1, 3), "in_features is out of range"),
        (lambda: nn.LSTM(4, 0), "hidden_size is out of range"),
        (lambda: nn.BatchNorm2d(-1), "num_features is out of range"),
        (lambda: nn.Linear(2, 3, device="cuda"), "new weights lie on the processor"),
        (lambda: nn.LayerNorm(3, dtype=torch.float16), "new weights are of float32"),
        (lambda: nn.Sequential(nn.Linear(2, 2)).get_parameter("0.wight"), "there is no parameter '0.wight'"),
        (lambda: nn.BatchNorm1d(2).get_buffer("weight"), "there is no buffer 'weight'"),
        (lambda: nn.ReLU().train(), "there is no training"),
        (lambda: nn.Sequential(nn.ReLU()).get_submodule("1"), "there is no module '1'"),
    ],
)
def test_wrong_arguments_are_refused(make: Any, message: str) -> None:
    with pytest.raises(nx.Error, match=message):
        make()


@pytest.mark.parametrize(
    ("module", "shape", "message"),
    [
        (nn.Conv2d(4, 6, 3), (4, 8), "another number of dimensions"),
        (nn.MaxPool2d(2), (4, 8), "another number of dimensions"),
        (nn.MaxPool2d(2, padding=2), IMAGE, "the padding is more than half of a window"),
        (nn.BatchNorm2d(4), LINE, "the input of BatchNorm2d has another number of dimensions"),
        (nn.AdaptiveMaxPool2d(2, return_indices=True), IMAGE, "adaptive pooling does not tell indices"),
        (nn.AvgPool2d(2, ceil_mode=True, divisor_override=3), IMAGE, "divisor_override is not supported"),
        (nn.LocalResponseNorm(4), IMAGE, "over as many channels on both sides"),
        (nn.Upsample(scale_factor=2, mode="bilinear"), LINE, "is for 2 spatial dimensions"),
        (nn.Upsample(scale_factor=2, align_corners=True), IMAGE, "align_corners is not for mode"),
        (nn.ReflectionPad1d(9), LINE, "padding of mode 'reflect' is wider than the input"),
        (nn.CircularPad2d((1, 1, 9, 0)), IMAGE, "padding of mode 'circular' is wider than the input"),
        (nn.Conv1d(4, 6, 19, padding="same", padding_mode="reflect"), LINE, "is wider than the input"),
        (nn.Upsample(scale_factor=2, mode="area", align_corners=True), IMAGE, "align_corners is not for mode"),
        (nn.Flatten(), (4,), "there is no such dimension"),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_wrong_inputs_are_refused(module: Any, shape: tuple[int, ...], message: str) -> None:
    with pytest.raises(nx.Error, match=message):
        nn.trace(module, shape)


def test_the_same_model_on_each_backend() -> None:
    x = np.random.default_rng(0).standard_normal((2, 3, 8, 8)).astype(np.float32)
    model = six_layers()
    want = nn.trace(model, x.shape).evaluate({"input": x})["output"]
    for name in ("tensorrt", "cuda", "cpu"):
        with nx.hardware.use(name) as backend:
            assert nx.hardware.get_backend().name == name
            got = backend.optimize_model(model, x.shape, optimization_level=0)(x)
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
