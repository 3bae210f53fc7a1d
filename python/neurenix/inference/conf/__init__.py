"""Hydra groups: `hydra.searchpath=[pkg://neurenix.inference.conf]`."""
