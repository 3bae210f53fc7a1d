"""Recurrent layers and their cells."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from neurenix import random
from neurenix.errors import InvalidArgumentError, UnsupportedError
from neurenix.nn import checks
from neurenix.nn.functional import recurrent
from neurenix.nn.functional.arranging import cat
from neurenix.nn.module import Module
from neurenix.nn.traced import Traced

_NONLINEARITIES = ("tanh", "relu")


def _nonlinearity(word: str) -> str:
    if word in _NONLINEARITIES:
        return word
    raise InvalidArgumentError("the nonlinearity is unknown", expected="tanh or relu", got=repr(word))


class _Recurrent(Module):
    gates: ClassVar[int]
    kind: recurrent.Kind

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        checks.factory(device, dtype)
        checks.at_least(1, input_size=input_size, hidden_size=hidden_size, num_layers=num_layers)
        super().__init__()
        if proj_size:
            raise UnsupportedError("a recurrent layer with a projection is not supported", got=f"proj_size={proj_size}")
        self.input_size, self.hidden_size, self.num_layers = input_size, hidden_size, num_layers
        self.bias, self.batch_first, self.bidirectional = bias, batch_first, bidirectional
        self.suffixes = ("", "_reverse") if bidirectional else ("",)
        rows = self.gates * hidden_size
        for layer in range(num_layers):
            columns = input_size if layer == 0 else hidden_size * len(self.suffixes)
            shapes: list[tuple[str, tuple[int, ...]]] = [
                ("weight_ih", (rows, columns)),
                ("weight_hh", (rows, hidden_size)),
            ]
            shapes += [("bias_ih", (rows,)), ("bias_hh", (rows,))] if bias else []
            for suffix in self.suffixes:
                for name, shape in shapes:
                    self.register_parameter(f"{name}_l{layer}{suffix}", random.kaiming_uniform(shape, hidden_size))

    def _weights(self, layer: int) -> list[list[Any]]:
        names = ["weight_ih", "weight_hh", *(["bias_ih", "bias_hh"] if self.bias else [])]
        return [[getattr(self, f"{name}_l{layer}{suffix}") for name in names] for suffix in self.suffixes]

    def _run(self, x: Traced, states: Sequence[Traced]) -> tuple[Traced, list[Traced]]:
        """Steps of a batch, or of one sequence alone; states [layers * directions, batch, hidden]."""
        single = x.ndim == 2
        if single:
            x, states = x.unsqueeze(1), [state.unsqueeze(1) for state in states]
        elif self.batch_first:
            x = x.transpose(0, 1)
        ways, last = len(self.suffixes), []
        for layer in range(self.num_layers):
            first = [state.narrow(0, layer * ways, ways) for state in states]
            x, ended = recurrent.layer(self.kind, x, self._weights(layer), first)
            last.append(ended)
        ended = [cat(same) for same in zip(*last, strict=True)]
        if single:
            return x.squeeze(1), [state.squeeze(1) for state in ended]
        return (x.transpose(0, 1) if self.batch_first else x), ended

    def _describe(self) -> str:
        return f"{self.input_size} -> {self.hidden_size}, num_layers={self.num_layers}"


class RNN(_Recurrent):
    """A recurrent layer of tanh or relu: `forward(x, h)` gives the states of all steps, and the last ones."""

    gates = 1

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        nonlinearity: str = "tanh",
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(
            input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, device=device, dtype=dtype
        )
        self.kind = recurrent.RNN_TANH if _nonlinearity(nonlinearity) == "tanh" else recurrent.RNN_RELU

    def forward(self, x: Traced, hx: Traced | None = None) -> tuple[Traced, Traced]:
        """x [steps, batch, features], or [batch, steps, features] with `batch_first`, or [steps, features].

        hx: the first state, [layers * directions, batch, hidden]; zeros unless it is given.
        """
        outputs, (last,) = self._run(x, [] if hx is None else [hx])
        return outputs, last


class GRU(_Recurrent):
    """A layer of gated recurrent units: `forward(x, h)` gives the states of all steps, and the last ones."""

    gates = 3
    kind = recurrent.GRU

    def forward(self, x: Traced, hx: Traced | None = None) -> tuple[Traced, Traced]:
        """As `RNN`."""
        outputs, (last,) = self._run(x, [] if hx is None else [hx])
        return outputs, last


class LSTM(_Recurrent):
    """Long short-term memory: `forward(x, (h, c))` gives the states of all steps, and the last h and c.

    Raises `UnsupportedError` for `proj_size`.
    """

    gates = 4
    kind = recurrent.LSTM

    def forward(self, x: Traced, hx: tuple[Traced, Traced] | None = None) -> tuple[Traced, tuple[Traced, Traced]]:
        """As `RNN`, with h and c each."""
        outputs, (h, c) = self._run(x, [] if hx is None else list(hx))
        return outputs, (h, c)


class _Cell(Module):
    gates: ClassVar[int]
    bias_ih: Any
    bias_hh: Any

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        checks.factory(device, dtype)
        checks.at_least(1, input_size=input_size, hidden_size=hidden_size)
        super().__init__()
        self.hidden_size = hidden_size
        for name, columns in (("weight_ih", input_size), ("weight_hh", hidden_size)):
            shape = (self.gates * hidden_size, columns)
            self.register_parameter(name, random.kaiming_uniform(shape, hidden_size))
        for name in ("bias_ih", "bias_hh"):
            self.register_parameter(
                name, random.kaiming_uniform((self.gates * hidden_size,), hidden_size) if bias else None
            )

    def _weights(self) -> list[Any]:
        return [self.weight_ih, self.weight_hh, *([] if self.bias_ih is None else [self.bias_ih, self.bias_hh])]

    weight_ih: Any
    weight_hh: Any

    def _first(self, x: Traced) -> Traced:
        """Zeros, where a state is not given."""
        zeros = x.trace.constant(np.zeros(self.hidden_size, x.dtype))
        return zeros.expand(*x.shape[:-1], self.hidden_size)


class RNNCell(_Cell):
    """One step of an RNN: x [batch, features] and h [batch, hidden] to the next h."""

    gates = 1

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        nonlinearity: str = "tanh",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(input_size, hidden_size, bias, device, dtype)
        self.nonlinearity = _nonlinearity(nonlinearity)

    def forward(self, x: Traced, hx: Traced | None = None) -> Traced:
        """The next h."""
        return recurrent.rnn_cell(x, self._first(x) if hx is None else hx, self._weights(), self.nonlinearity)


class LSTMCell(_Cell):
    """One step of an LSTM: x [batch, features] and (h, c), [batch, hidden] each, to the next ones."""

    gates = 4

    def forward(self, x: Traced, hx: tuple[Traced, Traced] | None = None) -> tuple[Traced, Traced]:
        """The next h and c."""
        h, c = (self._first(x), self._first(x)) if hx is None else hx
        return recurrent.lstm_cell(x, h, c, self._weights())


class GRUCell(_Cell):
    """One step of a GRU: x [batch, features] and h [batch, hidden] to the next h."""

    gates = 3

    def forward(self, x: Traced, hx: Traced | None = None) -> Traced:
        """The next h."""
        return recurrent.gru_cell(x, self._first(x) if hx is None else hx, self._weights())
