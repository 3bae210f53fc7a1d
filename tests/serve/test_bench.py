"""`neurenix bench --url`: figures of a server, by both protocols and in both loops."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from neurenix.cli import main
from neurenix.serve import ServeOptions
from tests.serve.conftest import TOKEN, Start, ask
from tests.serve.test_batching import slowed


@pytest.fixture
def bench(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, Any]]:
    """Runs the command and gives its exit code and what it wrote."""

    def run(*words: object) -> tuple[int, Any]:
        code = main(["bench", *map(str, words), "--json"])
        out, err = capsys.readouterr()
        return code, json.loads(out) if out else err

    return run


@pytest.mark.exclusive
def test_clients_that_wait(start: Start, repository: Path, bench: Any, tmp_path: Path) -> None:
    server = start(repository / "mlp", grpc_port=0)
    slowed(server, 0.005)
    for url in (server.http, f"grpc://{server.grpc}"):
        picture = tmp_path / "latency.svg"
        code, found = bench("mlp", "--url", url, "--concurrency", "1,8", "--duration", "0.4", "--plot", picture)
        assert code == 0 and found["loop"] == "closed" and found["inputs"] == {"input": [1, 16]}
        alone, eight = found["loads"]["1 clients"], found["loads"]["8 clients"]
        assert alone["latency_ms"]["min"] > 5 and alone["rows_per_execution"] == 1
        assert eight["rows_per_execution"] > 2 and eight["throughput_qps"] > 1.5 * alone["throughput_qps"]
        assert picture.read_text().startswith("<svg")


def test_requests_that_are_due(start: Start, repository: Path, bench: Any) -> None:
    server = start(repository / "mlp")
    code, found = bench("mlp", "--url", server.http, "--rate", "100", "--arrivals", "constant", "--duration", "0.5")
    row = found["loads"]["100 a second"]
    assert code == 0 and row["answered"] == 50 and 20 < row["throughput_qps"] < 110
    # More than the model can answer: the time that requests wait to be sent counts.
    slowed(server, 0.05)
    words = ("--rate", "100", "--connections", "1", "--duration", "0.5", "--shapes", "input:2x16")
    code, found = bench("mlp", "--url", server.http, *words)
    row = found["loads"]["100 a second"]
    assert row["late"] > 20 and row["latency_ms"]["max"] > 1000 and row["rows_per_execution"] == 2


def test_what_is_refused_fails(start: Start, repository: Path, bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    options = ServeOptions(device="cpu", max_queue=1)
    server = start(repository / "mlp", token=TOKEN, protect="all", options=options)
    code, text = bench("mlp", "--url", server.http)
    assert code == 1 and "401" in str(text)
    monkeypatch.setenv("NEURENIX_SERVE_TOKEN", TOKEN)
    slowed(server, 0.02)
    code, found = bench("mlp", "--url", server.http, "--concurrency", "8", "--duration", "0.3", "--warmup", "0")
    assert code == 1 and found["loads"]["8 clients"]["failures"]["429"] > 0
    code, found = bench("mlp", "--url", server.http, "--duration", "0.2", "--latency-limit", "0.001")
    assert code == 1 and not found["loads"]["1 clients"]["passed"] and not found["loads"]["1 clients"]["failures"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--url", "ftp://x"], "no address"),
        (["--url", "http://[::1"], "no address"),
        (["--url", "grpc://[::1"], "no address"),
        (["--url", "http://127.0.0.1:x"], "no address"),
        (["--url", "http://127.0.0.1:99999"], "no address"),
        (["--url", f"http://{'a' * 70}"], "no address"),
        (["--url", "http://127.0.0.1/ä"], "no address"),
        (["--url", "http://127.0.0.1:1"], "does not answer"),
        (["--url", "grpc://127.0.0.1:1"], "refuses"),
    ],
)
def test_servers_that_are_none(bench: Any, words: list[str], message: str) -> None:
    code, found = bench("mlp", *words)
    assert code == 1 and message in str(found)


LOADS = [
    ["--concurrency", "0"],
    ["--concurrency", "1.5"],
    ["--concurrency", ""],
    ["--concurrency", ","],
    ["--rate", "x"],
    ["--rate", "-1"],
    ["--rate", ","],
    ["--duration", "inf"],
    ["--duration", "inf", "--rate", "10"],
    ["--warmup", "inf"],
    ["--connections", "0"],
    ["--connections", "100000"],
]


@pytest.mark.parametrize("words", LOADS)
def test_loads_that_are_none(start: Start, repository: Path, bench: Any, words: list[str]) -> None:
    server = start(repository / "mlp")
    code, found = bench("mlp", "--url", server.http, *words)
    assert code == 1 and words[0] in str(found)


def test_more_requests_than_can_be_measured(start: Start, repository: Path, bench: Any) -> None:
    server = start(repository / "mlp")
    code, found = bench("mlp", "--url", server.http, "--rate", "10", "--duration", "1e300")
    assert code == 1 and "too many requests" in str(found)


def test_a_request_that_is_refused_is_told_before_many_are_sent(start: Start, repository: Path, bench: Any) -> None:
    server = start(repository / "mlp", grpc_port=0)
    for url in (server.http, f"grpc://{server.grpc}"):
        code, found = bench("mlp", "--url", url, "--shapes", "input:17x16", "--duration", "0.2")
        assert code == 1 and "1 to 16 rows" in str(found) and "17" in str(found)
        code, found = bench("mlp", "--url", url, "--model-version", "ä")
        assert code == 1 and "no such version" in str(found)
    stats = ask(server, "GET", "/v2/models/mlp/stats").json["model_stats"][0]
    assert stats["inference_stats"]["fail"]["count"] == 2


def test_models_that_are_none(start: Start, repository: Path, bench: Any) -> None:
    server = start(repository / "mlp", grpc_port=0)
    for url in (server.http, f"grpc://{server.grpc}"):
        code, found = bench("other", "--url", url)
        assert code == 1 and "no such model" in str(found)
