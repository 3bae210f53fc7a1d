"""Models behind a network: Open Inference Protocol v2 over HTTP and gRPC."""

from __future__ import annotations

from neurenix.serve.config import ServeOptions
from neurenix.serve.retrying import Client
from neurenix.serve.server import Server
from neurenix.serve.settings import Settings

__all__ = ["Client", "ServeOptions", "Server", "Settings"]
