"""`export --triton`: the engine as a model of a Triton model repository."""

from __future__ import annotations

import argparse
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from neurenix.cli.common import count, number, write_json
from neurenix.errors import InvalidArgumentError
from neurenix.hardware.optimized import OptimizedModel
from neurenix.importers.files import ENGINES
from neurenix.serve import triton


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What belongs to --triton."""
    group = parser.add_argument_group("for Triton Inference Server")
    group.add_argument(
        "--triton", metavar="DIR",
        help="write the engine into this model repository, as the next version of the model; MODEL may then be an "
        "engine file, or a plan of TensorRT's, too",
    )  # fmt: skip
    group.add_argument("--model-name", metavar="NAME", help="of the model there (the file's name)")
    group.add_argument(
        "--triton-backend", choices=triton.BACKENDS, default="neurenix",
        help="our own, or Triton's python backend with a model.py (neurenix)",
    )  # fmt: skip
    group.add_argument("--instances", type=number, default=1, metavar="N", help="executions at once (1)")
    group.add_argument(
        "--max-queue-delay", type=count, default=100, metavar="US", help="of the dynamic batcher, in microseconds (100)"
    )


def _new_version(arguments: argparse.Namespace) -> AbstractContextManager[triton.Draft]:
    """As `triton.new_version`; raises `InvalidArgumentError` with --output."""
    if arguments.output:
        raise InvalidArgumentError("the engine has two places", expected="--triton or --output, not both")
    name = arguments.model_name or _stem(arguments.model)
    return triton.new_version(Path(arguments.triton), name)


def save(arguments: argparse.Namespace, model: OptimizedModel) -> triton.Written:
    """Writes a model that was built into the repository; raises as `OptimizedModel.save`, and as `_new_version`."""
    with _new_version(arguments) as draft:
        model.save(draft.folder / "model.engine")
        return _described(arguments, model, draft)


def _stem(model: str) -> str:
    return model.rpartition(":")[2] if ":" in model and not Path(model).exists() else Path(model).stem


def _described(arguments: argparse.Namespace, model: OptimizedModel, draft: triton.Draft) -> triton.Written:
    return triton.write(model, draft, arguments.triton_backend, arguments.instances, arguments.max_queue_delay)


def built_already(arguments: argparse.Namespace) -> bool:
    """Whether the model is an engine or a plan, which is copied."""
    return bool(arguments.triton) and arguments.model is not None and Path(arguments.model).suffix in ENGINES


def copy(arguments: argparse.Namespace) -> int:
    """Puts an engine file or a plan into the repository, and prints what was written."""
    plan = triton.is_plan(arguments.model)
    with _new_version(arguments) as draft:
        if plan:
            written = triton.write_plan(arguments.model, draft, arguments.instances)
        else:
            written = _described(arguments, triton.copy_engine(arguments.model, draft), draft)
    if not write_json(arguments.json, {"passed": True, "triton": record(written)}):
        print(text(written))
    return 0


def record(written: triton.Written) -> dict[str, Any]:
    """What was written, for JSON."""
    return {"model": str(written.model), "config_kept": written.config_kept, "command": written.command}


def text(written: triton.Written) -> str:
    """What was written, for people."""
    config = written.folder / "config.pbtxt"
    kept = f"{config} was there, and stays as it is" if written.config_kept else f"{config} written"
    lines = [f"{written.model} written, {kept}", f"serve it: {written.command}"]
    if "$BACKEND" in written.command:
        lines.append("  $BACKEND: the folder with libtriton_neurenix.so")
    if "$WHEELS" in written.command:
        lines.append("  $WHEELS: a folder with the wheel of neurenix-engine for the Python of the image")
    return "\n".join([*lines, f"or: neurenix serve {written.folder.parent}"])
