"""Serves models by Open Inference Protocol v2, over HTTP and gRPC, until it is told to end."""

from __future__ import annotations

import argparse
import logging
import os
from pathlib import Path

from neurenix import files
from neurenix.cli.common import add_build_arguments, amount, count, megabytes, number
from neurenix.cli.common import options as build_options
from neurenix.hardware.options import WORDS, check
from neurenix.log import LOG
from neurenix.serve import ServeOptions, Server, Settings
from neurenix.serve.settings import CONTROLS

#: The environment variable with the token, where no file has it.
TOKEN = "NEURENIX_SERVE_TOKEN"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    given = Settings()
    parser.add_argument(
        "models", nargs="+", metavar="MODEL",
        help="a file, NAME=FILE, package.module:factory, or a folder of models in the shape of Triton's repositories",
    )  # fmt: skip
    parser.add_argument(
        "--host", default=given.host, help=f"the address to listen at ({given.host}: this machine alone)"
    )
    parser.add_argument("--http-port", type=int, default=given.http_port, help="0: a free one, -1: none (8000)")
    parser.add_argument("--grpc-port", type=int, default=given.grpc_port, help="0: a free one, -1: none (8001)")
    parser.add_argument("--token-file", metavar="FILE", help=f"with the token that control needs (else ${TOKEN})")
    parser.add_argument(
        "--protect", default=given.protect, choices=("control", "all"),
        help="what needs the token: loading and unloading, or all but health and metrics (control)",
    )  # fmt: skip
    parser.add_argument(
        "--control", default=given.control, choices=CONTROLS,
        help="whether models are loaded by request, as their folders change, or at the start alone (none)",
    )  # fmt: skip
    parser.add_argument("--poll", type=amount, default=given.poll_s, metavar="S", help="for --control poll (15)")
    parser.add_argument("--max-batch-size", type=count, metavar="N", help="rows of an execution; 0: one request each")
    parser.add_argument(
        "--max-queue", type=number, default=256, metavar="N", help="requests that wait for a model (256)"
    )
    parser.add_argument(
        "--max-queue-delay", type=count, default=0, metavar="US",
        help="microseconds that a request waits for others while nothing runs, if others are to be expected (0)",
    )  # fmt: skip
    parser.add_argument("--timeout", type=count, default=0, metavar="US", help="of requests that name none (0: none)")
    parser.add_argument("--instances", type=number, default=1, metavar="N", help="executions of a model at once (1)")
    parser.add_argument(
        "--max-request", type=megabytes, default=given.max_request, metavar="MB", help="of one request (64)"
    )
    parser.add_argument(
        "--max-pending", type=megabytes, default=given.max_pending, metavar="MB",
        help="of all HTTP requests that are being read or answered (1024)",
    )  # fmt: skip
    parser.add_argument(
        "--drain", type=amount, default=given.drain_s, metavar="S", help="to answer what was taken (30)"
    )
    parser.add_argument("--strict-readiness", action="store_true", help="not ready while a model could not be loaded")
    parser.add_argument("--no-warmup", action="store_true", help="do not call models before requests do")
    parser.add_argument(
        "--no-batch-tuning",
        action="store_true",
        help="batches up to the greatest, even if smaller ones are faster a row",
    )
    parser.add_argument("--no-rollback", action="store_true", help="give the memory of replaced models back at once")
    parser.add_argument("--trace", action="store_true", help="spans of OpenTelemetry (run by opentelemetry-instrument)")
    parser.add_argument("--device", default="auto", metavar="NAME", help="auto, cuda, cuda:1 or cpu (auto)")
    parser.add_argument(
        "--precision", default="fp32", metavar="NAME",
        help=f"of models that are no engines yet: {', '.join(WORDS)} (fp32)",
    )  # fmt: skip
    add_build_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Serves; 1 when requests that were taken could not be answered, or no model could be loaded."""
    check("precision", arguments.precision)
    optimize = {
        name: value for name, value in build_options(arguments).items() if value not in (None, [], {}, False, "latency")
    }
    options = ServeOptions(
        max_batch=arguments.max_batch_size, max_queue=arguments.max_queue,
        max_delay_us=arguments.max_queue_delay, default_timeout_us=arguments.timeout,
        instances=arguments.instances, precision=arguments.precision, device=arguments.device,
        warmup=not arguments.no_warmup, tune=not (arguments.no_warmup or arguments.no_batch_tuning), optimize=optimize,
    )  # fmt: skip
    settings = Settings(
        host=arguments.host, http_port=_port(arguments.http_port), grpc_port=_port(arguments.grpc_port),
        token=_token(arguments.token_file), protect=arguments.protect, control=arguments.control,
        poll_s=arguments.poll, max_request=arguments.max_request,
        max_pending=arguments.max_pending, drain_s=arguments.drain,
        strict_readiness=arguments.strict_readiness, keep_previous=not arguments.no_rollback, trace=arguments.trace,
    )  # fmt: skip
    _log()
    return 0 if Server(arguments.models, settings, options).run() else 1


def _port(given: int) -> int | None:
    return None if given < 0 else given


def _token(path: str | None) -> str | None:
    if path is None:
        return os.environ.get(TOKEN) or None
    return files.read(Path(path), "the token").decode("utf-8", "replace").strip()


def _log() -> None:
    """What the server does is told on stderr, unless NEURENIX_LOG says otherwise."""
    if LOG.level == logging.NOTSET:
        logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.WARNING)
        LOG.setLevel(logging.INFO)
