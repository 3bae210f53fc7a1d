"""The protocol through Triton's own client, by HTTP and by gRPC. The same holds of a real Triton (see `models`)."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from neurenix.serve.status import Refused, Status
from tests.serve import models
from tests.serve.conftest import Addresses, Start

http = pytest.importorskip("tritonclient.http")
grpc = pytest.importorskip("tritonclient.grpc")
utils = pytest.importorskip("tritonclient.utils")

BOTH = pytest.mark.parametrize("kind", ["http", "grpc"])
GENERATOR = np.random.default_rng()


def client(addresses: Addresses, kind: str) -> tuple[ModuleType, Any]:
    """The module of a client, and a client."""
    module = http if kind == "http" else grpc
    return module, module.InferenceServerClient(getattr(addresses, kind))


def given(module: ModuleType, name: str, array: models.Array, **how: Any) -> Any:
    """An input with its data."""
    found = module.InferInput(name, list(array.shape), utils.np_to_triton_dtype(array.dtype))
    found.set_data_from_numpy(array, **how)
    return found


def as_dict(found: Any) -> dict[str, Any]:
    """What a client gave, as HTTP has it."""
    if isinstance(found, dict):
        return found
    from google.protobuf import json_format

    return dict(json_format.MessageToDict(found, preserving_proto_field_name=True))


@BOTH
def test_health_and_metadata(addresses: Addresses, kind: str) -> None:
    _, asked = client(addresses, kind)
    assert asked.is_server_live() and asked.is_server_ready()
    assert asked.is_model_ready("mlp") and asked.is_model_ready("mlp", "1")
    server = as_dict(asked.get_server_metadata())
    assert server["name"] and server["version"] and "statistics" in server["extensions"]
    found = as_dict(asked.get_model_metadata("mlp"))
    assert found["name"] == "mlp" and found["versions"] == ["1"]
    tensor = found["inputs"][0]
    assert (tensor["name"], tensor["datatype"], [int(d) for d in tensor["shape"]]) == ("input", "FP32", [-1, 16])
    config = as_dict(asked.get_model_config("mlp"))
    config = config.get("config", config)
    assert config["max_batch_size"] == 16 and config["input"][0]["data_type"] == "TYPE_FP32"
    assert [int(d) for d in config["input"][0]["dims"]] == [16] and "dynamic_batching" in config


@BOTH
@pytest.mark.parametrize("rows", [1, 5, 16])
def test_outputs_are_those_of_float64(addresses: Addresses, kind: str, rows: int) -> None:
    module, asked = client(addresses, kind)
    x = GENERATOR.standard_normal((rows, 16)).astype(np.float32)
    result = asked.infer("mlp", [given(module, "input", x)], request_id="seven")
    np.testing.assert_allclose(result.as_numpy("output"), models.mlp_reference(x), rtol=1e-4, atol=1e-4)
    response = as_dict(result.get_response())
    assert (response["id"], response["model_name"], response["model_version"]) == ("seven", "mlp", "1")


@BOTH
def test_every_dtype(addresses: Addresses, kind: str) -> None:
    module, asked = client(addresses, kind)
    arrays = {
        name: (GENERATOR.standard_normal((2, 3)) * 10).astype(np.uint8 if name == "UINT8" else _numpy(name))
        for name in models.KINDS
    }
    result = asked.infer("kinds", [given(module, f"in_{name}", array) for name, array in arrays.items()])
    for name, array in arrays.items():
        found = result.as_numpy(f"out_{name}")
        assert found.dtype == array.dtype
        np.testing.assert_array_equal(found, array)


def _numpy(name: str) -> Any:
    return utils.triton_to_np_dtype(name)


def test_json_in_and_out(addresses: Addresses) -> None:
    module, asked = client(addresses, "http")
    x = GENERATOR.standard_normal((3, 16)).astype(np.float32)
    for sent, wanted in [(False, False), (False, True), (True, False)]:
        output = module.InferRequestedOutput("output", binary_data=wanted)
        result = asked.infer("mlp", [given(module, "input", x, binary_data=sent)], outputs=[output])
        np.testing.assert_allclose(result.as_numpy("output"), models.mlp_reference(x), rtol=1e-4, atol=1e-4)


@BOTH
def test_only_the_outputs_that_are_asked_for(addresses: Addresses, kind: str) -> None:
    module, asked = client(addresses, kind)
    arrays = {name: np.ones((1, 3), _numpy(name)) for name in models.KINDS}
    wanted = [module.InferRequestedOutput("out_INT64")]
    result = asked.infer("kinds", [given(module, f"in_{n}", a) for n, a in arrays.items()], outputs=wanted)
    assert [output["name"] for output in as_dict(result.get_response())["outputs"]] == ["out_INT64"]


@BOTH
def test_no_batch_and_sizes_of_the_request(addresses: Addresses, kind: str) -> None:
    module, asked = client(addresses, kind)
    x = GENERATOR.standard_normal((2, 3)).astype(np.float32)
    np.testing.assert_array_equal(asked.infer("fixed", [given(module, "input", x)]).as_numpy("output"), x + x)
    for tokens in (1, 7, 33):
        ids = GENERATOR.integers(0, 100, (2, tokens))
        found = asked.infer("text", [given(module, "ids", ids)]).as_numpy("total")
        np.testing.assert_array_equal(found, ids.sum(1, keepdims=True))


@BOTH
@pytest.mark.parametrize(
    ("model", "name", "shape", "dtype", "version", "words"),
    [
        ("none", "input", (1, 16), np.float32, "", ["none"]),
        ("mlp", "input", (1, 16), np.float32, "7", ["version"]),
        ("mlp", "input", (1, 15), np.float32, "", ["input", "16", "15"]),
        ("mlp", "input", (1, 16), np.int32, "", ["input", "FP32", "INT32"]),
        ("mlp", "input", (17, 16), np.float32, "", ["batch", "16"]),
        ("mlp", "other", (1, 16), np.float32, "", ["other"]),
    ],
)
def test_wrong_requests_are_told(
    addresses: Addresses, kind: str, model: str, name: str, shape: tuple[int, ...], dtype: Any, version: str,
    words: list[str],
) -> None:  # fmt: skip
    module, asked = client(addresses, kind)
    with pytest.raises(utils.InferenceServerException) as caught:
        asked.infer(model, [given(module, name, np.zeros(shape, dtype))], model_version=version)
    for word in words:
        assert word in str(caught.value)


@BOTH
def test_statistics_count_requests_and_rows(addresses: Addresses, kind: str) -> None:
    module, asked = client(addresses, kind)

    def counts() -> dict[str, Any]:
        return dict(as_dict(asked.get_inference_statistics("rows"))["model_stats"][0])

    index = np.zeros((3, 1), np.int64)
    asked.infer("rows", [given(module, "index", index)])
    settled(counts)
    before = counts()
    for _ in range(4):
        asked.infer("rows", [given(module, "index", index)])
    settled(counts)
    after = counts()
    assert int(after["inference_count"]) - int(before["inference_count"]) == 12
    assert int(after["execution_count"]) - int(before["execution_count"]) == 4
    success = [int(c["inference_stats"]["success"]["count"]) for c in (before, after)]
    assert success[1] - success[0] == 4


def settled(counts: Callable[[], Any]) -> None:
    """Waits for counts to stay as they are: Triton counts a request after it has answered it."""
    found = counts()
    while True:
        time.sleep(0.02)
        if found == (found := counts()):
            return


@BOTH
def test_load_and_unload(addresses: Addresses, kind: str) -> None:
    module, asked = client(addresses, kind)
    x = np.ones((2, 3), np.float32)
    asked.unload_model("fixed")
    with pytest.raises(utils.InferenceServerException):
        asked.infer("fixed", [given(module, "input", x)])
    asked.load_model("fixed")
    assert asked.is_model_ready("fixed")
    assert asked.infer("fixed", [given(module, "input", x)]).as_numpy("output").tolist() == (x + x).tolist()
    index = asked.get_model_repository_index()
    states = {row["name"]: row["state"] for row in (index if kind == "http" else as_dict(index)["models"])}
    assert states["fixed"] == "READY"
    with pytest.raises(utils.InferenceServerException):
        asked.load_model("nothing_of_this_name")


@BOTH
def test_many_clients_get_their_own_rows(addresses: Addresses, kind: str) -> None:
    def work(seed: int) -> None:
        module, asked = client(addresses, kind)
        generator = np.random.default_rng(seed)
        for _ in range(10):
            x = generator.standard_normal((int(generator.integers(1, 5)), 16)).astype(np.float32)
            found = asked.infer("mlp", [given(module, "input", x)]).as_numpy("output")
            np.testing.assert_allclose(found, models.mlp_reference(x), rtol=1e-4, atol=1e-4)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))


def test_streaming_answers_in_order(addresses: Addresses) -> None:
    module, asked = client(addresses, "grpc")
    answers: list[Any] = []
    asked.start_stream(lambda result, error: answers.append(error or result))
    arrays = [np.full((1, 16), value, np.float32) for value in range(5)]
    for number, x in enumerate(arrays):
        asked.async_stream_infer("mlp", [given(module, "input", x)], request_id=str(number))
    asked.stop_stream()
    assert [answer.get_response().id for answer in answers] == list("01234")
    for x, answer in zip(arrays, answers, strict=True):
        np.testing.assert_allclose(answer.as_numpy("output"), models.mlp_reference(x), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("letter", ["x", "ä", "%", "\U0001f600"])
def test_a_long_error_keeps_its_status(
    start: Start, repository: Path, monkeypatch: pytest.MonkeyPatch, letter: str
) -> None:
    """Letters other than ASCII's take more of gRPC's headers."""
    server = start(repository / "mlp", http_port=None, grpc_port=0)

    def find(name: str, version: str) -> Any:
        raise Refused(Status.NOT_FOUND, letter * 20_000)

    assert server.core is not None
    monkeypatch.setattr(server.core.registry, "find", find)
    with pytest.raises(utils.InferenceServerException) as caught:
        grpc.InferenceServerClient(server.grpc).get_model_metadata("mlp")
    assert caught.value.status() == "StatusCode.NOT_FOUND" and letter * 300 in caught.value.message()


def test_contents_beside_raw_contents_are_refused(addresses: Addresses) -> None:
    import grpc as library
    from tritonclient.grpc import service_pb2, service_pb2_grpc

    request = service_pb2.ModelInferRequest(model_name="mlp", raw_input_contents=[bytes(64)])
    entry = request.inputs.add(name="input", datatype="FP32", shape=[1, 16])
    entry.contents.fp32_contents.extend([1.0] * 16)
    with library.insecure_channel(addresses.grpc) as channel, pytest.raises(library.RpcError) as caught:
        service_pb2_grpc.GRPCInferenceServiceStub(channel).ModelInfer(request)
    found: Any = caught.value
    assert found.code() is library.StatusCode.INVALID_ARGUMENT and "contents" in found.details()


def test_typed_contents_of_grpc(addresses: Addresses) -> None:
    import grpc as library
    from tritonclient.grpc import service_pb2, service_pb2_grpc

    request = service_pb2.ModelInferRequest(model_name="mlp")
    entry = request.inputs.add(name="input", datatype="FP32", shape=[1, 16])
    x = GENERATOR.standard_normal((1, 16)).astype(np.float32)
    entry.contents.fp32_contents.extend(x.ravel().tolist())
    with library.insecure_channel(addresses.grpc) as channel:
        answer = service_pb2_grpc.GRPCInferenceServiceStub(channel).ModelInfer(request)
    found = np.frombuffer(answer.raw_output_contents[0], np.float32)
    np.testing.assert_allclose(found, models.mlp_reference(x)[0], rtol=1e-4, atol=1e-4)
