"""Refitter: other weights for an engine."""

from __future__ import annotations

from typing import Any

import numpy as np

from neurenix import _native, arrays, names
from neurenix.errors import Error, InvalidArgumentError, ShapeError
from neurenix.hardware.tensorrt.build_enums import TensorLocation, WeightsRole
from neurenix.hardware.tensorrt.engine import ICudaEngine
from neurenix.hardware.tensorrt.interfaces import IErrorRecorder
from neurenix.hardware.tensorrt.logger import checked, report
from neurenix.hardware.tensorrt.scoped import Scoped
from neurenix.hardware.tensorrt.weights import Weights


class Refitter(Scoped):
    """Replaces weights of an engine that was built with BuilderFlag.REFIT, by the names that they have in the model.

    Weights of ONNX models bear the names of their initialisers; those of layers that a script added are called
    "<layer>.weight", "<layer>.bias", "<layer>.scale", ..., unless `network.set_weights_name` said otherwise. What is
    not set stays as it is. Contexts of the engine run with the new weights from their next call on.

    Raises `InvalidArgumentError` for an engine that was not built so.
    """

    engine: ICudaEngine
    logger: Any
    error_recorder: IErrorRecorder | None
    max_threads: int
    weights_validation: bool

    def __init__(self, engine: ICudaEngine, logger: Any = None) -> None:
        if not engine.refittable:
            raise InvalidArgumentError(
                "the weights of this engine can't be replaced",
                hint="build it with config.set_flag(trt.BuilderFlag.REFIT)",
            )
        self.engine = engine
        self.logger = checked(logger)
        self.error_recorder = None
        self.max_threads = _native.default_threads()
        self.weights_validation = True
        self._types = {name: (np.dtype(dtype), tuple(shape)) for name, dtype, shape in engine._engine.weights}
        #: What was given for them, read when the engine is refitted.
        self._given: dict[str, Any] = {}

    def get_all_weights(self) -> list[str]:
        """The names of all weights."""
        return list(self._types)

    def get_missing_weights(self) -> list[str]:
        """An empty list: any number of weights may be replaced."""
        return []

    def get_all(self) -> tuple[list[str], list[WeightsRole]]:
        """The layers that have weights of their own, and the role of each."""
        pairs = [(name.rpartition("."), name) for name in self._types]
        roles = {role.op: role for role in WeightsRole if role.op}
        found = [(layer, roles[what]) if what in roles else (name, WeightsRole.ANY) for (layer, _, what), name in pairs]
        return [layer for layer, _ in found], [role for _, role in found]

    def get_missing(self) -> tuple[list[str], list[WeightsRole]]:
        """Two empty lists: any number of weights may be replaced."""
        return [], []

    def set_named_weights(self, name: str, weights: Any, location: TensorLocation = TensorLocation.HOST) -> bool:
        """Gives new elements for a weight: an array or Weights of as many elements of its dtype.

        They are read by `refit_cuda_engine`: the array must be there until then, and may still change.

        False, after logging why, where there is no such weight or they don't fit.
        """

        def keep() -> None:
            self._read(name, weights)
            self._given[name] = weights

        return self._tried(keep)

    def set_weights(self, layer_name: str, role: WeightsRole, weights: Any) -> bool:
        """Gives new elements for a weight of a layer; False, after logging why, where they don't fit."""
        return self.set_named_weights(f"{layer_name}.{role.op}" if role.op else layer_name, weights)

    def get_named_weights(self, weights_name: str) -> Weights:
        """The elements that were set, or those that the engine has."""
        self._type(weights_name)
        given = self._given.get(weights_name)
        return Weights(self.engine._engine.weight(weights_name) if given is None else self._read(weights_name, given))

    def get_weights_prototype(self, weights_name: str) -> Weights:
        """A weight's dtype and shape, with zeros."""
        dtype, shape = self._type(weights_name)
        return Weights(np.zeros(shape, dtype))

    def get_weights_location(self, weights_name: str) -> TensorLocation:
        """Where new elements lie: in the processor's memory."""
        self._type(weights_name)
        return TensorLocation.HOST

    def unset_named_weights(self, weights_name: str) -> bool:
        """Takes new elements back; False where there were none."""
        return self._given.pop(weights_name, None) is not None

    def refit_cuda_engine(self) -> bool:
        """Puts the new elements into the engine, all or none; False, after logging the error, where that fails."""

        def refit() -> None:
            given = {name: self._read(name, weights) for name, weights in self._given.items()}
            self.engine._replace(self.engine._engine.refit(given, self.engine._options))
            self._given.clear()

        return self._tried(refit)

    def refit_cuda_engine_async(self, stream_handle: int) -> bool:
        """As `refit_cuda_engine`; it is done when this returns."""
        return self.refit_cuda_engine()

    def _read(self, name: str, weights: Any) -> np.ndarray[Any, Any]:
        """The elements as they are now; raises where they don't fit."""
        dtype, shape = self._type(name)
        array = weights.array if isinstance(weights, Weights) else arrays.to_numpy(weights)
        if array.dtype != dtype or array.size != int(np.prod(shape, dtype=np.int64)):
            raise ShapeError(
                "a weight has another dtype or number of elements than the one that it replaces",
                tensor=name,
                expected=f"{dtype}{list(shape)}",
                got=f"{array.dtype}{list(array.shape)}",
            )
        return array.reshape(shape)

    def _type(self, name: str) -> tuple[np.dtype[Any], tuple[int, ...]]:
        if name not in self._types:
            raise InvalidArgumentError(f"the engine has no weight {name!r}", hint=names.hint(name, self._types))
        return self._types[name]

    def _tried(self, action: Any) -> bool:
        try:
            action()
        except Error as error:
            report(self.logger, error, self.error_recorder)
            return False
        return True
