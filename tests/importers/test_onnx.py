"""ONNX models arrive with their meaning, names and dynamic dimensions, whatever opset and form they are in."""

import time
from pathlib import Path

import numpy as np
import pytest

import neurenix as nx
from neurenix import _native
from neurenix.hardware.tensorrt import TensorRTBackend
from neurenix.importers import from_onnx
from neurenix.importers.onnx.rules import FAMILIES, RULES
from neurenix.importers.onnx.same import Same

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper, parser  # noqa: E402
from onnx.reference import ReferenceEvaluator  # noqa: E402

X = np.linspace(-2, 2, 2 * 3 * 4 * 4, dtype=np.float32).reshape(2, 3, 4, 4)


def model(body: str, opset: int = 20, signature: str = "(float[2,3,4,4] x) => (float[] y)") -> "onnx.ModelProto":
    return parser.parse_model(f'<ir_version: 8, opset_import: ["" : {opset}]> m {signature} {{ {body} }}')


#: An op as an old opset writes it, that opset, and the same as opset 20 writes it.
OLD_AND_NEW = {
    "clip": (
        "y = Clip<min=-1.0, max=1.0>(x)",
        10,
        "l = Constant<value_float=-1.0>() h = Constant<value_float=1.0>() y = Clip(x, l, h)",
    ),
    "pad": (
        "y = Pad<pads=[0,0,1,2,0,0,3,4], value=0.5>(x)",
        10,
        "a = Constant<value_ints=[-2,3]>() p = Constant<value_ints=[1,2,3,4]>() v = Constant<value_float=0.5>()"
        "y = Pad(x, p, v, a)",
    ),
    "reduce": (
        "y = ReduceMean<axes=[1,-1], keepdims=0>(x)",
        13,
        "a = Constant<value_ints=[1,-1]>() y = ReduceMean<keepdims=0>(x, a)",
    ),
    "slice": (
        "y = Slice<axes=[1,3], starts=[1,-3], ends=[3,-1]>(x)",
        9,
        "s = Constant<value_ints=[1,-3]>() e = Constant<value_ints=[3,-1]>() a = Constant<value_ints=[1,3]>()"
        "y = Slice(x, s, e, a)",
    ),
    "softmax": (
        "y = Softmax<axis=2>(x)",
        11,
        "s = Shape(x) f = Flatten<axis=2>(x) z = Softmax<axis=1>(f) y = Reshape(z, s)",
    ),
    "split": (
        "a, b = Split<axis=1, split=[2,1]>(x) y = Concat<axis=1>(b, a)",
        11,
        "s = Constant<value_ints=[2,1]>() a, b = Split<axis=1>(x, s) y = Concat<axis=1>(b, a)",
    ),
    "unsqueeze": ("y = Unsqueeze<axes=[0,-1]>(x)", 11, "a = Constant<value_ints=[0,-1]>() y = Unsqueeze(x, a)"),
    "upsample": (
        's = Constant<value_floats=[1.0,1.0,2.0,3.0]>() y = Upsample<mode="nearest">(x, s)',
        9,
        "s = Constant<value_floats=[1.0,1.0,2.0,3.0]>() r = Constant<value_floats=[0.0]>() "
        'y = Resize<mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor">(x, r, s)',
    ),
}


@pytest.mark.parametrize("name", OLD_AND_NEW)
def test_an_old_opset_means_what_the_new_one_writes_as_inputs(name: str) -> None:
    old, opset, new = OLD_AND_NEW[name]
    want = from_onnx(model(new)).evaluate({"x": X})["y"]
    assert np.array_equal(from_onnx(model(old, opset)).evaluate({"x": X})["y"], want)


@pytest.mark.parametrize(
    "body",
    [
        "y = Min(x, x, x)",
        "z = Neg(x) y = Max(x, z)",
        "z = Abs(x) y = Sum(x, z, z)",
        "z = Abs(x) y = Mean(x, z, z)",
        "y = Dropout(x)",
        "s = Shape(x) y = Reshape(x, s)",
        "y = Cast<to=11>(x)",
        "z = Cast<to=7>(x) y = CastLike(x, z)",
        "z = Identity(x) w = Identity(z) y = Relu(w)",
        "t = Constant<value = float[3,1,1] {1.0, 2.0, 3.0}>() u = Identity(t) y = Mul(x, u)",
    ],
)
def test_against_onnx_own_reference(body: str) -> None:
    proto = model(body)
    want = ReferenceEvaluator(proto).run(None, {"x": X})[0]
    got = from_onnx(proto).evaluate({"x": X})["y"]
    assert got.dtype == want.dtype
    np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-6)


def test_equal_names_are_one_symbol_and_dimensions_without_a_name_each_their_own() -> None:
    a = helper.make_tensor_value_info("a", TensorProto.FLOAT, ["n", "?", -1, None, 5])
    b = helper.make_tensor_value_info("b", TensorProto.FLOAT, ["n", "?", "my dim", None, 5])
    out = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([helper.make_node("Add", ["a", "b"], ["y"])], "g", [a, b], [out])
    graph.input[0].type.tensor_type.shape.dim[2].dim_value = -1
    network = from_onnx(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)]))
    assert [t.shape for t in network.inputs] == [
        ("n", "a.1", "a.2", "a.3", 5),
        ("n", "b.1", "'my dim'", "b.3", 5),
    ]
    assert "my dim" in network.symbols


def test_input_shapes_fix_and_name_dimensions() -> None:
    proto = model("y = Relu(x)", signature="(float[n,3,h,w] x) => (float[] y)")
    assert from_onnx(proto, input_shapes={"x": (1, 3, "s", 8)}).inputs[0].shape == (1, 3, "s", 8)


def test_a_range_of_floats_up_to_a_size_has_that_length() -> None:
    body = (
        "s = Shape<start=1, end=2>(x) n = Squeeze(s) f = Cast<to=1>(n) "
        "a = Constant<value = float {2.0}>() d = Constant<value = float {1.0}>() y = Range(a, f, d)"
    )
    network = from_onnx(model(body, signature="(float[2,n] x) => (float[] y)"))
    assert network.outputs["y"].shape == ("max(0, n - 2)",)
    got = network.evaluate({"x": np.zeros((2, 5), np.float32)})["y"]
    assert got.dtype == np.float32 and got.tolist() == [2, 3, 4]


def test_layers_keep_the_names_of_nodes() -> None:
    nodes = [helper.make_node("Relu", ["x"], ["z"], name="first"), helper.make_node("Relu", ["z"], ["y"])]
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [2]) for n in "xy")
    proto = helper.make_model(helper.make_graph(nodes, "g", [x], [y]), opset_imports=[helper.make_opsetid("", 20)])
    assert [layer.name for layer in from_onnx(proto).layers] == ["first", "Relu_1"]


def test_what_literals_do_to_weights_is_done_to_new_weights() -> None:
    """Axes and shapes are known at the import, and so is a small weight: it is no literal."""
    weights = {"w": np.arange(1, 7, dtype=np.float32), "scale": np.float32(2)}
    initializers = [numpy_helper.from_array(np.asarray(array), name) for name, array in weights.items()]
    nodes = [
        helper.make_node("Constant", [], ["axes"], value_ints=[1]),
        helper.make_node("Unsqueeze", ["w", "axes"], ["column"]),
        helper.make_node("Mul", ["column", "w"], ["outer"]),
        helper.make_node("Constant", [], ["half"], value_float=0.5),
        helper.make_node("Mul", ["half", "scale"], ["factor"]),
        helper.make_node("Mul", ["outer", "factor"], ["scaled"]),
        helper.make_node("MatMul", ["x", "scaled"], ["y"]),
    ]
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [2, 6]) for n in "xy")
    proto = helper.make_model(
        helper.make_graph(nodes, "g", [x], [y], initializers), opset_imports=[helper.make_opsetid("", 20)]
    )
    given = np.random.default_rng(0).standard_normal((2, 6)).astype(np.float32)
    engine = TensorRTBackend(providers=["cpu"], optimization_level=0).optimize_model(proto, refittable=True)
    for step in (0, 1):
        new = {name: array + np.float32(step) for name, array in weights.items()}
        engine.update_weights(new)
        want = given @ (np.outer(new["w"], new["w"]) * 0.5 * new["scale"])
        np.testing.assert_allclose(engine.run({"x": given})["y"], want, rtol=1e-5)


def test_what_is_decided_by_weights_is_decided_anew() -> None:
    w = np.float32([1, -2, 3, -4])
    nodes = [
        helper.make_node("Constant", [], ["zero"], value_float=0.0),
        helper.make_node("Constant", [], ["two"], value_float=2.0),
        helper.make_node("Greater", ["w", "zero"], ["positive"]),
        helper.make_node("Where", ["positive", "x", "zero"], ["chosen"]),
        helper.make_node("Mul", ["w", "two"], ["doubled"]),
        helper.make_node("ArgMax", ["doubled"], ["place"], axis=0, keepdims=1),
        helper.make_node("Gather", ["chosen", "place"], ["y"], axis=1),
        helper.make_node("Identity", ["chosen"], ["z"]),
    ]
    x, y, z = (
        helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("x", [2, 4]), ("y", None), ("z", None))
    )
    graph = helper.make_graph(nodes, "g", [x], [y, z], [numpy_helper.from_array(w, "w")])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)])
    engine = TensorRTBackend(providers=["cpu"], optimization_level=0).optimize_model(proto, refittable=True)
    given = np.float32([[1, 2, 3, 4], [5, 6, 7, 8]])
    for new in (w, -w):
        engine.update_weights({"w": new})
        got, chosen = engine.run({"x": given}), np.where(new > 0, given, 0)
        assert np.array_equal(got["z"], chosen) and np.array_equal(got["y"], chosen[:, [new.argmax()]])


def test_weights_that_decide_shapes_are_refused_by_name() -> None:
    proto = model('y = Resize<mode="nearest">(x, , scales)')
    proto.graph.initializer.append(numpy_helper.from_array(np.float32([1, 1, 2, 2]), "scales"))
    engine = TensorRTBackend(providers=["cpu"], optimization_level=0).optimize_model(proto, refittable=True)
    with pytest.raises(nx.InvalidArgumentError, match="decide shapes"):
        engine.update_weights({"scales": np.float32([1, 1, 3, 3])})
    assert engine.run({"x": X})["y"].shape == (2, 3, 8, 8)


def test_functions_of_the_model_are_inlined() -> None:
    proto = parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 18, "local" : 1]> m (float[2,3] x) => (float[2,3] y)'
        " { y = local.twice(x) }"
        ' <domain: "local", opset_import: ["" : 18]> twice (a) => (b) { b = Add(a, a) }'
    )
    x = np.ones((2, 3), np.float32)
    assert np.array_equal(from_onnx(proto).evaluate({"x": x})["y"], 2 * x)


def test_an_if_with_a_constant_condition_is_its_branch() -> None:
    proto = parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 18]> m (float[2] x) => (float[2] y) {'
        " c = Constant<value = bool {0}>()"
        " y = If (c) <then_branch = t () => (float[2] p) { p = Neg(x) },"
        " else_branch = e () => (float[2] q) { q = Abs(x) }> }"
    )
    assert np.array_equal(from_onnx(proto).evaluate({"x": np.float32([-1, 2])})["y"], [1, 2])


@pytest.mark.parametrize("external", [False, True])
def test_weights_of_every_dtype_inside_and_beside_the_file(tmp_path: Path, external: bool) -> None:
    import ml_dtypes

    weights = {
        str(np.dtype(d)): np.arange(600).reshape(20, 30).astype(d)
        for d in ("f4", "f8", "f2", ml_dtypes.bfloat16, "i1", "u1", "i4", "i8", "?")
    }
    nodes = [helper.make_node("Identity", [name], [f"{name}_out"]) for name in weights]
    types = {name: helper.np_dtype_to_tensor_dtype(w.dtype) for name, w in weights.items()}
    outs = [helper.make_tensor_value_info(f"{name}_out", types[name], w.shape) for name, w in weights.items()]
    graph = helper.make_graph(nodes, "g", [], outs, [numpy_helper.from_array(w, n) for n, w in weights.items()])
    path = tmp_path / "m.onnx"
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)]),
        path,
        save_as_external_data=external,
        size_threshold=0,
    )
    got = from_onnx(path).evaluate({})
    for name, weight in weights.items():
        assert got[f"{name}_out"].dtype == weight.dtype
        assert np.array_equal(got[f"{name}_out"], weight)
    if external:
        with pytest.raises(nx.FileError, match="lie in another file"):
            from_onnx(path.read_bytes())
        next(tmp_path.glob("*-*-*")).unlink()
        with pytest.raises(OSError, match="can't be read"):
            from_onnx(path)


def test_weights_outside_the_folder_are_refused(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"\0" * 16)
    tensor_proto = numpy_helper.from_array(np.zeros(4, np.float32), "w")
    onnx.external_data_helper.set_external_data(tensor_proto, "../secret")
    tensor_proto.ClearField("raw_data")
    tensor_proto.data_location = TensorProto.EXTERNAL
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [4])
    graph = helper.make_graph([helper.make_node("Identity", ["w"], ["y"])], "g", [], [y], [tensor_proto])
    inner = tmp_path / "inner"
    inner.mkdir()
    (inner / "m.onnx").write_bytes(helper.make_model(graph).SerializeToString())
    with pytest.raises(nx.FileError):
        from_onnx(inner / "m.onnx")


def test_all_unknown_nodes_stand_in_one_error() -> None:
    nodes = [
        helper.make_node("StringSplit", ["x"], ["a"], name="first"),
        helper.make_node("StringSplit", ["a"], ["b"]),
        helper.make_node("Strange", ["b"], ["y"], name="second", domain="com.acme"),
    ]
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [2, 2]) for n in "xy")
    graph = helper.make_graph(nodes, "g", [x], [y])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20), helper.make_opsetid("com.acme", 1)])
    with pytest.raises(NotImplementedError) as caught:
        from_onnx(proto)
    assert str(caught.value) == (
        "the model has 3 nodes of 2 ops that can't be imported\n"
        "  got: StringSplit (opset 20): first, b; com.acme::Strange: second\n"
        "  hint: plugins run what you register before the import: trt.register_plugin('StringSplit', YourClass), "
        "trt.register_plugin('Strange', YourClass), in a module that `plugins=` or --plugins on the command line names "
        "(docs/plugins.md); a function of that name in the model (onnx.FunctionProto) may say it in ONNX's own ops"
    )


@pytest.mark.parametrize(
    ("op", "near"),
    [
        # What ONNX has is no typing error of something else.
        ("StringNormalizer", None), ("StringConcat", None), ("ImageDecoder", None),
        ("Gru", "GRU"), ("Sofmax", "Softmax"), ("Frobnicate", None),
        # Random numbers are refused, too.
        ("RandomNormalLik", None),
    ],
)  # fmt: skip
def test_a_hint_names_what_can_be_imported(op: str, near: str | None) -> None:
    with pytest.raises(nx.UnsupportedError) as caught:
        from_onnx(model(f"y = {op}(x)"))
    hint = str(caught.value.hint)
    assert hint.startswith(f"the nearest op that can be imported is {near!r}; " if near else "plugins run what you")


@pytest.mark.parametrize(
    ("given", "kind", "text"),
    [
        (b"not a model", nx.FormatError, "this is no ONNX model"),
        (b"", nx.FormatError, "this is no ONNX model"),
        ("/nowhere/m.onnx", nx.FileError, "the model can't be read: No such file"),
    ],
)
def test_what_is_no_model_is_refused(given: bytes | str, kind: type[nx.Error], text: str) -> None:
    with pytest.raises(kind, match=text):
        from_onnx(given)


def test_an_error_names_the_node() -> None:
    with pytest.raises(nx.ShapeError) as caught:
        from_onnx(model("w = Constant<value = float[5] {1.0,2.0,3.0,4.0,5.0}>() y = Add(x, w)"))
    assert caught.value.layer == "Add_0 (Add) of float32[2, 3, 4, 4], float32[5]"


@pytest.mark.exclusive
def test_a_large_model_is_imported_in_no_time() -> None:
    rng = np.random.default_rng(0)
    weights = [numpy_helper.from_array(rng.random((512, 512, 3, 3), np.float32), f"w{i}") for i in range(10)]
    names = ["x", *(f"t{i}" for i in range(9)), "y"]
    nodes = [helper.make_node("Conv", [names[i], f"w{i}"], [names[i + 1]], pads=[1] * 4) for i in range(10)]
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, ["n", 512, 7, 7]) for n in "xy")
    proto = helper.make_model(
        helper.make_graph(nodes, "g", [x], [y], weights), opset_imports=[helper.make_opsetid("", 20)]
    )
    start = time.perf_counter()
    from_onnx(proto)
    assert time.perf_counter() - start < 1


def test_no_op_has_two_rules() -> None:
    assert sum(map(len, FAMILIES)) == len(RULES)
    ops = {op["name"] for op in _native.ops()}
    assert [name for name, rule in RULES.items() if isinstance(rule, Same) and (rule.op or name) not in ops] == []
    assert all(isinstance(rule, Same) or rule.__doc__ or rule.__name__ == "rule" for rule in RULES.values())
