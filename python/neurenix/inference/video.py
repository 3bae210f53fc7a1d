"""Frames of cameras, files and addresses, and files of frames, by PyAV."""

from __future__ import annotations

import os
from collections.abc import Iterator
from fractions import Fraction
from types import TracebackType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from neurenix.errors import FileError, FormatError, InvalidArgumentError
from neurenix.log import LOG
from neurenix.packages import need

#: Encoders in the order of preference; which are there depends on how PyAV was built.
ENCODERS = ("libx264", "libopenh264", "mpeg4")
#: Beginnings of addresses that a network stands behind.
ADDRESSES = ("rtsp://", "rtmp://", "http://", "https://", "udp://", "tcp://", "srt://")
#: Seconds after which a network that is silent is given up.
TIMEOUT = (10.0, 10.0)

Picture = NDArray[np.uint8]


class Frame(NamedTuple):
    """A picture (uint8, height, width, red-green-blue), its time in seconds, and its time stamp with its unit."""

    picture: Picture
    time: float | None
    pts: int | None
    time_base: Fraction | None


def is_video(source: Any) -> bool:
    """Whether frames come of this: the number of a camera, a path, an address."""
    return (isinstance(source, int) and not isinstance(source, bool)) or isinstance(source, (str, os.PathLike))


class Video:
    """The frames of a camera (its number), a file or an address (RTSP and others), in order. Iterate over it once.

    Bad frames are left out and counted (`skipped`), or with `on_error="raise"` end the iteration.

    Raises `FileError` where nothing can be opened, `FormatError` where there are no pictures in it or, with "raise",
    one is bad, `MissingPackageError` without PyAV, and `InvalidArgumentError` where it is iterated over again.
    """

    def __init__(self, source: int | str | os.PathLike[str], on_error: str = "skip") -> None:
        self._av = need("av", "reading a video")
        self._on_error = on_error
        self._is_read = False
        self.skipped = 0
        name, options = _address(source)
        try:
            self._container = self._av.open(name, **options)
        except (OSError, ValueError, self._av.error.FFmpegError) as error:
            reason = getattr(error, "strerror", None) or error
            raise FileError(f"the video can't be opened: {reason}", got=str(source)) from error
        if not self._container.streams.video:
            self._container.close()
            raise FormatError("there are no pictures in the file", got=str(source))
        self._stream = self._container.streams.video[0]
        self._stream.thread_type = "AUTO"
        # Read now: PyAV's streams can't be asked any more when their container is closed (it ends the process).
        #: Height and width.
        self.size = int(self._stream.height), int(self._stream.width)
        #: Frames per second, as the source says it; 30 where it does not.
        self.rate = Fraction(self._stream.average_rate or self._stream.guessed_rate or 30)
        #: The unit of its time stamps in seconds.
        self.time_base = Fraction(self._stream.time_base)
        #: How many frames there are, as the source says it; 0 where it does not.
        self.frames = int(self._stream.frames)

    def __iter__(self) -> Iterator[Frame]:
        if self._is_read:
            raise InvalidArgumentError(
                "the frames of a video come once", got=str(self._container.name), hint="open it again: Video(...)"
            )
        self._is_read = True
        return self._frames()

    def _frames(self) -> Iterator[Frame]:
        try:
            for packet in self._packets():
                for frame in self._decoded(packet):
                    yield Frame(frame.to_ndarray(format="rgb24"), frame.time, frame.pts, frame.time_base)
        finally:
            self._container.close()

    def _packets(self) -> Iterator[Any]:
        try:
            yield from self._container.demux(self._stream)
        except self._av.error.FFmpegError as error:
            self._bad(error)

    def _decoded(self, packet: Any) -> list[Any]:
        try:
            return list(packet.decode())
        except self._av.error.FFmpegError as error:
            self._bad(error)
            return []

    def _bad(self, error: Exception) -> None:
        if self._on_error == "raise":
            raise FormatError(f"a frame of the video is bad: {error}", got=str(self._container.name)) from error
        self.skipped += 1
        if self.skipped == 1:
            LOG.warning("a bad frame of %s is left out: %s; more are counted", self._container.name, error)


def _address(source: int | str | os.PathLike[str]) -> tuple[str, dict[str, Any]]:
    """What PyAV opens, and how."""
    if isinstance(source, int):
        if source < 0:
            raise InvalidArgumentError("there is no such camera", expected="0, 1, ...", got=str(source))
        return f"/dev/video{source}", {"format": "v4l2"}
    name = os.fspath(source)
    if name.startswith(ADDRESSES):
        options = {"rtsp_transport": "tcp"} if name.startswith("rtsp://") else {}
        return name, {"options": options, "timeout": TIMEOUT}
    if not os.path.exists(name):
        raise FileError("there is no such video", expected="a file, an address, or the number of a camera", got=name)
    return name, {}


class VideoWriter:
    """A file that pictures of one size are written to; used in a `with`, it is whole however that ends.

    `size` is height and width; `rate` frames per second; with a `time_base` the time stamps of frames are kept, else
    frames follow each other at that rate.

    Raises `FileError` when it can't be written, and `MissingPackageError` without PyAV.
    """

    def __init__(
        self, path: str | os.PathLike[str], size: tuple[int, int], rate: Fraction, time_base: Fraction | None = None
    ) -> None:
        self._av = need("av", "writing a video")
        self._path = os.fspath(path)
        self._last = -1
        self._size = size
        self._time_base = time_base
        self._is_closed = False
        try:
            self._container = self._av.open(self._path, "w")
            encoder = next(name for name in ENCODERS if name in self._av.codecs_available)
            self._stream = self._container.add_stream(encoder, rate=rate)
            # Colour is kept for each 2x2 pixels.
            self._stream.height, self._stream.width = (n + n % 2 for n in size)
            self._stream.pix_fmt = "yuv420p"
            if time_base is not None:
                self._stream.codec_context.time_base = time_base
            # The file is opened here, and not with the first picture.
            self._container.start_encoding()
        except (OSError, ValueError, self._av.error.FFmpegError) as error:
            raise self._unwritten(error) from error

    def write(self, picture: Picture, pts: int | None = None) -> None:
        """Writes a picture (uint8, height, width, red-green-blue) with a time stamp in units of `time_base`."""
        if self._is_closed:
            raise InvalidArgumentError("the video is closed, and takes no more pictures", got=self._path)
        if picture.shape != (*self._size, 3) or picture.dtype != np.uint8:
            raise InvalidArgumentError(
                "the picture does not fit the video", expected=f"uint8{[*self._size, 3]}",
                got=f"{picture.dtype}{list(picture.shape)}",
            )  # fmt: skip
        height, width = self._size
        if height % 2 or width % 2:
            picture = np.pad(picture, ((0, height % 2), (0, width % 2), (0, 0)), "edge")
        frame = self._av.VideoFrame.from_ndarray(np.ascontiguousarray(picture), format="rgb24")
        # Encoders refuse time stamps that do not grow.
        stamp = self._last + 1 if pts is None or self._time_base is None else max(pts, self._last + 1)
        frame.pts = self._last = stamp
        if self._time_base is not None:
            frame.time_base = self._time_base
        self._put(frame)

    def _put(self, frame: Any = None) -> None:
        """Encodes a frame, or what the encoder still has."""
        try:
            self._container.mux(self._stream.encode(frame))
        except (OSError, self._av.error.FFmpegError) as error:
            raise self._unwritten(error) from error

    def _unwritten(self, error: Exception) -> FileError:
        reason = getattr(error, "strerror", None) or error
        return FileError(f"the video can't be written: {reason}", got=self._path)

    def close(self) -> None:
        """Writes what is left, and the index without which players can't open the file."""
        if self._is_closed:
            return
        self._is_closed = True
        try:
            if self._last >= 0:
                self._put()
        finally:
            try:
                self._container.close()
            except (OSError, self._av.error.FFmpegError) as error:
                raise self._unwritten(error) from error

    def __enter__(self) -> VideoWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
