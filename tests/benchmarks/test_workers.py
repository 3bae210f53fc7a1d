"""Workers of the benchmarks: what dies or hangs costs one unit."""

from __future__ import annotations

import math
import time
from typing import Any

import pytest

from benchmarks.workers import FORKED, Job, Pool
from tests.benchmarks import jobs


def ran(work: list[Job], count: int = 1, timeout: float = 60, budget: float = math.inf, options: str = "") -> Any:
    """What is found, by job and unit."""
    pool = Pool(jobs.start, jobs.work, options)
    found = pool.run(work, count, timeout, time.monotonic() + budget)
    return {(job.name, unit): each for job, unit, each in found}


def test_a_worker_survives_from_job_to_job() -> None:
    found = ran([Job("a", ["1", "2"], {"x": 1}), Job("b", ["1"])])
    assert found["a", "known"] == {"known": {"x": 1}}
    assert len({each["process"] for (_, unit), each in found.items() if unit != "known"}) == 1
    assert set(found) == {("a", "known"), ("a", "1"), ("a", "2"), ("b", "known"), ("b", "1")}


def test_a_crash_costs_the_unit_that_it_happened_in() -> None:
    given = [Job("a", ["1", "dies", "2"]), Job("b", ["1"])]
    found = ran(given)
    assert found["a", "dies"] == {"failed": "the process ended with 7"}
    assert "process" in found["a", "2"] and "process" in found["b", "1"]
    assert not given[0].units


def test_a_unit_that_hangs_is_ended() -> None:
    found = ran([Job("a", ["hangs", "1"])], timeout=6)
    assert found["a", "hangs"] == {"failed": "more than 6 s"} and "process" in found["a", "1"]


def test_a_job_that_can_not_be_prepared_fails_whole() -> None:
    found = ran([Job("refused", ["1", "2"]), Job("crashes at once", ["1"]), Job("b", ["1"])], count=2)
    assert found["refused", "2"] == {"failed": "ValueError: no such model"}
    assert found["crashes at once", "1"] == {"failed": "the process ended with 3"}
    assert "process" in found["b", "1"]


def test_a_broken_process_gives_the_rest_to_another() -> None:
    found = ran([Job("a", ["breaks", "1"])])
    assert found["a", "breaks"]["process"] != found["a", "1"]["process"]


def test_what_is_not_there_at_the_end_is_left() -> None:
    given = [Job("a", ["1", "hangs"]), Job("b", ["1"])]
    found = ran(given, budget=6)
    assert "process" in found["a", "1"] and ("b", "1") not in found
    assert [job.units for job in given] == [["hangs"], ["1"]]


def test_workers_start_anew_where_a_forked_process_has_no_gpu(capfd: pytest.CaptureFixture[str]) -> None:
    found = ran([Job("a", ["1"])], options=FORKED)
    assert "process" in found["a", "1"]
    assert "workers are not forked: RuntimeError: no GPU here" in capfd.readouterr().err
