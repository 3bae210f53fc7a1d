"""Neurenix: takes a trained model and gives the fastest correct inference that the machine at hand can give."""

from neurenix._native import __version__

__all__ = ["__version__"]
