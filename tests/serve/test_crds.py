"""tools/crds.py finds what a custom resource has wrong: a small definition stands for KServe's and KubeRay's."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]

DEFINITION = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: { name: models.example.com }
spec:
  group: example.com
  names: { kind: Model, plural: models }
  versions:
    - name: v1
      schema:
        openAPIV3Schema:
          type: object
          properties:
            apiVersion: { type: string }
            kind: { type: string }
            metadata: { type: object }
            spec:
              type: object
              required: [uri]
              properties:
                uri: { type: string }
                replicas: { type: integer, format: int32, minimum: 0 }
                port: { x-kubernetes-int-or-string: true, anyOf: [{ type: integer }, { type: string }] }
                mode: { type: string, enum: [fast, exact] }
                note: { type: string, nullable: true }
                labels: { type: object, additionalProperties: { type: string } }
                free: { type: object, x-kubernetes-preserve-unknown-fields: true }
                parts: { type: array, items: { type: object, properties: { name: { type: string } } } }
"""
RESOURCE = "apiVersion: example.com/v1\nkind: Model\nmetadata: {{ name: a, labels: {{ b: c }} }}\nspec: {{ {} }}\n"


@pytest.fixture(scope="module")
def crds() -> ModuleType:
    """The tool."""
    for package in ("yaml", "jsonschema"):
        pytest.importorskip(package)
    spec = importlib.util.spec_from_file_location("crds", ROOT / "tools" / "crds.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def check(crds: ModuleType, folder: Path, text: str) -> int:
    """The tool's exit status for a resource."""
    (folder / "crd.yaml").write_text(DEFINITION)
    (folder / "resource.yaml").write_text(text)
    return int(crds.main(["--crd", str(folder / "crd.yaml"), str(folder / "resource.yaml")]))


@pytest.mark.parametrize(
    "spec",
    [
        "uri: a, replicas: 2, port: 80, mode: fast, note: null, labels: { x: y }",
        "uri: a, port: http, free: { any: [thing] }, parts: [{ name: b }]",
    ],
)
def test_what_fits_is_right(crds: ModuleType, tmp_path: Path, spec: str) -> None:
    assert check(crds, tmp_path, RESOURCE.format(spec)) == 0


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("replicas: 2", "'uri' is a required property"),
        ("uri: a, replica: 2", "'replica' was unexpected"),
        ("uri: a, replicas: '2'", "$.spec.replicas: '2' is not of type 'integer'"),
        ("uri: a, replicas: -1", "$.spec.replicas: -1 is less than the minimum of 0"),
        ("uri: a, mode: slow", "'slow' is not one of ['fast', 'exact']"),
        ("uri: a, labels: { x: 1 }", "$.spec.labels.x: 1 is not of type 'string'"),
        ("uri: a, parts: [{ nam: b }]", "$.spec.parts[0]: Additional properties"),
    ],
)
def test_what_does_not_fit_is_told(
    crds: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str], spec: str, says: str
) -> None:
    assert check(crds, tmp_path, RESOURCE.format(spec)) == 1
    assert says in capsys.readouterr().out


def test_another_kind_is_told(crds: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert check(crds, tmp_path, RESOURCE.format("uri: a").replace("/v1", "/v2")) == 1
    assert "expected: example.com/v1 Model; got: example.com/v2 Model" in capsys.readouterr().out
