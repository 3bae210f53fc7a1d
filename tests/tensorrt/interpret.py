"""What NVIDIA says that layers of TensorRT do, in ops of ONNX: networks that the double's builder has read.

It knows TensorRT's documentation, and nothing of how Neurenix writes its layers.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Layer = dict[str, Any]
DTYPES = {
    "FLOAT": TensorProto.FLOAT,
    "HALF": TensorProto.FLOAT16,
    "BF16": TensorProto.BFLOAT16,
    "INT64": TensorProto.INT64,
    "INT32": TensorProto.INT32,
    "INT8": TensorProto.INT8,
    "UINT8": TensorProto.UINT8,
    "BOOL": TensorProto.BOOL,
    "FP8": TensorProto.FLOAT8E4M3FN,
}
#: In the order of TensorRT's enums.
ACTIVATIONS = (
    "Relu Sigmoid Tanh LeakyRelu Elu Selu Softsign Softplus Clip HardSigmoid ScaledTanh ThresholdedRelu Gelu Gelu"
)
ELEMENTWISE = "Add Mul Max Min Sub Div Pow FloorDiv And Or Xor Equal Greater Less"
UNARY = (
    "Exp Log Sqrt Reciprocal Abs Neg Sin Cos Tan Sinh Cosh Asin Acos Atan Asinh Acosh Atanh Ceil Floor Erf Not Sign "
    "Round IsInf IsNaN"
)
REDUCE = "ReduceSum ReduceProd ReduceMax ReduceMin ReduceMean"
#: What GridSample calls them.
BORDERS = {"edge": "border", "constant": "zeros", "reflect": "reflection"}
SAMPLE = "strict wrap edge constant reflect"


class Reader:
    """One network."""

    def __init__(self, text: str, weights: bytes) -> None:
        self.network, self.weights = json.loads(text), weights
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.types: dict[str, int] = {}
        self.names = 0

    def model(self) -> onnx.ModelProto:
        """The network in ONNX."""
        for port in self.network["inputs"]:
            self.types[name(port["tensor"])] = DTYPES[port["dtype"]]
        from tests.tensorrt import interpret_control

        for layer in interpret_control.nested(self.network["layers"]):
            self.read(layer)
        # Outputs may be any tensors, inputs too.
        outputs = [f"result {at}" for at, _ in enumerate(self.network["outputs"])]
        for output, port in zip(outputs, self.network["outputs"], strict=True):
            self.add("Identity", [name(port["tensor"])], output)
        ports = [[value(name(port["tensor"]), port) for port in self.network["inputs"]]]
        ports += [[value(output, port) for output, port in zip(outputs, self.network["outputs"], strict=True)]]
        graph = helper.make_graph(self.nodes, "plan", *ports, initializer=self.constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)

    def read(self, layer: Layer) -> None:
        """Adds what a layer does."""
        inputs = [name(tensor) for tensor in layer["inputs"]]
        KINDS[layer["kind"]](self, layer, inputs, [name(tensor) for tensor in layer["outputs"]])

    def fresh(self, what: str) -> str:
        """A name that nothing has, in this graph or one inside of it."""
        self.names += 1
        return f"{what} {self.names}"

    def add(self, op: str, inputs: list[str], *outputs: str, **attributes: Any) -> str:
        """Adds a node; gives its first output."""
        made = list(outputs) or [self.fresh("between")]
        self.nodes.append(helper.make_node(op, inputs, made, **attributes))
        return made[0]

    def constant(self, array: Any) -> str:
        """A constant."""
        made = f"constant {len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(array), made))
        return made

    def ints(self, values: Any) -> str:
        """Integers."""
        return self.constant(np.asarray(values, np.int64))

    def put(self, spec: Any, shape: Any, output: str | None = None) -> str:
        """The weights of a layer."""
        made = output or f"constant {len(self.constants)}"
        kind, start, count = spec if spec is not None else ("FLOAT", 0, 0)
        size = {"FLOAT": 4, "INT32": 4, "INT64": 8, "HALF": 2, "BF16": 2}.get(kind, 1)
        raw = self.weights[start : start + count * size]
        tensor = helper.make_tensor(made, DTYPES[kind], shape, raw, raw=True)
        self.constants.append(tensor)
        return made

    def integers(self, tensor: str) -> str:
        """A shape tensor as ONNX wants it."""
        return self.add("Cast", [tensor], to=TensorProto.INT64)


def name(tensor: int | None) -> str:
    """What a tensor is called in ONNX."""
    return "" if tensor is None else f"tensor {tensor}"


def value(called: str, port: dict[str, Any]) -> onnx.ValueInfoProto:
    """An input or output."""
    shape = [f"{called} {axis}" if extent < 0 else extent for axis, extent in enumerate(port["shape"])]
    return helper.make_tensor_value_info(called, DTYPES[port["dtype"]], shape)


def axes_of(mask: float) -> list[int]:
    """The axes of TensorRT's bits."""
    return [axis for axis in range(8) if int(mask) >> axis & 1]


Write = Callable[[Reader, Layer, list[str], list[str]], None]
KINDS: dict[str, Write] = {}


def kind(called: str) -> Callable[[Write], Write]:
    """Says which layers a function reads."""

    def keep(function: Write) -> Write:
        KINDS[called] = function
        return function

    return keep


@kind("Activation")
def activation(r: Reader, layer: Layer, x: list[str], y: list[str]) -> None:
    op, alpha, beta = ACTIVATIONS.split()[layer["type"]], float(layer["alpha"]), float(layer["beta"])
    attributes: dict[str, Any] = {
        "LeakyRelu": {"alpha": alpha},
        "Elu": {"alpha": alpha},
        "Selu": {"alpha": alpha, "gamma": beta},
        "HardSigmoid": {"alpha": alpha, "beta": beta},
        "ThresholdedRelu": {"alpha": alpha},
    }.get(op, {})
    if op == "Gelu":
        attributes = {"approximate": "none" if layer["type"] == 12 else "tanh"}
    if op == "Clip":
        low, high = (r.add("CastLike", [r.constant(np.float32(bound)), x[0]]) for bound in (alpha, beta))
        r.add("Clip", [x[0], low, high], *y)
        return
    if op == "ScaledTanh":
        inner, outer = (r.add("CastLike", [r.constant(np.float32(number)), x[0]]) for number in (beta, alpha))
        r.add("Mul", [r.add("Tanh", [r.add("Mul", [x[0], inner])]), outer], *y)
        return
    if op == "Softplus" and (alpha, beta) != (1, 1):
        raise NotImplementedError("a Softplus with numbers")
    r.add(op, x, *y, **attributes)


@kind("ElementWise")
def elementwise(r: Reader, layer: Layer, x: list[str], y: list[str]) -> None:
    op = ELEMENTWISE.split()[layer["operation"]]
    if op != "FloorDiv":
        r.add(op, x, *y)
        return
    # For integers: ONNX's Div rounds to zero. Doubles hold them exactly where they are extents.
    wide = [r.add("Cast", [side], to=TensorProto.DOUBLE) for side in x]
    r.add("CastLike", [r.add("Floor", [r.add("Div", wide)]), x[0]], *y)


@kind("Unary")
def unary(r: Reader, layer: Layer, x: list[str], y: list[str]) -> None:
    r.add(UNARY.split()[layer["operation"]], x, *y)


@kind("ParametricReLU")
def parametric_relu(r: Reader, layer: Layer, x: list[str], y: list[str]) -> None:
    r.add("PRelu", x, *y)


@kind("Select")
def select(r: Reader, layer: Layer, x: list[str], y: list[str]) -> None:
    r.add("Where", x, *y)


@kind("Cast")
def cast(r: Reader, layer: Layer, x: list[str], y: list[str]) -> None:
    r.add("Cast", x, *y, to=DTYPES[layer["to"]])


@kind("Identity")
def identity(r: Reader, layer: Layer, x: list[str], y: list[str]) -> None:
    r.add("Identity", x, *y)


@kind("Convolution")
def convolution(r: Reader, layer: Layer, x: list[str], y: list[str]) -> None:
    window(r, layer, x, y, "Conv")


@kind("Deconvolution")
def deconvolution(r: Reader, layer: Layer, x: list[str], y: list[str]) -> None:
    window(r, layer, x, y, "ConvTranspose")


def window(r: Reader, layer: Layer, x: list[str], y: list[str], op: str) -> None:
    """Kernels are K C/g RS for a convolution, and C K/g RS for a deconvolution."""
    maps, groups, spatial = int(layer["maps"]), int(layer["groups"]), layer["kernel"]
    inputs = [*x, "", ""][:3]
    if layer["weights"] is not None:
        per = layer["weights"][2] // (maps * int(np.prod(spatial)))
        shape = [maps, per, *spatial] if op == "Conv" else [per * groups, maps // groups, *spatial]
        inputs[1] = r.put(layer["weights"], shape)
    if layer["bias"] is not None:
        inputs[2] = r.put(layer["bias"], [maps])
    assert layer["padding_mode"] == 0
    pads = [*layer["before"], *layer["after"]]
    # Padding below 0 is more of the output at its far side.
    r.add(op, inputs if inputs[2] else inputs[:2], *y, **{
        "strides": layer["strides"], "dilations": layer["dilations"], "group": groups, "pads": pads,
    })  # fmt: skip


@kind("Pooling")
def pooling(r: Reader, layer: Layer, x: list[str], y: list[str]) -> None:
    attributes = {
        "kernel_shape": layer["kernel"],
        "strides": layer["strides"],
        "pads": [*layer["before"], *layer["after"]],
        "ceil_mode": int(layer["padding_mode"] == 1),
    }
    if layer["type"] == 0:
        r.add("MaxPool", x, *y, **attributes)
    else:
        r.add("AveragePool", x, *y, **attributes, count_include_pad=int(not layer["excludes_padding"]))


@kind("MatrixMultiply")
def matrix_multiply(r: Reader, layer: Layer, x: list[str], y: list[str]) -> None:
    sides = []
    for at, side in enumerate(("left", "right")):
        assert layer[side] < 2
        sides.append(transposed(r, x[at], rank_of(r, layer, at)) if layer[side] == 1 else x[at])
    r.add("MatMul", sides, *y)


def rank_of(r: Reader, layer: Layer, at: int) -> int:
    return int(layer["ranks"][at])


def transposed(r: Reader, x: str, rank: int) -> str:
    order = [*range(rank - 2), rank - 1, rank - 2]
    return r.add("Transpose", [x], perm=order)


@kind("SoftMax")
def softmax(r: Reader, layer: Layer, x: list[str], y: list[str]) -> None:
    (axis,) = axes_of(layer["axes"])
    r.add("Softmax", x, *y, axis=axis)


@kind("Reduce")
def reduce(r: Reader, layer: Layer, x: list[str], y: list[str]) -> None:
    op = REDUCE.split()[layer["operation"]]
    r.add(op, [x[0], r.ints(axes_of(layer["axes"]))], *y, keepdims=int(layer["keep"]))


@kind("TopK")
def top_k(r: Reader, layer: Layer, x: list[str], y: list[str]) -> None:
    (axis,) = axes_of(layer["axes"])
    count = r.add("Reshape", [r.integers(x[1]), r.ints([1])]) if len(x) > 1 else r.ints([layer["k"]])
    indices = r.fresh("indices")
    r.add("TopK", [x[0], count], y[0], indices, axis=axis, largest=int(layer["operation"] == 0), sorted=1)
    r.add("Cast", [indices], y[1], to=TensorProto.INT32)


@kind("Normalization")
def normalization(r: Reader, layer: Layer, x: list[str], y: list[str]) -> None:
    """Y = (X - Mean(X, axes)) / Sqrt(Variance(X) + epsilon) * S + B, where S and B broadcast."""
    data, groups = x[0], int(layer["groups"])
    axes = axes_of(layer["axes"])
    if groups != 1:
        # The channels, which are axis 1, are normalized in groups: the axes are those behind them.
        shape = r.add("Shape", [data])
        data = r.add("Reshape", [data, r.ints([0, groups, -1])])
        axes = [2]
    mean = r.add("ReduceMean", [data, r.ints(axes)])
    centred = r.add("Sub", [data, mean])
    variance = r.add("ReduceMean", [r.add("Mul", [centred, centred]), r.ints(axes)])
    epsilon = r.add("CastLike", [r.constant(np.float32(layer["epsilon"])), data])
    normal = r.add("Div", [centred, r.add("Sqrt", [r.add("Add", [variance, epsilon])])])
    if groups != 1:
        normal = r.add("Reshape", [normal, shape])
    r.add("Add", [r.add("Mul", [normal, x[1]]), x[2]], *y)


@kind("Cumulative")
def cumulative(r: Reader, layer: Layer, x: list[str], y: list[str]) -> None:
    r.add("CumSum", x, *y, exclusive=int(layer["exclusive"]), reverse=int(layer["reverse"]))


@kind("LRN")
def lrn(r: Reader, layer: Layer, x: list[str], y: list[str]) -> None:
    numbers = {name: float(layer[key]) for name, key in (("alpha", "alpha"), ("beta", "beta"), ("bias", "k"))}
    r.add("LRN", x, *y, size=int(layer["window"]), **numbers)


@kind("Constant")
def constant(r: Reader, layer: Layer, x: list[str], y: list[str]) -> None:
    r.put(layer["weights"], layer["shape"], y[0])


@kind("Shape")
def shape_of(r: Reader, layer: Layer, x: list[str], y: list[str]) -> None:
    r.add("Shape", x, *y)


@kind("Shuffle")
def shuffle(r: Reader, layer: Layer, x: list[str], y: list[str]) -> None:
    data = turned(r, x[0], layer["first"], rank_of(r, layer, 0))
    if len(x) > 1:
        data = r.add("Reshape", [data, r.integers(x[1])], allowzero=int(not layer["zero_copies"]))
    elif layer["shape"] is not None:
        shape = layer["shape"]
        if not layer["zero_copies"] and -1 in shape and 0 in shape:
            raise NotImplementedError("a shape with 0 and -1")
        data = r.add("Reshape", [data, r.ints(shape)], allowzero=int(not layer["zero_copies"]))
    r.add("Identity", [turned(r, data, layer["second"], layer["rank"])], *y)


def turned(r: Reader, x: str, order: list[int], rank: int) -> str:
    return x if order[:rank] == list(range(rank)) else r.add("Transpose", [x], perm=order[:rank])


@kind("Slice")
def cut(r: Reader, layer: Layer, x: list[str], y: list[str]) -> None:
    given = [*x, *[""] * 5]
    rank = rank_of(r, layer, 0)
    start, size, stride = (
        r.integers(given[at]) if given[at] else r.ints(layer[part])
        for at, part in ((1, "start"), (2, "size"), (3, "stride"))
    )
    mode = SAMPLE.split()[layer["mode"]]
    if mode == "strict":
        # Element i of the result is element start + i * stride; a stride of 0 repeats one.
        data = x[0]
        for axis in range(rank):
            first, count, step = (r.add("Gather", [part, r.ints(axis)]) for part in (start, size, stride))
            numbers = r.add("Range", [r.ints(0), count, r.ints(1)])
            data = r.add("Gather", [data, r.add("Add", [r.add("Mul", [numbers, step]), first])], axis=axis)
        r.add("Identity", [data], *y)
        return
    # What lies outside of the input is padding, and may be less than none.
    shape = r.add("Shape", [x[0]])
    before = r.add("Neg", [start])
    after = r.add("Sub", [r.add("Add", [start, size]), shape])
    fill = [given[4]] if given[4] else []
    r.add("Pad", [x[0], r.add("Concat", [before, after], axis=0), *fill], *y, mode=mode)


@kind("Concatenation")
def concatenation(r: Reader, layer: Layer, x: list[str], y: list[str]) -> None:
    r.add("Concat", x, *y, axis=int(layer["axis"]))


@kind("Gather")
def gather(r: Reader, layer: Layer, x: list[str], y: list[str]) -> None:
    axis, batch = int(layer["axis"]), int(layer["batch"])
    if layer["mode"] == 1:
        r.add("GatherElements", x, *y, axis=axis)
    elif layer["mode"] == 2:
        r.add("GatherND", [x[0], r.integers(x[1])], *y, batch_dims=batch)
    elif batch == 0:
        r.add("Gather", x, *y, axis=axis)
    else:
        raise NotImplementedError("a Gather with batches")


@kind("Scatter")
def scatter(r: Reader, layer: Layer, x: list[str], y: list[str]) -> None:
    if layer["mode"] == 0:
        r.add("ScatterElements", x, *y, axis=int(layer["axis"]))
    else:
        r.add("ScatterND", [x[0], r.integers(x[1]), x[2]], *y)


@kind("OneHot")
def one_hot(r: Reader, layer: Layer, x: list[str], y: list[str]) -> None:
    r.add("OneHot", [x[0], x[2], x[1]], *y, axis=int(layer["axis"]))


@kind("NonZero")
def non_zero(r: Reader, layer: Layer, x: list[str], y: list[str]) -> None:
    r.add("Cast", [r.add("NonZero", x)], *y, to=TensorProto.INT32)


@kind("NMS")
def nms(r: Reader, layer: Layer, x: list[str], y: list[str]) -> None:
    """Scores are [batch, box, class]. Image after image, the best of all classes comes first."""
    scores = r.add("Transpose", [x[1]], perm=[0, 2, 1])
    found = r.add("NonMaxSuppression", [x[0], scores, r.integers(x[2]), *x[3:]], center_point_box=int(layer["format"]))
    score = r.add("Cast", [r.add("GatherND", [scores, found])], to=TensorProto.DOUBLE)
    image = r.add("Cast", [r.add("Gather", [found, r.ints(0)], axis=1)], to=TensorProto.DOUBLE)
    order = r.add("Sub", [score, r.add("Mul", [image, r.constant(np.float64(1e6))])])
    ranked, places = r.fresh("ranked"), r.fresh("places")
    r.add("TopK", [order, r.add("Shape", [order])], ranked, places, axis=0)
    found = r.add("Gather", [found, places])
    r.add("Cast", [found], y[0], to=TensorProto.INT32)
    count = r.add("Gather", [r.add("Shape", [found]), r.ints(0)])
    r.add("Cast", [count], y[1], to=TensorProto.INT32)


@kind("Resize")
def resize(r: Reader, layer: Layer, x: list[str], y: list[str]) -> None:
    sizes = r.integers(x[1]) if len(x) > 1 else r.ints(layer["shape"]) if layer["shape"] else ""
    scales = r.constant(np.asarray(layer["scales"], np.float32)) if layer["scales"] and not sizes else ""
    r.add("Resize", [x[0], "", scales, sizes] if sizes else [x[0], "", scales], *y, **{
        "mode": ("nearest", "linear", "cubic")[layer["mode"]],
        "coordinate_transformation_mode": ("align_corners", "asymmetric", "half_pixel")[layer["coordinates"]]
        if layer["selector"] == 0 or layer["coordinates"] != 2 else "pytorch_half_pixel",
        "nearest_mode": ("round_prefer_ceil", "round_prefer_floor", "floor", "ceil")[layer["rounding"]],
        "cubic_coeff_a": float(layer["cubic"]),
    })  # fmt: skip


@kind("GridSample")
def grid_sample(r: Reader, layer: Layer, x: list[str], y: list[str]) -> None:
    r.add("GridSample", x, *y, **{
        "mode": ("nearest", "linear", "cubic")[layer["mode"]],
        "padding_mode": BORDERS[SAMPLE.split()[layer["border"]]],
        "align_corners": int(layer["align_corners"]),
    })  # fmt: skip


@kind("Fill")
def fill(r: Reader, layer: Layer, x: list[str], y: list[str]) -> None:
    """Along each axis in steps from a start: of the shape x[0], from x[1], by x[2]."""
    if layer["operation"] != 0:
        raise NotImplementedError("a random Fill")
    shape = r.integers(x[0])
    rank, total = layer["rank"], r.add("Expand", [x[1], shape])
    for axis in range(rank):
        count = r.add("Gather", [shape, r.ints(axis)])
        steps = r.add("CastLike", [r.add("Range", [r.ints(0), count, r.ints(1)]), x[1]])
        steps = r.add("Mul", [steps, r.add("Gather", [x[2], r.ints(axis)])])
        along = [-1 if other == axis else 1 for other in range(rank)]
        total = r.add("Add", [total, r.add("Reshape", [steps, r.ints(along)])])
    r.add("Identity", [total], *y)


@kind("ReverseSequence")
def reverse_sequence(r: Reader, layer: Layer, x: list[str], y: list[str]) -> None:
    axes = {"batch_axis": int(layer["batch_axis"]), "time_axis": int(layer["time_axis"])}
    r.add("ReverseSequence", [x[0], r.integers(x[1])], *y, **axes)


@kind("Quantize")
def quantize(r: Reader, layer: Layer, x: list[str], y: list[str]) -> None:
    r.add("QuantizeLinear", x, *y, axis=int(layer["axis"]), output_dtype=DTYPES[layer["to"]])


@kind("Dequantize")
def dequantize(r: Reader, layer: Layer, x: list[str], y: list[str]) -> None:
    r.add("DequantizeLinear", x, *y, axis=int(layer["axis"]))
