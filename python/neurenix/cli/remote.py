"""`bench --url`: measures a model on a server of Open Inference Protocol v2, ours or another."""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from neurenix.cli import plot, progress
from neurenix.cli.common import amount, given_shapes, random_inputs, write_file, write_json
from neurenix.errors import InvalidArgumentError

if TYPE_CHECKING:
    from neurenix.serve.load import Load, Target

#: Clients, or connections, at once.
_MOST_CLIENTS = 4096

#: The environment variable with the server's token.
TOKEN = "NEURENIX_SERVE_TOKEN"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What belongs to --url."""
    group = parser.add_argument_group("a model on a server", f"MODEL is its name there; a token is taken from ${TOKEN}")
    group.add_argument("--url", metavar="URL", help="http://HOST:PORT, https://HOST:PORT or grpc://HOST:PORT")
    group.add_argument("--model-version", default="", metavar="N", help="of the model (the server's choice)")
    group.add_argument(
        "--concurrency", default="1", metavar="N,...", help="clients that wait for an answer before they go on (1)"
    )
    group.add_argument(
        "--rate",
        default="",
        metavar="R,...",
        help="in place of that: requests a second, whether or not others are answered",
    )
    group.add_argument(
        "--connections", type=int, default=64, metavar="N", help="for --rate: requests on their way at most (64)"
    )
    group.add_argument(
        "--arrivals",
        choices=("poisson", "constant"),
        default="poisson",
        help="for --rate: how they are spaced (poisson)",
    )
    group.add_argument("--latency-limit", type=amount, metavar="MS", help="fail where the last percentile is above it")


def run(arguments: argparse.Namespace, percentiles: Sequence[float]) -> int:
    """Measures each load and prints it; 1 where requests were not answered, or too late."""
    _check(arguments)
    clients = _numbers(arguments.concurrency, "--concurrency")
    rates = _numbers(arguments.rate, "--rate") if arguments.rate else []
    target = _target(arguments)
    found: dict[str, Load] = {}
    with progress.step("measuring") as tell:
        levels = rates or clients
        for number, level in enumerate(levels):
            tell(number / len(levels), f"{level:g}")
            found[f"{level:g} {'a second' if rates else 'clients'}"] = _measured(arguments, target, level, bool(rates))
    rows = {name: one.record(percentiles) for name, one in found.items()}
    last = f"percentile({percentiles[-1]:g}%)"
    for row in rows.values():
        above = arguments.latency_limit is not None and not row["latency_ms"][last] <= arguments.latency_limit
        row["passed"] = not row["failures"] and row["answered"] > 0 and not above
    passed = all(row["passed"] for row in rows.values())
    content = {
        "url": arguments.url, "model": arguments.model,
        "inputs": {name: list(a.shape) for name, a in target.arrays.items()},
        "loop": "open" if rates else "closed", "loads": rows, "passed": passed,
    }  # fmt: skip
    if arguments.plot and any(one.seconds for one in found.values()):
        samples = {name: [1e3 * s for s in one.seconds] for name, one in found.items() if one.seconds}
        write_file(arguments.plot, plot.latencies(samples, f"{arguments.model} at {arguments.url}"))
    if not write_json(arguments.json, content):
        _print(rows)
        print(f"&&&& {'PASSED' if passed else 'FAILED'} neurenix bench {arguments.model} --url {arguments.url}")
    return 0 if passed else 1


def _check(arguments: argparse.Namespace) -> None:
    """Refuses what would never end, or can't begin."""
    for name in ("duration", "warmup"):
        if not math.isfinite(value := getattr(arguments, name)):
            raise InvalidArgumentError(f"--{name} has no end", expected="a finite time", got=f"{value}")
    if not 1 <= arguments.connections <= _MOST_CLIENTS:
        raise InvalidArgumentError(
            "--connections is out of range", expected=f"1 to {_MOST_CLIENTS}", got=str(arguments.connections)
        )


def _target(arguments: argparse.Namespace) -> Target:
    """What is asked; raises `DeviceError` where the server does not answer it."""
    from neurenix.serve import load
    from neurenix.serve.client import connect

    token = os.environ.get(TOKEN) or None
    asking = connect(arguments.url, token)
    ports = asking.ports(arguments.model, arguments.model_version)
    asking.close()
    arrays = random_inputs(ports, _shapes(arguments, ports), arguments.seed)
    target = load.Target(arguments.url, arguments.model, arrays, arguments.model_version, token)
    load.probe(target)
    return target


def _measured(arguments: argparse.Namespace, target: Target, level: float, is_rate: bool) -> Load:
    from neurenix.serve import load

    if not is_rate:
        return load.closed(target, int(level), arguments.duration, arguments.warmup / 1e3)
    poisson = arguments.arrivals == "poisson"
    return load.opened(target, level, arguments.duration, arguments.connections, poisson, arguments.seed)


def _numbers(text: str, name: str) -> list[float]:
    try:
        found = [float(word) for word in text.split(",") if word]
    except ValueError:
        found = [-1.0]
    if not found or any(not 0 < value < 1e6 for value in found):
        raise InvalidArgumentError(f"{name} can't be read", expected="numbers above 0, as in 1,16", got=repr(text))
    if name == "--concurrency" and any(value != int(value) or value > _MOST_CLIENTS for value in found):
        raise InvalidArgumentError(
            f"{name} counts clients", expected=f"whole numbers up to {_MOST_CLIENTS}", got=repr(text)
        )
    return found


def _shapes(arguments: argparse.Namespace, ports: Any) -> Any:
    """The shapes that were asked for, else those of the model with one row."""
    given = given_shapes(arguments)
    if given is not None:
        return given
    known = {p.name: (1, *p.shape[1:]) if p.shape and isinstance(p.shape[0], str) else p.shape for p in ports}
    return {name: shape for name, shape in known.items() if all(isinstance(d, int) for d in shape)} or None


def _print(rows: dict[str, dict[str, Any]]) -> None:
    names = list(next(iter(rows.values()))["latency_ms"])
    print("".join([f"{'load':>16} {'answers/s':>10}", *(f"{name:>17}" for name in names), "   ms"]))
    for load, row in rows.items():
        figures = "".join(f"{row['latency_ms'][name]:17.3f}" for name in names)
        batch = "" if row["rows_per_execution"] is None else f"   {row['rows_per_execution']:.1f} rows an execution"
        failed = f"   failed: {', '.join(f'{n} x {r}' for r, n in row['failures'].items())}" if row["failures"] else ""
        late = f"   {row['late']} sent late" if row["late"] else ""
        print(f"{load:>16} {row['throughput_qps']:10.1f}{figures}{batch}{failed}{late}")
