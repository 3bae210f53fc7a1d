"""Sliding windows over images of any size, in 2-D and 3-D, with MONAI's meanings."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from numbers import Real
from pathlib import Path
from tempfile import gettempdir
from typing import Any, NamedTuple

import numpy as np

from neurenix import memory
from neurenix.errors import Error, InvalidArgumentError, ShapeError
from neurenix.inference import augmentation, windows
from neurenix.inference.arrays_of import is_on_gpu
from neurenix.inference.batches import ON_ERROR
from neurenix.inference.flight import in_order
from neurenix.inference.images import Image, Windows
from neurenix.inference.journal import Journal, checksum
from neurenix.inference.layout import Layout
from neurenix.inference.rows import Arrays
from neurenix.inference.stitching import Stitcher
from neurenix.inference.targets import Target, paths_of
from neurenix.log import LOG

#: The share of the memory that is free which sums may take before they lie in a file.
SHARE = 0.25
#: What becomes of a window that can't be read or run.
SKIP = "skip"

#: Told of the windows that are done and of all windows.
Tell = Callable[[int, int], Any]


class Model(NamedTuple):
    """What windows go through: a function of a batch of them that gives outputs by name."""

    predict: Callable[[Any], Arrays]
    #: The number of spatial axes.
    axes: int
    #: The calls that may go on at once.
    jobs: int
    outputs: Sequence[str]
    #: The size of a window where the model takes no other, None where an axis is open.
    fixed: tuple[int | None, ...]
    identity: str
    #: The channels of a window; None where any number will do.
    channels: int | None = None
    #: Whether calls take the cores that copy windows.
    is_on_processor: bool = True


class Settings(NamedTuple):
    """How to slide, as `InferenceEngine.sliding_window_inference` takes it."""

    roi_size: Any
    overlap: Any
    batch_size: int
    mode: str
    sigma_scale: Any
    padding_mode: str
    cval: float
    roi_weight_map: Any
    tta: Any
    out: Any
    resume: bool
    overwrite: bool
    on_error: str
    max_memory: int | None
    progress: Any


def slide(model: Model, given: Any, settings: Settings) -> dict[str, Any]:
    """The outputs over a whole image, by name."""
    run = _Run(model, given, settings)
    with ExitStack() as stack:
        tell = _teller(stack, settings.progress)
        run.all(tell)
    return run.results()


class _Run:
    """One sliding window over one image."""

    def __init__(self, model: Model, given: Any, settings: Settings) -> None:
        if settings.on_error not in (ON_ERROR[0], SKIP):
            raise InvalidArgumentError("on_error is unknown", expected="'raise' or 'skip'", got=repr(settings.on_error))
        self._model = model
        self._settings = settings
        _check_numbers(settings)
        self._image = Image(given, model.axes)
        self._grid = windows.Grid.of(self._image.images, self._image.size, settings.roi_size, settings.overlap)
        self._image.check_channels(model.channels)
        self._check_roi()
        padding = windows.check_padding(settings.padding_mode, self._grid)
        self._pairs = augmentation.transforms(settings.tta, model.axes)
        self._weights = (
            windows.importance(self._grid.roi, settings.mode, settings.sigma_scale)
            if settings.roi_weight_map is None
            else windows.given_weights(settings.roi_weight_map, self._grid.roi)
        )
        self._free = memory.free() if settings.max_memory is None else settings.max_memory / SHARE
        self._windows = Windows(self._image, self._grid, padding, settings.cval, self._image.is_costly)
        if self._windows.bytes() > SHARE * self._free:
            self._windows = Windows(self._image, self._grid, padding, settings.cval, False)
        self._places = paths_of(settings.out, model.outputs)
        paths = [Path(place) for place in self._places.values() if _is_path(place)]
        size = (self._grid.images, self._grid.layers)
        self._journal = Journal(paths, self._asked(), size, settings.resume, settings.overwrite, given)
        self._targets: dict[str, Target] = {}
        self._stitchers: dict[str, Stitcher] = {}
        self._skipped: list[str] = []
        #: Layers that ended before any window gave an output.
        self._unwritten: list[tuple[int, int]] = []
        self._done = (self._journal.image, self._journal.layer)

    def _check_roi(self) -> None:
        for asked, built in zip(self._grid.roi, self._model.fixed, strict=True):
            if built is not None and asked != built:
                raise ShapeError(
                    "roi_size is not what the engine was built for",
                    expected=str(tuple("any" if n is None else n for n in self._model.fixed)),
                    got=str(self._grid.roi),
                    hint="give that roi_size, or build the engine for this one: input_shape=(1, channels, ...)",
                )

    def _asked(self) -> dict[str, Any]:
        """What decides about the bits of the output."""
        s, weights = self._settings, self._settings.roi_weight_map
        return {
            "model": self._model.identity,
            "image": {"shape": self._image.shape, "dtype": self._image.dtype},
            "roi_size": self._grid.roi,
            "overlap": self._grid.overlap,
            "batch_size": s.batch_size,
            "mode": str(s.mode) if weights is None else f"a map with the checksum {checksum(self._weights)}",
            "sigma_scale": s.sigma_scale,
            "padding": [str(s.padding_mode), float(s.cval)],
            "tta": s.tta if s.tta is None or isinstance(s.tta, str) else f"{len(s.tta)} functions",
        }

    def all(self, tell: Tell) -> None:
        """Runs all windows that are not done."""
        grid, journal = self._grid, self._journal
        first = grid.first_needed(journal.image, journal.layer)
        # The last batch runs in any case: it tells what the outputs are.
        batches = grid.batches(self._settings.batch_size, min(first, len(grid) - 1))
        under_way: tuple[int, int] | None = None
        jobs = self._jobs()
        with closing(in_order(self._predict, self._read(batches, jobs == 1), jobs)) as found:
            for (numbers, _), outputs, error in found:
                rows = self._rows(numbers, outputs, error)
                for number, row in zip(numbers, rows, strict=True):
                    if number < first:
                        continue
                    image, layer, corner = grid.window(number)
                    if under_way is not None and under_way != (image, layer):
                        self._finish(*under_way)
                    under_way = (image, layer)
                    for name, window in (row or {}).items():
                        self._stitchers[name].add(corner, window)
                tell(numbers.stop, len(grid))
        if under_way is not None:
            self._finish(*under_way)

    def _jobs(self) -> int:
        """The calls beside each other: several where there is something to wait for.

        Where windows are copied in memory and the processor runs them, a second call takes the cores and caches that
        the first one needs. On a GPU that holds the image too, calls are queued as they are.
        """
        if is_on_gpu(self._image.like):
            return 1
        files = self._image.is_costly or self._image.kind == "memmap" or any(map(_is_path, self._places.values()))
        return self._model.jobs if files or not self._model.is_on_processor else 1

    def _read(self, batches: Iterator[range], reuse: bool) -> Iterator[tuple[range, Any]]:
        """The windows of each batch, or what reading them raised; with `reuse` in the memory of the batch before."""
        kept = None
        for numbers in batches:
            try:
                batch = stack([self._windows.read(number) for number in numbers], kept)
                kept = batch if reuse else None
                yield numbers, batch
            except Exception as error:
                yield numbers, error

    def _predict(self, item: tuple[range, Any]) -> Arrays:
        if isinstance(item[1], Exception):
            raise item[1]
        outputs = augmentation.averaged(self._model.predict, item[1], self._pairs)
        for name, array in outputs.items():
            if len(array.shape) < 2 or array.shape[0] != len(item[0]):
                raise ShapeError(
                    "an output does not have a row for each window",
                    tensor=name,
                    expected=f"[{len(item[0])}, channels, ...]",
                    got=str(list(array.shape)),
                )
        return outputs

    def _rows(self, numbers: range, outputs: Arrays | None, error: Exception | None) -> list[Arrays | None]:
        """The outputs of each window; None for one that is left out."""
        if outputs is not None:
            prepared = self._prepared(outputs)
            return [{name: array[row] for name, array in prepared.items()} for row in range(len(numbers))]
        assert error is not None
        if self._settings.on_error != SKIP:
            if isinstance(error, Error):
                places = ", ".join(map(self._where, numbers))
                error.hint = f"{error.hint or ''} (in the windows at {places})".strip()
            raise error
        return [self._alone(number) for number in numbers]

    def _alone(self, number: int) -> Arrays | None:
        """A window of a batch that failed."""
        try:
            window = self._windows.read_alone(number)
            outputs = self._predict((range(number, number + 1), stack([window])))
        except Exception as reason:
            self._skipped.append(self._where(number))
            LOG.warning("the window at %s is left out: %s", self._skipped[-1], getattr(reason, "message", reason))
            return None
        return {name: array[0] for name, array in self._prepared(outputs).items()}

    def _where(self, number: int) -> str:
        image, _, corner = self._grid.window(number)
        place = tuple(c - before for c, before in zip(corner, self._grid.before, strict=True))
        return f"{place} of image {image}" if self._grid.images > 1 else str(place)

    def _prepared(self, outputs: Arrays) -> Arrays:
        """Outputs of a call in the form in which they are added."""
        self._begin(outputs)
        return {name: self._stitchers[name].prepared(array) for name, array in outputs.items()}

    def _begin(self, outputs: Arrays) -> None:
        """Makes room for the outputs, once it is known what they are."""
        if self._stitchers:
            return
        if set(outputs) != set(self._places):
            raise InvalidArgumentError(
                "the model gives other outputs than it says", expected=", ".join(self._places), got=", ".join(outputs)
            )
        layouts = {name: Layout.of(self._grid, name, array) for name, array in outputs.items()}
        # Beside the sums there are means of what is finished, and copies of what moves up.
        needed = 2 * sum(layout.bytes() for layout in layouts.values()) + self._windows.bytes()
        spill = needed > SHARE * self._free and not is_on_gpu(self._image.like)
        if spill:
            LOG.warning(
                "the sums of a layer of windows need %d MiB, and lie in a file in %s", needed >> 20, gettempdir()
            )
        if not self._journal.goes_on:
            # Before there is an output, so that one which is half made is known for what it is.
            self._journal.save(0, 0)
        allow_gaps = self._settings.on_error == SKIP
        for name, layout in layouts.items():
            target = Target(self._image, layout, self._places[name], self._journal.goes_on)
            self._targets[name] = target
            self._stitchers[name] = Stitcher(layout, self._weights, self._image.like, target, spill, allow_gaps)
        for image, layer in self._unwritten:
            self._finish(image, layer)

    def _finish(self, image: int, layer: int) -> None:
        """Writes what no later window reaches."""
        if not self._stitchers:
            self._unwritten.append((image, layer))
            return
        keep = (image, layer) >= self._done
        for stitcher in self._stitchers.values():
            stitcher.finish(image, layer, keep)
        self._image.let_go()
        for target in self._targets.values():
            target.settle()
        if keep:
            self._journal.save(*((image + 1, 0) if layer + 1 == self._grid.layers else (image, layer + 1)))

    def results(self) -> dict[str, Any]:
        """The outputs, of the kind of the image."""
        if not self._targets:
            raise InvalidArgumentError(
                "every window failed, and there is no output", got=f"{len(self._skipped)} windows"
            )
        if self._skipped:
            LOG.warning("%d windows were left out; what no other window covers is NaN", len(self._skipped))
        return {name: target.result() for name, target in self._targets.items()}


def _is_path(place: Any) -> bool:
    return isinstance(place, (str, Path))


def _check_numbers(settings: Settings) -> None:
    """Raises `InvalidArgumentError` for a value to fill up with or a limit that is no number."""
    if isinstance(settings.cval, bool) or not isinstance(settings.cval, Real):
        raise InvalidArgumentError("cval is the number that images are filled up with", got=repr(settings.cval))
    most = settings.max_memory
    if most is not None and (isinstance(most, bool) or not isinstance(most, Real) or not float(most) >= 0):
        raise InvalidArgumentError("max_memory is a number of bytes", expected="0, 1, ...", got=repr(most))


def stack(found: Sequence[Any], kept: Any = None) -> Any:
    """Windows as a batch; those of numpy in the memory of a batch that is done with, where it has room for them."""
    first = found[0]
    if not isinstance(first, np.ndarray):
        return sys.modules["torch"].stack(list(found))
    fits = kept is not None and len(kept) >= len(found) and (kept.shape[1:], kept.dtype) == (first.shape, first.dtype)
    return np.stack(found, out=kept[: len(found)] if fits else None)


def _teller(stack: ExitStack, progress: Any) -> Tell:
    """What is told of each batch that is done."""
    if not progress:
        return lambda done, windows: None
    if callable(progress):
        called: Tell = progress
        return called
    # The command line imports this package.
    from neurenix.cli import progress as terminal

    show = stack.enter_context(terminal.step("inference"))
    return lambda done, windows: show(done / windows, f"{done} of {windows} windows")
