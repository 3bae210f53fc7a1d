"""`neurenix video`, drawing and detectors' outputs: on films that are rendered here, without a display."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from neurenix import FileError, FormatError, InvalidArgumentError, ShapeError
from neurenix.cli import main
from neurenix.inference import InferenceEngine, Video, drawing, pictures
from neurenix.inference.detections import decode, names_of, results_of, suppress
from tests.inference.conftest import optimized
from tests.inference.films import SIDE, SIZE, picture, place, render

av = pytest.importorskip("av", reason="PyAV is not installed")
torch = pytest.importorskip("torch")


class Finder(torch.nn.Module):  # type: ignore[misc, name-defined]
    """Gives a box of class 1 around what is bright, in the layout of YOLOv8 with 3 classes: [1, 7, 2]."""

    def forward(self, x: Any) -> Any:
        bright = (x.mean(1) > 0.55).float()
        rows, columns = torch.arange(float(x.shape[2])), torch.arange(float(x.shape[3]))
        count = bright.sum((1, 2)).clamp_min(1)
        y, x = (bright.sum(2) * rows).sum(1) / count, (bright.sum(1) * columns).sum(1) / count
        side = count.sqrt()
        box = torch.stack([x + 0.5, y + 0.5, side, side, side * 0, side * 0 + 0.9, side * 0], 1)
        return torch.stack([box, box * 0], 2)


class Mask(torch.nn.Module):  # type: ignore[misc, name-defined]
    """Scores of a background and of what is bright."""

    def forward(self, x: Any) -> Any:
        bright = x.mean(1, keepdim=True) - 0.5
        return torch.cat([-bright, bright], 1)


@pytest.fixture(scope="module")
def film(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("film") / "film.mp4"
    render(path, 40)
    return path


@pytest.fixture(scope="module")
def finder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("finder") / "finder.engine"
    optimized(Finder(), (1, 3, 96, 96), most=None).save(path)
    return path


@pytest.fixture(scope="module")
def mask(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("mask") / "mask.engine"
    optimized(Mask(), (1, 3, 48, 64), most=None).save(path)
    return path


def test_boxes_lie_where_things_are(
    film: Path, finder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "names.json").write_text('["cat", "dog", "fox"]')
    arguments = [
        "video",
        str(finder),
        str(film),
        "-o",
        str(tmp_path / "out.mp4"),
        "--names",
        str(tmp_path / "names.json"),
    ]
    assert main([*arguments, "--json", str(tmp_path / "report.json")]) == 0
    assert "40 frames" in capsys.readouterr().out
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["frames"] == 40 and report["fps"] > 0 and report["task"] == "detect" and report["passed"]
    frames = list(Video(tmp_path / "out.mp4"))
    assert [round(frame.time or 0, 3) for frame in frames] == [round(i / 25, 3) for i in range(40)]
    colour = drawing.COLOURS[1].astype(int)
    for number, frame in enumerate(frames):
        top, left = place(number)
        edge = frame.picture[top + 2 : top + SIDE - 2, left + SIDE - 4 : left + SIDE + 3].astype(int)
        # The box is drawn within three pixels of the square, in the colour of its class.
        assert np.abs(edge - colour).sum(2).min() < 150, number


def test_masks_lie_where_things_are(film: Path, mask: Path, tmp_path: Path) -> None:
    assert main(["video", str(mask), str(film), "-o", str(tmp_path / "out.mp4"), "--frames", "12"]) == 0
    frames = list(Video(tmp_path / "out.mp4"))
    assert len(frames) == 12
    for number, frame in enumerate(frames):
        top, left = place(number)
        mixed = (picture(number)[top + 12, left + 12] + drawing.COLOURS[0].astype(int)) / 2
        assert np.abs(frame.picture[top + 12, left + 12] - mixed).max() < 40
        assert frame.picture[5, 5].max() < 45


@pytest.mark.exclusive
def test_ctrl_c_leaves_a_film_that_plays(finder: Path, tmp_path: Path) -> None:
    render(tmp_path / "long.mp4", 1000, (480, 640))
    out = tmp_path / "out.mp4"
    command = ["video", str(finder), str(tmp_path / "long.mp4"), "-o", str(out)]
    # At ten seconds and more it is not at its end when it is interrupted. A shell's background processes ignore
    # Ctrl-C, and with them what they start, such as these tests.
    code = """
import signal, sys, time
from neurenix.cli import main
from neurenix.inference.video import Video
signal.signal(signal.SIGINT, signal.default_int_handler)
frames = Video._frames
Video._frames = lambda video: (time.sleep(0.01) or frame for frame in frames(video))
sys.exit(main(sys.argv[1:]))
"""
    process = subprocess.Popen([sys.executable, "-c", code, *command], stdout=subprocess.PIPE, text=True)
    end = time.monotonic() + 60
    while not out.exists() and time.monotonic() < end:
        time.sleep(0.02)
    time.sleep(2)
    process.send_signal(signal.SIGINT)
    printed, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    frames = list(Video(out))
    # The last one may have been on its way.
    assert 0 < len(frames) < 1000 and 0 <= int(printed.split()[0]) - len(frames) <= 1


def test_bad_frames_are_counted(film: Path, finder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = bytearray(film.read_bytes())
    begin, end = data.index(b"mdat") + 4, data.index(b"moov") - 4
    middle = begin + (end - begin) // 3
    data[middle : middle + 400] = bytes(400)
    (tmp_path / "bad.mp4").write_bytes(data)
    assert main(["video", str(finder), str(tmp_path / "bad.mp4"), "-o", str(tmp_path / "out.mp4")]) == 0
    assert len(list(Video(tmp_path / "out.mp4"))) > 5


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["missing.mp4"], "no such video"),
        (["FILM", "-o", "FILM"], "would replace what is read"),
        (["FILM", "-o", "/nowhere/out.mp4"], "can't be written"),
        (["FILM", "--names", "/nowhere/names.json"], "can't be read"),
        (["63"], "can't be opened"),
    ],
)
def test_wrong_calls(words: list[str], text: str, film: Path, finder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["video", str(finder), *(str(film) if word == "FILM" else word for word in words)]) == 1
    assert text in capsys.readouterr().err


def test_show_opens_a_window(film: Path, finder: Path, tmp_path: Path) -> None:
    pytest.importorskip("cv2", reason="OpenCV is not installed")
    xvfb = shutil.which("Xvfb")
    if xvfb is None:
        pytest.skip("Xvfb is not installed")
    display = f":{os.getpid() % 1000 + 100}"
    server = subprocess.Popen([xvfb, display, "-screen", "0", "640x480x24"], stderr=subprocess.DEVNULL)
    try:
        time.sleep(1)
        code = "import sys; from neurenix.cli import main; sys.exit(main(sys.argv[1:]))"
        command = [sys.executable, "-c", code, "video", str(finder), str(film), "--show", "--frames", "5"]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=120, env=os.environ | {"DISPLAY": display}, check=False
        )
    finally:
        server.terminate()
        server.wait()
    assert (done.returncode == 0 and "5 frames" in done.stdout) or "shows no windows" in done.stderr


def test_the_layouts_of_detectors(rng: np.random.Generator) -> None:
    xyxy = rng.random((40, 4)).astype(np.float32) * 50
    xyxy[:, 2:] += xyxy[:, :2]
    scores = rng.random((40, 3)).astype(np.float32)
    middle = np.concatenate([(xyxy[:, :2] + xyxy[:, 2:]) / 2, xyxy[:, 2:] - xyxy[:, :2]], 1)
    best, label = scores.max(1), scores.argmax(1)
    objectness = np.full((40, 1), 0.5, np.float32)
    v5, v8 = np.concatenate([middle, objectness, scores], 1), np.concatenate([middle, scores], 1).T
    end = np.concatenate([xyxy, best[:, None], label[:, None]], 1)
    for output, classes, share in ((v5, 3, 0.5), (v5[None], None, 0.5), (v8, 3, 1), (v8[None], None, 1), (end, 3, 1)):
        boxes, confidence, found = decode(output, classes)
        np.testing.assert_allclose(boxes, xyxy, atol=1e-4)
        np.testing.assert_allclose(confidence, best * share, atol=1e-6)
        np.testing.assert_array_equal(found, label)
    for bad in (np.zeros((3, 4)), np.zeros(7), np.zeros((2, 7, 40))):
        with pytest.raises(ShapeError, match="no output of a detector"):
            decode(bad)


def test_suppression_is_torchvisions(rng: np.random.Generator) -> None:
    ops = pytest.importorskip("torchvision.ops", reason="torchvision is not installed")
    for count in (0, 1, 300):
        boxes = rng.random((count, 4)).astype(np.float32) * 50
        boxes[:, 2:] += boxes[:, :2]
        scores, classes = rng.random(count).astype(np.float32), rng.integers(0, 3, count)
        expected = ops.batched_nms(*map(torch.from_numpy, (boxes, scores, classes)), 0.45)
        np.testing.assert_array_equal(suppress(boxes, scores, classes, 0.45), expected)


def test_results_in_the_pixels_of_the_picture() -> None:
    image = picture(3)
    boxed, fit = pictures.letterboxed(image, 96, 96)
    assert boxed.shape == (96, 96, 3) and (boxed[:12] == pictures.GREY).all()
    x1, y1, x2, y2 = 8 + 12.0, 10 + 9.0, 44.0, 43.0
    box = np.array([x1, y1, x2, y2]) * np.tile(fit.scale, 2) + np.tile(fit.offset, 2)
    found = results_of(np.array([[*box, 0.9, 2], [*box, 0.1, 1]]), image, fit.scale, fit.offset, {2: "fox"})
    np.testing.assert_allclose(found.boxes.xyxy, [[x1, y1, x2, y2]], atol=1e-4)
    np.testing.assert_allclose(found.boxes.xywh, [[(x1 + x2) / 2, (y1 + y2) / 2, x2 - x1, y2 - y1]], atol=1e-4)
    assert found.name(found.boxes.cls[0]) == "fox" and found.boxes.conf[0] == np.float32(0.9) and len(found.boxes) == 1


def test_names_of_ultralytics_files(finder: Path, tmp_path: Path) -> None:
    assert names_of("{0: 'person', 1: 'cat'}") == {0: "person", 1: "cat"} == names_of('["person", "cat"]')
    with pytest.raises(InvalidArgumentError, match="names of classes"):
        names_of("__import__('os').getcwd()")
    header = json.dumps({"names": {"0": "person", "1": "cat"}, "task": "detect"}).encode()
    headed = tmp_path / "yolo.engine"
    headed.write_bytes(len(header).to_bytes(4, "little") + header + finder.read_bytes())
    engine = InferenceEngine(headed, warmup=0)
    x = np.random.default_rng(0).random((1, 3, 96, 96), np.float32)
    np.testing.assert_array_equal(engine(x), InferenceEngine(finder, warmup=0)(x))
    assert names_of(json.dumps(engine.metadata["names"])) == {0: "person", 1: "cat"}
    headed.write_bytes(len(header).to_bytes(4, "little") + header + b"ftrt" + bytes(1000))
    with pytest.raises(FormatError, match="no engine of ours"):
        InferenceEngine(headed)
    assert SIZE == (96, 128)


def test_films_of_one_frame_and_of_none(film: Path, finder: Path, tmp_path: Path, capsys: Any) -> None:
    render(tmp_path / "one.mp4", 1)
    assert main(["video", str(finder), str(tmp_path / "one.mp4"), "-o", str(tmp_path / "out.mp4")]) == 0
    assert len(list(Video(tmp_path / "out.mp4"))) == 1
    render(tmp_path / "whole.mkv", 20)
    data = (tmp_path / "whole.mkv").read_bytes()
    # The head says what is in the file; no frame is.
    head = data.index(bytes.fromhex("1f43b675"))
    (tmp_path / "none.mkv").write_bytes(data[:head])
    with pytest.raises(FileError, match="can't be opened: End of file"):
        Video(tmp_path / "none.mkv")
    (tmp_path / "none.mkv").write_bytes(data[: head + 200])
    capsys.readouterr()
    assert main(["video", str(finder), str(tmp_path / "none.mkv"), "-o", str(tmp_path / "no.mp4")]) == 1
    said = capsys.readouterr()
    assert "no frame came" in said.err and "written" not in said.out and not (tmp_path / "no.mp4").exists()
