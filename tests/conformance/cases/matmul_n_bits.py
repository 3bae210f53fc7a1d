"""MatMulNBits."""

from typing import Any

import numpy as np

from tests.conformance.case import SINGLE, Array, Case, Given, case, constant, exact, normal


def codes(packed: Array, bits: int) -> Array:
    """The integers of the last axis, the first in the lowest bits."""
    places = np.unpackbits(packed.astype(np.uint8), axis=-1, bitorder="little")
    digits = places.reshape(*packed.shape[:-1], -1, bits).astype(np.int64)
    return digits @ (1 << np.arange(bits))


def rounded(a: Array, block: int) -> Array:
    """Rows in 8 bits: each block by its greatest number, in single precision."""
    parts = []
    for part in np.split(a.astype(np.float32), range(block, a.shape[-1], block), axis=-1):
        step = np.abs(part).max(-1, keepdims=True) / np.float32(127)
        inverse = np.where(step == 0, np.float32(0), np.float32(1) / np.where(step == 0, np.float32(1), step))
        parts.append(np.rint(part * inverse).astype(np.float64) * step.astype(np.float64))
    return np.concatenate(parts, -1)


def product(a: Array, b: Array, scales: Array, zeros: Array | None = None, **attrs: Any) -> Array:
    """The definition in double precision."""
    k, n, block, bits = attrs["K"], attrs["N"], attrs["block_size"], attrs.get("bits", 4)
    blocks = -(-k // block)
    stored = codes(b.reshape(n, blocks, -1), bits).astype(np.float64)
    if zeros is None:
        zero = np.full((n, blocks), 2.0 ** (bits - 1))
    elif zeros.dtype == np.uint8:
        zero = codes(zeros.reshape(n, -1), bits)[:, :blocks].astype(np.float64)
    else:
        zero = zeros.reshape(n, blocks)
    weights = ((stored - zero[:, :, None]) * scales.reshape(n, blocks, 1)).reshape(n, -1)[:, :k]
    left = rounded(a, block) if attrs.get("accuracy_level") == 4 else a.astype(np.float64)
    return np.asarray(left @ weights.T)


def packed(*shape: int) -> Given:
    """Bytes of any value."""
    return constant(Given(lambda rng, _: rng.integers(0, 256, shape).astype(np.uint8)))


def steps(*shape: int, halves: bool = False) -> Given:
    """Scales, in float32 whatever the dtype of the case, with the digits of float16 where that is said."""
    digits = np.float16 if halves else np.float32
    return constant(Given(lambda rng, _: rng.uniform(0.01, 0.1, shape).astype(digits).astype(np.float32)))


def of(name: str, rows: tuple[int, ...], k: int, n: int, block: int, zeros: str = "", **attrs: Any) -> Case:
    """A case of so many blocks."""
    bits, blocks = attrs.get("bits", 4), -(-k // block)
    kinds = {
        "packed": packed(n, -(-blocks * bits // 8)),
        "numbers": constant(Given(lambda rng, _: rng.integers(0, 2**bits, (n, blocks)).astype(np.float32))),
    }
    scales = steps(n * blocks, halves=attrs.pop("halves", False))
    given = [normal(*rows, k), packed(n, blocks, block * bits // 8), scales]
    options: dict[str, Any] = {"dtypes": attrs.pop("dtypes", SINGLE), "opset": 0, "sums": True}
    attrs |= {"K": k, "N": n, "block_size": block}
    return case(name, *given, kinds.get(zeros), reference=product, **options, **attrs)


OP = "MatMulNBits"
CASES = [
    of("one_row", (1,), 64, 32, 32),
    of("rows", (2, 3), 96, 33, 32),
    of("many_rows", (37,), 256, 70, 32),
    of("vector", (), 64, 16, 32),
    of("no_rows", (0,), 64, 16, 32),
    of("part_of_a_block", (5,), 80, 6, 32),
    of("smallest_blocks", (5,), 64, 20, 16),
    of("blocks_of_128", (21,), 300, 50, 128),
    of("blocks_of_256", (4,), 300, 20, 256, "packed"),
    of("zeros", (1,), 96, 40, 32, "packed"),
    of("zeros_of_many_rows", (19,), 96, 40, 32, "packed"),
    of("zeros_as_numbers", (3,), 96, 40, 32, "numbers"),
    of("bits_8", (1,), 160, 40, 32, bits=8),
    of("bits_8_many_rows", (23,), 160, 40, 32, "packed", bits=8),
    of("bits_2", (3,), 64, 20, 32, "packed", bits=2),
    of("uneven_rows", (9,), 77, 20, 16),
    of("scales_of_16_bits", (12,), 192, 24, 64, halves=True),
    of("column_by_column", (2,), 200, 18, 256, bits=8, halves=True),
    of("blocks_of_48", (7,), 150, 20, 48, "packed"),
    of("hundreds_of_rows", (515,), 70, 17, 32, "packed"),
    of("level_1", (3,), 64, 20, 32, accuracy_level=1),
    of("level_4", (1,), 160, 40, 32, accuracy_level=4, dtypes=("float32",)),
    of("level_4_many_rows", (23,), 160, 40, 32, "packed", accuracy_level=4, dtypes=("float32",)),
    of("level_4_blocks_of_256", (3,), 300, 40, 256, accuracy_level=4, dtypes=("float32",)),
    of("level_4_bits_8", (11,), 160, 40, 128, "packed", accuracy_level=4, bits=8, dtypes=("float32",)),
    case(
        "level_4_of_zeros",
        exact(np.zeros((2, 32))),
        packed(16, 1, 16),
        steps(16),
        reference=product,
        dtypes=("float32",),
        opset=0,
        K=32,
        N=16,
        block_size=32,
        accuracy_level=4,
    ),
]
