"""The tools, in their order, around ranges and placement."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from neurenix import _native
from neurenix._native import Network, Tensor
from neurenix.arrays import Array
from neurenix.errors import InvalidArgumentError
from neurenix.log import LOG
from neurenix.quantization.accuracy import bias, depthwise, equalisation, rounding, smoothing
from neurenix.quantization.accuracy.editing import Edits
from neurenix.quantization.accuracy.graph import Graph, InEightBits, Product
from neurenix.quantization.accuracy.words import OF_BATCHES, OF_WEIGHTS, PER_TOKEN, Accuracy
from neurenix.quantization.compare import Ratios

Batch = dict[str, Array]
#: Builds an engine of float32 for a network.
Build = Callable[[Network], _native.Engine]
#: The tools look at so many samples at most, and at so many bytes of them.
SAMPLES, BYTES = 256, 1 << 28
#: The parts of a shift that are tried for biases, beside all and none of it, and the batches on which they are.
STRENGTHS, JUDGED = (0.5,), 16
#: The bytes of Hessians that are in memory at a time.
HESSIANS = 1 << 30


class Steps(NamedTuple):
    """In what a quantized product counts: the scale of its weights, and the step and the integers of its input."""

    weights: Array
    #: 0 where each row has a step of its own.
    inputs: float
    least: int
    most: int

    def are(self, others: Steps) -> bool:
        """Whether all of them are those."""
        return self[1:] == others[1:] and np.array_equal(self.weights, others.weights)


def _steps(graph: Graph, product: InEightBits) -> Steps | None:
    """The steps of a product; None where its input has no 8 bits, or no step that is known."""
    if graph.is_per_token(product.layer.inputs[0]):
        weights = graph.scale(product.layer.inputs[1])
        return None if weights is None else Steps(weights, 0.0, -127, 127)
    weights, inputs = (graph.scale(tensor) for tensor in product.layer.inputs[:2][::-1])
    source = product.layer.inputs[0]
    stored = graph.makers[source].inputs[0] if source in graph.makers else None
    if weights is None or inputs is None or stored is None or inputs.size != 1:
        return None
    limits = np.iinfo(stored.dtype)
    return Steps(weights, float(inputs.reshape(-1)[0]), int(limits.min), int(limits.max))


class Tools:
    """What was asked for, and what it found out: what is done to a network before ranges are found (`prepared`), and to
    one that has Quantize and Dequantize layers (`corrected`)."""

    def __init__(self, asked: Accuracy, batches: Sequence[Batch], build: Build, reach: depthwise.Reach) -> None:
        self.asked, self.batches, self._build, self._reach = asked, batches, build, reach
        #: What the report says.
        self.notes: list[str] = []
        #: Tells the scales of this network from those of others; nothing where there are none.
        self.suffix = ""
        self._full: Network | None = None
        #: By the names of products, their steps and the integers that their weights became.
        self._rounded: dict[str, tuple[Steps, Array]] = {}

    def prepared(self, full: Network) -> Network:
        """A network of `in_full` that computes the same, in ranges that lose less: equalised and smoothed."""
        if "equalisation" in self.asked:
            full = self._equalised(full)
        if "smooth" in self.asked:
            full = self._smoothed(full)
        self._full = full
        return full

    def corrected(self, quantized: Network, rough: bool = False) -> Network:
        """The quantized form of what `prepared` gave, with learned roundings and, unless `rough`, corrected biases."""
        assert self._full is not None
        if "gptq" in self.asked:
            quantized = self._with_rounding(quantized)
        if "bias_correction" in self.asked and not rough:
            quantized = self._with_biases(quantized)
        return quantized

    def _with_biases(self, quantized: Network) -> Network:
        """With corrected biases, in the strength of the least error of the outputs on the batches: where ranges cut off
        a lot, the mean of the error is that of few numbers, and its correction may harm all others."""
        assert self._full is not None
        found = bias.corrections(self._full, quantized, self.batches, self._build)
        exact = self._build(self._full)
        made = {1.0: bias.apply(quantized, found)}
        made |= {s: bias.apply(quantized, {name: s * shift for name, shift in found.items()}) for s in STRENGTHS}
        made[0.0] = quantized
        engines = {strength: self._build(network) for strength, network in made.items()}
        ratios = {strength: Ratios() for strength in made}
        for batch in self.batches[:JUDGED]:
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
        of_products = {site.tensor for site in sites}
        of_depthwise = [site for site in depthwise.sites(graph) if site.tensor not in of_products]
        seen = self._seen(full, [site.tensor for site in sites])
        halves = self._halves(full, [site.tensor for site in of_depthwise])
        ends = {tensor: least for tensor, _, least, _ in full.quantization_points()}
        edits = Edits(full)
        chosen = []
        for site, of in zip(sites, seen, strict=True):
            known = [ends.get(reader.source) for reader in site.readers]
            least = None if None in known else min(end for end in known if end is not None)
            chosen.append(smoothing.smooth(site, of, self.asked.alpha, least, edits, PER_TOKEN in self.asked))
        scaled = [
            depthwise.scale(site, held, ends.get(site.tensor), self._reach, edits)
            for site, held in zip(of_depthwise, halves, strict=True)
        ]
        taken = [alpha for alpha in chosen if alpha]
        between = f", alpha {min(taken):g} to {max(taken):g}" if taken else ""
        self._say(f"smooth: {len(taken) + sum(scaled)} of {len(sites) + len(scaled)} tensors{between}")
        return self._applied(edits, full)

    def _halves(self, full: Network, tensors: Sequence[Tensor]) -> list[depthwise.Halves]:
        """What these tensors, with channels along axis 1, hold on the batches."""
        rows = -(-2 * smoothing.ROWS // len(self.batches))
        halves = {tensor: depthwise.Halves(int(tensor.shape[1]), rows) for tensor in tensors}
        for held in self._held(full, tensors) if halves else ():
            for tensor, array in held.items():
                halves[tensor].add(array)
        return list(halves.values())

    def _seen(self, full: Network, tensors: Sequence[Tensor]) -> list[smoothing.Seen]:
        """What these tensors hold on the batches."""
        if not tensors:
            return []
        random = np.random.default_rng(0)
        peaks = {tensor: np.zeros(int(tensor.shape[-1]), np.float32) for tensor in tensors}
        rows: dict[Tensor, list[Array]] = {tensor: [] for tensor in tensors}
        share = -(-smoothing.ROWS // len(self.batches))
        for held in self._held(full, tensors):
            for tensor, array in held.items():
                flat = array.reshape(-1, array.shape[-1])
                peaks[tensor] = np.maximum(peaks[tensor], np.abs(flat).max(0))
                rows[tensor].append(flat[random.permutation(len(flat))[:share]])
        return [smoothing.Seen(peaks[tensor], np.concatenate(rows[tensor])) for tensor in tensors]

    def _with_rounding(self, quantized: Network) -> Network:
        graph = Graph(quantized)
        wanted = {product.name: steps for product in graph.in_8_bits() if (steps := _steps(graph, product)) is not None}
        self._round(wanted)
        edits = Edits(quantized)
        for name, _, weights in graph.in_8_bits():
            if name in wanted and name in self._rounded:
                integers = edits.constant(f"{name}.weight.rounded", self._rounded[name][1])
                edits.let_read(weights, 0, integers)
        self._say(f"gptq: {len(self._rounded)} of {len(wanted)} products")
        return edits.applied() if edits else quantized

    def _round(self, wanted: Mapping[str, Steps]) -> None:
        """Rounds the weights of products in these steps, unless that is done; some products at a time, as many as
        whose Hessians fit into the memory."""
        assert self._full is not None
        waiting = []
        for product in Graph(self._full).products():
            known, steps = self._rounded.get(product.name), wanted.get(product.name)
            done = known is not None and steps is not None and steps.are(known[0])
            if steps is not None and not done and rounding.is_able(product):
                waiting.append(product)
        while waiting:
            taken, size = 1, rounding.hessian_bytes(waiting[0])
            while taken < len(waiting) and size + rounding.hessian_bytes(waiting[taken]) <= HESSIANS:
                size += rounding.hessian_bytes(waiting[taken])
                taken += 1
            hessians = self._counted(waiting[:taken], wanted)
            for product in waiting[:taken]:
                steps, hessian = wanted[product.name], hessians.pop(product.name)
                found = rounding.rounded(product, steps.weights, hessian.sums, self.asked.damping)
                self._rounded[product.name] = (steps, found)
            waiting = waiting[taken:]

    def _counted(self, products: Sequence[Product], wanted: Mapping[str, Steps]) -> dict[str, rounding.Hessian]:
        """The Hessian of each product, on what it reads in 8 bits."""
        assert self._full is not None
        found = {product.name: rounding.Hessian(product, len(self.batches)) for product in products}
        sources = list(dict.fromkeys(product.source for product in products))
        for held in self._held(self._full, sources):
            for product in products:
                steps = wanted[product.name]
                found[product.name].add(held[product.source], steps.inputs, steps.least, steps.most)
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
        for batch in self.batches:
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
