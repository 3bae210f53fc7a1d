"""One thing that is wrong beside others that are not: they are served, and nothing that was taken is lost."""

from __future__ import annotations

import os
import shutil
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from neurenix import InvalidArgumentError
from neurenix.cli import main
from neurenix.serve import ServeOptions
from tests.serve import models
from tests.serve.conftest import Start, ask, vector
from tests.serve.test_batching import INFER, served, until, with_delay
from tests.serve.test_process import post, serving, slow_model
from tests.serve.test_updates import LOAD, answer, expected, write

UNLOAD = LOAD.replace("load", "unload")


@pytest.mark.parametrize("path", [UNLOAD, LOAD])
def test_what_waits_for_others_is_answered_when_its_version_goes(start: Start, repository: Path, path: str) -> None:
    folder = shutil.copytree(with_delay(repository, 20_000_000), repository.parent / f"leaves{len(path)}")
    server = start(f"mlp={folder}", control="explicit")
    batcher = served(server).batcher
    # Another request is to be expected at any time.
    batcher._between = 0.001
    with ThreadPoolExecutor(4) as pool:
        waiting = [pool.submit(ask, server, "POST", INFER, vector()) for _ in range(4)]
        until(lambda: batcher.pending == 4)
        os.utime(folder / "1" / "model.onnx")
        begun = time.monotonic()
        assert ask(server, "POST", path).status == 200
        assert [one.result().status for one in waiting] == [200] * 4
    assert time.monotonic() - begun < 10


def test_the_first_requests_say_how_fast_they_come(start: Start, repository: Path) -> None:
    server = start(f"mlp={with_delay(repository, 300_000)}")
    for _ in range(3):
        assert ask(server, "POST", INFER, vector()).status == 200
    # Not the time since the machine started.
    assert served(server).batcher._between < 1.2


BROKEN = {
    "a name with a zero byte": 'default_model_filename: "a\\000b"',
    "messages in messages": "optimization { " + "graph { " * 4000 + "} " * 4000 + "}",
    "fewer than no instances": "instance_group { count: -1 }",
    "more instances than threads": "instance_group { count: 2000000000 }",
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_config_beside_good_models(name: str, start: Start, tmp_path: Path) -> None:
    write(tmp_path, 1, 1)
    shutil.copytree(tmp_path / "mlp", tmp_path / "a-broken-one")
    (tmp_path / "a-broken-one" / "config.pbtxt").write_text(BROKEN[name])
    server = start(tmp_path, control="poll", poll_s=0.05)
    assert answer(server) == expected(1)
    states = {row["name"]: row for row in ask(server, "POST", "/v2/repository/index").json}
    assert states["a-broken-one"]["state"] == "UNAVAILABLE" and states["a-broken-one"]["reason"]
    # Looking for changes goes on.
    (tmp_path / "mlp" / "config.pbtxt").write_text("max_batch_size: 4")
    until(lambda: served(server).spec.max_batch == 4)


def test_any_error_of_one_model_leaves_the_others(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "failing.py").write_text("def factory():\n    raise LookupError('not today')\n")
    monkeypatch.syspath_prepend(tmp_path)
    write(tmp_path, 1, 1)
    server = start("failing:factory", tmp_path)
    assert answer(server) == expected(1)
    assert "not today" in ask(server, "POST", "/v2/models/factory/infer", vector()).error


@pytest.mark.parametrize("count", [0, -3, 5000])
def test_numbers_of_instances_that_can_t_be(count: int) -> None:
    with pytest.raises(InvalidArgumentError, match="so many instances"):
        ServeOptions(instances=count)


@pytest.mark.parametrize("option", ["--instances", "--max-queue"])
def test_none_of_what_there_must_be_one_of(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["serve", "model.onnx", option, "0"])
    assert f"{option}: 0 is below 1" in capsys.readouterr().err
    with pytest.raises(InvalidArgumentError, match="max_queue of 1 or more"):
        ServeOptions(max_queue=0)


def test_what_is_not_answered_in_time_is_refused_and_told(tmp_path: Path) -> None:
    import json

    words = ["--plugins", "sleeping", "--max-batch-size", "0", "--no-warmup", "--drain", "0.9"]
    replies: list[Any] = []
    with serving(slow_model(tmp_path), *words, folder=tmp_path) as (process, port):
        body = json.dumps(vector())
        asking = [threading.Thread(target=lambda: replies.append(post(port, body))) for _ in range(8)]
        for thread in asking:
            thread.start()
        time.sleep(0.3)
        process.send_signal(signal.SIGTERM)
        for thread in asking:
            thread.join()
        assert process.wait(20) == 1
    statuses = [status for status, _ in replies]
    assert set(statuses) == {200, 503} and 1 <= statuses.count(200) <= 4


def test_what_a_function_made_is_not_made_again_at_each_look(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "making.py").write_text(
        "from tests.serve import models\nmade = []\ndef mlp():\n    made.append(1)\n    return models.mlp(1)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    server = start("making:mlp", control="poll", poll_s=0.02)
    import making  # type: ignore[import-not-found]

    assert answer(server) == expected(1)
    time.sleep(0.5)
    assert len(making.made) == 1


def test_the_files_alone_say_which_weights_are_served(start: Start, tmp_path: Path) -> None:
    safetensors = pytest.importorskip("safetensors.numpy")
    path = write(tmp_path, 1, 1).with_name("weights.safetensors")
    safetensors.save_file({"b2": np.full(4, 100, np.float32)}, path)
    server = start(tmp_path, control="explicit")
    assert min(answer(server)) > 50
    safetensors.save_file({"b1": models.weights(1)["b1"]}, path)
    assert ask(server, "POST", LOAD).status == 200
    assert answer(server) == expected(1)


def test_a_broken_version_beside_good_ones(start: Start, tmp_path: Path) -> None:
    write(tmp_path, 1, 1)
    write(tmp_path, 3, 3).write_bytes(b"no model")
    (tmp_path / "mlp" / "config.pbtxt").write_text("max_batch_size: 4 version_policy { all {} }")
    server = start(tmp_path, control="poll", poll_s=0.05)
    assert answer(server) == answer(server, "1") == expected(1)
    reply = ask(server, "POST", INFER.replace("/infer", "/versions/3/infer"), vector())
    assert reply.status == 503 and "model.onnx" in reply.error
    states = [(row["version"], row["state"]) for row in ask(server, "POST", "/v2/repository/index").json]
    assert states == [("1", "READY"), ("3", "UNAVAILABLE")]
    write(tmp_path, 2, 2)
    until(lambda: ask(server, "GET", "/v2/models/mlp").json["versions"] == ["1", "2"])
    assert answer(server, "2") == expected(2)
    write(tmp_path, 3, 3)
    until(lambda: ask(server, "GET", "/v2/models/mlp").json["versions"] == ["1", "2", "3"])
    # What is broken again goes on as it was.
    onnx.save(models.mlp(4), tmp_path / "mlp" / "1" / "model.onnx")
    (tmp_path / "mlp" / "3" / "model.onnx").write_bytes(b"no model")
    until(lambda: answer(server, "1") == expected(4))
    assert answer(server, "3") == expected(3)


def test_metrics_and_index_without_the_folder(start: Start, tmp_path: Path) -> None:
    folder = tmp_path / "models"
    write(folder, 1, 1)
    server = start(folder)
    folder.rename(tmp_path / "elsewhere")
    reply = ask(server, "GET", "/metrics")
    assert reply.status == 200 and b'neurenix_model_ready{model="mlp",version="1"} 1' in reply.body
    assert [row["state"] for row in ask(server, "POST", "/v2/repository/index").json] == ["READY"]
    assert answer(server) == expected(1)


def test_a_model_that_was_unloaded_does_not_make_the_server_unready(start: Start, tmp_path: Path) -> None:
    write(tmp_path, 1, 1)
    shutil.copytree(tmp_path / "mlp", tmp_path / "other")
    server = start(tmp_path, control="explicit", strict_readiness=True)
    assert ask(server, "POST", UNLOAD).status == 200
    assert ask(server, "GET", "/v2/health/ready").status == 200
    assert ask(server, "GET", "/v2/models/mlp/ready").status != 200
    (tmp_path / "mlp" / "1" / "model.onnx").write_bytes(b"no model")
    assert ask(server, "POST", LOAD).status >= 400
    assert ask(server, "GET", "/v2/health/ready").status == 503
