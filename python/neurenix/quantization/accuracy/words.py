"""What may be asked for: the tools by name, and their settings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from neurenix import names
from neurenix.errors import InvalidArgumentError

#: The tools, in the order in which they are applied.
TOOLS = ("equalisation", "smooth", "per_token", "gptq", "bias_correction")
#: The tool that places other layers, and needs no ranges.
PER_TOKEN = "per_token"
#: Tools that change numbers for the weights at hand: other weights would want others.
OF_WEIGHTS = ("gptq", "bias_correction")
#: Tools that read batches.
OF_BATCHES = ("smooth", "gptq", "bias_correction")
#: The settings of each tool: what each may be, and how it is told.
SETTINGS = {
    "smooth": {"alpha": (0.0, 1.0)},
    "gptq": {"damping": (1e-6, 1.0)},
}


@dataclass(frozen=True)
class Accuracy:
    """Tools that lower the error of 8 bits.

    - `tools`: of "equalisation" (Nagel et al. 2019), "smooth" (SmoothQuant, Xiao et al. 2022), "per_token" (matrix
      products whose activations get a scale for each token at each call), "gptq" (Frantar et al. 2022) and
      "bias_correction" (Nagel et al. 2019), in the order of `TOOLS`.
    - `alpha`: of "smooth", how much of a channel's range moves from activations to weights, between 0 (nothing) and 1
      (all); None to choose for each norm what loses least on the batches, nothing included.
    - `damping`: of "gptq", the share of the mean of the Hessian's diagonal that is added to it.
    """

    tools: tuple[str, ...] = ()
    alpha: float | None = None
    damping: float = 0.01

    def __contains__(self, tool: str) -> bool:
        return tool in self.tools

    def __bool__(self) -> bool:
        return bool(self.tools)

    @property
    def needs_calibration(self) -> bool:
        """Whether some tool goes with ranges of tensors: a scale for each token is found at each call."""
        return any(tool != PER_TOKEN for tool in self.tools)


def read(given: Any) -> Accuracy:
    """What somebody asked for: names, a dict from names to settings such as `{"smooth": {"alpha": 0.5}}`, a text as on
    the command line (`"smooth:alpha=0.5,gptq"`), an `Accuracy`, or None for nothing.

    Raises `InvalidArgumentError`, with the nearest name, for unknown tools and settings.
    """
    if given is None:
        return Accuracy()
    if isinstance(given, Accuracy):
        return read({tool: _own(given, tool) for tool in given.tools})
    wanted = _of_text(given) if isinstance(given, str) else given
    if not isinstance(wanted, Iterable):
        raise InvalidArgumentError(
            "`accuracy` names tools", expected=", ".join(TOOLS), got=repr(given), hint='give accuracy=("gptq",)'
        )
    settings = dict(wanted) if isinstance(wanted, Mapping) else dict.fromkeys(map(_name, wanted))
    found: dict[str, float] = {}
    for tool, own in settings.items():
        _known(tool, TOOLS, "tool")
        found |= _settings(tool, own)
    return Accuracy(tuple(tool for tool in TOOLS if tool in settings), **found)


def _name(given: Any) -> str:
    if not isinstance(given, str):
        raise InvalidArgumentError(
            "a tool of `accuracy` is named by a text",
            expected=", ".join(TOOLS),
            got=repr(given),
            hint='settings go into one dict: accuracy={"smooth": None, "gptq": {"damping": 0.01}}',
        )
    return given


def _of_text(text: str) -> dict[str, dict[str, Any] | None]:
    """What a text such as `smooth:alpha=0.5,gptq` asks for."""
    wanted: dict[str, dict[str, Any] | None] = {}
    for word in filter(None, text.split(",")):
        tool, colon, rest = word.strip().partition(":")
        own = [setting.partition("=") for setting in rest.split(":")] if colon else []
        wanted[tool] = {name: _number(value) for name, _, value in own} or None
    return wanted


def _number(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def _own(given: Accuracy, tool: str) -> dict[str, float]:
    values = {name: getattr(given, name) for name in SETTINGS.get(tool, ())}
    return {name: value for name, value in values.items() if value is not None}


def _settings(tool: str, given: Any) -> dict[str, float]:
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise InvalidArgumentError(
            f"the settings of {tool!r} are a dict", expected=", ".join(SETTINGS.get(tool, ())), got=repr(given)
        )
    known = SETTINGS.get(tool, {})
    found = {}
    for name, value in given.items():
        _known(name, known, f"setting of {tool!r}")
        least, most = known[name]
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not least <= value <= most:
            raise InvalidArgumentError(
                f"the setting {name!r} of {tool!r} can't have this value",
                expected=f"a number from {least} to {most}",
                got=repr(value),
            )
        found[name] = float(value)
    return found


def _known(name: Any, known: Iterable[str], what: str) -> None:
    if name not in list(known):
        raise InvalidArgumentError(
            f"there is no {what} {name!r}", expected=", ".join(known) or "none", hint=names.hint(name, known)
        )
