"""A Triton server out of its wheel."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path


class Server:
    """`tritonserver` on a repository, on free ports of this machine, with variables and flags of one's own."""

    def __init__(
        self,
        environment: Path,
        backends: Path,
        repository: Path,
        log: Path,
        variables: Mapping[str, str] | None = None,
        flags: Sequence[str] = (),
    ) -> None:
        packages = next(environment.glob("lib/python3*/site-packages"))
        self.log = log
        options: dict[str, object] = {
            "model-repository": repository,
            "backend-directory": backends,
            "model-control-mode": "explicit",
            "load-model": "*",
            "exit-on-error": "false",
            "strict-readiness": "false",
        }
        ports = free_ports(3)
        for name, port in zip(("http", "grpc", "metrics"), ports, strict=True):
            options |= {f"{name}-address": "127.0.0.1", f"{name}-port": port}
        self.http, self.grpc, self.metrics = (f"127.0.0.1:{port}" for port in ports)
        command = [packages / "pytriton/tritonserver/bin/tritonserver", *(f"--{k}={v}" for k, v in options.items())]
        command.extend(flags)
        libraries = str(packages / "nvidia_pytriton.libs")
        paths = {"LD_LIBRARY_PATH": libraries, "OMP_NUM_THREADS": "2", "MALLOC_ARENA_MAX": "2"}
        with log.open("wb") as file:
            self.process = subprocess.Popen(
                command, stdout=file, stderr=file, env=os.environ | paths | dict(variables or {})
            )
        self._wait()

    def _wait(self) -> None:
        until = time.monotonic() + 60
        while time.monotonic() < until and self.process.poll() is None:
            try:
                with urllib.request.urlopen(f"http://{self.http}/v2/health/ready", timeout=1):
                    return
            except OSError:
                time.sleep(0.1)
        self.process.kill()
        raise AssertionError(self.log.read_text()[-4000:])

    def refusal(self, model: str) -> str:
        """What the log says of a model that was not loaded."""
        found = re.search(rf"failed to load '{model}' version 1: (.*)", self.log.read_text())
        # Triton writes texts as JSON has them.
        return found[1].replace('\\"', '"') if found else ""

    def resident(self) -> int:
        """Its memory in kB."""
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+)", text)[1])  # type: ignore[index]

    def is_running(self) -> bool:
        """Whether it is there."""
        return self.process.poll() is None

    def stop(self) -> int:
        """Ends it as an orchestrator does; gives its exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=60)


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()
