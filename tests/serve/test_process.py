"""The command, in a process of its own: signals, ports, tokens, logs."""

from __future__ import annotations

import http.client
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from neurenix.cli import main
from tests.serve.conftest import vector
from tests.serve.test_batching import until

PLUGIN = """
import time
import neurenix.hardware.tensorrt as trt

class Sleep(trt.IPluginV2):
    def get_output_shape(self, input_shapes):
        return input_shapes[0]
    def execute(self, inputs, outputs, stream):
        time.sleep(0.4)
        outputs[0][...] = inputs[0]

trt.register_plugin("Sleep", Sleep)
"""


@contextmanager
def serving(*words: object, folder: Path) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """The command with its port for HTTP, when it serves."""
    command = [sys.executable, "-m", "neurenix.cli", "serve", *map(str, words), "--device", "cpu"]
    command += ["--http-port", "0", "--grpc-port", "-1"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(folder), *sys.path]), "NEURENIX_LOG": "info"}
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=folder, env=environment)
    try:
        assert process.stderr is not None
        seen = ""
        for line in process.stderr:
            seen += line
            if match := re.search(r"serving .* at http://127\.0\.0\.1:(\d+)", line):
                yield process, int(match[1])
                return
        raise AssertionError(seen)
    finally:
        process.kill()
        process.communicate()


def post(port: int, body: str) -> tuple[int, bytes]:
    """A request for inference."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("POST", "/v2/models/model/infer", body)
    reply = connection.getresponse()
    return reply.status, reply.read()


def slow_model(folder: Path) -> Path:
    """A model whose execution takes 0.4 s."""
    onnx = pytest.importorskip("onnx")
    (folder / "sleeping.py").write_text(PLUGIN)
    port = [onnx.TensorProto.FLOAT, ["batch", 16]]
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Sleep", ["input"], ["output"], domain="test")], "slow",
        [onnx.helper.make_tensor_value_info("input", *port)], [onnx.helper.make_tensor_value_info("output", *port)],
    )  # fmt: skip
    opsets = [onnx.helper.make_opsetid("", 17), onnx.helper.make_opsetid("test", 1)]
    onnx.save(onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8), folder / "model.onnx")
    return folder / "model.onnx"


def test_a_signal_to_end_answers_what_was_taken(tmp_path: Path) -> None:
    import json

    model = slow_model(tmp_path)
    replies: list[Any] = []
    body = json.dumps(vector())
    with serving(model, "--plugins", "sleeping", "--max-batch-size", "0", "--no-warmup", folder=tmp_path) as found:
        process, port = found
        asking = [threading.Thread(target=lambda: replies.append(post(port, body))) for _ in range(3)]
        for thread in asking:
            thread.start()
        # All three are taken: one runs, two wait.
        wanted = b'nv_inference_pending_request_count{model="model",version="1"} 2'
        until(lambda: wanted in metrics(port))
        process.send_signal(signal.SIGTERM)
        for thread in asking:
            thread.join()
        assert process.wait(20) == 0
        with pytest.raises(OSError):
            post(port, body)
    assert [status for status, _ in replies] == [200] * 3


def metrics(port: int) -> bytes:
    """The metrics of a server."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("GET", "/metrics")
    return connection.getresponse().read()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nothing.onnx"], "there is no such model"),
        (["a.onnx", "a.onnx"], "two models have one name"),
        (["..=a.onnx"], "no name of a model"),
        (["a.onnx", "--host", "0.0.0.0", "--control", "explicit"], "a token"),
        (["a.onnx", "--precision", "fp99"], "precision"),
        (["a.onnx", "--protect", "all"], "--token-file"),
        (["a.onnx", "--http-port", "-1", "--grpc-port", "-1"], "no port"),
        (["a.onnx", "--token-file", "missing"], "the token can't be read"),
    ],
)
def test_what_the_command_refuses(
    words: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.onnx").write_bytes(b"")
    assert main(["serve", *words]) == 1
    assert message in capsys.readouterr().err


def test_a_server_without_a_model_ends(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.onnx").write_bytes(b"no model")
    assert main(["serve", str(tmp_path / "a.onnx"), "--http-port", "0", "--grpc-port", "-1"]) == 1
    assert "no model could be loaded" in capsys.readouterr().err


def test_a_port_that_is_taken(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import socket

    (tmp_path / "a.onnx").write_bytes(b"")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert main(["serve", str(tmp_path / "a.onnx"), "--http-port", port, "--grpc-port", "-1"]) == 1
    assert port in capsys.readouterr().err
