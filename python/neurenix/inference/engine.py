"""InferenceEngine: a model with what goes before and behind it, for single inputs, lists, and large images."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from neurenix.errors import InvalidArgumentError
from neurenix.hardware.optimized import OptimizedModel, Port, Report
from neurenix.inference import batches
from neurenix.inference.arrays_of import is_count
from neurenix.inference.journal import identity
from neurenix.inference.layers import Around
from neurenix.inference.opening import Device, metadata_of, open_model
from neurenix.inference.rows import Arrays, Rows
from neurenix.inference.sliding import Model
from neurenix.inference.streaming import Stream
from neurenix.inference.video import Video, is_video
from neurenix.inference.windowed import Windowed


class InferenceEngine(Windowed):
    """A model with preprocessing, postprocessing, batches and sliding windows. Any thread may call it, at any time.

    - `model_path`: an engine file, an .onnx or .pt2 file, or a model as `optimize_model` takes it (an `OptimizedModel`
      too). Of TorchScript (.ts), what is an engine of ours and nothing else; that of others is refused.
    - `input_shape`: as `optimize_model` takes it. A shape `(1, 1, 256, 256)` makes an engine that is fastest at that
      batch and takes batches up to 16 besides. An engine file must fit it.
    - `device`: "auto", "cuda", "cuda:1" or "cpu". Without a GPU that can be used, the processor does the work: a
      warning and `fallback` say why.
    - `half_precision`: True for fp16 where a model is built, False for float32. An engine file keeps its precision:
      False is an error where that is lower, True is told where it is higher.
    - `warmup`: calls on zeros before the first real one.
    - `preprocess`: a function that gets what a call was given and gives arrays for the model; or a dict of what becomes
      layers of the network in front of it (see `neurenix.inference.layers.InputLayers`); then `input_shape` is that of
      what comes in.
    - `postprocess`: a function of the model's output (an array, a tuple where there are several, a dict where the call
      was given one); or "softmax", "argmax", `dict(argmax=AXIS)` or `dict(nms=dict(...))` (see
      `neurenix.inference.suppression.SuppressionLayers`), which become layers behind each output.
    - `options`: those of `optimize_model`, or of `load` for an engine file (`threads=`, `precision=`, ...).

    A call takes arrays in the order of the inputs, a dict, or keywords, and gives arrays of the kind that came. An
    input without the batch dimension is one row, and its output has no batch dimension either. Floats are converted to
    the floats of an input; integers are not. More rows than the engine takes at once go through it in several calls.

    Raises `InvalidArgumentError` for values that make no sense, `FileError` where there is no such file, and as
    `optimize_model` and `load`; calls as `OptimizedModel`.
    """

    def __init__(
        self,
        model_path: Any,
        input_shape: Any = None,
        device: Any = "auto",
        half_precision: bool | None = None,
        warmup: int = 2,
        preprocess: Callable[..., Any] | Mapping[str, Any] | None = None,
        postprocess: Callable[..., Any] | Mapping[str, Any] | str | None = None,
        **options: Any,
    ) -> None:
        if not is_count(warmup, 0):
            raise InvalidArgumentError("warmup is a number of calls", expected="0, 1, ...", got=repr(warmup))
        around = Around.of(preprocess, postprocess)
        preprocess = None if isinstance(preprocess, Mapping) else preprocess
        postprocess = None if isinstance(postprocess, (str, Mapping)) else postprocess
        for name, function in (("preprocess", preprocess), ("postprocess", postprocess)):
            if function is not None and not callable(function):
                raise InvalidArgumentError(f"{name} can't be called", expected="a function", got=repr(function))
        self._device = Device.of(device)
        self._preprocess = preprocess
        self._postprocess = postprocess
        self._model = open_model(model_path, input_shape, self._device, half_precision, options, around)
        self._rows = Rows(self._model)
        self._metadata = metadata_of(model_path) if isinstance(model_path, (str, os.PathLike)) else {}
        # Another precision gives other bits.
        self._identity = f"{identity(model_path)} in {self._model.report()['precision']}"
        example = self._model.example() if warmup else {}
        for _ in range(int(warmup)):
            self._model.run(example)

    @property
    def model(self) -> OptimizedModel:
        """What runs."""
        return self._model

    @property
    def inputs(self) -> tuple[Port, ...]:
        """The inputs of the model, in order."""
        return self._model.inputs

    @property
    def outputs(self) -> tuple[Port, ...]:
        """The outputs of the model, in order."""
        return self._model.outputs

    @property
    def device(self) -> str:
        """Where the work is done: "cuda:0", "cpu"."""
        return self._device.name

    @property
    def fallback(self) -> str | None:
        """Why the work is not done on the device that was asked for; None where it is."""
        return self._device.fallback

    @property
    def metadata(self) -> dict[str, Any]:
        """What the file says of the model beside it, as Ultralytics' exports do: "names" are those of the classes."""
        return dict(self._metadata)

    def report(self) -> Report:
        """What the model does on this machine, as `OptimizedModel.report()`."""
        return self._model.report()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if bool(args) == bool(kwargs):
            raise InvalidArgumentError(
                "a call has its arrays in one way",
                expected=f"arrays for {', '.join(p.name for p in self.inputs)}, a dict, or keywords",
                got="both" if args else "nothing",
            )
        given = kwargs or (args[0] if len(args) == 1 else args)
        inputs, alone = self._prepare(given)
        outputs = self._rows.run(inputs)
        if alone:
            outputs = self._rows.split(outputs, [1])[0]
            outputs = {name: array[0] for name, array in outputs.items()}
        return self._finish(outputs, given)

    def batch_inference(self, inputs: Sequence[Any], batch_size: int = 4, on_error: str = "raise") -> list[Any]:
        """What `engine(x)` gives for each of the inputs, in order, in batches of inputs of the same shape.

        `inputs`: a list of what a call takes (arrays with or without the batch dimension, tuples, dicts), or an array
        whose rows are the inputs. `batch_size`: rows a call at most; several calls go on at once.

        An input that fails does not hold the others up: at the end a `BatchError` names its index and has the other
        outputs; with `on_error="return"` its exception stands in its place.

        Raises `InvalidArgumentError` for what is no list or no size.
        """
        return batches.run_all(self._rows, inputs, batch_size, self._prepare, self._finish, on_error)

    def stream(
        self,
        source: Any,
        prefetch: int = 2,
        *,
        policy: str = "block",
        on_error: str = "raise",
        details: bool = False,
    ) -> Stream:
        """What `engine(x)` gives for each input of a source, in order, while reading goes on: an iterator.

        - `source`: any iterable, or the number of a camera, a path or an address of a video (`rtsp://...`), whose
          frames are uint8 arrays (height, width, red-green-blue); PyAV reads them.
        - `prefetch`: inputs that wait at most, and outputs too.
        - `policy`: what happens when they do: "block" (the source waits) or "drop-oldest" (for cameras).
        - `on_error`: "raise", or "skip": inputs that fail, and bad frames, are left out, told of and counted.
        - `details`: True for `StreamResult`s, which have the input, its index, time and latency beside the output.

        `.stats` has counts, frames per second and percentiles of the latency; `.close()`, or leaving a `with`, ends it.

        Raises `InvalidArgumentError` for values that make no sense, and as `Video`.
        """
        split = None
        if is_video(source):
            source, split = Video(source, on_error), lambda frame: (frame.picture, frame.time)
        more = {} if split is None else {"split": split}
        return Stream(
            self, source, prefetch=prefetch, policy=policy, on_error=on_error, details=details,
            jobs=self._model.jobs, **more,
        )  # fmt: skip

    def _window_model(self, batch_size: int) -> Model:
        """The model as a function of windows."""
        batch_size = batches.check_batch_size(batch_size)
        self._rows.limit(batch_size)
        port = self.inputs[0]
        axes = len(port.shape) - 2
        if axes < 1:
            raise InvalidArgumentError(
                "sliding windows are for models of images",
                tensor=port.name,
                expected="an input with a batch, channels and spatial axes",
                got=str(list(port.shape)),
            )
        sizes = tuple(d if isinstance(d, int) and self._preprocess is None else None for d in port.shape[2:])
        names = [output.name for output in self.outputs]

        def predict(windows: Any) -> Arrays:
            return self._rows.run(self._prepare(windows)[0], batch_size)

        channels = port.shape[1] if isinstance(port.shape[1], int) and self._preprocess is None else None
        on_processor = self.device == "cpu"
        return Model(predict, axes, self._model.jobs, names, sizes, self._identity, channels, on_processor)

    def _prepare(self, given: Any) -> tuple[Arrays, bool]:
        """Arrays for the model, by name, and whether they came without the batch dimension."""
        if self._preprocess is not None:
            given = self._preprocess(*given) if isinstance(given, tuple) else self._preprocess(given)
        return self._rows.fitted(given)

    def _finish(self, outputs: Arrays, given: Any) -> Any:
        """Outputs in the form in which the inputs were given, after `postprocess`."""
        found: Any = outputs
        if not isinstance(given, Mapping):
            values = tuple(outputs.values())
            found = values[0] if len(values) == 1 else values
        return found if self._postprocess is None else self._postprocess(found)

    def __repr__(self) -> str:
        inputs, outputs = (
            ", ".join(f"{p.name}: {p.dtype}[{', '.join(map(str, p.shape))}]" for p in ports)
            for ports in (self.inputs, self.outputs)
        )
        return f"InferenceEngine({inputs} -> {outputs} on {self.device})"


#: The name that scripts written for TensorRT's engines have.
TensorRTInferenceEngine = InferenceEngine
