"""Mutated ONNX models and random bytes: what is imported, built and run, or refused with an error of ours."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from google.protobuf.message import EncodeError
from onnx import AttributeProto, helper, parser

import neurenix as nx
from fuzz.children import Run, brief, main
from neurenix.hardware.tensorrt import TensorRTBackend
from neurenix.importers import from_onnx

#: Numbers at which arithmetic goes wrong.
EXTREMES = (0, 1, -1, 2, 3, 7, -2, 127, 255, 2**15, 2**31 - 1, 2**31, -(2**31), 2**40, 2**62, 2**63 - 1, -(2**63))
#: A model whose inputs have more elements than this is built, and not run.
MOST_ELEMENTS = 1 << 16
#: Nor is one whose tensors take more bytes than this.
MOST_BYTES = 1 << 26

Rng = random.Random
Model = Any


def corpus() -> list[bytes]:
    """Small real models: ONNX's own node tests, and some that hold functions, branches and weights."""
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cases = collect_testcases(None)  # type: ignore[arg-type]
    models = [case.model for case in cases if case.model is not None]
    small = [model for model in models if model.ByteSize() < 20_000]
    return [parser.parse_model(text).SerializeToString() for text in TEXTS] + [m.SerializeToString() for m in small]


HEAD = '<ir_version: 10, opset_import: ["" : 21, "local" : 1]>'
TEXTS = [
    HEAD + """ m (float[n,3,8,8] x) => (float[n,k] y) <float[4,3,3,3] w, float[4] b, int64[2] s = {0, -1}> {
        w = ConstantOfShape<value = float[1] {0.5}>(ws) ws = Constant<value_ints = [4,3,3,3]>()
        b = Constant<value_floats = [1.0, 2.0, 3.0, 4.0]>()
        a = Conv<pads = [1,1,1,1], strides = [2,2]>(x, w, b) c = Sigmoid(a) d = Mul(a, c)
        e = MaxPool<kernel_shape = [2,2], strides = [2,2]>(d) f = Reshape(e, s) y = Softmax<axis = 1>(f) }""",
    HEAD + """ m (float[n,t,16] x) => (float[n,t,16] y) <float[16,48] w, int64[5] s = {0, 0, 3, 4, 4}> {
        w = ConstantOfShape<value = float[1] {0.1}>(ws) ws = Constant<value_ints = [16,48]>()
        a = MatMul(x, w) b = Reshape(a, s) c = Transpose<perm = [2,0,3,1,4]>(b)
        i = Constant<value_ints = [0,1,2]>() parts = Constant<value_ints = [1,1,1]>()
        q4, k4, v4 = Split<axis = 0>(c, parts) ax = Constant<value_ints = [0]>()
        q = Squeeze(q4, ax) k = Squeeze(k4, ax) v = Squeeze(v4, ax) kt = Transpose<perm = [0,1,3,2]>(k)
        p = MatMul(q, kt) h = Constant<value_float = 0.5>() ph = Mul(p, h) sm = Softmax<axis = -1>(ph)
        o = MatMul(sm, v) ot = Transpose<perm = [0,2,1,3]>(o) r = Constant<value_ints = [0,0,16]>() y0 = Reshape(ot, r)
        y = Add(x, y0) }""",
    HEAD + """ m (float[n,m] x) => (float[n,m] y) { a = local.f<k = 1>(x) b = local.g(a) s = Shape(b)
        z = ConstantOfShape<value = float[1] {2.0}>(s) y = Add(b, z) }
      <domain: "local", opset_import: ["" : 21, "local" : 1]> f <k> (x) => (y) { y = Softmax<axis: int = @k>(x) }
      <domain: "local", opset_import: ["" : 21, "local" : 1]> g (x) => (y) { z = local.f<k = 0>(x) y = Add(x, z) }""",
    HEAD + """ m (float[n,4] x) => (float[p,4] y) { c = Constant<value = bool {1}>()
        b = If (c) <then_branch = t () => (float[n,4] p) { p = Add(x, x) },
                    else_branch = e () => (float[n,4] q) { q = Abs(x) }>
        g = Relu(b) nz = NonZero(g) nt = Transpose<perm = [1,0]>(nz) e = GatherND(g, nt)
        sh = Constant<value_ints = [-1,1]>() col = Reshape(e, sh) o = Constant<value_floats = [1.0,2.0,3.0,4.0]>()
        y = Mul(col, o) }""",
    HEAD + """ m (uint8[2,3] x) => (float[2,3] y) <float s = {0.1}, uint8 z = {3}> {
        a = DequantizeLinear(x, s, z) b = Relu(a) c = QuantizeLinear(b, s, z) y = DequantizeLinear(c, s, z) }""",
    HEAD + """ m (float[n,4] x, int64 k, bool g) => (float[p,4] y, float[q,4] z, int64 m, bool h) {
        i = Constant<value_int = 1>() t = Constant<value = bool {1}>() e = SequenceEmpty<dtype = 1>()
        two = Constant<value_ints = [2,2]>() parts = SplitToSequence<axis = 1>(x, two) last = SequenceAt(parts, i)
        rows = SplitToSequence<keepdims = 0>(x) m = SequenceLength(rows) o = Optional(rows)
        h = OptionalHasElement(o) w = OptionalGetElement(o)
        mapped = SequenceMap(w, last) <body = f (float[4] a, float[n,2] c) => (float[4] b) { b = Neg(a) }>
        s, v = Loop(k, t, e, x) <body = l (int64 j, bool c, seq(float[]) r, float[u,4] a)
            => (bool d, seq(float[]) q, float[w,4] b) {
            d = Identity(c) row = SequenceAt(mapped, j) f = Sin(row) q = SequenceInsert(r, f)
            one = Constant<value_ints = [0]>() p = Unsqueeze(f, one) b = Concat<axis = 0>(a, p) }>
        both = If (g) <then_branch = a () => (seq(float[]) p) { p = SequenceConstruct(x, x) },
                       else_branch = b () => (seq(float[]) q) { q = SequenceConstruct(v, x) }>
        fewer = SequenceErase(both, i) y = ConcatFromSequence<axis = 0>(fewer)
        z = ConcatFromSequence<axis = 0, new_axis = 1>(s) }""",
    """<ir_version: 10, opset_import: ["" : 21, "com.microsoft" : 1]>
        m (float[b,s,64] x, int64[b,t] mask, float[b,1,p,16] k0, float[b,1,p,16] v0, int64[n] i, float[s,3] g)
            => (float[b,s,32] y, float[b,1,t,16] k, float[b,1,t,16] v, float[n,32] e, float[s,4] o)
            <uint8[3,16] table, float[3,2] scales, float[3,4,4] w1, float[3,4,4] w2, float[s,4] rows> {
        one = Constant<value_ints = [1]>() at = Constant<value_int = 1>() l = ReduceSum<keepdims = 0>(mask, one)
        ends = Sub(l, one) ends32 = Cast<to = 6>(ends) shape = Shape(mask) total = Gather(shape, at)
        total32 = Cast<to = 6>(total)
        y, k, v = com.microsoft.GroupQueryAttention<num_heads = 2, kv_num_heads = 1, local_window_size = 3>
            (x, , , k0, v0, ends32, total32)
        ts = Constant<value_ints = [3,16]>() tf = ConstantOfShape<value = float[1] {7.0}>(ts) table = Cast<to = 2>(tf)
        ss = Constant<value_ints = [3,2]>() scales = ConstantOfShape<value = float[1] {0.5}>(ss)
        e = com.microsoft.GatherBlockQuantized<block_size = 16>(table, i, scales)
        ws = Constant<value_ints = [3,4,4]>() w1 = ConstantOfShape<value = float[1] {0.5}>(ws) w2 = Neg(w1)
        cut = Constant<value_ints = [3]>() axis = Constant<value_ints = [1]>() zero = Constant<value_ints = [0]>()
        first = ReduceSum<keepdims = 0>(x, zero) four = Constant<value_ints = [4]>()
        rows = Slice(first, zero, four, axis)
        o = com.microsoft.MoE<k = 2, activation_type = "silu">(rows, g, w1, , w2) }""",
]  # fmt: skip


def mutate(rng: Rng, seeds: list[bytes]) -> bytes:
    """One of the models, changed in a few places."""
    model = onnx.ModelProto.FromString(rng.choice(seeds))
    other = onnx.ModelProto.FromString(rng.choice(seeds))
    for _ in range(rng.choice((1, 1, 1, 2, 2, 3, 5, 8))):
        try:
            rng.choice(MUTATIONS)(rng, model, other)
        except (ValueError, TypeError, IndexError, KeyError):
            # There was nothing to change in that way, or no such number in that field.
            continue
    try:
        data = model.SerializeToString()
    except (EncodeError, ValueError):
        return b""
    return damage(rng, data) if rng.random() < 0.15 else data


def damage(rng: Rng, data: bytes) -> bytes:
    """Bytes flipped, cut off, doubled or random."""
    kind, at = rng.randrange(5), rng.randrange(len(data) + 1)
    if kind == 0:
        return data[:at]
    if kind == 1:
        return rng.randbytes(rng.randrange(200))
    if kind == 2:
        return data[:at] + rng.randbytes(rng.randrange(1, 9)) + data[at:]
    if kind == 3:
        return data[:at] + data[rng.randrange(len(data) + 1) :]
    changed = bytearray(data)
    for _ in range(rng.randrange(1, 6)):
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def number(rng: Rng) -> int:
    return rng.choice(EXTREMES) if rng.random() < 0.7 else rng.randrange(-10, 40)


def names(model: Model) -> list[str]:
    """All names of tensors."""
    graph = model.graph
    given = [name for node in graph.node for name in (*node.input, *node.output)]
    return [*given, *(i.name for i in graph.input), *(t.name for t in graph.initializer), "", "nowhere"]


def some_input(rng: Rng, model: Model, other: Model) -> None:
    node = rng.choice(model.graph.node)
    at = rng.randrange(len(node.input))
    if rng.random() < 0.5:
        node.input[at] = rng.choice(names(model))
    elif rng.random() < 0.5:
        del node.input[at]
    else:
        node.input.insert(at, rng.choice(names(model)))


def some_output(rng: Rng, model: Model, other: Model) -> None:
    node = rng.choice(model.graph.node)
    if rng.random() < 0.5:
        node.output[rng.randrange(len(node.output))] = rng.choice([*names(model), "fresh"])
    else:
        node.output.append(rng.choice(["fresh", "fresh2"]))


def some_op(rng: Rng, model: Model, other: Model) -> None:
    node = rng.choice(model.graph.node)
    donor = rng.choice(other.graph.node)
    node.op_type, node.domain = donor.op_type, donor.domain
    if rng.random() < 0.5:
        del node.attribute[:]
        node.attribute.extend(donor.attribute)


def attribute(rng: Rng, model: Model, other: Model) -> None:
    node = rng.choice(model.graph.node)
    kind = rng.randrange(6)
    if kind == 0:
        del node.attribute[rng.randrange(len(node.attribute))]
    elif kind == 1:
        node.attribute.append(rng.choice(rng.choice(other.graph.node).attribute))
    elif kind == 2:
        rng.choice(node.attribute).name = rng.choice(["axis", "axes", "perm", "to", "mode", "value", "strange"])
    elif kind == 3:
        attr = rng.choice(node.attribute)
        attr.type = rng.randrange(15)
    else:
        value(rng, rng.choice(node.attribute))


def value(rng: Rng, attr: AttributeProto) -> None:
    """Another value in the same attribute."""
    if attr.type == AttributeProto.INT:
        attr.i = number(rng)
    elif attr.type == AttributeProto.FLOAT:
        attr.f = rng.choice([0.0, -1.0, float("nan"), float("inf"), 1e38, 1e-38])
    elif attr.type == AttributeProto.INTS:
        numbers(rng, attr.ints)
    elif attr.type == AttributeProto.STRING:
        attr.s = rng.choice([b"", b"SAME_UPPER", b"VALID", b"linear", b"\xff\xfe", b"reflect", b"...ij,jk"])
    elif attr.type == AttributeProto.TENSOR:
        tensor(rng, attr.t)
    elif attr.type == AttributeProto.GRAPH:
        rng.choice(attr.g.node).op_type = rng.choice(["Relu", "Add", "Shape", "If"])


def numbers(rng: Rng, field: Any) -> None:
    if len(field) and rng.random() < 0.6:
        field[rng.randrange(len(field))] = number(rng)
    elif len(field) and rng.random() < 0.5:
        del field[rng.randrange(len(field))]
    else:
        field.extend(number(rng) for _ in range(rng.choice([1, 1, 2, 70])))


def tensor(rng: Rng, proto: onnx.TensorProto) -> None:
    """Another tensor in its place: dtype, shape or elements."""
    kind = rng.randrange(5)
    if kind == 0:
        proto.data_type = rng.randrange(28)
    elif kind == 1:
        numbers(rng, proto.dims)
    elif kind == 2 and proto.raw_data:
        proto.raw_data = damage(rng, proto.raw_data)
    elif kind == 3:
        # Integers are axes, shapes and places.
        count = max(1, min(64, int(np.prod(proto.dims))))
        proto.CopyFrom(helper.make_tensor(proto.name, 7, list(proto.dims), [number(rng) for _ in range(count)]))
    else:
        proto.data_location = rng.choice([0, 1])
        proto.external_data.add(key="location", value=rng.choice(["../x", "/dev/zero", "data", ""]))


def weight(rng: Rng, model: Model, other: Model) -> None:
    if model.graph.initializer and rng.random() < 0.7:
        tensor(rng, rng.choice(model.graph.initializer))
    else:
        # An input becomes a weight.
        port = rng.choice(model.graph.input)
        dims = [d.dim_value for d in port.type.tensor_type.shape.dim]
        count = int(np.prod(dims))
        if count > 4096:
            return
        values = [number(rng) if port.type.tensor_type.elem_type == 7 else rng.randrange(2) for _ in range(count)]
        model.graph.initializer.append(helper.make_tensor(port.name, port.type.tensor_type.elem_type, dims, values))


def port(rng: Rng, model: Model, other: Model) -> None:
    given = rng.choice([*model.graph.input, *model.graph.output, *model.graph.value_info])
    info, kind = given.type.tensor_type, rng.randrange(6)
    if kind == 0:
        info.elem_type = rng.randrange(28)
    elif kind == 1:
        rng.choice(info.shape.dim).dim_value = number(rng)
    elif kind == 2:
        rng.choice(info.shape.dim).dim_param = rng.choice(
            ["n", "N + 1", "?", "", "a'b", "min(n, 3)", "0", "ü\n", "n.0"]
        )
    elif kind == 3:
        del info.shape.dim[rng.randrange(len(info.shape.dim))]
    elif kind == 4:
        info.shape.dim.add(dim_value=number(rng))
    else:
        given.name = rng.choice(names(model))


def structure(rng: Rng, model: Model, other: Model) -> None:
    nodes, kind = model.graph.node, rng.randrange(6)
    if kind == 0:
        del nodes[rng.randrange(len(nodes))]
    elif kind == 1:
        nodes.append(rng.choice(nodes))
    elif kind == 2:
        kept = [onnx.NodeProto.FromString(n.SerializeToString()) for n in nodes]
        rng.shuffle(kept)
        del nodes[:]
        nodes.extend(kept)
    elif kind == 3:
        nodes.extend(other.graph.node)
        if rng.random() < 0.7:
            model.graph.input.extend(other.graph.input)
            model.graph.initializer.extend(other.graph.initializer)
    elif kind == 4:
        model.graph.output.add(name=rng.choice(names(model)))
    else:
        # What one node gives, a node of the other model reads.
        donor = rng.choice(other.graph.node)
        added = nodes.add()
        added.CopyFrom(donor)
        for at in range(len(added.input)):
            added.input[at] = rng.choice(names(model))
        for at in range(len(added.output)):
            added.output[at] = f"grafted{at}"
        model.graph.output.add(name="grafted0")


def header(rng: Rng, model: Model, other: Model) -> None:
    kind = rng.randrange(5)
    if kind == 0:
        rng.choice(model.opset_import).version = rng.choice([*range(29), *EXTREMES])
    elif kind == 1:
        model.opset_import.add(domain=rng.choice(["", "ai.onnx", "com.microsoft", "x"]), version=rng.randrange(30))
    elif kind == 2:
        model.ir_version = rng.choice([0, 1, 3, 4, 8, 99])
    elif kind == 3:
        calls = rng.choice(model.functions)
        rng.choice(calls.node).op_type = rng.choice([calls.name, "Relu", "f", "g"])
    else:
        model.functions.append(rng.choice(model.functions))


MUTATIONS: list[Callable[[Rng, Model, Model], None]] = [
    *[some_input] * 3, some_output, *[some_op] * 2, *[attribute] * 4, *[weight] * 3, *[port] * 3, *[structure] * 2,
    header,
]  # fmt: skip


def attempt(data: bytes) -> str:
    """Imports, builds and runs a model as far as it goes; says how far that was."""
    step = "imported"
    try:
        network = from_onnx(data)
        step = "built"
        backend = TensorRTBackend(threads=1, optimization_level=0, timing_cache=False, verify=False)
        model = backend.optimize_model(network, None)
        step = "ran"
        inputs = example(model)
        if inputs is None:
            return "built and too large to run"
        model.run(inputs)
    except nx.InternalError as error:
        return f"bad: not {step}: {brief(error)}"
    except nx.Error as error:
        return f"not {step}, {type(error).__name__}: {brief(error)}"
    return "ran"


def example(model: Any) -> dict[str, Any] | None:
    """Arrays for the inputs of a model; none if they or what follows from them would be large."""
    rng = np.random.default_rng(0)
    found = {}
    for given in model.inputs:
        shape = tuple(dim if isinstance(dim, int) else 3 for dim in given.shape)
        if np.prod([max(1, dim) for dim in shape], dtype=float) > MOST_ELEMENTS:
            return None
        found[given.name] = rng.integers(0, 3, shape).astype(given.dtype)
    try:
        sizes, needed = model._engine.prepare({name: list(array.shape) for name, array in found.items()})
        results = sum(8 * np.prod(shape, dtype=float) for shape in sizes.values())
        large = max(needed, results) > MOST_BYTES
    except nx.UnsupportedError:
        large = False
    return None if large else found


def target(seed: int) -> Run:
    """A function that runs the case of a number."""
    seeds = corpus()

    def run(case: int, out: Path) -> str:
        data = mutate(Rng(f"{seed} {case}"), seeds)
        path = out / f"import-{seed}-{case}.onnx"
        # Written before it runs: a crash leaves no time.
        path.write_bytes(data)
        try:
            word = attempt(data)
        except MemoryError:
            word = "bad: MemoryError"
        except Exception as error:
            word = f"bad: {brief(error)}"
        if not word.startswith("bad"):
            path.unlink()
        return word

    return run


if __name__ == "__main__":
    main("fuzz.importer", target, __doc__ or "")
