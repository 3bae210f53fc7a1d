"""Holds manifests against the schemas of custom resources, as a cluster does that has them.

    kubectl get crd rayservices.ray.io -o yaml > rayservices.yaml      or the file of a release
    python tools/crds.py --crd rayservices.yaml deploy/kubernetes/rayservice.yaml

Beyond what a cluster refuses, fields that a schema does not name are errors: a cluster drops them. Rules in CEL
(`x-kubernetes-validations`), and what webhooks of an operator say, are not looked at. Needs jsonschema and PyYAML
(`pip install kubernetes-validate` brings both).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped,unused-ignore]
import yaml  # type: ignore[import-untyped,unused-ignore]

#: What every resource may have beside what its schema names.
COMMON = ("apiVersion", "kind", "metadata")


def documents(path: Path) -> Iterator[dict[str, Any]]:
    """The documents of a YAML file, those of a list one by one."""
    for found in yaml.safe_load_all(path.read_text()):
        if found:
            yield from found["items"] if found.get("kind") == "List" else [found]


def strict(schema: dict[str, Any], top: bool = False) -> dict[str, Any]:
    """OpenAPI's schema as JSON Schema, in which fields without a name are wrong."""
    if schema.get("x-kubernetes-int-or-string"):
        return {"type": ["integer", "string"]}
    found = {key: value for key, value in schema.items() if key not in ("properties", "items", "additionalProperties")}
    properties = {name: strict(part) for name, part in schema.get("properties", {}).items()}
    if top:
        properties |= {name: properties.get(name, {}) if name != "metadata" else {} for name in COMMON}
    if properties:
        found["properties"] = properties
    if "items" in schema:
        found["items"] = strict(schema["items"])
    more = schema.get("additionalProperties")
    if isinstance(more, dict):
        found["additionalProperties"] = strict(more)
    elif schema.get("type") == "object" and not more and not schema.get("x-kubernetes-preserve-unknown-fields"):
        found["additionalProperties"] = False
    if schema.get("nullable"):
        found["type"] = [schema["type"], "null"]
    return found


def schemas(paths: Sequence[Path]) -> dict[tuple[str, str], dict[str, Any]]:
    """The schemas of definitions, by `apiVersion` and `kind`."""
    found = {}
    for path in paths:
        for document in documents(path):
            if document.get("kind") != "CustomResourceDefinition":
                continue
            spec = document["spec"]
            for version in spec["versions"]:
                key = (f"{spec['group']}/{version['name']}", spec["names"]["kind"])
                found[key] = strict(version["schema"]["openAPIV3Schema"], top=True)
    return found


def faults(document: dict[str, Any], known: dict[tuple[str, str], dict[str, Any]]) -> list[str]:
    """What is wrong with a resource, each with its place."""
    key = (str(document.get("apiVersion")), str(document.get("kind")))
    if key not in known:
        there = ", ".join(" ".join(one) for one in sorted(known)) or "none"
        return [f"no definition is of this resource; expected: {there}; got: {' '.join(key)}"]
    errors = jsonschema.Draft7Validator(known[key]).iter_errors(document)
    return [f"{error.json_path}: {error.message}" for error in errors]


def main(given: Sequence[str] | None = None) -> int:
    """Prints what is wrong; gives 1 where something is."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--crd", type=Path, action="append", required=True, help="a file with definitions")
    parser.add_argument("manifests", type=Path, nargs="+")
    arguments = parser.parse_args(given)
    known = schemas(arguments.crd)
    wrong = 0
    for path in arguments.manifests:
        for document in documents(path):
            found = faults(document, known)
            wrong += len(found)
            what = f"{path}: {document.get('kind')} {document.get('metadata', {}).get('name')}"
            print("\n  ".join([f"{what}: {'wrong' if found else 'right'}", *found]))
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
