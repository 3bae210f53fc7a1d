"""RNN."""

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.conformance.case import F32, SINGLE, Array, Case, Given, case, constant, exact, uniform

OP = "RNN"


def weights(*shape: int) -> Given:
    """Weights that keep a state in bounds."""
    return constant(uniform(-0.4, 0.4, *shape))


def with_function(*functions: Callable[[Array], Array]) -> Callable[..., tuple[Array, ...]]:
    """The formula of the specification, with a function for each direction."""

    def reference(x: Array, w: Array, r: Array, b: Array, *rest: Any, **attrs: Any) -> tuple[Array, ...]:
        lengths, initial = (*rest, None, None)[:2]
        first = attrs.get("layout") == 1
        x = x.swapaxes(0, 1) if first else x
        (steps, batch), (directions, _, hidden) = x.shape[:2], r.shape
        last = np.zeros((directions, batch, hidden)) if initial is None else np.array(initial)
        y = np.zeros((steps, directions, batch, hidden))
        for d in range(directions):
            backwards = d == 1 or attrs.get("direction") == "reverse"
            for n in range(batch):
                order = range(steps if lengths is None else int(lengths[n]))
                for t in reversed(order) if backwards else order:
                    sums = w[d] @ x[t, n] + r[d] @ last[d, n] + b[d][:hidden] + b[d][hidden:]
                    y[t, d, n] = last[d, n] = functions[d](sums)
        return (y.transpose(2, 0, 1, 3), last.swapaxes(0, 1)) if first else (y, last)

    return reference


def rnn(name: str, *inputs: Given | None, functions: Any = (np.tanh, np.tanh), **options: Any) -> Case:
    options = {"dtypes": SINGLE, "outputs": 2, "sums": True, "slack": 4.0, **options}
    return case(name, *inputs, reference=with_function(*functions), **options)


FUNCTIONS: dict[str, Callable[[Array], Array]] = {
    "Relu": lambda x: np.maximum(x, 0),
    "Sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "Softsign": lambda x: x / (1 + np.abs(x)),
    "Softplus": lambda x: np.log1p(np.exp(x)),
    "LeakyRelu": lambda x: np.where(x < 0, 0.01 * x, x),
    "ThresholdedRelu": lambda x: np.where(x < 1, 0, x),
    "HardSigmoid": lambda x: np.clip(0.2 * x + 0.5, 0, 1),
    "Elu": lambda x: np.where(x < 0, np.expm1(x), x),
}
SCALED: dict[str, Callable[[Array], Array]] = {
    "Affine": lambda x: 0.5 * x + 0.25,
    "ScaledTanh": lambda x: 0.5 * np.tanh(0.25 * x),
    "HardSigmoid": lambda x: np.clip(0.5 * x + 0.25, 0, 1),
}
X = uniform(-1, 1, 5, 3, 6)
W, R, B = weights(1, 9, 6), weights(1, 9, 9), weights(1, 18)
BOTH = (weights(2, 9, 6), weights(2, 9, 9), weights(2, 18))
CASES = [
    rnn("bias", X, W, R, B, hidden_size=9),
    rnn("reverse", X, W, R, B, direction="reverse"),
    rnn("lengths", X, W, R, B, exact([2, 5, 0], np.int32), uniform(-1, 1, 1, 3, 9), dynamic=False),
    rnn(
        "two_functions",
        X,
        *BOTH,
        direction="bidirectional",
        activations=["Relu", "Elu"],
        functions=(FUNCTIONS["Relu"], FUNCTIONS["Elu"]),
    ),
    rnn("batch_first", uniform(-1, 1, 3, 5, 6), W, R, B, layout=1, dynamic=False),
    rnn("doubles", X, W, R, B, dtypes=["float64"]),
    rnn("old", X, W, R, B, opset=7, dtypes=F32),
    *(rnn(name.lower(), X, W, R, B, activations=[name], functions=(f,), dtypes=F32) for name, f in FUNCTIONS.items()),
    *(
        rnn(
            f"{name.lower()}_scaled",
            X,
            W,
            R,
            B,
            activations=[name],
            activation_alpha=[0.5],
            activation_beta=[0.25],
            functions=(f,),
            dtypes=F32,
        )
        for name, f in SCALED.items()
    ),
]
