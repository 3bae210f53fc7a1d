"""Engine files of every format version open, and give what they gave; code and files are never out of step."""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import neurenix as nx

pytest.importorskip("onnx")
pytest.importorskip("xxhash")
from fuzz.engine_file import File
from tests.engine.sound import backend
from tests.engine.versions import BIAS, DATA, FILES, OLDER, WEIGHTS, expected, sample

#: The newest format version.
NEWEST = 5


def test_a_file_of_every_version_is_kept() -> None:
    kept = {path.name: File.read(path.read_bytes()).version for path in DATA.glob("*.engine")}
    assert set(kept) == {*FILES, *OLDER} and set(kept.values()) == set(range(1, NEWEST + 1))
    assert max(kept[name] for name in FILES) == NEWEST
    assert all(name.startswith(f"engine-{version}") for name, version in kept.items())


@pytest.mark.parametrize("name", ["engine-1.engine", "engine-2.engine", "engine-3.engine", "engine-4.engine"])
def test_plain_engines_open(name: str) -> None:
    opened = backend().load(DATA / name)
    assert opened.profiles[0]["n"] == (1, 2, 4) and opened.profiles[1]["m"] == (2, 6, 8)
    for rows in (1, 3, 8):
        given = sample(rows)
        np.testing.assert_allclose(opened(given)["y"], expected(given), rtol=1e-5, atol=1e-5)
    with pytest.raises(nx.ShapeError, match="do not go together"):
        opened({"x": sample(3)["x"], "z": sample(2)["z"]})


@pytest.mark.parametrize("name", ["engine-1-stages.engine", "engine-3-stages.engine"])
def test_an_engine_with_networks_in_its_layers_opens(name: str) -> None:
    opened = backend().load(DATA / name)
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    for flag, want in ((True, x + x), (False, x - 1)):
        np.testing.assert_array_equal(opened({"c": np.array(flag), "x": x})["y"], want)


@pytest.mark.parametrize(("name", "said"), [
    ("engine-1.engine", "cpu of nobody, .*, here cpu "),
    ("engine-3.engine", "processor of nobody, .*, here "),
    ("engine-4.engine", "processor of nobody, .*, here "),
])  # fmt: skip
def test_times_of_another_machine_are_said_and_measured_anew(
    name: str, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "neurenix"):
        backend().load(DATA / name, optimization_level=1)
    told = [r.getMessage() for r in caplog.records if "planned anew" in r.getMessage()]
    assert len(told) == 1 and re.search(said, told[0]), told


@pytest.mark.parametrize("name", ["engine-2.engine", "engine-3.engine", "engine-4.engine"])
def test_an_engine_that_keeps_its_source_is_refitted(name: str) -> None:
    opened = backend().load(DATA / name)
    opened.update_weights({"w": 2 * WEIGHTS, "b": 2 * BIAS})
    given = sample(2)
    doubled = expected(given) * 2 - given["z"].reshape(-1, 2)
    np.testing.assert_allclose(opened(given)["y"], doubled, rtol=1e-5, atol=1e-5)


def test_an_engine_that_says_what_layers_compute_in_opens() -> None:
    opened = backend().load(DATA / "engine-5.engine")
    given = sample(3)
    np.testing.assert_allclose(opened(given)["y"], expected(given), rtol=0.03, atol=0.03)
    assert opened.report()["precision"] == "bf16"


@pytest.mark.parametrize("name", FILES)
def test_what_is_written_now_has_the_version_and_the_fields_of_what_is_kept(name: str, tmp_path: Path) -> None:
    """Readers refuse fields that they don't know: a field more is a version more."""
    if name == "engine-5.engine" and "bf16" not in backend().get_device_info().precisions:
        pytest.skip("this processor has no bfloat16 arithmetic, and nothing is lowered")
    FILES[name]().save(tmp_path / "now.engine")
    now, kept = (File.read(path.read_bytes()) for path in (tmp_path / "now.engine", DATA / name))
    assert now.version == kept.version
    assert fields(now.header) <= fields(kept.header)


def fields(value: Any, path: str = "") -> set[str]:
    """The fields in a header, wherever they stand; names that a model gives count as one."""
    if isinstance(value, list):
        return {field for item in value for field in fields(item, path + "[]")}
    if not isinstance(value, dict):
        return set()
    named = path.endswith(("/times", "/profiles[]", "/symbols", "/attrs", "/bodies", "/exclude", "/devices[][]"))
    found = {path + "/*" if named else f"{path}/{key}" for key in value}
    return found | {f for key, item in value.items() for f in fields(item, path + "/*" if named else f"{path}/{key}")}
