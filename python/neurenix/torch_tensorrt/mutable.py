"""A module whose engines follow its weights."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from typing import Any

import torch

from neurenix.errors import UnsupportedError
from neurenix.torch.dynamo import neurenix
from neurenix.torch.settings import Settings

#: The methods of a module that move or convert it, and give it back.
_GIVE_ITSELF = frozenset(
    "apply bfloat16 cpu cuda double eval float half requires_grad_ share_memory to to_empty train type xpu".split()
)


def _made(model: torch.nn.Module, settings: dict[str, Any]) -> MutableTorchTensorRTModule:
    return MutableTorchTensorRTModule(model, **settings)


class MutableTorchTensorRTModule:
    """Calls a module in engines, and is that module otherwise: its attributes, its `load_state_dict`, its parameters.

    Weights that are changed show in the next call. `settings` are those of `compile`. Raises as `Settings.of`.
    """

    def __init__(self, pytorch_model: torch.nn.Module, *, enabled_precisions: Any = None, **settings: Any) -> None:
        if enabled_precisions is not None:
            settings["enabled_precisions"] = enabled_precisions
        settings.pop("immutable_weights", None)
        settings.pop("use_python_runtime", None)
        Settings.of(settings)
        own = self.__dict__
        own["original_model"] = pytorch_model
        own["_settings"] = settings
        own["_compiled"] = torch.compile(pytorch_model, backend=neurenix, options=dict(settings))

    def set_expected_dynamic_shape_range(self, args_dynamic_shape: Any, kwargs_dynamic_shape: Any) -> None:
        """Says that shapes vary: one engine is then built for all of them from the first call on."""
        self.__dict__["_compiled"] = torch.compile(
            self.original_model, backend=neurenix, dynamic=True, options=dict(self._settings)
        )

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the module gives."""
        with torch.no_grad():
            return self._compiled(*args, **kwargs)

    __call__ = forward

    def __getattr__(self, name: str) -> Any:
        own = self.__dict__
        if "original_model" not in own:
            raise AttributeError(name)
        found = getattr(own["original_model"], name)
        return functools.partial(self._itself, found) if name in _GIVE_ITSELF else found

    def _itself(self, method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Of a method that gives the module, this one in its place."""
        found = method(*args, **kwargs)
        return self if found is self.original_model else found

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self.__dict__["original_model"], name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self.__dict__["original_model"], name)

    def __copy__(self) -> MutableTorchTensorRTModule:
        return type(self)(self.original_model, **self._settings)

    def __deepcopy__(self, memo: dict[int, Any]) -> MutableTorchTensorRTModule:
        return type(self)(copy.deepcopy(self.original_model, memo), **self._settings)

    def __reduce__(self) -> Any:
        return _made, (self.original_model, dict(self._settings))

    @staticmethod
    def save(module: Any, path: str) -> None:
        """Refused with `UnsupportedError`: such a file would hold code."""
        raise UnsupportedError(
            "a mutable module is not saved", hint="save module.state_dict(); engines are kept in the cache directory"
        )

    @staticmethod
    def load(path: str) -> Any:
        """Refused with `UnsupportedError`: such a file would hold code."""
        raise UnsupportedError("a mutable module is not loaded from a file: it would hold code", got=str(path))
