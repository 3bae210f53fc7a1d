"""The tools, in their order, around ranges and placement."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from neurenix import _native
from neurenix._native import Network, Tensor
from neurenix.arrays import Array
from neurenix.errors import InvalidArgumentError
from neurenix.log import LOG
from neurenix.quantization.accuracy import bias, equalisation, rounding, smoothing
from neurenix.quantization.accuracy.editing import Edits
from neurenix.quantization.accuracy.graph import Graph, Product
from neurenix.quantization.accuracy.words import OF_BATCHES, OF_WEIGHTS, Accuracy
from neurenix.quantization.compare import Ratios

Batch = dict[str, Array]
#: Builds an engine of float32 for a network.
Build = Callable[[Network], _native.Engine]
#: The tools look at so many samples at most, and at so many bytes of them.
SAMPLES, BYTES = 256, 1 << 28
#: The rows of a tensor that smoothing tries scales on.
ROWS = 512
#: The parts of a shift that are tried for biases, beside all and none of it, and the batches on which they are.
STRENGTHS, JUDGED = (0.5,), 16
#: The bytes of Hessians that are in memory at a time.
HESSIANS = 1 << 30


class Tools:
    """What was asked for, and what it found out: what is done to a network before ranges are found (`prepared`), and to
    one that has Quantize and Dequantize layers (`corrected`)."""

    def __init__(self, asked: Accuracy, batches: Sequence[Batch], build: Build) -> None:
        self.asked, self._batches, self._build = asked, batches, build
        #: What the report says.
        self.notes: list[str] = []
        #: Tells the scales of this network from those of others; nothing where there are none.
        self.suffix = ""
        self._full: Network | None = None
        #: By the names of products, the scale of their weights and the integers that these became.
        self._rounded: dict[str, tuple[Array, Array]] = {}

    def prepared(self, full: Network) -> Network:
        """A network of `in_full` that computes the same, in ranges that lose less: equalised and smoothed."""
        if "equalisation" in self.asked:
            full = self._equalised(full)
        if "smooth" in self.asked:
            full = self._smoothed(full)
        self._full = full
        return full

    def corrected(self, quantized: Network, ranges: Mapping[str, float], rough: bool = False) -> Network:
        """The quantized form of what `prepared` gave, with learned roundings and, unless `rough`, corrected biases.
        `ranges`: the magnitude of each point."""
        assert self._full is not None
        if "gptq" in self.asked:
            quantized = self._with_rounding(quantized, ranges)
        if "bias_correction" in self.asked and not rough:
            quantized = self._with_biases(quantized)
        return quantized

    def _with_biases(self, quantized: Network) -> Network:
        """With corrected biases, in the strength of the least error of the outputs on the batches: where ranges cut off
        a lot, the mean of the error is that of few numbers, and its correction may harm all others."""
        assert self._full is not None
        found = bias.corrections(self._full, quantized, self._batches, self._build)
        exact = self._build(self._full)
        made = {1.0: bias.apply(quantized, found)}
        made |= {s: bias.apply(quantized, {name: s * shift for name, shift in found.items()}) for s in STRENGTHS}
        made[0.0] = quantized
        engines = {strength: self._build(network) for strength, network in made.items()}
        ratios = {strength: Ratios() for strength in made}
        for batch in self._batches[:JUDGED]:
            wanted = dict(exact.run(batch))
            for strength, engine in engines.items():
                ratios[strength].add(wanted, dict(engine.run(batch)))
        best = max(made, key=lambda strength: ratios[strength].least())
        self._say(f"bias_correction: {len(found)} products, {best:.0%} of the shift")
        return made[best]

    def _say(self, text: str) -> None:
        if f"accuracy: {text}" not in self.notes:
            LOG.info("%s", text)
            self.notes.append(f"accuracy: {text}")

    def _equalised(self, full: Network) -> Network:
        edits = Edits(full)
        count = equalisation.equalise(Graph(full), edits)
        self._say(f"equalisation: {count} pairs of products")
        return self._applied(edits, full)

    def _applied(self, edits: Edits, network: Network) -> Network:
        if not edits:
            return network
        self.suffix += f"+{edits.digest()}"
        return edits.applied()

    def _smoothed(self, full: Network) -> Network:
        graph = Graph(full)
        sites = list(smoothing.sites(graph))
        signs = {tensor: unsigned for tensor, _, unsigned in full.quantization_points()}
        edits = Edits(full)
        chosen = []
        seen = self._seen(full, [site.tensor for site in sites])
        for site, of in zip(sites, seen, strict=True):
            unsigned = all(signs.get(reader.source, False) for reader in site.readers)
            chosen.append(smoothing.smooth(site, of, self.asked.alpha, unsigned, edits))
        taken = [alpha for alpha in chosen if alpha]
        between = f", alpha {min(taken):g} to {max(taken):g}" if taken else ""
        self._say(f"smooth: {len(taken)} of {len(sites)} tensors{between}")
        return self._applied(edits, full)

    def _seen(self, full: Network, tensors: Sequence[Tensor]) -> list[smoothing.Seen]:
        """What these tensors hold on the batches."""
        if not tensors:
            return []
        random = np.random.default_rng(0)
        peaks = {tensor: np.zeros(int(tensor.shape[-1]), np.float32) for tensor in tensors}
        rows: dict[Tensor, list[Array]] = {tensor: [] for tensor in tensors}
        share = -(-ROWS // len(self._batches))
        for held in self._held(full, tensors):
            for tensor, array in held.items():
                flat = array.reshape(-1, array.shape[-1])
                peaks[tensor] = np.maximum(peaks[tensor], np.abs(flat).max(0))
                rows[tensor].append(flat[random.permutation(len(flat))[:share]])
        return [smoothing.Seen(peaks[tensor], np.concatenate(rows[tensor])) for tensor in tensors]

    def _with_rounding(self, quantized: Network, ranges: Mapping[str, float]) -> Network:
        graph = Graph(quantized)
        scales = {product.name: graph.scale(product.layer.inputs[1]) for product in graph.in_8_bits()}
        wanted = {name: scale for name, scale in scales.items() if scale is not None}
        self._round(wanted, ranges)
        edits = Edits(quantized)
        for name, _, weights in graph.in_8_bits():
            if name in wanted and name in self._rounded:
                integers = edits.constant(f"{name}.weight.rounded", self._rounded[name][1])
                edits.let_read(weights, 0, integers)
        self._say(f"gptq: {len(self._rounded)} of {len(wanted)} products")
        return edits.applied() if edits else quantized

    def _round(self, wanted: Mapping[str, Array], ranges: Mapping[str, float]) -> None:
        """Rounds the weights of products in these scales, unless that is done; some products at a time, as many as
        whose Hessians fit into the memory."""
        assert self._full is not None
        points = {tensor: (name, unsigned) for tensor, name, unsigned in self._full.quantization_points()}
        waiting = []
        for product in Graph(self._full).products():
            known, scale = self._rounded.get(product.name), wanted.get(product.name)
            done = known is not None and scale is not None and np.array_equal(known[0], scale)
            if scale is not None and not done and product.source in points and rounding.is_able(product):
                waiting.append(product)
        while waiting:
            taken, size = 1, rounding.hessian_bytes(waiting[0])
            while taken < len(waiting) and size + rounding.hessian_bytes(waiting[taken]) <= HESSIANS:
                size += rounding.hessian_bytes(waiting[taken])
                taken += 1
            hessians = self._counted(waiting[:taken], points, ranges)
            for product in waiting[:taken]:
                scale, hessian = wanted[product.name], hessians.pop(product.name)
                found = rounding.rounded(product, scale, hessian.sums, self.asked.damping)
                self._rounded[product.name] = (scale, found)
            waiting = waiting[taken:]

    def _counted(
        self, products: Sequence[Product], points: Mapping[Tensor, tuple[str, bool]], ranges: Mapping[str, float]
    ) -> dict[str, rounding.Hessian]:
        """The Hessian of each product, on what it reads in 8 bits."""
        assert self._full is not None
        found = {product.name: rounding.Hessian(product, len(self._batches)) for product in products}
        sources = list(dict.fromkeys(product.source for product in products))
        for held in self._held(self._full, sources):
            for product in products:
                name, unsigned = points[product.source]
                low, high = (0, 255) if unsigned else (-128, 127)
                step = max(ranges[name] / high, 1e-12)
                found[product.name].add(held[product.source], step, low, high)
        return found

    def _held(self, network: Network, tensors: Sequence[Tensor]) -> Iterator[dict[Tensor, Array]]:
        """What these tensors hold on each batch, in float32."""
        inputs = {tensor: tensor.name for tensor in network.inputs}
        inner = [tensor for tensor in tensors if tensor not in inputs]
        engine = None
        if inner:
            copy, own = network.copy(inner)
            for at, tensor in enumerate(own):
                copy.mark_output(tensor, str(at))
            engine = self._build(copy)
        for batch in self._batches:
            given = {} if engine is None else dict(engine.run(batch))
            yield {tensor: np.asarray(given[str(at)]) for at, tensor in enumerate(inner)} | {
                tensor: batch[inputs[tensor]] for tensor in tensors if tensor in inputs
            }


def check(asked: Accuracy, refittable: bool) -> None:
    """Raises `InvalidArgumentError` where new weights could not be quantized as the tools did."""
    stuck = [tool for tool in asked.tools if tool in OF_WEIGHTS]
    if refittable and stuck:
        raise InvalidArgumentError(
            f"accuracy={stuck[0]!r} fits the weights at hand, and refittable=True wants to replace them",
            expected="tools that other weights replay: equalisation, smooth",
            got=", ".join(asked.tools),
            hint="leave one of them out",
        )


def needed_batches(asked: Accuracy, found: Sequence[Batch]) -> Sequence[Batch]:
    """The batches. Raises `InvalidArgumentError` where there is none and a tool reads some."""
    reading = [tool for tool in asked.tools if tool in OF_BATCHES]
    if reading and not found:
        raise InvalidArgumentError(
            f"accuracy={reading[0]!r} looks at batches, and there is none",
            hint="give the calibrator batches beside its cache",
        )
    return found
