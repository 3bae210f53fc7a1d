"""Loading, unloading and replacing models beside running requests."""

from __future__ import annotations

import http.client
import json
import shutil
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from neurenix.hardware import get_backend
from neurenix.serve import ServeOptions, Server
from tests.serve import models
from tests.serve.conftest import Start, ask, vector
from tests.serve.test_batching import held, served, until

safetensors = pytest.importorskip("safetensors.numpy")

INFER = "/v2/models/mlp/infer"
LOAD = "/v2/repository/models/mlp/load"


def write(folder: Path, version: int, seed: int, hidden: int = 32) -> Path:
    """A version of the model with weights of its own."""
    path = folder / "mlp" / str(version)
    path.mkdir(parents=True, exist_ok=True)
    temporary = path / "writing"
    onnx.save(models.mlp(seed, hidden), temporary)
    return temporary.replace(path / "model.onnx")


def answer(server: Server, version: str = "") -> list[float]:
    """The output for a row of ones."""
    path = f"/v2/models/mlp/versions/{version}/infer" if version else INFER
    reply = ask(server, "POST", path, vector())
    assert reply.status == 200, reply.error
    found: list[float] = reply.json["outputs"][0]["data"]
    return found


def expected(seed: int) -> Any:
    """What the model of a seed gives for a row of ones."""
    return pytest.approx(models.mlp_reference(np.ones((1, 16), np.float32), seed)[0].tolist(), rel=1e-3, abs=1e-3)


def test_the_latest_version_unless_the_config_says_otherwise(start: Start, tmp_path: Path) -> None:
    for version in (1, 2, 10):
        write(tmp_path, version, version)
    server = start(tmp_path, control="explicit")
    assert ask(server, "GET", "/v2/models/mlp").json["versions"] == ["10"]
    assert answer(server) == expected(10)
    (tmp_path / "mlp" / "config.pbtxt").write_text("max_batch_size: 4 version_policy { specific { versions: [1, 2] } }")
    assert ask(server, "POST", LOAD).status == 200
    assert ask(server, "GET", "/v2/models/mlp").json["versions"] == ["1", "2"]
    assert answer(server) == expected(2) and answer(server, "1") == expected(1)
    assert ask(server, "POST", "/v2/models/mlp/versions/10/infer", vector()).status == 404
    assert ask(server, "GET", "/v2/models/mlp/config").json["max_batch_size"] == 4
    config = {"parameters": {"config": json.dumps({"max_batch_size": 8, "version_policy": {"all": {}}})}}
    assert ask(server, "POST", LOAD, config).status == 200
    assert ask(server, "GET", "/v2/models/mlp").json["versions"] == ["1", "2", "10"]


def test_a_broken_update_leaves_everything_as_it_was(start: Start, tmp_path: Path) -> None:
    write(tmp_path, 1, 1)
    server = start(tmp_path, control="explicit")
    for content in (b"", b"no model", onnx.ModelProto().SerializeToString()):
        (tmp_path / "mlp" / "2").mkdir(exist_ok=True)
        (tmp_path / "mlp" / "2" / "model.onnx").write_bytes(content)
        reply = ask(server, "POST", LOAD)
        assert reply.status >= 400 and "'mlp' can't be loaded" in reply.error
        assert answer(server) == expected(1)
    shutil.rmtree(tmp_path / "mlp" / "2")
    for config in ("max_batch_size: x", "sequence_batching {}", 'backend: "pytorch"', 'input { name: "y" dims: 3 }'):
        (tmp_path / "mlp" / "config.pbtxt").write_text(config)
        assert ask(server, "POST", LOAD).status >= 400
        assert answer(server) == expected(1)


def test_a_broken_model_beside_good_ones(start: Start, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write(tmp_path, 1, 1)
    broken = tmp_path / "broken" / "1"
    broken.mkdir(parents=True)
    (broken / "model.engine").write_bytes(bytes(4000))
    server = start(tmp_path)
    assert ask(server, "GET", "/v2/health/ready").status == 200
    assert ask(server, "GET", "/v2/models/broken/ready").status == 503
    rows = {row["name"]: row for row in ask(server, "POST", "/v2/repository/index").json}
    assert rows["mlp"]["state"] == "READY" and rows["broken"]["state"] == "UNAVAILABLE"
    assert "engine" in rows["broken"]["reason"] and "broken" in caplog.text
    assert [row["name"] for row in ask(server, "POST", "/v2/repository/index", {"ready": True}).json] == ["mlp"]
    assert answer(server) == expected(1)
    strict = start(tmp_path, strict_readiness=True)
    assert ask(strict, "GET", "/v2/health/ready").status == 503


def test_rollback(start: Start, tmp_path: Path) -> None:
    write(tmp_path, 1, 1)
    server = start(tmp_path, control="explicit")
    back = LOAD.replace("load", "rollback")
    assert ask(server, "POST", back).status == 400
    write(tmp_path, 2, 2)
    assert ask(server, "POST", LOAD).status == 200 and answer(server) == expected(2)
    assert ask(server, "POST", back).status == 200 and answer(server) == expected(1)
    assert ask(server, "POST", back).status == 200 and answer(server) == expected(2)


@pytest.mark.parametrize("kind", ["engine", "onnx"])
def test_new_weights_go_into_the_engine_that_is_there(start: Start, tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"mlp.{kind}"
    if kind == "onnx":
        onnx.save(models.mlp(1), path)
    else:
        shape = ((1, 16), (4, 16), (8, 16))
        get_backend("cpu").optimize_model(models.mlp(1), {"input": shape}, refittable=True).save(path)
    beside = tmp_path / f"mlp.{kind}.weights.safetensors"
    safetensors.save_file(models.weights(5), beside)
    server = start(path, control="explicit")
    assert answer(server) == expected(5)
    before = served(server)
    safetensors.save_file(models.weights(6), beside)
    assert ask(server, "POST", LOAD).status == 200 and answer(server) == expected(6)
    assert served(server) is not before
    wrong = models.weights(7)
    del wrong["w1"]
    safetensors.save_file(wrong | {"w9": wrong["w2"]}, beside)
    reply = ask(server, "POST", LOAD)
    assert reply.status == 400 and "w9" in reply.error and answer(server) == expected(6)
    assert ask(server, "POST", LOAD.replace("load", "rollback")).status == 200 and answer(server) == expected(5)


def test_a_load_without_changes_keeps_the_engine(start: Start, tmp_path: Path) -> None:
    write(tmp_path, 1, 1)
    server = start(tmp_path, control="explicit")
    before = served(server)
    assert ask(server, "POST", LOAD).status == 200
    assert served(server) is before


def test_twenty_swaps_under_load(start: Start, tmp_path: Path) -> None:
    """Every answer is that of a version that was served meanwhile, and after a swap is acknowledged of the new one."""
    seeds = (1, 2)
    write(tmp_path, 1, seeds[0])
    server = start(tmp_path, control="explicit", options=ServeOptions(device="cpu", warmup=False))
    wanted = {seed: models.mlp_reference(np.ones((1, 16), np.float32), seed)[0] for seed in seeds}
    # Odd while a swap goes on; half of it says which version is served.
    step, ended = [0], threading.Event()
    failures: list[str] = []
    counts = [0] * 4

    def work(number: int) -> None:
        connection = http.client.HTTPConnection(str(server.http).removeprefix("http://"), timeout=30)
        body = json.dumps(vector())
        while not ended.is_set():
            before = step[0]
            connection.request("POST", INFER, body)
            reply = connection.getresponse()
            content = json.loads(reply.read())
            if reply.status != 200:
                failures.append(str(content))
                return
            data = content["outputs"][0]["data"]
            found = [seed for seed in seeds if np.allclose(data, wanted[seed], rtol=1e-3, atol=1e-3)]
            quiet = before % 2 == 0 and step[0] == before
            if not found or (quiet and found != [seeds[before // 2 % 2]]):
                failures.append(f"{found} at step {before}")
            counts[number] += 1

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for swap in range(20):
        seed = seeds[(swap + 1) % 2]
        write(tmp_path, 1, seed)
        step[0] += 1
        assert ask(server, "POST", LOAD).status == 200
        step[0] += 1
        assert answer(server) == expected(seed)
        time.sleep(0.01)
    ended.set()
    for thread in threads:
        thread.join()
    assert not failures, failures[:3]
    assert min(counts) > 5


def test_unloading_answers_what_was_taken_first(start: Start, tmp_path: Path) -> None:
    write(tmp_path, 1, 1)
    server = start(tmp_path, control="explicit")
    replies: list[Any] = []
    with held(server) as rows:
        asking = [threading.Thread(target=lambda: replies.append(ask(server, "POST", INFER, vector()))) for _ in "ab"]
        asking[0].start()
        until(lambda: rows)
        asking[1].start()
        until(lambda: served(server).batcher.pending == 1)
        unloading = threading.Thread(
            target=lambda: replies.append(ask(server, "POST", LOAD.replace("load", "unload")))
        )  # fmt: skip
        unloading.start()
        until(lambda: ask(server, "GET", "/v2/models/mlp/ready").status == 503)
        assert ask(server, "POST", INFER, vector()).status == 503
        assert not replies
    for thread in (*asking, unloading):
        thread.join()
    assert [reply.status for reply in replies] == [200] * 3
    assert ask(server, "POST", LOAD).status == 200 and answer(server) == expected(1)


def test_folders_that_change_are_followed(start: Start, tmp_path: Path) -> None:
    write(tmp_path, 1, 1)
    server = start(tmp_path, control="poll", poll_s=0.05)
    write(tmp_path, 2, 2)
    until(lambda: ask(server, "GET", "/v2/models/mlp").json["versions"] == ["2"])
    shutil.copytree(tmp_path / "mlp", tmp_path / "another")
    until(lambda: ask(server, "GET", "/v2/models/another/ready").status == 200)
    shutil.rmtree(tmp_path / "another")
    until(lambda: ask(server, "GET", "/v2/models/another/ready").status == 503)
    assert answer(server) == expected(2)


def test_a_broken_model_is_tried_again_when_it_changes(
    start: Start, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(tmp_path, 1, 1)
    broken = tmp_path / "broken" / "1"
    broken.mkdir(parents=True)
    (broken / "model.onnx").write_bytes(b"no model")
    server = start(tmp_path, control="poll", poll_s=0.03)
    time.sleep(0.4)
    assert caplog.text.count("model broken stays as it is") == 1
    shutil.copy(tmp_path / "mlp" / "1" / "model.onnx", broken / "model.onnx")
    until(lambda: ask(server, "GET", "/v2/models/broken/ready").status == 200)


def test_memory_of_unloaded_models_is_given_back(start: Start, tmp_path: Path) -> None:
    import gc
    import weakref

    write(tmp_path, 1, 1)
    server = start(tmp_path, control="explicit", keep_previous=False)
    answer(server)
    gone = [weakref.ref(served(server).ready.model)]
    write(tmp_path, 1, 2)
    assert ask(server, "POST", LOAD).status == 200
    gone.append(weakref.ref(served(server).ready.model))
    assert ask(server, "POST", LOAD.replace("load", "unload")).status == 200
    gc.collect()
    until(lambda: [one() for one in gone] == [None, None])
