"""Models and calls, each of which runs in a process of its own; `agree` compares with torch itself."""

from __future__ import annotations

import copy
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from neurenix.torch import counters, reports
from tests.torch_compile.agree import agree, compiled


def mlp() -> nn.Sequential:
    return nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4)).eval()


class Residual(nn.Module):
    """A ResNet's block with a head."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(8)
        self.second = nn.Conv2d(8, 8, 3, padding=1)
        self.head = nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.relu(self.norm(self.first(x)))
        y = F.relu(self.second(y) + y)
        return self.head(F.adaptive_avg_pool2d(y, 1).flatten(1))


def all_in_engines(number: int = 1) -> None:
    found = reports()[-number:]
    assert all(one.given_back is None and not one.refusals for one in found), "\n".join(map(str, found))
    assert all(part.runs == "engine" for one in found for part in one.partitions)
    assert "fallbacks" not in counters()


@torch.no_grad()
def static() -> None:
    model = Residual().eval()
    function = compiled(model)
    for _ in range(3):
        x = torch.randn(2, 3, 12, 12)
        agree(function(x), model(x))
    assert counters() == {"graphs": 1, "partitions": 1, "engines_built": 1}
    all_in_engines()


@torch.no_grad()
def one_engine_for_a_range() -> None:
    """torch compiles a second graph for sizes that change, and its engine serves all that come."""
    model = Residual().eval()
    function = compiled(model)
    for batch, size in ((2, 12), (3, 14), (5, 10), (4, 9), (7, 16)):
        x = torch.randn(batch, 3, size, size)
        agree(function(x), model(x))
    assert counters()["engines_built"] == 2
    all_in_engines(2)


@torch.no_grad()
def dynamic_from_the_start() -> None:
    model = Residual().eval()
    function = compiled(model, dynamic=True)
    for batch, size in ((2, 12), (3, 14), (5, 10)):
        x = torch.randn(batch, 3, size, size)
        agree(function(x), model(x))
    assert counters()["engines_built"] == 1


@torch.no_grad()
def transformer(dynamic: bool) -> None:
    """The fast path of `nn.TransformerEncoder` is one operator, which is taken apart."""
    layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, activation="gelu", norm_first=True)
    model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()
    function = compiled(model, dynamic=dynamic)
    for batch, length in ((2, 7), (3, 11)):
        x = torch.randn(batch, length, 32)
        agree(function(x), model(x), 2e-6)
    all_in_engines()


@torch.no_grad()
def transformer_with_masks() -> None:
    layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
    model = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False).eval()
    function = compiled(model)
    x = torch.randn(2, 6, 32)
    padding = torch.tensor([[False] * 6, [False] * 4 + [True] * 2])
    agree(function(x, src_key_padding_mask=padding), model(x, src_key_padding_mask=padding), 2e-6)
    causal = nn.Transformer.generate_square_subsequent_mask(6)
    agree(function(x, mask=causal), model(x, mask=causal), 2e-6)


@torch.no_grad()
def graph_breaks() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(x @ x.t() + 1).sum(0)
        torch._dynamo.graph_break()
        return torch.sigmoid(y * 2) - y.mean()

    x = torch.randn(5, 5)
    agree(compiled(function)(x), function(x))
    assert counters()["graphs"] == 2


@torch.no_grad()
def unsupported_operator() -> None:
    def function(x: torch.Tensor) -> Any:
        y = torch.tanh(x @ x.t() + 1) * 2
        u = torch.linalg.svdvals(y)
        return torch.sigmoid(u * 2) - u.mean() + u.exp(), y

    x = torch.randn(5, 5)
    agree(compiled(function)(x), function(x), 2e-6)
    (report,) = reports()
    assert [one.operator for one in report.refusals] == ["aten._linalg_svd.default"]
    assert [part.runs for part in report.partitions] == ["engine", "engine"]
    assert "torch runs 1 x aten._linalg_svd.default: torch's ONNX exporter does not write it" in str(report)


@torch.no_grad()
def complex_numbers() -> None:
    def function(x: torch.Tensor) -> Any:
        y = torch.fft.rfft(torch.relu(x) * 2 + 1)
        return (y.abs() + 1).log() * 2, y

    x = torch.randn(4, 8)
    found, wanted = compiled(function)(x), function(x)
    agree(found[0], wanted[0], 2e-6)
    assert torch.allclose(found[1], wanted[1], atol=1e-5)


@torch.no_grad()
def buffer_mutation() -> None:
    class Counts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("seen", torch.zeros(3))
            self.linear = nn.Linear(3, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.seen += x.mean(0)
            result: torch.Tensor = self.linear(x) * self.seen
            return result

    model = Counts()
    reference = copy.deepcopy(model)
    function = compiled(model)
    for _ in range(4):
        x = torch.randn(4, 3)
        agree(function(x), reference(x))
        agree(model.seen, reference.seen)
    assert "refits" not in counters()


@torch.no_grad()
def input_mutation() -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> Any:
        x.mul_(2).add_(1)
        z = torch.relu(x) + y.exp()
        return z.sum(0), x.t()

    ours = compiled(function)
    for _ in range(2):
        x, y = torch.randn(4, 3), torch.randn(4, 3)
        other = x.clone()
        found, wanted = ours(x, y), function(other, y)
        agree((found, x), (wanted, other))
        assert found[1].data_ptr() == x.data_ptr()


@torch.no_grad()
def aliasing() -> None:
    def function(x: torch.Tensor) -> Any:
        y = torch.relu(x) * 2 + 1
        return x, x.view(-1), y, y.t(), y.view(-1), y[1:], y.split(2)

    x = torch.randn(4, 3)
    found = compiled(function)(x)
    agree(found, function(x))
    assert found[0].data_ptr() == found[1].data_ptr() == x.data_ptr()
    found[2].add_(1)
    assert torch.equal(found[3], found[2].t()) and torch.equal(found[5], found[2][1:])
    assert torch.equal(found[6][1], found[2][2:])


@torch.no_grad()
def writes_into_views() -> None:
    def function(x: torch.Tensor) -> Any:
        y = x.clone()
        y[1:, ::2] += 1
        z = y.t()
        z.mul_(2)
        return y, torch.cat([z, z]).exp()

    x = torch.randn(4, 6)
    agree(compiled(function)(x), function(x))


@torch.no_grad()
def autocast() -> None:
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.LayerNorm(64), nn.Linear(64, 8)).eval()

    def function(x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = model(x)
        result: torch.Tensor = y.float() + 1
        return result

    x = torch.randn(4, 64)
    agree(compiled(function)(x), function(x), 2e-2)
    all_in_engines()
    outer = compiled(model)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        agree(outer(x), model(x), 2e-2)


@torch.no_grad()
def modules_of_16_bits() -> None:
    """Their normalisations run in engines: the exporter writes results beside these that are no valid ONNX."""
    for dtype, tolerance in ((torch.float16, 1e-2), (torch.bfloat16, 6e-2)):
        model = nn.Sequential(
            nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.GroupNorm(2, 8), nn.InstanceNorm2d(8, affine=True),
            nn.Flatten(2), nn.Linear(36, 16), nn.LayerNorm(16), nn.GELU(),
        ).eval().to(dtype)  # fmt: skip
        x = torch.randn(2, 3, 8, 8).to(dtype)
        agree(compiled(model)(x), model(x), tolerance)
        all_in_engines()
        y = torch.randn(8, 16).to(dtype)
        agree(compiled(lambda y: (y * y).sum(dim=[0]))(y), (y * y).sum(dim=[0]), tolerance)
        all_in_engines()


def gradient_modes() -> None:
    """Engines give results whatever the mode; where a gradient is asked for, torch gives it."""
    model = mlp()
    function = compiled(model)
    x = torch.randn(4, 8)
    with torch.no_grad():
        agree(function(x), model(x))
    with torch.inference_mode():
        agree(function(x), model(x))
        inside = torch.randn(4, 8)
        agree(function(inside), model(inside))
    found = function(x)
    agree(found, model(x))
    assert "training" not in counters()
    found.square().sum().backward()
    ours = [parameter.grad.clone() for parameter in model.parameters()]
    model.zero_grad()
    model(x).square().sum().backward()
    agree(ours, [parameter.grad for parameter in model.parameters()])
    assert counters()["training"] == 1


def results_without_gradients() -> None:
    model = mlp()

    @torch.no_grad()
    def inner(x: torch.Tensor) -> Any:
        return model(x)

    def none(x: torch.Tensor) -> Any:
        return inner(x) * 2, x.argmax()

    def some(x: torch.Tensor) -> Any:
        return model(x), model(x).detach(), x.argmax()

    x = torch.randn(4, 8)
    agree(compiled(none)(x), none(x))
    wanting = torch.randn(4, 8, requires_grad=True)
    agree(compiled(none)(wanting), none(wanting))
    found = compiled(some)(wanting)
    agree(found, some(wanting))
    found[0].sum().backward()
    ours = wanting.grad
    wanting.grad = None
    some(wanting)[0].sum().backward()
    agree(ours, wanting.grad)


def training() -> None:
    """Steps of an optimiser end where torch's own do, whether the model draws and counts or not."""
    for layers in ([nn.BatchNorm1d(8), nn.Dropout(0.0)], [nn.ReLU()]):
        model = nn.Sequential(nn.Linear(8, 8), *layers, nn.Linear(8, 8))
        reference = copy.deepcopy(model)
        for one, called in ((model, compiled(model)), (reference, reference)):
            torch.manual_seed(1)
            optimizer = torch.optim.SGD(one.parameters(), lr=0.1)
            for _ in range(4):
                loss = called(torch.randn(4, 8)).square().sum()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        agree(model.state_dict(), reference.state_dict(), 2e-6)
    assert counters()["training"] == 2
    assert "refits" not in counters()


@torch.no_grad()
def sizes_that_depend_on_data() -> None:
    torch._dynamo.config.capture_dynamic_output_shape_ops = True
    torch._dynamo.config.capture_scalar_outputs = True

    def function(x: torch.Tensor) -> Any:
        places = torch.nonzero(x.flatten() > 0)
        found = x.flatten()[places[:, 0]]
        return (found * 2 + 1).exp().sum(), places + 1

    ours = compiled(function)
    for x in (torch.randn(6, 3), torch.randn(6, 3), -torch.ones(6, 3), torch.ones(6, 3)):
        agree(ours(x), function(x), 2e-6)

    def cut(x: torch.Tensor) -> torch.Tensor:
        size = int(x.abs().sum().item()) % 3 + 1
        return x[:size].relu() * 2 + size

    ours = compiled(cut)
    for _ in range(4):
        x = torch.randn(6, 3)
        agree(ours(x), cut(x))


@torch.no_grad()
def numbers_among_the_arguments() -> None:
    def function(x: torch.Tensor, factor: float, shift: int) -> Any:
        return (x * factor + shift).relu() / factor, shift + 1, factor * 2, x.shape[0] * 2

    ours = compiled(function)
    for factor, shift in ((1.5, 2), (2.5, 3), (3.5, 4), (4.5, 7)):
        x = torch.randn(6, 3)
        agree(ours(x, factor, shift), function(x, factor, shift))


@torch.no_grad()
def sizes_as_values() -> None:
    def function(x: torch.Tensor) -> Any:
        return (
            x.shape[0] * 2,
            torch.relu(x) + x.shape[1],
            torch.arange(x.shape[0]) * 2 + 1,
            x.flatten()[: x.shape[0] ** 2],
        )

    ours = compiled(function, dynamic=True)
    for size in (3, 5):
        x = torch.randn(size, size + 1)
        agree(ours(x), function(x))


@torch.no_grad()
def memory_layouts() -> None:
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 4, 3)).eval()
    function = compiled(model)
    for x in (
        torch.randn(2, 3, 8, 8).to(memory_format=torch.channels_last),
        torch.randn(2, 8, 8, 3).permute(0, 3, 1, 2),
        torch.randn(2, 3, 8, 16)[..., ::2],
        torch.randn(1, 3, 1, 8).expand(2, 3, 8, 8),
    ):
        agree(function(x), model(x))
    last = copy.deepcopy(model).to(memory_format=torch.channels_last)
    x = torch.randn(2, 3, 8, 8)
    agree(compiled(last)(x), last(x))


@torch.no_grad()
def numbers_of_the_graph() -> None:
    """Tensors that `forward` makes of numbers; what is given of them may be written to."""

    class Numbers(nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            half, least = torch.tensor(0.5), torch.tensor([-3.0])
            return torch.where(x > half, x * half, least), least, torch.tensor(7.0).reshape(1)

    model = Numbers()
    function = compiled(model)
    x = torch.randn(4, 4)
    for _ in range(3):
        agree(found := function(x), model(x))
        for one in found:
            one.zero_()


@torch.no_grad()
def results_without_inputs() -> None:
    """What follows from constants is made anew for each call, which may write into it."""

    class Mask(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("lengths", torch.arange(6.0))

        def forward(self) -> torch.Tensor:
            outer = torch.sqrt(self.lengths[:, None] * self.lengths) + 1
            return outer[(self.lengths * -2).argsort()].masked_fill(self.lengths > 4, 0.5) + (self.lengths * 1.5).long()

    model = Mask()
    function = compiled(model)
    # Engines take new elements of what is moved and multiplied before anything is read.
    for _ in range(3):
        agree(found := function(), model())
        found.zero_()
    model.lengths += 1
    agree(function(), model())


@torch.no_grad()
def empty_and_single_batches() -> None:
    model = mlp()
    function = compiled(model, dynamic=True)
    for batch in (4, 0, 1, 2, 7):
        x = torch.randn(batch, 8)
        agree(function(x), model(x))


@torch.no_grad()
def dtypes() -> None:
    def function(a: torch.Tensor, b: torch.Tensor, d: torch.Tensor, e: torch.Tensor, h: torch.Tensor) -> Any:
        return (
            a.double() + d,
            (b * 2).sum(),
            e & (b > 1),
            (h * 2 + 1).float(),
            (b // 2).to(torch.int8),
            a.to(torch.uint8),
        )

    flags = torch.tensor([True, False, True, True])
    args = (torch.rand(4) * 10, torch.arange(4), torch.randn(4).double(), flags, torch.randn(4).half())
    agree(compiled(function)(*args), function(*args))
    all_in_engines()


@torch.no_grad()
def dropout_in_train_mode() -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5), nn.Linear(8, 8)).train()
    function = compiled(model)
    x = torch.randn(4, 8)
    assert not torch.equal(function(x), function(x))
    assert [one.operator for one in reports()[-1].refusals] == ["aten.native_dropout.default"]


@torch.no_grad()
def recurrent() -> None:
    torch._dynamo.config.allow_rnn = True

    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lstm = nn.LSTM(8, 16, 2, batch_first=True, bidirectional=True)
            self.gru = nn.GRU(32, 8)

        def forward(self, x: torch.Tensor) -> Any:
            return self.gru(self.lstm(x)[0])

    model = Recurrent().eval()
    function = compiled(model)
    x = torch.randn(2, 5, 8)
    agree(function(x), model(x))
    all_in_engines()


@torch.no_grad()
def wrong_index() -> None:
    model = nn.Sequential(nn.Embedding(10, 4), nn.Linear(4, 4), nn.ReLU()).eval()
    function = compiled(model)
    ids = torch.tensor([1, 2, 9])
    agree(function(ids), model(ids))
    try:
        function(torch.tensor([1, 2, 10]))
    except IndexError as error:
        assert "out of range" in str(error)
    else:
        raise AssertionError("nothing was raised")
    agree(function(ids), model(ids))
    assert counters()["fallbacks"] == 1
