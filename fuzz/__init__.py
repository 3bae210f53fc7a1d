"""Fuzz targets: `python -m fuzz.importer` and `python -m fuzz.networks`; CONTRIBUTING.md says how to run them."""
