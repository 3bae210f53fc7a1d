"""The GPU on weights of 4 and 8 bits (MatMulNBits) beside the same products with weights of float16.

    python -m benchmarks.bench_n_bits_cuda --rows 1 16 128 2048

Both engines are chains of pairs of products, from `--terms` to `--columns` numbers and back, of which each has weights
of its own, so many that they are more than a cache holds. They run as graphs on arrays that stay on the GPU, in turns;
`us` is the time of a call over the number of pairs. For one product of each pair alone `error` is the greatest
departure from the same weights in double precision over the greatest result, and `sqnr_db` the signal-to-noise ratio
against the numbers that its weights were quantized from. Results join those in benchmarks/results/n_bits_cuda.json.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from benchmarks import measure
from benchmarks.bench_cuda import timed
from benchmarks.bench_int8_cuda import decibels

#: Bytes of weights that no cache holds.
MORE_THAN_CACHES = 220e6
ROUNDS = 3


def quantized(weights: np.ndarray, bits: int, block: int) -> tuple[np.ndarray, np.ndarray]:
    """Codes of [columns, terms] to the nearest, symmetric in each block, and their scales as float16."""
    blocks = weights.reshape(len(weights), -1, block)
    middle = 2 ** (bits - 1)
    scales = (np.abs(blocks).max(-1) / (middle - 1)).astype(np.float16)
    codes = np.rint(blocks / scales.astype(np.float32)[..., None]).clip(-middle, middle - 1) + middle
    return codes.astype(np.uint8), scales


def packed(codes: np.ndarray, bits: int) -> np.ndarray:
    """As MatMulNBits has them: the first in the lowest bits of a byte."""
    return codes if bits == 8 else codes[..., ::2] | codes[..., 1::2] << 4


def numbers(codes: np.ndarray, scales: np.ndarray, bits: int) -> np.ndarray:
    """What they stand for, [columns, terms]."""
    found = (codes.astype(np.float32) - 2 ** (bits - 1)) * scales.astype(np.float32)[..., None]
    return found.reshape(len(codes), -1)


class Weights:
    """Those of a product, quantized."""

    def __init__(self, terms: int, columns: int, bits: int, block: int) -> None:
        rng = np.random.default_rng(terms)
        self.sizes = {"K": terms, "N": columns, "bits": bits, "block_size": block}
        self.full = rng.standard_normal((columns, terms), np.float32) / np.float32(np.sqrt(terms))
        codes, scales = quantized(self.full, bits, block)
        self.exact = numbers(codes, scales, bits)
        self.held = {"float16": [self.exact.astype(np.float16)], "few bits": [packed(codes, bits), scales]}

    def layer(self, made: Any, kind: str, x: Any, number: int) -> Any:
        """The product in a network; each has others of these columns first, so that no two are one constant."""
        constants = [made.add_constant(f"c{number}", np.roll(array, number, 0)) for array in self.held[kind]]
        op, attrs = ("MatMul", {"transB": 1}) if kind == "float16" else ("MatMulNBits", self.sizes)
        return made.add_layer(op, [x, *constants], attrs)[0]

    def accuracy(self, kind: str, rows: int) -> dict[str, float]:
        """Of the product alone."""
        import torch

        x = np.random.default_rng(1).standard_normal((rows, self.sizes["K"])).astype(np.float16)
        model = engine(kind, rows, [self], 1)
        got = next(iter(model.run({"x": torch.from_numpy(x).cuda()}).values())).double().cpu()
        want, whole = (torch.from_numpy(x.astype(np.float64) @ w.T.astype(np.float64)) for w in (self.exact, self.full))
        error = float((got - want).abs().max() / want.abs().max())
        return {"error": float(f"{error:.2g}"), "sqnr_db": decibels(got, whole)}


def engine(kind: str, rows: int, weights: list[Weights], count: int) -> Any:
    """So many times these products, each behind the one before it."""
    import neurenix as nx

    made = nx.Network(kind)
    x = made.add_input("x", "float16", [rows, weights[0].sizes["K"]])
    for number in range(count):
        for each in weights:
            x = each.layer(made, kind, x, number)
    made.mark_output(x, "y")
    return nx.hardware.get_backend("cuda").optimize_model(made, precision="fp16", verify=False)


def one(rows: int, bits: int, options: Any) -> dict[str, Any]:
    """Both engines at so many rows."""
    import torch

    there, back = options.terms, options.columns
    weights = [Weights(there, back, bits, options.block), Weights(back, there, bits, options.block)]
    found: dict[str, Any] = {"gpu": torch.cuda.get_device_name()}
    models = {}
    for kind, bytes_of_each in (("float16", 2.0), ("few bits", bits / 8)):
        count = max(2, int(np.ceil(MORE_THAN_CACHES / (2 * there * back * bytes_of_each))))
        models[kind] = engine(kind, rows, weights, count)
        kernels = models[kind].report()["kernels"]
        found[kind] = {
            "pairs": count,
            "products": [each.accuracy(kind, rows) for each in weights],
            "kernels": sorted({f"{kernel['kernel']}: {kernel['implementation']}" for kernel in kernels}),
            "tuned_us": [round(kernel["tuned_nanoseconds"] / 1e3, 2) for kernel in kernels[:4]],
        }
    x = torch.randn((rows, there), dtype=torch.float16, device="cuda")
    times: dict[str, list[float]] = {kind: [] for kind in models}
    for _ in range(ROUNDS):
        for kind, model in models.items():
            call = timed(lambda model=model: model.run({"x": x}), options.rounds)
            times[kind].append(1e3 * call["stream_ms"] / found[kind]["pairs"])
    for kind, each in times.items():
        found[kind] |= {"us": round(min(each), 2), "band": round(max(each) / min(each), 3)}
    found["float16 / few bits"] = round(min(times["float16"]) / min(times["few bits"]), 2)
    return found


def main() -> None:
    parser = measure.parser(__doc__ or "")
    parser.add_argument("--terms", type=int, default=4096)
    parser.add_argument("--columns", type=int, default=11008)
    parser.add_argument("--rows", nargs="+", type=int, default=[1, 16, 128])
    parser.add_argument("--bits", nargs="+", type=int, default=[4])
    parser.add_argument("--block", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=50)
    options = parser.parse_args()
    file = measure.RESULTS / "n_bits_cuda.json"
    results = json.loads(file.read_text())["results"] if file.exists() else {}
    for bits in options.bits:
        for rows in options.rows:
            found = one(rows, bits, options)
            results[f"{options.terms}:{options.columns} x {rows}, {bits} bits, {options.block}"] = found
            print(rows, bits, json.dumps(found), flush=True)
            measure.write("n_bits_cuda", results, {"rounds": options.rounds})


if __name__ == "__main__":
    main()
