"""Sliding windows as a method of what runs on windows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from neurenix.errors import InvalidArgumentError
from neurenix.inference.batches import check_batch_size
from neurenix.inference.images import kind_of
from neurenix.inference.sliding import Model, Settings, slide


class Windowed:
    """What has `sliding_window_inference`."""

    _postprocess: Callable[..., Any] | None = None

    def _window_model(self, batch_size: int) -> Model:
        """The model as a function of windows."""
        raise NotImplementedError

    def sliding_window_inference(
        self,
        image: Any,
        roi_size: Any = (256, 256),
        overlap: Any = 0.25,
        batch_size: int = 4,
        mode: str = "gaussian",
        progress: Any = False,
        *,
        sigma_scale: Any = 0.125,
        padding_mode: str = "constant",
        cval: float = 0.0,
        roi_weight_map: Any = None,
        tta: Any = None,
        out: Any = None,
        resume: bool = False,
        overwrite: bool = False,
        on_error: str = "raise",
        max_memory: int | None = None,
    ) -> Any:
        """What the model gives for an image or volume larger than its input, from windows that overlap.

        - `image`: images, channels, spatial axes, of which the first, or both of the first two, may be missing; the
          output then lacks them too. An array of numpy or torch (MONAI's MetaTensor too), a `numpy.memmap` (as
          `tifffile.memmap` gives it), a zarr or a Dask array. The output is of the same kind.
        - `roi_size`: of a window along each spatial axis, one number for all; None or -1 is the size of the image.
        - `overlap`: the share of a window that the next one covers too, from 0 to below 1; one, or one for each axis.
        - `batch_size`: windows a call. Several calls go on at once.
        - `mode`: "gaussian", where windows count less towards their edges (`sigma_scale` of their size), or "constant".
          `roi_weight_map`: an array of the size of a window that says what each element counts instead.
        - `padding_mode`, `cval`: how an image is filled up that is smaller than a window: "constant" (with `cval`),
          "reflect", "replicate", "circular".
        - `progress`: True for a line on the terminal, or a function of the windows done and of all.
        - `tta`: "mirror" (along each set of axes), "d4" (turns and mirror images in the last two axes), or pairs of
          functions of a batch of windows and of its outputs; the outputs are averaged.
        - `out`: where the output goes: a path that ends with .zarr, .tif or .npy, or an array of its shape, and for
          several outputs a dict of such. Without it a zarr, mapped or Dask output lies in a temporary file.
        - `resume`: go on with the output at `out` where a run was killed; `overwrite`: replace it.
        - `on_error`: "raise", or "skip": windows that can't be read or run are left out and told of, and what no other
          window covers is NaN.
        - `max_memory`: bytes that the sums of windows may take before they lie in a temporary file; None for a quarter
          of what is free.

        Memory is needed for one layer of windows along the longest axis, not for the image: outputs are written as
        they come. An output of another scale (a window that comes out twice as large) makes an output of that scale.
        Outputs come as `engine(x)` gives them: one array, or a tuple. `preprocess` sees each batch of windows,
        `postprocess` the whole output.

        Raises `InvalidArgumentError`, `ShapeError` and `DTypeError` for what does not fit, `FileError` for an output
        that is there already, and as a call does.
        """
        batch_size = check_batch_size(batch_size)
        model = self._window_model(batch_size)
        if self._postprocess is not None and (out is not None or kind_of(image) in ("zarr", "dask", "memmap")):
            raise InvalidArgumentError(
                "postprocess gets the whole output, and this one is written as it comes",
                hint="make an engine without postprocess=, and apply it to the output block by block",
            )
        settings = Settings(
            roi_size, overlap, batch_size, mode, sigma_scale, padding_mode, cval, roi_weight_map,
            tta, out, resume, overwrite, on_error, max_memory, progress,
        )  # fmt: skip
        found = tuple(slide(model, image, settings).values())
        outputs = found[0] if len(found) == 1 else found
        return outputs if self._postprocess is None else self._postprocess(outputs)
