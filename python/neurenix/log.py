"""Neurenix's logger. Nothing else in the package writes anywhere, but for the command line."""

from __future__ import annotations

import logging

LOG = logging.getLogger("neurenix")
