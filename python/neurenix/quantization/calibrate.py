"""From a network and batches to a network with Quantize and Dequantize layers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cache
from itertools import islice
from threading import Lock
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from neurenix import _native, shapes
from neurenix._native import Network
from neurenix.arrays import Array
from neurenix.errors import DTypeError, InvalidArgumentError, ShapeError, UnsupportedError
from neurenix.log import LOG
from neurenix.quantization import accuracy as accuracy_tools
from neurenix.quantization.accuracy import PER_TOKEN, Accuracy, Tools
from neurenix.quantization.accuracy.graph import Graph
from neurenix.quantization.accuracy.tools import BYTES, SAMPLES
from neurenix.quantization.calibrators import KEPT, STEPS, Calibrator, Counts, Run, calibrator
from neurenix.quantization.reused_outputs import ReusedOutputs, channels_last

#: Ops that products of 8 bits come from.
PRODUCTS = ("Conv", "ConvTranspose", "MatMul")
#: The roles of tensors whose ranges 8 bits can't do without.
NEEDED = ("operand", "residual")
#: What is added to residuals is looked at in so many samples: its size alone counts.
LOOKED_AT = 64
#: The magnitude of a tensor that was zero in all batches. A scale of nearly nothing would leave no place in 32 bits for
#: the bias behind it.
NOTHING = 1.0
NO_TOOLS = Accuracy()
#: What the report says of residuals; of so many sums by name.
IN_FLOATS = "{}: {} of {} residuals stay in floats, since their steps are coarse beside what is added: {}"
UNSEEN = "{}: {} of {} residuals have 8 bits whatever that costs: the calibration has no range of what is added"
SHOWN = 4
#: What the report says of products with a scale for each token, and of those that would want a calibration.
TOKENS = "accuracy: per_token: {} of {} products have a scale for each token, which each call finds"
UNCALIBRATED = "accuracy: per_token: {} other products stay in floats: 8 bits of these want calibration="
NO_TOKENS = "accuracy='per_token': {} has no kernel that multiplies tokens with scales of their own; one scale is used"
UNQUANTIZED = "no product has constant weights of float32, and so nothing gets 8 bits"
HINT = "weights in 16 bits, and those that are quantized, stay as they are: calibrate the float32 model"


def calibrate(
    model: Any,
    data: Any = None,
    input_shapes: Any = None,
    *,
    method: str = "entropy",
    keep: Sequence[str] = (),
    accuracy: Any = None,
    threads: int | None = None,
) -> Network:
    """A network in 8 bits: the products of `model` between Quantize and Dequantize layers, on the ranges that `data`
    shows.

    `model`: as `optimize_model` takes it. `data`: a `Calibrator`, or batches, from which ranges follow by `method`:
    "entropy", "minmax", "percentile" (99.99) or "mse". With `accuracy="per_token"` alone it may be left out: matrix
    products find a scale for each token at each call, and all others stay in floating point. `keep`: names of layers,
    or of nodes of the source model, that stay in floating point. `accuracy`: tools that lower the error, as
    `neurenix.quantization.accuracy.read` takes them: names of `accuracy.TOOLS`, or a dict from such to settings.
    Weights are int8 with a scale for each channel.
    What comes out is optimised like any other network: `get_backend().optimize_model(network)`.

    Raises `InvalidArgumentError` where there is no batch, `keep` names no layer, there is no tool of a name (with the
    nearest one) or the model is quantized already, and as the importers do.
    """
    asked = accuracy_tools.read(accuracy)
    network, options = float_network(model, input_shapes, threads)
    if data is None and PER_TOKEN in asked and not asked.needs_calibration:
        return without_ranges(network, options, keep).quantized()
    return found_ranges(network, calibrator(data, method), options, keep, accuracy=asked).quantized()


def float_network(model: Any, input_shapes: Any, threads: int | None) -> tuple[Network, Any]:
    """The network of a model that does not say what is quantized, and the options of its engines."""
    from neurenix.hardware.options import Options
    from neurenix.importers.dispatch import to_network

    network = to_network(model, input_shapes, {}, False)
    # Names that no input has are told.
    shapes.profiles(input_shapes, [tensor.name for tensor in network.inputs])
    options = Options.of(threads=threads).native(["cpu"])
    if is_explicit(network):
        raise InvalidArgumentError(
            "the model says itself what is quantized: there is nothing to calibrate",
            hint="optimise it as it is, or give the float32 model",
        )
    return network, options


#: Layers that are there where a model says itself what is quantized.
EXPLICIT = ("QuantizeLinear", "MatMulInteger", "ConvInteger", "DynamicQuantizeLSTM", "DynamicQuantizePerToken")


def is_explicit(network: Network) -> bool:
    """Whether a network says itself what is quantized."""
    return any(layer.op in EXPLICIT for layer in network.layers)


def has_integers(network: Network) -> bool:
    """Whether a network says itself what becomes integers of 8 bits; QuantizeLinear gives other dtypes too."""
    found = (layer for layer in network.layers if layer.op in EXPLICIT)
    return any(layer.op != "QuantizeLinear" or layer.outputs[0].dtype in ("int8", "uint8") for layer in found)


def quantize_weights(
    network: Network, keep: Sequence[str] = (), *, dtype: str = "int8", refittable: bool = False
) -> Network:
    """A network whose products have weights of 8 bits, a scale for each channel, and compute in floating point.

    `dtype`: "int8", or "float8_e4m3fn". `refittable`: weights that are equal stay apart. Raises
    `InvalidArgumentError` where `keep` names no layer, and `UnsupportedError` for another dtype.
    """
    full = network.in_full(refittable)
    return full.quantized(None, list(_kept(full, keep)), dtype, refittable)


#: A tensor whose range is looked at, its name in caches, its least number, and what for: "operand", "residual", "mean"
#: or "branch".
Point: TypeAlias = tuple[_native.Tensor, str, float | None, str]


#: Gives the tensors of a batch, by name.
Call: TypeAlias = Callable[[dict[str, Array]], Any]


class Calibrated(NamedTuple):
    """A network as quantization is placed in it, and what was found on the batches."""

    full: Network
    #: The magnitude of each tensor to quantize, by its name; empty where there is none.
    ranges: dict[str, float]
    #: Tools that lower the error; None where nobody asked for any.
    tools: Tools | None
    #: Whether there are no zero points, and biases stay floats: TensorRT takes nothing else.
    symmetric: bool
    #: The matrix products that find a scale for each token at each call, by name.
    per_token: tuple[str, ...] = ()
    #: What the caller asked to stay in floats: products, or nodes of the source model, by name.
    keep: tuple[str, ...] = ()
    #: Products that stay in floats because no range was asked for, by name.
    uncalibrated: tuple[str, ...] = ()

    @property
    def has_8_bits(self) -> bool:
        """Whether some product may have 8 bits."""
        return bool(self.ranges or self.per_token)

    def floats(self, keep: Collection[str] = ()) -> list[str]:
        """What is in floats in any case, and what `keep` names."""
        return [*self.keep, *self.uncalibrated, *keep]

    def points(self, keep: Sequence[str] = ()) -> list[Point]:
        """The tensors whose ranges are looked at, where products that `keep` names are in floats."""
        return self.full.quantization_points(self._without_ranges(keep))

    def _without_ranges(self, keep: Sequence[str]) -> list[str]:
        return [*self.floats(keep), *self.per_token]

    def quantized(
        self, keep: Sequence[str] = (), refittable: bool = False, rough: bool = False, dtype: str = "int8"
    ) -> Network:
        """The network in 8 bits, but for products that `keep` names. `rough`: biases are not corrected, which takes
        several engines. `dtype`: "int8", or "float8_e4m3fn"."""
        if not self.has_8_bits:
            return self.full
        floats, tokens = self.floats(keep), list(self.per_token)
        made = self.full.quantized(self.ranges, floats, dtype, refittable, self.symmetric, tokens)
        return made if self.tools is None else self.tools.corrected(made, rough)

    def residuals_in_floats(self, keep: Sequence[str] = ()) -> list[str]:
        """The sums of residuals that int8 would round by too much, and which stay in floats in `quantized`, by name."""
        without = self._without_ranges(keep)
        return self.full.residuals_in_floats(self.ranges, without, self.symmetric) if self.ranges else []

    def notes(self, keep: Sequence[str] = (), dtype: str = "int8") -> list[str]:
        """What the report says of the tools, and of residuals in int8 if products that `keep` names stay in floats."""
        told = [] if self.tools is None else list(self.tools.notes)
        if self.per_token and dtype == "int8":
            tokens = [name for name in self.per_token if name not in keep]
            told.append(TOKENS.format(len(tokens), sum(1 for _ in Graph(self.full).products())))
            if self.uncalibrated:
                told.append(UNCALIBRATED.format(len(self.uncalibrated)))
        branches = [name for _, name, _, role in self.points(keep) if role == "branch"]
        if dtype != "int8" or not self.ranges or not branches:
            return told
        whole = self.residuals_in_floats(keep)
        if whole:
            shown = ", ".join(whole[:SHOWN]) + ", ..." * (len(whole) > SHOWN)
            told.append(IN_FLOATS.format(dtype, len(whole), len(branches), shown))
        unknown = sum(name not in self.ranges for name in branches)
        if unknown:
            told.append(UNSEEN.format(dtype, unknown, len(branches)))
        return told


def found_ranges(
    network: Network,
    given: Calibrator,
    options: Mapping[str, Any],
    keep: Sequence[str] = (),
    search: bool = False,
    accuracy: Accuracy = NO_TOOLS,
) -> Calibrated:
    """The network as quantization is placed in it, and the magnitude of each tensor to quantize.

    `search`: more products may be kept afterwards, so that the ranges of what is quantized then must be there too.
    """
    accuracy_tools.check(accuracy, bool(options["refittable"]))
    full = network.in_full(bool(options["refittable"]))
    keep = _kept(full, keep)
    provider = options["providers"][0]
    symmetric = provider == "tensorrt"
    # TensorRT averages floats.
    means = provider != "tensorrt"
    inputs = [(tensor.name, tensor.shape) for tensor in network.inputs]
    per_token = _per_token(full, keep, options) if PER_TOKEN in accuracy else ()
    without = [*keep, *per_token]
    if not _points(full, without, means):
        # Who keeps all products in floats knows it.
        if not per_token and not (keep and _points(full, [], means)):
            _tell_unquantized(options)
        tools = _tools(full, given, options, accuracy) if per_token and accuracy.needs_calibration else None
        full = full if tools is None else tools.prepared(full)
        # Batches may come once.
        rest = islice(given.read(inputs), KEPT) if tools is None and given.reads_twice else ()
        given.seen = list(rest if tools is None else tools.batches[:KEPT])
        return Calibrated(full, {}, tools, symmetric, per_token, tuple(keep))
    tools = _tools(full, given, options, accuracy) if accuracy.needs_calibration else None
    full = full if tools is None else tools.prepared(full)
    suffix = "" if tools is None else tools.suffix
    points = [(tensor, name + suffix, least, role) for tensor, name, least, role in _points(full, without, means)]
    optional = {name for _, name, _, role in points if role not in NEEDED}
    needed = {name + suffix for _, name, _, role in full.quantization_points(without) if role in NEEDED}
    run, jobs = _probe(full, points, options)
    levels = {name: STEPS[least == 0 and not symmetric] for _, name, least, _ in points}
    spare = optional if search else set(levels) - needed
    of = {role: [name for _, name, _, other in points if other == role] for role in ("residual", "branch")}
    ranges = given.ranges(levels, inputs, _checked(run, full), jobs, spare=spare, residuals=of["residual"])
    least = {name: 0.0 if name in of["branch"] else NOTHING for name in levels}
    magnitudes = {name.removesuffix(suffix): most or least[name] for name, most in ranges.items()}
    return Calibrated(full, magnitudes, tools, symmetric, per_token, tuple(keep))


def without_ranges(network: Network, options: Mapping[str, Any], keep: Sequence[str] = ()) -> Calibrated:
    """The network as quantization is placed in it where nothing was calibrated: matrix products with a scale for each
    token, and all others in floats."""
    full = network.in_full(bool(options["refittable"]))
    keep = _kept(full, keep)
    per_token = _per_token(full, keep, options)
    if not per_token:
        _tell_unquantized(options)
    apart = {*per_token, *keep}
    rest = [p for p in Graph(full).products() if apart.isdisjoint({p.name, *p.layer.sources})]
    symmetric = options["providers"][0] == "tensorrt"
    return Calibrated(full, {}, None, symmetric, per_token, tuple(keep), tuple(product.name for product in rest))


def takes_tokens(options: Mapping[str, Any]) -> bool:
    """Whether the preferred provider multiplies tokens with scales of their own."""
    from neurenix.hardware.options import has_int8

    first = options["providers"][0]
    return first == "cpu" or (first == "cuda" and has_int8(first))


def _per_token(full: Network, keep: Sequence[str], options: Mapping[str, Any]) -> tuple[str, ...]:
    """The products that get a scale for each token: those of rows with constant matrices. None, with a warning or with
    `strict` an error, where the preferred provider has no kernel for them."""
    if not takes_tokens(options):
        text = NO_TOKENS.format(options["providers"][0])
        if options["strict"]:
            raise UnsupportedError(text, hint="leave it out, or take the cpu provider")
        LOG.warning("%s", text)
        return ()
    kept = set(keep)
    rows = (product for product in Graph(full).products() if product.layer.op == "MatMul")
    return tuple(
        product.name
        for product in rows
        if len(product.source.shape) >= 2 and not kept & {product.name, *product.layer.sources}
    )


def _tell_unquantized(options: Mapping[str, Any]) -> None:
    if options["strict"]:
        raise UnsupportedError(UNQUANTIZED, hint=HINT)
    LOG.warning("%s; %s", UNQUANTIZED, HINT)


def _tools(full: Network, given: Calibrator, options: Mapping[str, Any], accuracy: Accuracy) -> Tools:
    """The tools with the batches that they look at, in the dtypes of the network."""
    inputs = {tensor.name: tensor for tensor in full.inputs}
    ahead = given.ahead([(name, tensor.shape) for name, tensor in inputs.items()], SAMPLES, BYTES)
    batches = [{name: as_input(array, inputs[name]) for name, array in batch.items()} for batch in ahead]
    accuracy_tools.needed_batches(accuracy, batches)
    settings = _measuring(options)
    return Tools(accuracy, batches, lambda network: _native.Engine.build(network, [], settings), given.magnitude)


def _measuring(options: Mapping[str, Any]) -> dict[str, Any]:
    """Native options of an engine that measures: in float32, and by no choice of time, so that the numbers are the same
    in each build."""
    settings = {name: value for name, value in options.items() if name not in ("io", "samples")}
    settings |= {"deterministic": True, "verify": False, "compute": "float32", "tf32": False, "refittable": False}
    return settings


def _points(full: Network, keep: Sequence[str], means: bool) -> list[Point]:
    """The tensors to quantize and what is added to residuals, with those that means read if `means`, and those that
    take their place where one more product stays in floating point: of a sum of two products' results, the operand of
    8 bits is another one then."""

    def points(kept: list[str]) -> list[Point]:
        return [point for point in full.quantization_points(kept) if means or point[3] != "mean"]

    found = {point[1]: point for point in points(list(keep))}
    makers = {tensor: layer for layer in full.layers for tensor in layer.outputs}
    for layer in full.layers:
        operands = [makers[tensor] for tensor in layer.inputs if tensor in makers] if layer.op == "Add" else []
        if len(operands) == 2 and all(maker.op in PRODUCTS for maker in operands):
            for maker in operands:
                for point in points([*keep, maker.name]):
                    if found.setdefault(point[1], point)[3] not in NEEDED:
                        found[point[1]] = point
    return list(found.values())


def _checked(run: Run, network: Network) -> Run:
    """What runs a batch, in the dtypes of the network: floats of 16 bits, as `io_dtype` has them, are widened."""
    inputs = {tensor.name: tensor for tensor in network.inputs}

    def checked(batch: dict[str, Array], before: int) -> dict[str, Array | Counts]:
        return run({name: as_input(array, inputs[name]) for name, array in batch.items()}, before)

    return checked


def _shape_hint(got: Sequence[int], want: Sequence[int | str]) -> str | None:
    """What to do where the number of samples alone differs."""
    if len(got) != len(want) or list(got[1:]) != list(want[1:]):
        return None
    return "give batches of that size, such as by DataLoader(..., drop_last=True)"


def as_input(array: Array, tensor: _native.Tensor) -> Array:
    """An array of a batch in the dtype of an input. Raises `ShapeError` and `DTypeError` where it is none of it."""
    wanted, name = np.dtype(tensor.dtype), tensor.name
    fits = len(array.shape) == len(tensor.shape) and all(
        not isinstance(want, int) or want == got for want, got in zip(tensor.shape, array.shape, strict=True)
    )
    if not fits:
        raise ShapeError(
            "a batch to calibrate on has another shape than the input",
            tensor=name,
            expected=str(list(tensor.shape)),
            got=str(list(array.shape)),
            hint=_shape_hint(array.shape, tensor.shape),
        )
    if array.dtype == wanted:
        return array
    if wanted == np.float32 and array.dtype.name in ("float16", "bfloat16"):
        widened: Array = array.astype(np.float32)
        return widened
    raise DTypeError(
        "a batch to calibrate on has another dtype than the input",
        tensor=name,
        expected=str(wanted),
        got=str(array.dtype),
        hint=f'convert it as before a call, for example with x.astype("{wanted}")',
    )


def _kept(network: Network, keep: Iterable[str]) -> tuple[str, ...]:
    """The names that stay in floats, which may come once. Raises `InvalidArgumentError` for what is no layer."""
    if isinstance(keep, str):
        raise InvalidArgumentError("`keep` is a list of names", got=repr(keep), hint=f"give keep=[{keep!r}]")
    known = {name for layer in network.layers for name in (layer.name, *layer.sources)}
    kept = tuple(keep)
    for name in kept:
        if name not in known:
            near = _native.nearest(name, sorted(known))
            raise InvalidArgumentError(
                f"there is no layer {name!r} to keep", hint=f"did you mean {near!r}?" if near else None
            )
    return kept


def _probe(full: Network, points: Sequence[Point], options: Mapping[str, Any]) -> tuple[Run, int]:
    """What runs a batch and gives the tensors to quantize, by name, and of the first samples those that are added to
    residuals, which take kernels apart; and how many may run beside each other."""
    inputs = {tensor.name for tensor in full.inputs}
    direct = {name: tensor.name for tensor, name, *_ in points if tensor.name in inputs}
    inner = [point for point in points if point[1] not in direct]
    if not inner:
        return (lambda batch, _: {name: batch[source] for name, source in direct.items()}), 1
    call, jobs = _giving(full, inner, options)
    rest = [point for point in inner if point[3] != "branch"]
    making = Lock()

    @cache
    def of_rest() -> Call:
        return _giving(full, rest, options)[0]

    def run(batch: dict[str, Array], before: int) -> dict[str, Array | Counts]:
        given = call
        if before >= LOOKED_AT and len(rest) < len(inner):
            with making:
                given = of_rest()
        return dict(given(batch)) | {name: batch[source] for name, source in direct.items()}

    return run, jobs


def _giving(full: Network, points: Sequence[Point], options: Mapping[str, Any]) -> tuple[Call, int]:
    """What gives these tensors of a batch, by name; and how many calls may run beside each other."""
    if options["providers"][0] == "cuda":
        return _counting(full, points, options)
    copy, tensors = full.copy([point[0] for point in points])
    for tensor, (_, name, *_) in zip(tensors, points, strict=True):
        copy.mark_output(channels_last(copy, tensor), name)
    # One thread a batch: the numbers are the same however many threads there are.
    settings = _measuring(options) | {"hint": "throughput"}
    # Batches may have other sizes than the profiles.
    engine = _native.Engine.build(copy, [], settings)
    return (engine.run if engine.staged else ReusedOutputs(engine)), engine.calls


def _counting(full: Network, points: Sequence[Point], options: Mapping[str, Any]) -> tuple[Call, int]:
    """As `_giving`, where a GPU counts: its tensors take longer to copy than to compute."""
    copy, tensors = full.copy([point[0] for point in points])
    names = [name for _, name, *_ in points]
    for tensor, name in zip(tensors, names, strict=True):
        for output, part in zip(copy.add_layer("Histogram", [tensor]), Counts._fields, strict=True):
            copy.mark_output(output, f"{name} {part}")
    engine = _native.Engine.build(copy, [], _measuring(options) | {"hint": "throughput"})

    def call(batch: dict[str, Array]) -> dict[str, Counts]:
        found = engine.run(batch)
        return {name: Counts(*(found[f"{name} {part}"] for part in Counts._fields)) for name in names}

    return call, engine.calls
