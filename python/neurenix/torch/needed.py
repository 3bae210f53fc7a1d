"""Says it where torch is not installed, before anything imports it."""

from neurenix.packages import need

need("torch", "neurenix.torch")
