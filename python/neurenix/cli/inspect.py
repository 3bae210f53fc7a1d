"""Shows what an engine does: layers, fusions, tactics, refusals, memory; as text, JSON, or a page (`--html FILE`)."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from neurenix import reports
from neurenix.cli import progress
from neurenix.cli.common import add_model_arguments, inputs_for, optimize, write_json
from neurenix.cli.models import load_given
from neurenix.hardware.optimized import Report, describe_memory

#: Rows and columns of the memory map in text.
ROWS, COLUMNS = 24, 72


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    add_model_arguments(parser)
    parser.add_argument("--html", metavar="FILE", help="write a page that any browser shows, without a network")
    parser.add_argument("--profile", action="store_true", help="run it and tell how long each layer takes")
    parser.add_argument(
        "--load-inputs", "--loadInputs", nargs="+", default=[], metavar="NAME:FILE", help="for --profile; else random"
    )


def run(arguments: argparse.Namespace) -> int:
    """Builds or opens the engine and shows it."""
    source = load_given(arguments)
    model = optimize(arguments, source)
    profile = None
    if arguments.profile:
        with progress.step("measuring"):
            profile = model.profile(inputs_for(arguments, model))
    report = model.report(profile)
    if arguments.html:
        reports.save(report, arguments.html, arguments.model)
    if not write_json(arguments.json, report):
        print("\n".join(text(report)))
        if profile is not None:
            print(profile)
        if arguments.html:
            print(f"written: {arguments.html}")
    return 0


def text(report: Report) -> Iterator[str]:
    """The report line by line."""
    yield from report.head()
    before, after = report["graph"]["before"], report["graph"]["after"]
    count = sum(len(graph["layers"]) for graph in after)
    given = f"{len(before['layers'])} layers as given, " if before else ""
    yield f"layers: {given}{count} after the passes, {len(report['kernels'])} kernels"
    passes = sorted(report["passes"], key=lambda row: -row[1])
    yield "passes: " + (", ".join(f"{name} {times}" for name, times in passes if times) or "none found anything")
    fused = [kernel for kernel in report["kernels"] if len(kernel["layers"]) > 1]
    yield f"fusions ({len(fused)}):"
    for kernel in fused:
        yield f"  {kernel['kernel']}: {' + '.join(kernel['layers'])}"
    yield "kernels (number, time when tuned, kernel, tactic):"
    for number, kernel in enumerate(report["kernels"]):
        yield "  " + _row(number, kernel)
    yield from memory_map(report["memory"])


def _row(number: int, kernel: Mapping[str, Any]) -> str:
    time = f"{kernel['tuned_nanoseconds'] / 1e3:9.1f} us" if kernel["tuned_nanoseconds"] else " " * 12
    what = kernel["implementation"] or "in place"
    return f"{number:4} {time}  {kernel['provider']} {kernel['kernel']}: {what}, {kernel['form']}"


def memory_map(memory: Mapping[str, Any]) -> Iterator[str]:
    """Offset downwards, kernels to the right: a letter where a tensor lies, and which are the largest ones."""
    spaces = sorted({block["space"] for block in memory["blocks"]})
    if not spaces:
        yield "memory map: nothing lies in an arena"
    for space in spaces:
        blocks = [block for block in memory["blocks"] if block["space"] == space]
        yield from _map_of(space, sorted(blocks, key=lambda block: -block["bytes"]))


def _map_of(space: str, blocks: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    total = max(block["offset"] + block["bytes"] for block in blocks)
    first, last = min(block["first"] for block in blocks), max(block["last"] for block in blocks)
    columns, rows = min(COLUMNS, last - first + 1), min(ROWS, len(blocks) + 2)
    cells = [["."] * columns for _ in range(rows)]
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
    for number, block in reversed(list(enumerate(blocks))):
        letter = letters[number] if number < len(letters) else "*"
        top = block["offset"] * rows // total
        bottom = max(top, (block["offset"] + block["bytes"] - 1) * rows // total)
        left, right = ((block[end] - first) * columns // (last - first + 1) for end in ("first", "last"))
        for row in cells[top : bottom + 1]:
            row[left : right + 1] = letter * (right - left + 1)
    yield f"memory map of {space}: {describe_memory(total)} downwards, kernels {first} to {last} to the right"
    yield from ("  " + "".join(row) for row in cells)
    for letter, block in list(zip(letters, blocks, strict=False))[:8]:
        what = ", ".join(block["tensors"]) or f"workspace of kernel {block['first']}"
        yield f"  {letter}: {describe_memory(block['bytes'])} at {block['offset']}, {what}"
