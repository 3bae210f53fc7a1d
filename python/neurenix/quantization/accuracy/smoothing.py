"""SmoothQuant (Xiao et al., SmoothQuant: Accurate and Efficient Post-Training Quantization for Large Language Models,
2022): a part of the range of each channel moves from what products read into their weights."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from neurenix import _native
from neurenix._native import Layer, Tensor
from neurenix.arrays import Array
from neurenix.quantization.accuracy.editing import Edits
from neurenix.quantization.accuracy.graph import Graph, Product, Read

#: Ops whose scale (input 1) and shift (input 2) can take factors of channels in.
NORMS = ("LayerNormalization", "RMSNormalization")
#: What is tried for each site where nobody says; 0 for leaving it as it is.
ALPHAS = (0.0, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8)
#: Less gain than this, as a share of the error, is no reason to scale.
GAIN = 0.98
#: The rows of a tensor that scales are tried on.
ROWS = 512
#: Scales stay within this and its inverse.
MOST = 1e4


class Site(NamedTuple):
    """A tensor whose channels, along its last axis, can be scaled, and the products that read it."""

    tensor: Tensor
    #: The constants that take 1/s in: of a norm its scale and shift, of a Mul its factors, of a product in front of a
    #: Mul its weights and bias.
    absorbers: list[Read]
    #: The product in front, whose weights are the first absorber.
    product: Product | None
    readers: list[Product]
    #: Whether others read the tensor, too: products then read it times 1/s, and nothing is absorbed.
    shared: bool


class Seen(NamedTuple):
    """What a tensor held on the batches: the greatest magnitude of each channel, and some rows, [row, channel]."""

    peaks: Array
    rows: Array


def sites(graph: Graph) -> Iterator[Site]:
    """The sites of a network, in its order."""
    products = {product.name: product for product in graph.products()}
    for layer in graph.layers:
        absorbed = _absorbers(graph, products, layer)
        if absorbed is None:
            continue
        tensor = layer.outputs[0]
        width = tensor.shape[-1] if tensor.shape else None
        if not isinstance(width, int):
            continue
        readers, shared = _readers(graph, products, tensor, width)
        if readers:
            yield Site(tensor, absorbed[0], absorbed[1], readers, shared)


def _absorbers(graph: Graph, products: Mapping[str, Product], layer: Layer) -> tuple[list[Read], Product | None] | None:
    if layer.op in NORMS:
        return _of_norm(layer)
    if layer.op != "Mul" or not all(layer.inputs):
        return None
    for at, operand in enumerate(layer.inputs):
        assert operand is not None
        width = layer.outputs[0].shape[-1:]
        array = operand.numpy()
        if array is not None:
            fits = np.asarray(array).size == width[0] == np.asarray(array).shape[-1:][0] if array.shape else False
            return ([Read(layer, at)], None) if fits and array.dtype == np.float32 else None
    return _of_gate(graph, products, layer)


def _of_norm(layer: Layer) -> tuple[list[Read], None] | None:
    rank = len(layer.outputs[0].shape)
    if int(layer.attrs.get("axis", -1)) % rank != rank - 1 or len(layer.outputs) != 1:
        return None
    given = [(at, tensor) for at, tensor in enumerate(layer.inputs) if at and tensor is not None]
    if not given or any(tensor.numpy() is None or tensor.dtype != np.float32 for _, tensor in given):
        return None
    return [Read(layer, at) for at, _ in given], None


def _of_gate(graph: Graph, products: Mapping[str, Product], layer: Layer) -> tuple[list[Read], Product | None] | None:
    """silu(g(x)) * u(x): the product that gives an operand takes the factors in."""
    for operand in layer.inputs:
        maker = graph.makers.get(operand) if operand is not None and graph.sole_reader(operand) else None
        inner = [maker] if maker is not None else []
        if maker is not None and maker.op == "Add":
            inner += [graph.makers[tensor] for tensor in maker.inputs if tensor in graph.makers]
        for product in (products[each.name] for each in inner if each.op == "MatMul" and each.name in products):
            bias = graph.bias(product)
            if operand == (product.layer.outputs[0] if bias is None else bias.result):
                return [Read(product.layer, 1)] + ([] if bias is None else [Read(bias.layer, bias.at)]), product
    return None


def _readers(graph: Graph, products: Mapping[str, Product], tensor: Tensor, width: int) -> tuple[list[Product], bool]:
    """The matrix products that read a tensor, also through layers that only move its rows; and whether others do."""
    found: list[Product] = []
    shared = tensor in graph.results
    for reader in graph.readers.get(tensor, []):
        product = products.get(reader.layer.name)
        if product is not None and product.layer.op == "MatMul" and reader.at == 0:
            found.append(product)
        elif reader.at == 0 and _keeps_channels(reader.layer, width):
            behind, others = _readers(graph, products, reader.layer.outputs[0], width)
            found += behind
            shared |= others
        else:
            shared = True
    return found, shared


def _keeps_channels(layer: Layer, width: int) -> bool:
    if layer.op == "Transpose":
        perm = list(layer.attrs["perm"])
        return bool(perm[-1] == len(perm) - 1)
    return layer.op in ("Identity", "Dropout", "Reshape") and layer.outputs[0].shape[-1:] == (width,)


def smooth(
    site: Site, seen: Seen, alpha: float | None, least: float | None, edits: Edits, per_token: bool = False
) -> float:
    """Scales the channels of a site: s = max|x|^alpha / max|w|^(1 - alpha) for the magnitudes of what is read and of
    the weights that read it; 1/s goes into what gives the tensor, s into the weights. What the network computes stays
    the same but for rounding. Gives the alpha that was taken, of `ALPHAS` the one of the least error on `seen` where
    none is given; 0 where the site stays as it is. `per_token`: each row has a scale of its own.
    """
    weights = np.max([product.peaks(product.weights, True) for product in site.readers], 0)
    if alpha is None:
        alpha = _best(site, seen, weights, least, per_token)
        if alpha == 0.0:
            return 0.0
    scale = scales(seen.peaks, weights, alpha)
    scaled: dict[Tensor, Tensor] = {}
    for product in site.readers:
        edits.multiply(product.layer, 1, product.factors(scale, True), "smoothed")
        if site.shared and product.source not in scaled:
            edits.multiply(product.layer, 0, 1 / scale, "smooth")
            scaled[product.source] = edits.read(product.layer, 0)
        elif site.shared:
            # Products that read one tensor read one product of it, which then has 8 bits once.
            edits.let_read(product.layer, 0, scaled[product.source])
    for absorber in () if site.shared else site.absorbers:
        is_weights = site.product is not None and absorber == site.absorbers[0]
        factors = site.product.factors(1 / scale, False) if is_weights and site.product else 1 / scale
        edits.multiply(absorber.layer, absorber.at, factors, "smoothed")
    return alpha


def scales(inputs: Array, weights: Array, alpha: float) -> Array:
    """s of each channel; 1 where it has no numbers or no weights."""
    alive = (inputs > 0) & (weights > 0)
    x, w = (np.where(alive, peaks, 1).astype(np.float64) for peaks in (inputs, weights))
    found: Array = np.clip(x**alpha / w ** (1 - alpha), 1 / MOST, MOST)
    # As a factor of all channels changes nothing, s is 1 in the middle: what is shared keeps its magnitude.
    return np.where(alive, found / np.exp(np.mean(np.log(found))), 1.0)


def _best(site: Site, seen: Seen, weights: Array, least: float | None, per_token: bool) -> float:
    """Of `ALPHAS` the one with the least error of the products on the rows; 0 unless it gains."""
    tried = {alpha: scales(seen.peaks, weights, alpha) if alpha else None for alpha in ALPHAS}
    errors = {
        alpha: sum(lost(of, seen, scale, least, per_token=per_token) for of in site.readers)
        for alpha, scale in tried.items()
    }
    best = min(errors, key=lambda alpha: errors[alpha])
    return best if errors[best] < GAIN * errors[0.0] else 0.0


def lost(
    product: Product,
    seen: Seen,
    scale: Array | None,
    least: float | None,
    most: float | None = None,
    per_token: bool = False,
) -> float:
    """The squared error of a product on rows, where channels are divided by `scale` and both sides are rounded to 8
    bits; `least` is the least number that can come then, where that is known, and `most` the range, the greatest
    magnitude without it, or of each row its own (`per_token`). Each place of a convolution's window counts as a product
    of its own."""
    factors = np.ones(product.inputs) if scale is None else scale
    rows, most = seen.rows.astype(np.float64), float((seen.peaks / factors).max()) if most is None else most
    step: Any
    step, zero, dtype = _native.integers_of(max(most, 1e-12), None if per_token else least)
    if per_token:
        step = np.maximum(np.abs(rows / factors).max(-1, keepdims=True), 1e-12) / 127
    limits = np.iinfo(dtype)
    integers = np.clip(np.rint(rows / factors / step) + zero, limits.min, limits.max)
    wide = product.weights.astype(np.float64)
    scaled = wide * product.factors(factors, True)
    steps = np.maximum(product.peaks(scaled, False), 1e-12) / 127
    rounded = np.rint(scaled / product.factors(steps, False)) * product.factors(steps, False)
    return float(np.sum((_products(product, (integers - zero) * step, rounded) - _products(product, rows, wide)) ** 2))


def _products(product: Product, rows: Array, weights: Array) -> Array:
    """Rows of channels times weights, as [group, row, output and place]."""
    groups = product.view[0]
    viewed = weights.reshape(product.view)
    by_input = viewed.swapaxes(1, 2) if product.outputs_first else viewed
    inputs = by_input.shape[1]
    found: Array = rows.reshape(-1, groups, inputs).swapaxes(0, 1) @ by_input.reshape(groups, inputs, -1)
    return found
