"""What users are told when a call is wrong, word for word: `messages/<case>.txt`.

A message says what, where, what was expected and the way out. When one changes on purpose, run this file with
`GOLDEN=write`, and read the difference.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import neurenix as nx
import neurenix.hardware.tensorrt as trt
from tests.errors import wrong  # noqa: F401  (it registers the cases)
from tests.errors.wrong.common import CASES
from tests.machine import needs_int8

MESSAGES = Path(__file__).parent / "messages"


@pytest.fixture(autouse=True)
def own_plugins() -> Iterator[None]:
    """What a case registers is gone with it."""
    registry = trt.get_plugin_registry()
    before = list(registry.plugin_creator_list)
    yield
    for creator in registry.plugin_creator_list:
        if creator not in before:
            registry.deregister_creator(creator)


def plain(text: str, folder: Path) -> str:
    """A message without what differs between machines, versions, lines of the tests and sizes of files."""
    text = text.replace(str(folder), "FOLDER").replace(nx.__version__, "VERSION")
    text = re.sub(r"\(\S*/(\w+\.py), line \d+\)", r"(\1, line N)", text)
    return re.sub(r"\b\d+ bytes", "N bytes", text)


#: Those of processors with products of 8 bits.
OF_INT8 = {"int8_without_data_that_is_strict"}
PARAMETERS = [pytest.param(call, marks=[needs_int8] if call.__name__ in OF_INT8 else []) for call in CASES]


@pytest.mark.parametrize("call", PARAMETERS, ids=lambda call: call.__name__)
def test_message(call: Callable[[Path], Any], tmp_path: Path) -> None:
    with pytest.raises(nx.Error) as caught:
        call(tmp_path)
    text = plain(f"{type(caught.value).__name__}: {caught.value}\n", tmp_path)
    golden = MESSAGES / f"{call.__name__}.txt"
    if os.environ.get("GOLDEN") == "write":
        golden.write_text(text)
    assert text == golden.read_text()
    assert "\n  " in text, "it says neither where it is wrong nor what to do"


def test_no_message_is_left_over() -> None:
    names = [call.__name__ for call in CASES]
    assert len(set(names)) == len(names) and {path.stem for path in MESSAGES.glob("*.txt")} == set(names)
