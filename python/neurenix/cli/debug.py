"""Finds the first layer that departs from ONNX's reference or torch; `debug reduce` the smallest failing graph."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from neurenix.cli import progress
from neurenix.cli.common import add_model_arguments, amount, budget, write_json
from neurenix.cli.models import is_engine, load_given, no_original
from neurenix.cli.peers import STATISTICS
from neurenix.hardware.options import check
from neurenix.packages import need

if TYPE_CHECKING:
    from neurenix.cli.layers import Row, Subject

#: Who may be trusted about ONNX models.
REFERENCES = ("onnx", "onnxruntime")
#: A table of more rows shows the worst of them alone.
SHOWN = 40


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    parser.add_argument(
        "action", nargs="?", default="layers", choices=("layers", "reduce"),
        help="layers (what is meant without a word): a table of errors; reduce: write the smallest graph that fails",
    )  # fmt: skip
    add_model_arguments(parser)
    parser.add_argument(
        "--load-inputs", "--loadInputs", nargs="+", default=[], metavar="NAME:FILE", help="not random ones"
    )
    parser.add_argument(
        "--reference", choices=REFERENCES, default="onnx",
        help="who is trusted for ONNX models: ONNX's reference, or ONNX Runtime without its rewrites (onnx); for torch "
        "models it is torch",
    )  # fmt: skip
    parser.add_argument(
        "--tolerance", "--rtol", type=amount, metavar="X",
        help="error that may be, over the reference's greatest value (fp32 1e-4, tf32 1e-2, fp16 2e-2, bf16 1e-1)",
    )  # fmt: skip
    parser.add_argument("--check-error-stat", choices=tuple(STATISTICS), default="max", help="which error (max)")
    parser.add_argument("--all", action="store_true", help=f"every row, where there are more than {SHOWN}")
    parser.add_argument("--output", "-o", default="reduced.onnx", metavar="FILE", help="of reduce (reduced.onnx)")
    parser.add_argument(
        "--check", metavar="COMMAND",
        help="of reduce: what decides; it gets the path of a model, in place of {} or at the end, and fails with a "
        "status other than 0. Its inputs lie beside it (.inputs.npz)",
    )  # fmt: skip


def run(arguments: argparse.Namespace) -> int:
    """1 when something departs."""
    if is_engine(arguments.model):
        raise no_original(arguments.model)
    arguments.precision = check("precision", arguments.precision)
    if arguments.tolerance is None:
        arguments.tolerance = budget(arguments.precision)
    need("onnx", "looking into a model layer by layer")
    from neurenix.cli import layers

    with progress.step("running the reference"):
        subject = layers.subject_of(load_given(arguments), arguments)
    return _reduce(subject, arguments) if arguments.action == "reduce" else _layers(subject, arguments)


def _layers(subject: Subject, arguments: argparse.Namespace) -> int:
    from neurenix.cli import cutting, layers

    with progress.step("running every layer"):
        marked = cutting.with_outputs(subject.model, subject.tensors())
        rows = layers.compare(subject, layers.ours(marked, subject.inputs, arguments), arguments.check_error_stat)
    with progress.step("running the model as it ships"):
        whole = layers.ours(subject.model, subject.inputs, arguments)
    wrong = [row for row in rows if row.departs(arguments.tolerance)]
    shipped = layers.compare(subject, whole, arguments.check_error_stat)
    shipped_wrong = [row for row in shipped if row.departs(arguments.tolerance)]
    fused = None
    if shipped_wrong and not wrong:
        with progress.step("looking for what departs where layers are fused"):
            fused = layers.first_fused(subject, arguments, subject.tensors())
    broken = next((row for row in rows if row.reference_not_finite), None)
    content: dict[str, Any] = {
        "model": arguments.model,
        "reference": subject.reference,
        "precision": arguments.precision,
        "tolerance": arguments.tolerance,
        "statistic": arguments.check_error_stat,
        "layers": [_plain(row) for row in rows],
        "outputs": [_plain(row) for row in shipped],
        "first": _plain(wrong[0]) if wrong else None,
        "first_fused": fused,
        "first_not_finite": _plain(next((row for row in rows if row.state == "not finite"), None)),
        "reference_not_finite": _plain(broken),
        "passed": not wrong and not shipped_wrong,
    }
    if not write_json(arguments.json, content):
        _print(content, rows, arguments.all)
    return 0 if content["passed"] else 1


def _plain(row: Row | None) -> dict[str, Any] | None:
    return None if row is None else asdict(row) | {"state": row.state, "shape": list(row.shape)}


def _print(content: Mapping[str, Any], rows: Sequence[Row], everything: bool) -> None:
    tolerance = content["tolerance"]
    shown = list(rows)
    if len(rows) > SHOWN and not everything:
        worst = sorted(rows, key=lambda row: (not row.departs(tolerance), -(row.error or 0.0)))[:SHOWN]
        shown = sorted(worst, key=rows.index)
        print(f"the {SHOWN} worst of {len(rows)} tensors (--all shows the others):")
    print(f"{'error':>9} {'inherited':>9}  {'':1} layer")
    for row in shown:
        error = "unknown" if row.error is None else f"{row.error:.2e}"
        bad = f", {row.not_finite} not finite ({row.reference_not_finite} in the reference)" if row.not_finite else ""
        mark = "!" if row.departs(tolerance) else " "
        shape = "x".join(map(str, row.shape)) or "scalar"
        print(
            f"{error:>9} {row.inherited:9.2e}  {mark} {row.node} ({row.op}) -> {row.tensor}: {row.dtype} {shape}{bad}"
        )
    for row in content["outputs"]:
        print(f"output {row['tensor']} of the engine as it ships: error {row['error']:.2e}")
    if broken := content["reference_not_finite"]:
        print(f"{content['reference']} itself gives NaN or Inf first in {broken['node']} ({broken['op']})")
    if first := content["first_not_finite"]:
        print(f"NaN or Inf that the reference has not: first in {first['node']} ({first['op']})")
    if first := content["first"]:
        print(
            f"FIRST THAT DEPARTS: {first['node']} ({first['op']}) -> {first['tensor']}, error {first['error']:.2e} "
            f"above {tolerance:.0e}; what it reads departs by {first['inherited']:.2e}"
        )
    elif fused := content["first_fused"]:
        print(f"FIRST THAT DEPARTS: {fused}, and only where layers are fused")
    print(f"{'PASSED' if content['passed'] else 'FAILED'}: {content['precision']} against {content['reference']}")


def _reduce(subject: Subject, arguments: argparse.Namespace) -> int:
    from neurenix.cli import reduce

    judge = reduce.Command(arguments.check) if arguments.check is not None else reduce.Engine(subject, arguments)
    with progress.step("reducing") as tell:
        found = reduce.smallest(subject, judge, tell)
    if found is None:
        content: dict[str, Any] = {"passed": True, "model": arguments.model}
        if not write_json(arguments.json, content):
            print("PASSED: the model does not fail; nothing to reduce")
        return 0
    files = reduce.write(found, subject, arguments.output)
    nodes = [f"{node.name or node.output[0]} ({node.op_type})" for node in found.model.graph.node]
    content = {
        "passed": False, "model": arguments.model, "failure": found.failure, "nodes": nodes,
        "of": len(subject.model.graph.node), "tried": found.tried, "files": files,
    }  # fmt: skip
    if not write_json(arguments.json, content):
        print(f"failure: {found.failure}")
        print(f"{len(nodes)} of {content['of']} nodes are left, after {found.tried} tries: {', '.join(nodes)}")
        for path in files:
            print(f"written: {path}")
    return 1
