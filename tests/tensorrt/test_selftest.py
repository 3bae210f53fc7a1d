"""`neurenix selftest tensorrt`: its networks are right by numpy, and where nothing can run it says why."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import numpy as np
import pytest

from neurenix.cli.selftest_cases import BATCHES, Case, cases
from neurenix.hardware import get_backend


@pytest.mark.parametrize("case", cases(), ids=lambda case: case.name)
def test_the_networks_compute_what_numpy_does(case: Case) -> None:
    model = get_backend("cpu").optimize_model(case.network, case.shapes(), timing_cache=False, optimization_level=0)
    for batch in BATCHES:
        arrays = case.arrays(batch)
        np.testing.assert_allclose(model(arrays)["y"], case.compute(arrays), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("json_wanted", [False, True])
def test_where_nothing_can_run_the_reason_is_told(json_wanted: bool) -> None:
    # No library is looked at but one that is not there: what a machine without TensorRT says.
    environment = os.environ | {"NEURENIX_TENSORRT_LIB": "/nowhere/libnvinfer.so", "PYTHONPATH": ":".join(sys.path)}
    command = [sys.executable, "-m", "neurenix.cli", "selftest", "tensorrt", *(["--json"] if json_wanted else [])]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 2, done.stderr
    if json_wanted:
        found = json.loads(done.stdout)
        assert found["checks"] == [] and not found["passed"] and found["reason"]
        assert found["machine"]["tried"][0]["place"] == "/nowhere/libnvinfer.so"
    else:
        assert "TensorRT library: none that this build can drive" in done.stdout
        assert "Nothing can run here: " in done.stdout and "/nowhere/libnvinfer.so" in done.stdout
