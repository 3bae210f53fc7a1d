"""A decoder of MatMulNBits: Neurenix and ONNX Runtime on the same file and threads, a prompt and one token.

    python -m benchmarks.bench_weights --forms 4:32:0 4:128:0 4:32:4 4:128:4 8:32:4

A form is bits:block:accuracy_level. The model is layers of q, k, v, o and a gated MLP between normalizations; what
stands between the products is element by element, so that they take nearly all of the time. Each form is run in several
processes, each of which times both peers in turns, and ours twice for the band of A against A. With `--clock processor`
everybody has one thread, and the time is that of the processor: on a machine that others use too, clocks on the wall
tell nothing. Errors are those against the weights in double precision, relative to the greatest output. Writes
benchmarks/results/weights.json.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import measure

PROMPT = 128
FORMS = "4:32:0 4:128:0 4:32:4 4:128:4 8:32:0 8:32:4".split()


class Decoder:
    """The file, and the same in double precision."""

    def __init__(self, hidden: int, inner: int, layers: int, form: str) -> None:
        self.bits, self.block, self.level = (int(part) for part in form.split(":"))
        self.hidden, self.inner, self.layers = hidden, inner, layers
        self.rng = np.random.default_rng(0)
        self.nodes: list[Any] = []
        self.held: dict[str, np.ndarray] = {}
        self.weights = 0
        self.bytes = 0

    def product(self, x: str, k: int, n: int) -> str:
        """A MatMulNBits of random weights."""
        from onnx import helper

        name, blocks = f"m{len(self.nodes)}", k // self.block
        spread = 1 / (np.sqrt(k) * 2 ** (self.bits - 2))
        packed = self.rng.integers(0, 256, (n, blocks, self.block * self.bits // 8), np.uint8)
        scales = (spread * self.rng.uniform(0.5, 1.5, (n, blocks))).astype(np.float32)
        self.held |= {f"{name}.b": packed, f"{name}.s": scales}
        self.weights += k * n
        self.bytes += packed.nbytes + scales.nbytes
        attrs = {"K": k, "N": n, "bits": self.bits, "block_size": self.block, "accuracy_level": self.level}
        node = helper.make_node("MatMulNBits", [x, f"{name}.b", f"{name}.s"], [name], domain="com.microsoft", **attrs)
        self.nodes.append(node)
        return name

    def op(self, op: str, *inputs: str, **attrs: Any) -> str:
        """Another op of one output."""
        from onnx import helper

        name = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [name], **attrs))
        return name

    def layer(self, x: str) -> str:
        """A layer of the decoder, without attention itself."""
        h = self.op("LayerNormalization", x, "one", axis=-1)
        q, k, v = (self.product(h, self.hidden, self.hidden) for _ in range(3))
        mixed = self.op("Mul", self.op("Sigmoid", self.op("Mul", q, k)), v)
        x = self.op("Add", x, self.product(mixed, self.hidden, self.hidden))
        h = self.op("LayerNormalization", x, "one", axis=-1)
        gate, up = (self.product(h, self.hidden, self.inner) for _ in range(2))
        gated = self.op("Mul", self.op("Mul", gate, self.op("Sigmoid", gate)), up)
        return self.op("Add", x, self.product(gated, self.inner, self.hidden))

    def save(self, path: Path) -> None:
        """Writes the file."""
        import onnx
        from onnx import TensorProto, helper, numpy_helper

        self.held["one"] = np.ones(self.hidden, np.float32)
        x = "x"
        for _ in range(self.layers):
            x = self.layer(x)
        y = self.op("LayerNormalization", x, "one", axis=-1)
        value = helper.make_tensor_value_info
        graph = helper.make_graph(
            self.nodes,
            "decoder",
            [value("x", TensorProto.FLOAT, ["tokens", self.hidden])],
            [value(y, TensorProto.FLOAT, ["tokens", self.hidden])],
            [numpy_helper.from_array(array, name) for name, array in self.held.items()],
        )
        opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
        onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)

    def exact(self, x: np.ndarray) -> np.ndarray:
        """What the weights give in double precision, activations as they are."""
        values: dict[str, np.ndarray] = {"x": x.astype(np.float64)}
        for node in self.nodes:
            a, *rest = (values.get(name) for name in node.input)
            assert a is not None
            out = node.output[0]
            if node.op_type == "MatMulNBits":
                values[out] = a @ self.numbers(node.output[0]).T
            elif node.op_type == "LayerNormalization":
                centred = a - a.mean(-1, keepdims=True)
                values[out] = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5)
            elif node.op_type == "Sigmoid":
                values[out] = 1 / (1 + np.exp(-a))
            else:
                values[out] = a + rest[0] if node.op_type == "Add" else a * rest[0]
        return values[self.nodes[-1].output[0]]

    def numbers(self, name: str) -> np.ndarray:
        """The weights of a product, [N, K]."""
        packed, scales = self.held[f"{name}.b"], self.held[f"{name}.s"].astype(np.float64)
        shifts = np.arange(0, 8, self.bits, dtype=np.uint8)
        codes = (packed[..., None] >> shifts & np.uint8(2**self.bits - 1)).reshape(*packed.shape[:-1], -1)
        weights = (codes.astype(np.float64) - 2 ** (self.bits - 1)) * scales[..., None]
        return weights.reshape(len(packed), -1)


def bandwidth(threads: int) -> float:
    """Bytes that a copy reads and writes in a nanosecond, of more memory than caches hold."""
    import torch

    torch.set_num_threads(threads)
    source = torch.ones(128 << 20, dtype=torch.float32)
    target = torch.empty_like(source)
    times = []
    for _ in range(4):
        start = time.perf_counter_ns()
        target.copy_(source)
        times.append(time.perf_counter_ns() - start)
    return 2 * source.nbytes / min(times)


def once(form: str, options: Any) -> dict[str, Any]:
    """Both peers on one file, in this process."""
    from neurenix.hardware.tensorrt import TensorRTBackend

    decoder = Decoder(options.hidden, options.inner, options.layers, form)
    rng, results = np.random.default_rng(1), {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "decoder.onnx"
        decoder.save(path)
        for phase, tokens in (("prefill", PROMPT), ("decode", 1)):
            x = rng.normal(size=(tokens, options.hidden)).astype(np.float32)
            models = [TensorRTBackend().optimize_model(path, {"x": x.shape}, threads=options.threads) for _ in range(2)]
            theirs = measure.onnxruntime(path, {"x": x}, options.threads)
            runs = {
                "neurenix": lambda m=models[0], x=x: m({"x": x}),
                "onnxruntime": theirs,
                "neurenix again": lambda m=models[1], x=x: m({"x": x}),
            }
            times = measure.CLOCKS[options.clock](runs, options.rounds if tokens > 1 else 4 * options.rounds)
            middle = {peer: statistics.median(each) for peer, each in times.items()}
            row: dict[str, Any] = {f"{peer}, ms": round(each, 3) for peer, each in middle.items()}
            least = {peer: min(each) for peer, each in times.items()}
            row |= {f"{peer}, least ms": round(each, 3) for peer, each in least.items()}
            row["neurenix / onnxruntime, least"] = round(least["neurenix"] / least["onnxruntime"], 3)
            row["neurenix / onnxruntime"] = round(middle["neurenix"] / middle["onnxruntime"], 3)
            row["A / A"] = round(middle["neurenix again"] / middle["neurenix"], 3)
            row["weights, GB/s"] = round(decoder.bytes / middle["neurenix"] / 1e6, 2)
            want = decoder.exact(x)
            for peer, answer in (("neurenix", runs["neurenix"]()), ("onnxruntime", theirs())):
                got = np.asarray(next(iter(answer.values())) if isinstance(answer, dict) else answer[0])
                row[f"error of {peer}"] = float(f"{np.abs(got - want).max() / np.abs(want).max():.2g}")
            row["arithmetic"] = models[0].report()["arithmetic_per_dtype"]
            results[phase] = row
    results["copy, GB/s"] = round(bandwidth(options.threads), 2)
    return results


def together(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The medians of several processes, and the range of their ratios."""
    merged: dict[str, Any] = {"copy, GB/s": statistics.median(row["copy, GB/s"] for row in rows)}
    for phase in ("prefill", "decode"):
        each = [row[phase] for row in rows]
        numbers = [name for name, value in each[0].items() if isinstance(value, float)]
        merged[phase] = {name: round(statistics.median(e[name] for e in each), 9) for name in numbers}
        merged[phase]["arithmetic"] = each[0]["arithmetic"]
        for name in ("neurenix / onnxruntime", "A / A"):
            merged[phase][f"{name}, each process"] = [e[name] for e in each]
    return merged


def main() -> None:
    parser = measure.parser(__doc__ or "")
    parser.add_argument("--forms", nargs="+", default=FORMS)
    parser.add_argument("--hidden", type=int, default=2048)
    parser.add_argument("--inner", type=int, default=5632)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=10)
    measure.add_processes(parser)
    options = parser.parse_args()
    if options.clock == "processor":
        options.threads = 1
    if options.alone:
        print(json.dumps(once(options.alone, options)))
        return
    results = {}
    for form in options.forms:
        found = measure.in_processes("benchmarks.bench_weights", form, options, ("hidden", "inner", "layers"))
        results[form] = together(found)
        print(form, json.dumps(results[form], indent=2))
    print(measure.write("weights", results, {key: value for key, value in vars(options).items() if key != "alone"}))


if __name__ == "__main__":
    main()
