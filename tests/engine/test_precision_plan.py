"""What each layer computes in, and why: as reports tell it, and engine files keep it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import neurenix as nx

BACKEND = nx.hardware.get_backend("cpu")
pytestmark = pytest.mark.skipif(
    "bf16" not in BACKEND.get_device_info(0).precisions, reason="this processor has no bfloat16 arithmetic"
)


def network() -> nx.Network:
    """A product of features, and sines of times that are added to it."""
    made = nx.Network()
    x, time = made.add_input("x", np.float32, (4, 8)), made.add_input("time", np.int64, (4, 1))
    weights = made.add_constant("w", np.random.default_rng(0).normal(size=(8, 8)).astype(np.float32))
    frequencies = made.add_constant("frequencies", np.geomspace(1, 1e-3, 8).astype(np.float32))
    angles = made.add_layer("Cast", [time], {"to": np.dtype("float32")}, name="cast")[0]
    angles = made.add_layer("Mul", [angles, frequencies], name="angles")[0]
    waves = made.add_layer("Sin", [angles], name="waves")[0]
    product = made.add_layer("MatMul", [x, weights], name="product")[0]
    made.mark_output(made.add_layer("Add", [product, waves], name="sum")[0], "y")
    return made


def kept(model: Any) -> dict[str, list[str]]:
    return {row["reason"]: row["layers"] for row in model.report()["full_precision"]}


def test_a_report_says_what_stays_float32_and_why(tmp_path: Path) -> None:
    model = BACKEND.optimize_model(network(), precision="bf16", optimization_level=0)
    found = kept(model)
    assert found["they read exact numbers (positions, times, counts)"] == ["angles"]
    assert found["ops that compute in float32 alone"] == ["cast", "waves"]
    rows = model.report()["full_precision"]
    assert 0 < sum(row["arithmetic"] for row in rows) <= model.report()["arithmetic_per_dtype"]["float32"]
    assert "1 layer, " in str(model.report()) and "(angles): they read exact numbers" in str(model.report())
    model.save(tmp_path / "bf16.engine")
    assert kept(BACKEND.load(tmp_path / "bf16.engine")) == found


@pytest.mark.parametrize("precision", ["fp32", "tf32"])
def test_nothing_is_told_where_nothing_lower_was_asked_for_or_is_to_be_had(precision: str) -> None:
    assert kept(BACKEND.optimize_model(network(), precision=precision, optimization_level=0)) == {}


def test_layers_that_verification_lifts_are_told() -> None:
    made = nx.Network()
    x = made.add_input("x", np.float32, (64, 16))
    random = np.random.default_rng(1)
    for at in range(4):
        weights = made.add_constant("", random.normal(size=(16, 16)).astype(np.float32) / 4)
        x = made.add_layer("MatMul", [x, weights], name=f"product{at}")[0]
    # In bfloat16 nothing is left of what is carried behind a thousand.
    for op, name, operand in (
        ("Add", "raise", np.float32(1000)),
        ("MatMul", "carry", np.eye(16, dtype=np.float32)),
        ("Sub", "lower", np.float32(1000)),
    ):
        x = made.add_layer(op, [x, made.add_constant("", operand)], name=name)[0]
    made.mark_output(x, "y")
    found = kept(BACKEND.optimize_model(made, precision="bf16", optimization_level=0))
    assert found.keys() == {"verification found that outputs would depart too far"}
    lifted = {name.partition("~")[0] for name in next(iter(found.values()))}
    assert "carry" in lifted and lifted <= {"raise", "carry", "lower", "product3"}, found
