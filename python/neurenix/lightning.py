"""A callback of Lightning that runs prediction, tests and validation in engines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from neurenix import names
from neurenix.errors import InvalidArgumentError
from neurenix.packages import need

_CALLBACK: Any = need("lightning.pytorch", "neurenix.lightning").Callback

#: When engines run.
STAGES = ("predict", "test", "validate")


class NeurenixCallback(_CALLBACK):  # type: ignore[misc]
    """Has calls of a LightningModule, or of some of its submodules, run by `torch.compile`'s backend "neurenix".

    `submodules`: by their names, such as "model"; all of the module without any. `stages`: of "predict", "test" and
    "validate"; training stays PyTorch's, and so does the validation within it. `options`: those of the backend
    (`precision`, `freeze`, ...). Weights that change between runs show in the next one.

    Raises `InvalidArgumentError` for an unknown stage, and at the start of a stage for a submodule that is not there.
    """

    def __init__(
        self, submodules: Sequence[str] = (), *, stages: Sequence[str] = STAGES, dynamic: bool | None = None,
        **options: Any,
    ) -> None:  # fmt: skip
        from neurenix.torch import Settings

        for stage in stages:
            if stage not in STAGES:
                raise InvalidArgumentError(
                    f"there is no stage {stage!r}", expected=", ".join(STAGES), hint=names.hint(stage, STAGES)
                )
        Settings.of(options)
        super().__init__()
        self._submodules = [submodules] if isinstance(submodules, str) else list(submodules)
        self._stages, self._dynamic, self._options = tuple(stages), dynamic, options
        self._compiled: list[Any] = []

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Puts engines in place; they are built by the first batch."""
        if stage not in self._stages:
            return
        from neurenix.torch import neurenix

        for name in self._submodules or [""]:
            try:
                module = pl_module.get_submodule(name)
            except AttributeError as error:
                known = [one for one, _ in pl_module.named_modules()]
                raise InvalidArgumentError(f"there is no submodule {name!r}", hint=names.hint(name, known)) from error
            module.compile(backend=neurenix, dynamic=self._dynamic, options=dict(self._options))
            self._compiled.append(module)

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Leaves the module as it was."""
        while self._compiled:
            self._compiled.pop()._compiled_call_impl = None
