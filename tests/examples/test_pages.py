"""The code of pages in docs/ runs, in a process and a folder of its own, with blocks of C++ as files there."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
#: Pages whose blocks of Python are one program.
PAGES = ("plugins", "nn")


@pytest.mark.parametrize("page", PAGES)
def test_the_code_of_a_page_runs(page: str, tmp_path: Path) -> None:
    text = (ROOT / f"docs/{page}.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert len(blocks) > 3
    for name, code in re.findall(r"^```cpp\n// (\S+)\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        (tmp_path / name).write_text(code)
    environment = {**os.environ, "NEURENIX_CACHE_DIR": str(tmp_path / "cache"), "NEURENIX_PROVIDERS": "cpu,toy"}
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(blocks)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
