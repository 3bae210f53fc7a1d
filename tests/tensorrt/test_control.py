"""Loops and conditions: NVIDIA's real builder takes them, they compute what ONNX says, and the rest has a reason."""

from __future__ import annotations

import re

import numpy as np
import pytest

from neurenix import errors
from neurenix.hardware.tensorrt.plan import build_plan
from tests.tensorrt import control_jobs
from tests.tensorrt.doubled import Process


@pytest.mark.parametrize("name", control_jobs.MODELS)
def test_it_computes_what_onnx_says(name: str, process: Process) -> None:
    _, feeds = control_jobs.MODELS[name]
    for given, found in zip(feeds, process.run(control_jobs.run, name), strict=True):
        wanted = control_jobs.REFERENCES[name](**given)
        assert len(found) == len(wanted)
        for got, want in zip(found, wanted, strict=True):
            assert got.shape == want.shape and got.dtype == want.dtype
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", control_jobs.REFUSED)
@pytest.mark.usefixtures("library")
def test_what_tensorrt_can_not_express_is_refused(name: str) -> None:
    text, reason = control_jobs.REFUSED[name]
    with pytest.raises(errors.UnsupportedError) as caught:
        build_plan(control_jobs.model(text), targets=["8.6"])
    assert re.search(reason, str(caught.value.got)), caught.value
