"""Runs a model over a video or a camera, and draws what was found; prints frames per second at its end.

Ctrl-C ends it, and leaves a file that plays.
"""

from __future__ import annotations

import argparse
import itertools
import json
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from neurenix import arrays
from neurenix.cli import progress
from neurenix.cli.common import add_model_arguments, amount, count, optimize, options, write_json
from neurenix.cli.models import is_engine, load_given
from neurenix.errors import FormatError, ShapeError, UnsupportedError
from neurenix.files import read
from neurenix.hardware import get_backend
from neurenix.hardware.optimized import OptimizedModel
from neurenix.inference import InferenceEngine, Stream, StreamResult, Video, VideoWriter, drawing, pictures
from neurenix.inference.detections import Results, names_of, results_of
from neurenix.inference.opening import load_engine, metadata_of
from neurenix.inference.streaming import ON_ERROR, POLICIES
from neurenix.inference.video import Frame
from neurenix.packages import need

TASKS = ("detect", "segment")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    add_model_arguments(parser)
    parser.add_argument("source", help="a file, an address (rtsp://...), or the number of a camera")
    parser.add_argument("--output", "-o", metavar="FILE", help="the video with boxes or masks (none is written)")
    parser.add_argument("--task", choices=TASKS, help="what the outputs are (by their shape: boxes or a mask)")
    parser.add_argument("--confidence", type=amount, default=0.25, help="of boxes, at least (0.25)")
    parser.add_argument("--iou", type=amount, default=0.45, help="of boxes of a class that stay, at most (0.45)")
    parser.add_argument("--names", metavar="FILE", help="of the classes: JSON, a list or a dict by number")
    parser.add_argument("--frames", type=count, metavar="N", help="end after so many")
    parser.add_argument("--policy", choices=POLICIES, help="where it is too slow (block; drop-oldest for cameras)")
    parser.add_argument("--on-error", choices=ON_ERROR, default="skip", help="bad frames: raise or skip (skip)")
    parser.add_argument("--show", action="store_true", help="in a window, by the OpenCV that is installed")


class Found(NamedTuple):
    """What came of a frame."""

    frame: Frame
    output: Any
    fit: pictures.Fit


def run(arguments: argparse.Namespace) -> int:
    """Writes and prints; 130 where Ctrl-C ended it."""
    given = arguments.source
    source: Any = int(given) if given.isdecimal() else given
    video = Video(source, "raise" if arguments.on_error == "raise" else "skip")
    model = _model(arguments)
    engine = InferenceEngine(model)
    names = names_of(read(arguments.names, "the names").decode()) if arguments.names else _names(arguments.model)
    shape = model.example()[engine.inputs[0].name].shape
    task = _task(arguments.task, engine)
    policy = arguments.policy or ("drop-oldest" if isinstance(source, int) else "block")
    frames = video if arguments.frames is None else itertools.islice(video, arguments.frames)
    interrupted = False
    with Stream(
        _through(engine, shape, task), frames, policy=policy, on_error=arguments.on_error, details=True,
        jobs=model.jobs,
    ) as stream, ExitStack() as stack:  # fmt: skip
        try:
            draw = _drawer(task, names, arguments)
            _take(stream, video, arguments, draw, stack)
        except KeyboardInterrupt:
            interrupted = True
    stats = stream.stats
    stats.skipped += video.skipped
    if not stats.done and not interrupted and arguments.frames != 0:
        raise FormatError("no frame came of the video", got=f"{given}: {stats.skipped} bad ones")
    content = {
        "source": given, "output": arguments.output, "task": task, "frames": stats.done, "dropped": stats.dropped,
        "skipped": stats.skipped, "fps": stats.fps, "interrupted": interrupted, "passed": not interrupted,
        "latency_ms": {f"percentile({share}%)": stats.percentile(share) for share in (50, 90, 95, 99)},
    }  # fmt: skip
    if not write_json(arguments.json, content):
        print(stats)
        if arguments.output and stats.done:
            print(f"written: {arguments.output}")
    return 130 if interrupted else 0


def _model(arguments: argparse.Namespace) -> OptimizedModel:
    if is_engine(arguments.model):
        return load_engine(get_backend(arguments.backend), Path(arguments.model), options(arguments))
    return optimize(arguments, load_given(arguments))


def _names(model: str) -> dict[int, str]:
    """Names of classes that the model's file has."""
    text = metadata_of(model).get("names")
    return {} if text is None else names_of(text if isinstance(text, str) else json.dumps(text))


def _task(asked: str | None, engine: InferenceEngine) -> str:
    port = engine.inputs[0]
    if len(port.shape) != 4:
        raise ShapeError(
            "the model takes no pictures", tensor=port.name, expected="[1, 3, height, width]", got=str(list(port.shape))
        )
    by_rank = {3: "detect", 4: "segment"}
    found = asked or by_rank.get(len(engine.outputs[0].shape))
    if found is None:
        raise UnsupportedError(
            "nothing can be drawn of this output", tensor=engine.outputs[0].name,
            expected="boxes [1, boxes, values] or scores [1, classes, height, width]",
            got=str(list(engine.outputs[0].shape)), hint="use engine.stream(source) and draw it yourself",
        )  # fmt: skip
    return found


def _through(engine: InferenceEngine, shape: tuple[int, ...], task: str) -> Callable[[Frame], Found]:
    """What is done to a frame on a thread of the stream."""
    port, (_, channels, height, width) = engine.inputs[0], shape
    put = pictures.letterboxed if task == "detect" else pictures.stretched

    def through(frame: Frame) -> Found:
        picture, fit = put(frame.picture, height, width)
        outputs = engine(pictures.planes(picture, channels, port.dtype))
        first = outputs[0] if isinstance(outputs, tuple) else outputs
        return Found(frame, arrays.to_numpy(first)[0], fit)

    return through


def _drawer(task: str, names: dict[int, str], arguments: argparse.Namespace) -> Callable[[Found], Any]:
    def draw(found: Found) -> Any:
        picture = found.frame.picture
        if task == "segment":
            return drawing.mask(picture, found.output)
        results: Results = results_of(
            found.output, picture, found.fit.scale, found.fit.offset, names, arguments.confidence, arguments.iou
        )
        return drawing.boxes(picture, results)

    return draw


def _take(
    stream: Stream, video: Video, arguments: argparse.Namespace, draw: Callable[[Found], Any], stack: ExitStack
) -> None:
    """Draws, writes and shows what comes."""
    writer: VideoWriter | None = None
    show = _window() if arguments.show else None
    with progress.step("running") as tell:
        for result in stream:
            assert isinstance(result, StreamResult)
            found: Found = result.output
            picture = draw(found) if arguments.output or show else found.frame.picture
            if arguments.output:
                if writer is None:
                    size = found.frame.picture.shape[:2]
                    made = VideoWriter(arguments.output, size, video.rate, found.frame.time_base)
                    writer = stack.enter_context(made)
                writer.write(picture, found.frame.pts)
            if show is not None and not show(picture):
                break
            tell(result.index / max(video.frames, result.index + 1), str(stream.stats))


def _window() -> Callable[[Any], bool]:
    """Shows a picture, and says whether to go on: until q or Escape is pressed."""
    cv2: Any = need("cv2", "showing pictures")

    def show(picture: Any) -> bool:
        try:
            cv2.imshow("neurenix", np.ascontiguousarray(picture[:, :, ::-1]))
            return cv2.waitKey(1) & 0xFF not in (27, ord("q"))
        except cv2.error as error:
            raise UnsupportedError(
                "the OpenCV that is installed shows no windows here", got=str(error).splitlines()[0],
                hint='install one that does (pip install "opencv-python>=4.8") and start it where there is a display',
            ) from error  # fmt: skip

    return show
