"""The files of deploy/: what they name is there, and Kubernetes would take them."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from neurenix.cli import main
from neurenix.serve.metrics import METRICS

DEPLOY = Path(__file__).parents[2] / "deploy"
CHART = DEPLOY / "helm" / "neurenix-serve"
MANIFESTS = ("serve.yaml", "serve-gpu.yaml", "triton.yaml")


def documents(text: str) -> list[Any]:
    """The documents of a YAML file."""
    yaml = pytest.importorskip("yaml")
    return [document for document in yaml.safe_load_all(text) if document]


def exported() -> set[str]:
    """Names of samples that the server exports."""
    found = set(METRICS)
    for name, (kind, _) in METRICS.items():
        if kind == "histogram":
            found |= {f"{name}_bucket", f"{name}_sum", f"{name}_count"}
    return found


def named(expression: str) -> set[str]:
    """Metrics that an expression of Prometheus names."""
    return set(re.findall(r"\b(?:nv|neurenix|process)_\w+", re.sub(r'"[^"]*"', "", expression)))


def test_the_dashboard_names_metrics_that_are_there() -> None:
    dashboard = json.loads((DEPLOY / "grafana" / "neurenix-serve.json").read_text())
    names = set()
    for panel in dashboard["panels"]:
        assert panel["title"] and panel["targets"]
        for target in panel["targets"]:
            found = named(target["expr"])
            assert found and found <= exported(), target["expr"]
            names |= found
    # Everything but the time of a process is on it.
    assert {name.removesuffix("_bucket") for name in names} == set(METRICS)
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])


def test_the_alerts_name_metrics_that_are_there() -> None:
    (content,) = documents((DEPLOY / "prometheus" / "alerts.yml").read_text())
    rules = [rule for group in content["groups"] for rule in group["rules"]]
    assert len(rules) >= 5
    for rule in rules:
        assert named(rule["expr"]) and named(rule["expr"]) <= exported(), rule["alert"]
        assert rule["for"] and rule["labels"]["severity"] and rule["annotations"]["summary"]


def validate(document: Any) -> None:
    """Raises where the schemas of Kubernetes do not take a document, or do not know a field."""
    pytest.importorskip("kubernetes_validate").validate(document, "1.37", strict=True)


def pods(found: list[Any]) -> Iterator[dict[str, Any]]:
    """The specifications of pods."""
    for document in found:
        if document["kind"] == "Deployment":
            yield document["spec"]["template"]["spec"]


def check_pods(found: list[Any]) -> None:
    """Pods run without root, without rights that they do not need, and with limits."""
    for pod in pods(found):
        assert pod["securityContext"]["runAsNonRoot"] and not pod["automountServiceAccountToken"]
        for container in [*pod["containers"], *pod.get("initContainers", [])]:
            context = container["securityContext"]
            assert context["readOnlyRootFilesystem"] and not context["allowPrivilegeEscalation"]
            assert context["capabilities"] == {"drop": ["ALL"]}
            assert container["resources"]["requests"] and container["resources"]["limits"]["memory"]
        for container in pod["containers"]:
            assert {"startupProbe", "readinessProbe", "livenessProbe"} <= set(container)


@pytest.mark.parametrize("name", MANIFESTS)
def test_kubernetes_takes_the_manifests(name: str) -> None:
    found = documents((DEPLOY / "kubernetes" / name).read_text())
    for document in found:
        validate(document)
    check_pods(found)


def test_the_arguments_of_the_manifests_are_the_command_s(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["serve", "--help"])
    known = set(re.findall(r"--[\w-]+", capsys.readouterr().out))
    used = set()
    for name in ("serve.yaml", "serve-gpu.yaml", "kserve.yaml"):
        text = (DEPLOY / "kubernetes" / name).read_text()
        for arguments in re.findall(r"^\s*args: \[(.*)\]$", text, re.MULTILINE):
            used |= set(re.findall(r"--[\w-]+", arguments))
    used |= set(re.findall(r"--[\w-]+", (CHART / "values.yaml").read_text()))
    assert {"--threads", "--max-queue", "--http-port"} <= used <= known


VALUES = [
    [],
    ["--set", "gpu.count=1,gpu.resource=nvidia.com/mig-1g\\.10gb,tokenSecret=serve"],
    ["--set", "autoscaling.enabled=false,networkPolicy.enabled=true"],
    ["--set", "autoscaling.pendingRequests=8"],
]


@pytest.mark.parametrize("values", VALUES)
def test_the_chart(values: list[str]) -> None:
    helm = shutil.which("helm")
    if helm is None:
        pytest.skip("helm is not installed")
    subprocess.run([helm, "lint", "--strict", str(CHART), *values], check=True, capture_output=True)
    made = subprocess.run([helm, "template", "x", str(CHART), *values], check=True, capture_output=True, text=True)
    found = documents(made.stdout)
    for document in found:
        validate(document)
    check_pods(found)
    assert {"Deployment", "Service", "PodDisruptionBudget"} <= {document["kind"] for document in found}
