"""Calls of an engine on torch's tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch

from neurenix.hardware import placed
from neurenix.hardware.optimized import OptimizedModel


class EngineCall:
    """Runs an engine on tensors in the order of its inputs; what comes out is new, dense, and on the device."""

    def __init__(self, model: OptimizedModel, device: torch.device) -> None:
        self.model = model
        self.engine = model._engine
        self.input_dtypes = [torch_dtype(port.dtype) for port in model.inputs]
        self.dtypes = [torch_dtype(port.dtype) for port in model.outputs]
        self._device = device
        self._names = tuple(port.name for port in model.inputs)
        #: The GPU that results lie on.
        self._gpu = device.index if device.type == "cuda" else None
        self._direct = not self.engine.staged and (self._gpu is None or self._gpu in self.engine.devices)
        self._stream = placed.of_torch().stream
        #: By the shapes of inputs, what each result is made of: shape, strides, dtype.
        self._wanted: dict[tuple[torch.Size, ...], list[_Wanted]] = {}
        self._empty = _EMPTY.get(device.type)

    def run(self, given: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """The results. Raises errors of ours for what the engine refuses."""
        dense = [one if one.is_contiguous() and not one.is_neg() else _dense(one) for one in given]
        gpu = self._gpu
        places: list[tuple[int, int | None]] = []
        for tensor in dense:
            number = tensor.get_device()
            if number == gpu:
                places.append((tensor.data_ptr(), gpu))
            elif number < 0:
                places.append((tensor.data_ptr(), None))
        if not self._direct or len(places) < len(dense):
            return self._run_by_name(dense)
        return self._run_at(dense, places)

    def _run_at(self, given: list[torch.Tensor], places: list[tuple[int, int | None]]) -> list[torch.Tensor]:
        """The results, from tensors at these addresses of the processor (None) or of the engine's GPU."""
        shapes = tuple([tensor.shape for tensor in given])
        wanted = self._wanted.get(shapes) or self._new_shapes(shapes)
        device, gpu, empty = self._device, self._gpu, self._empty
        if empty is not None and (gpu is None or gpu == _current_gpu()):
            made = [empty(*one) for one in wanted]
        else:
            made = [torch.empty(shape, dtype=dtype, device=device) for shape, _, dtype in wanted]
        results = [(tensor.data_ptr(), gpu) for tensor in made]
        stream = None if gpu is None else (gpu, self._stream(gpu))
        self.engine.run_at(places, shapes, results, stream, held=True)
        self.model.tell_of_slow_calls()
        return made

    def _new_shapes(self, shapes: tuple[torch.Size, ...]) -> list[_Wanted]:
        specs = self.engine.specs([list(shape) for shape in shapes])
        wanted = [_wanted(shape, dtype) for (_, shape), dtype in zip(specs, self.dtypes, strict=True)]
        if len(self._wanted) >= placed.KEPT_SHAPES:
            self._wanted.clear()
        self._wanted[shapes] = wanted
        return wanted

    def _run_by_name(self, given: list[torch.Tensor]) -> list[torch.Tensor]:
        named = zip(self._names, given, strict=True)
        # The first one says where the results are wanted.
        inputs = dict(sorted(named, key=lambda one: one[1].device != self._device))
        results = self.model.run(inputs).values()
        return [_tensor(result, self._device) for result in results]


_Wanted = tuple[tuple[int, ...], tuple[int, ...], torch.dtype]

#: What code of torch's own compiler makes its results with, on the current device: 2.5 us on a GPU, where
#: `torch.empty` takes 7.
_EMPTY: dict[str, Callable[..., torch.Tensor]] = {
    kind: found
    for kind in ("cpu", "cuda")
    if (found := getattr(torch._C._dynamo.guards, f"_empty_strided_{kind}", None)) is not None
}
_current_gpu: Callable[[], int] = getattr(torch._C, "_cuda_getDevice", torch.cuda.current_device)


def _wanted(shape: Sequence[int], dtype: torch.dtype) -> _Wanted:
    """A dense tensor."""
    return tuple(shape), torch.empty(shape, device="meta").stride(), dtype


def torch_dtype(dtype: object) -> torch.dtype:
    """torch's dtype of the name of one of numpy's or of ml_dtypes."""
    found = getattr(torch, np.dtype(dtype).name)  # type: ignore[call-overload]
    assert isinstance(found, torch.dtype)
    return found


def _dense(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().resolve_neg().contiguous()


def _tensor(result: object, device: torch.device) -> torch.Tensor:
    tensor = result if isinstance(result, torch.Tensor) else torch.from_numpy(result)
    return tensor if tensor.device == device else tensor.to(device)


def laid_out(tensor: torch.Tensor, order: Sequence[int]) -> torch.Tensor:
    """The same elements with the dimensions in this order in memory."""
    back = sorted(range(len(order)), key=list(order).__getitem__)
    return tensor.permute(tuple(order)).contiguous().permute(back)
