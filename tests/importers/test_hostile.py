"""Damaged and hostile models: each is an error of ours that says where, and never a crash."""

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import neurenix as nx
from neurenix.hardware.tensorrt import TensorRTBackend
from neurenix.importers import from_onnx

onnx = pytest.importorskip("onnx")
from onnx import AttributeProto, TensorProto, helper, numpy_helper, parser  # noqa: E402

Model = Any


def model(body: str, opset: int = 21, signature: str = "(float[2,3] x) => (float[] y)") -> Model:
    return parser.parse_model(f'<ir_version: 8, opset_import: ["" : {opset}]> m {signature} {{ {body} }}')


def changed(body: str, change: Callable[[Model], object], **options: Any) -> Model:
    given = model(body, **options)
    change(given)
    return given


def refused(given: Any, kind: type[nx.Error], *texts: str, **options: Any) -> None:
    """The import raises an error of this kind with these texts somewhere in it."""
    with pytest.raises(kind) as caught:
        from_onnx(given, **options)
    for text in texts:
        assert text in str(caught.value), str(caught.value)


def test_every_beginning_of_a_file_is_an_error_of_ours_or_a_model() -> None:
    data = model("y = Relu(x)").SerializeToString()
    for end in range(len(data)):
        try:
            from_onnx(data[:end])
        except nx.Error:
            pass


def test_random_bytes() -> None:
    rng = np.random.default_rng(0)
    for length in (1, 7, 64, 999):
        for _ in range(50):
            with pytest.raises(nx.FormatError):
                from_onnx(rng.bytes(length))


def test_a_cycle_is_named() -> None:
    refused(
        model("a = Add(x, c) b = Relu(a) c = Neg(b) y = Relu(x)"),
        nx.FormatError,
        "nodes form a cycle",
        "a (Add), b (Relu), c (Neg)",
    )


def test_a_node_that_reads_itself() -> None:
    refused(model("a = Add(x, a) y = Relu(x)"), nx.FormatError, "nodes form a cycle", "a (Add)")


def test_nodes_in_any_order() -> None:
    given = model(
        "y = Neg(b) b = If(c) <then_branch = t () => (float[2,3] p) { p = Add(a, a) },"
        " else_branch = e () => (float[2,3] q) { q = Abs(x) }> a = Relu(x) c = Constant<value = bool {1}>()"
    )
    x = np.float32([[1, -2, 3], [-4, 5, -6]])
    assert np.array_equal(from_onnx(given).evaluate({"x": x})["y"], -2 * np.maximum(x, 0))


@pytest.mark.parametrize(
    ("body", "message", "place"),
    [
        ("a = Relu(x) a = Neg(x) y = Add(a, a)", "two parts of the model give one tensor", "tensor: a"),
        ("x = Relu(x) y = Neg(x)", "two parts of the model give one tensor", "tensor: x"),
        ("y = Add(x, missing)", "reads a tensor that nothing gives", "tensor: missing"),
        ("z = Relu(x)", "nothing gives this output", "tensor: y"),
        ("y = Relu()", "another number of inputs", "layer: Relu_0"),
        ("y = Relu(x, x)", "another number of inputs", "got: 2"),
        ("y, z = Relu(x)", "another number of outputs", "got: 2"),
        ("y = Softmax<axis = 1.5>(x)", "attribute 'axis' of Softmax has the wrong type", "got: float"),
        ('y = Softmax<axis = "one">(x)', "attribute 'axis' of Softmax has the wrong type", "got: text"),
        ("y = Concat(x, x)", "attribute 'axis' of Concat is missing", "expected: int"),
        ("y = Softmax<axis = 9>(x)", "axis is out of range", "layer: Softmax_0"),
        ("y = Transpose<perm = [0, 0]>(x)", "", "layer: Transpose_0"),
        ("y = Reshape(x, x)", "input 1 of Reshape has elements of the wrong sort", "expected: integers"),
        ("b = Cast<to = 9>(x) y = MatMul(b, b)", "wrong sort", "tensor: b"),
        ("y = Cast<to = 77>(x)", "the element type 77 is not supported", "layer: Cast_0"),
        ("y = Cast<to = 8>(x)", "tensors of strings are not supported", "layer: Cast_0"),
        ('y = Constant<value_string = "text">()', "tensors of strings are not supported", "tensor: y"),
        ('y = Constant<value_strings = ["a", "b"]>()', "tensors of strings are not supported", "tensor: y"),
        ("y = Constant()", "a Constant has no value", "layer: Constant_0"),
        ("y = Conv(x, x)", "", "layer: Conv_0"),
        ("s = Constant<value_ints = [1099511627776, 1099511627776]>() y = Expand(x, s)", "", "layer: Expand_0"),
        ("s = Constant<value_ints = [-5, 3]>() y = ConstantOfShape(s)", "", "layer: ConstantOfShape_0"),
    ],
)
def test_a_node_that_is_not_as_it_should_be(body: str, message: str, place: str) -> None:
    with pytest.raises(nx.Error) as caught:
        from_onnx(model(body))
    assert not isinstance(caught.value, nx.InternalError)
    assert message in str(caught.value) and place in str(caught.value), str(caught.value)


def test_a_node_without_an_output() -> None:
    given = changed("y = Relu(x)", lambda m: m.graph.node.append(helper.make_node("Add", ["x", "x"], [])))
    refused(given, nx.FormatError, "another number of outputs", "layer: Add_0")


def weight(**parts: Any) -> Model:
    """A model with one weight as these fields say."""
    tensor = TensorProto(name="w", **parts)
    return changed(
        "y = Add(x, w)", lambda m: m.graph.initializer.append(tensor), signature="(float[2,3] x) => (float[] y)"
    )


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"data_type": 1, "dims": [2**40]}, "another number of bytes"),
        ({"data_type": 1, "dims": [2**40, 2**40, 2**40]}, "another number of bytes"),
        ({"data_type": 1, "dims": [-1, 3], "raw_data": b"\0" * 12}, "a dimension of a constant is negative"),
        ({"data_type": 1, "dims": [-(2**63)]}, "a dimension of a constant is negative"),
        ({"data_type": 1, "dims": [3], "raw_data": b"\0" * 11}, "another number of bytes"),
        ({"data_type": 1, "dims": [3], "raw_data": b"\0" * 16}, "another number of bytes"),
        ({"data_type": 1, "dims": [3], "float_data": [1, 2]}, "another number of bytes"),
        ({"data_type": 1, "dims": [3], "int64_data": [1, 2, 3]}, "in the wrong field"),
        ({"data_type": 1, "dims": [1], "float_data": [1], "raw_data": b"\0" * 4}, "or in two"),
        ({"data_type": 3, "dims": [1], "int32_data": [300]}, "an element does not fit int8"),
        ({"data_type": 0, "dims": [1]}, "the element type UNDEFINED is not supported"),
        ({"data_type": 8, "dims": [1], "string_data": [b"text"]}, ""),
        ({"data_type": 14, "dims": [1], "raw_data": b"\0" * 8}, "COMPLEX64 is not supported"),
        ({"data_type": 99, "dims": [1]}, "the element type 99 is not supported"),
        ({"data_type": 8, "dims": [1], "string_data": [b"a"]}, "tensors of strings are not supported"),
        ({"data_type": 22, "dims": [2**41]}, "another number of bytes"),
        ({"data_type": 1, "dims": [1] * 100, "raw_data": b"\0" * 4}, "a constant can't have this shape"),
        ({"data_type": 1, "dims": [0, 2**62, 2**62]}, "a constant can't have this shape"),
    ],
)
def test_a_weight_that_is_not_as_it_should_be(parts: dict[str, Any], message: str) -> None:
    refused(weight(**parts), nx.Error, message, "tensor: w")


def test_elements_in_the_field_of_each_type() -> None:
    import ml_dtypes

    wide = {1: "f4", 11: "f8", 6: "i4", 7: "i8", 12: "u4", 13: "u8"}
    narrow = {2: "u1", 3: "i1", 4: "u2", 5: "i2", 9: "?"}
    for number, dtype in {**wide, **narrow}.items():
        want = np.array([[0, 1], [1, 100]]).astype(dtype)
        held = helper.make_tensor("w", number, [2, 2], want.reshape(-1).tolist())
        assert not held.raw_data
        assert_held(held, want)
    for number, dtype in {10: np.float16, 16: ml_dtypes.bfloat16}.items():
        want = np.array([1.5, -2, np.inf]).astype(dtype)
        bits = want.view(np.uint16).astype(np.int32)
        assert_held(TensorProto(name="w", data_type=number, dims=[3], int32_data=bits), want)
    want = np.array([1.5, -2, 4]).astype(ml_dtypes.float8_e4m3fn)
    bits = want.view(np.uint8).astype(np.int32)
    assert_held(TensorProto(name="w", data_type=17, dims=[3], int32_data=bits), want)
    want = np.array([1, -2, 7]).astype(ml_dtypes.int4)
    assert_held(TensorProto(name="w", data_type=22, dims=[3], raw_data=bytes([0xE1, 0x07])), want)
    assert_held(TensorProto(name="w", data_type=22, dims=[3], int32_data=[0xE1, 0x07]), want)
    assert_held(TensorProto(name="w", data_type=1, dims=[], float_data=[2.5]), np.float32(2.5))
    assert_held(TensorProto(name="w", data_type=7, dims=[0, 3]), np.zeros((0, 3), np.int64))
    truths = TensorProto(name="w", data_type=9, dims=[3], raw_data=bytes([0, 7, 255]))
    assert_held(truths, np.array([False, True, True]))


def assert_held(held: "onnx.TensorProto", want: Any) -> None:
    y = helper.make_tensor_value_info("y", held.data_type, None)
    graph = helper.make_graph([helper.make_node("Identity", ["w"], ["y"])], "g", [], [y], [held])
    got = from_onnx(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])).evaluate({})["y"]
    assert got.dtype == want.dtype
    np.testing.assert_array_equal(got, want)


def sparse(values: Any, indices: Any, dims: list[int]) -> "onnx.SparseTensorProto":
    return helper.make_sparse_tensor(
        numpy_helper.from_array(np.asarray(values, np.float32), "w"),
        numpy_helper.from_array(np.asarray(indices, np.int64), "w_places"),
        dims,
    )


@pytest.mark.parametrize("indices", [[1, 5], [[0, 1], [1, 2]]])
@pytest.mark.parametrize("constant", [False, True])
def test_sparse_tensors(indices: Any, constant: bool) -> None:
    held = sparse([2, 3], indices, [2, 3])
    if constant:
        node = helper.make_node("Constant", [], ["w"], sparse_value=held)
        given = changed("y = Add(x, w)", lambda m: m.graph.node.insert(0, node))
    else:
        given = changed("y = Add(x, w)", lambda m: m.graph.sparse_initializer.append(held))
    got = from_onnx(given).evaluate({"x": np.zeros((2, 3), np.float32)})["y"]
    assert np.array_equal(got, np.float32([[0, 2, 0], [0, 0, 3]]))


@pytest.mark.parametrize(
    ("values", "indices", "dims", "message"),
    [
        ([1, 2], [1, 6], [2, 3], "a place of a sparse tensor is outside of it"),
        ([1, 2], [1, -1], [2, 3], "a place of a sparse tensor is outside of it"),
        ([1, 2], [[0, 0], [0, 3]], [2, 3], "a place of a sparse tensor is outside of it"),
        ([1, 2], [1, 1], [2, 3], "gives one element twice"),
        ([1, 2], [1], [2, 3], "do not fit its values"),
        ([1], [0], [2**20, 2**20], "too large to write its zeros out"),
        ([1], [0], [2, -3], "negative"),
    ],
)
def test_sparse_tensors_that_are_not_as_they_should_be(
    values: list[int], indices: Any, dims: list[int], message: str
) -> None:
    held = onnx.SparseTensorProto(
        values=numpy_helper.from_array(np.float32(values), "w"),
        indices=numpy_helper.from_array(np.int64(indices)),
        dims=dims,
    )
    refused(changed("y = Add(x, w)", lambda m: m.graph.sparse_initializer.append(held)), nx.Error, message, "tensor: w")


@pytest.mark.parametrize("dims", [[2**62, 2**62], [2**50, 3], [-7, 3]])
def test_inputs_of_enormous_or_negative_size(dims: list[int]) -> None:
    """A negative dimension is one that is not known."""
    given = model("y = Relu(x)")
    for dim, value in zip(given.graph.input[0].type.tensor_type.shape.dim, dims, strict=True):
        dim.dim_value = value
    if min(dims) < 0:
        assert from_onnx(given).inputs[0].shape == ("x.0", 3)
    else:
        refused(given, nx.ShapeError, "tensor: x", "bytes")


def test_operator_sets() -> None:
    refused(model("y = Relu(x)", 999), nx.UnsupportedError, "newer than those that Neurenix knows", "opset 999")
    refused(
        changed("y = Relu(x)", lambda m: m.opset_import.add(domain="ai.onnx", version=3)),
        nx.FormatError,
        "two versions",
    )
    refused(changed("y = Relu(x)", lambda m: m.ClearField("opset_import")), nx.FormatError, "of which version")
    refused(
        changed("y = Relu(x)", lambda m: setattr(m.opset_import[0], "version", -4)), nx.FormatError, "of which version"
    )
    given = changed("y = Relu(x)", lambda m: setattr(m.opset_import[0], "domain", "com.microsoft"))
    refused(given, nx.FormatError, "of which version", "(Relu)")


def test_an_old_model_that_breaks_the_rules_does_not_reach_the_converter() -> None:
    def damage(m: Model) -> None:
        m.graph.value_info.add(name="z")
        m.graph.node.add(op_type="Col2Im", input=["x", "image_shape", "nowhere"], output=["z"])

    given = changed("y = Relu(x)", damage, opset=3)
    refused(given, nx.FormatError, "breaks ONNX's rules")


def test_a_depth_bomb_of_graphs() -> None:
    """Made in memory, from the inside out: protobuf itself refuses to parse or copy one."""
    given = model("y = Relu(x)")
    node = given.graph.node[0]
    for _ in range(200):
        node.op_type = "If"
        attr = node.attribute.add(name="then_branch", type=AttributeProto.GRAPH)
        node = attr.g.node.add(op_type="Relu", input=["x"], output=["y"])
    refused(given, nx.UnsupportedError, "graphs are nested more than 32 deep")


def functions(*bodies: str, main: str = "y = local.f0(x)") -> Model:
    text = '<ir_version: 10, opset_import: ["" : 18, "local" : 1]> m (float[2,3] x) => (float[2,3] y) {' + main + "}"
    for body in bodies:
        text += f'<domain: "local", opset_import: ["" : 18, "local" : 1]> {body}'
    return parser.parse_model(text)


def test_functions_that_call_themselves() -> None:
    text = "a function of the model calls itself"
    refused(functions("f0 (a) => (b) { b = local.f0(a) }"), nx.FormatError, text, "local::f0")
    both = functions("f0 (a) => (b) { b = local.f1(a) }", "f1 (a) => (b) { b = local.f0(a) }")
    refused(both, nx.FormatError, text, "local::f0 -> local::f1 -> local::f0")


def test_an_exponential_bomb_of_functions() -> None:
    bodies = [f"f{i} (a) => (b) {{ c = local.f{i + 1}(a) b = local.f{i + 1}(c) }}" for i in range(30)]
    start = time.perf_counter()
    refused(functions(*bodies, "f30 (a) => (b) { b = Relu(a) }"), nx.UnsupportedError, "too many nodes")
    assert time.perf_counter() - start < 5


def test_two_functions_of_one_name() -> None:
    twice = functions("f0 (a) => (b) { b = Relu(a) }", "f0 (a) => (b) { b = Neg(a) }")
    refused(twice, nx.FormatError, "two functions of the model have the same name", "local::f0")


def test_unknown_nodes_inside_of_functions_and_branches_are_listed() -> None:
    given = functions("f0 (a) => (b) { c = Nowhere(a) b = local.missing(c) }")
    refused(given, nx.UnsupportedError, "2 nodes of 2 ops", "Nowhere", "local::missing")


def test_an_attribute_of_an_enclosing_function_without_one() -> None:
    given = changed("y = Softmax<axis = 1>(x)", lambda m: setattr(m.graph.node[0].attribute[0], "ref_attr_name", "k"))
    refused(given, nx.Error, "refers to one of an enclosing function", "layer: Softmax_0")


def test_an_attribute_twice() -> None:
    given = changed(
        "y = Softmax<axis = 1>(x)", lambda m: m.graph.node[0].attribute.append(helper.make_attribute("axis", 0))
    )
    refused(given, nx.FormatError, "one attribute twice", "layer: Softmax_0")


def test_names_that_are_no_texts() -> None:
    data = model("y = Relu(x)").SerializeToString().replace(b"Relu", b"\xff\xfe\x80\x81")
    with pytest.raises(nx.Error):
        from_onnx(data)


def test_a_huge_attribute_is_read_in_time() -> None:
    node = helper.make_node("Transpose", ["x"], ["y"], perm=list(range(1_000_000)))
    start = time.perf_counter()
    refused(changed("y = Relu(x)", lambda m: m.graph.node[0].CopyFrom(node)), nx.Error, "layer: Transpose_0")
    assert time.perf_counter() - start < 5


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda port: port.type.sequence_type.SetInParent(), id="sequence"),
        pytest.param(lambda port: setattr(port.type.tensor_type, "elem_type", TensorProto.STRING), id="text"),
        pytest.param(lambda port: setattr(port.type.tensor_type, "elem_type", 0), id="undefined"),
        pytest.param(lambda port: port.ClearField("type"), id="none"),
    ],
)
def test_inputs_that_are_no_tensors_of_numbers(change: Callable[[Any], object]) -> None:
    refused(changed("y = Relu(x)", lambda m: change(m.graph.input[0])), nx.UnsupportedError, "tensor: x")


@pytest.mark.parametrize("sizes", [[2**40, 3], [2**40, 2**40], [2**31, 2**13]])
def test_sizes_of_a_call_that_are_too_large_are_refused(sizes: list[int]) -> None:
    given = model("z = Expand(x, s) y = Relu(z)", signature="(float[1,1] x, int64[2] s) => (float[] y)")
    run = TensorRTBackend(threads=1, timing_cache=False).optimize_model(given, {"x": (1, 1), "s": (2,)})
    with pytest.raises(nx.Error) as caught:
        run({"x": np.ones((1, 1), np.float32), "s": np.int64(sizes)})
    assert not isinstance(caught.value, nx.InternalError)
    got = run({"x": np.ones((1, 1), np.float32), "s": np.int64([2, 3])})["y"]
    assert np.array_equal(got, np.ones((2, 3)))


@pytest.mark.parametrize("level", [0, 3])
def test_a_model_that_is_too_large_for_the_memory_is_refused(level: int) -> None:
    given = model("z = Relu(x) y = Neg(z)", signature="(float[1048576,1048576] x) => (float[] y)")
    backend = TensorRTBackend(threads=1, timing_cache=False, optimization_level=level)
    try:
        backend.optimize_model(given, {"x": (2**20, 2**20)})
    except nx.Error as error:
        assert not isinstance(error, nx.InternalError)
