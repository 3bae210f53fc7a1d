"""Metrics, traces and messages, as those who collect them read them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from neurenix.serve import messages
from tests.serve.conftest import Start, ask, vector

INFER = "/v2/models/mlp/infer"


def values(text: bytes) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """Samples by name and labels; the parser puts `_total` behind counters that do not have it."""
    parser = pytest.importorskip("prometheus_client.parser")
    return {
        (sample.name.removesuffix("_total"), tuple(sorted(sample.labels.items()))): sample.value
        for family in parser.text_string_to_metric_families(text.decode())
        for sample in family.samples
    }


def test_metrics_count_what_happened(start: Start, repository: Path) -> None:
    server = start(repository / "mlp")
    for rows in (1, 2, 2):
        assert ask(server, "POST", INFER, vector(rows)).status == 200
    assert ask(server, "POST", INFER, vector(17)).status == 400
    found = values(ask(server, "GET", "/metrics").body)
    label = (("model", "mlp"), ("version", "1"))
    assert found["nv_inference_request_success", label] == 3
    assert found["nv_inference_count", label] == 5
    assert found["nv_inference_exec_count", label] == 3
    assert found["nv_inference_request_failure", (("model", "mlp"), ("reason", "OTHER"), ("version", "1"))] == 1
    assert found["nv_inference_pending_request_count", label] == 0
    assert found["neurenix_model_ready", label] == 1
    assert found["neurenix_batch_rows_bucket", (("le", "1"), *label)] == 1
    assert found["neurenix_batch_rows_bucket", (("le", "+Inf"), *label)] == 3
    parts = ["queue", "compute_input", "compute_infer", "compute_output"]
    total = found["nv_inference_request_duration_us", label]
    assert 0 < sum(found[f"nv_inference_{part}_duration_us", label] for part in parts) <= total + 4
    assert found["process_resident_memory_bytes", ()] > 1e6


def test_spans_have_the_parent_that_the_request_names(start: Start, repository: Path) -> None:
    trace = pytest.importorskip("opentelemetry.trace")
    sdk = pytest.importorskip("opentelemetry.sdk.trace")
    export = pytest.importorskip("opentelemetry.sdk.trace.export")
    memory = pytest.importorskip("opentelemetry.sdk.trace.export.in_memory_span_exporter")
    spans = memory.InMemorySpanExporter()
    provider = sdk.TracerProvider()
    provider.add_span_processor(export.SimpleSpanProcessor(spans))
    trace.set_tracer_provider(provider)
    server = start(repository / "mlp", trace=True)
    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    assert ask(server, "POST", INFER, vector(), {"traceparent": parent}).status == 200
    assert ask(server, "POST", INFER, vector(17)).status == 400
    first, second = spans.get_finished_spans()
    assert first.attributes["neurenix.model"] == "mlp"
    assert f"{first.context.trace_id:032x}" == parent.split("-")[1]
    assert second.status.status_code is trace.StatusCode.ERROR


def test_the_messages_are_those_of_the_protocol() -> None:
    service = pytest.importorskip("tritonclient.grpc.service_pb2")
    config = pytest.importorskip("tritonclient.grpc.model_config_pb2")
    loaded = {name: kind for name, kind in vars(messages.load()).items() if hasattr(kind, "DESCRIPTOR")}
    assert len(loaded) > 40
    for name, kind in loaded.items():
        _same(kind.DESCRIPTOR, getattr(service, name, None) or getattr(config, name))
    for name, number in messages.load().enums["DataType"].items():
        assert config.DataType.Value(name) == number
    for name, number in messages.load().enums["Kind"].items():
        assert config.ModelInstanceGroup.Kind.Value(name) == number
    methods = service.DESCRIPTOR.services_by_name["GRPCInferenceService"].methods_by_name
    for name, request, response in messages.methods():
        assert (methods[name].input_type.name, methods[name].output_type.name) == (request, response)


def _same(ours: Any, theirs: Any) -> None:
    theirs = getattr(theirs, "DESCRIPTOR", theirs)
    for field in ours.fields:
        other = theirs.fields_by_name[field.name]
        assert (field.number, field.type, field.is_repeated) == (other.number, other.type, other.is_repeated)
        assert (field.containing_oneof is None) == (other.containing_oneof is None)
    for inner in ours.nested_types:
        _same(inner, theirs.nested_types_by_name[inner.name])


def test_bytes_survive_the_way_through_the_messages() -> None:
    kinds = messages.load()
    array = np.random.default_rng().integers(0, 256, 1000).astype(np.uint8)
    sent = kinds.ModelInferRequest(model_name="m", raw_input_contents=[array.tobytes()])
    sent.inputs.add(name="x", datatype="UINT8", shape=[10, 100]).parameters["p"].int64_param = -3
    found = kinds.ModelInferRequest.FromString(sent.SerializeToString())
    assert found.raw_input_contents[0] == array.tobytes()
    assert found.inputs[0].parameters["p"].int64_param == -3
