//! What is taken along with a product, and the code of it.

use super::behind::Behind;
use super::follow::epilogues;
use super::fused;
use super::library::Steps;
use crate::network::attr::{Attr, attrs};
use crate::network::dtype::DType;
use crate::providers::common::epilogue::{Broadcast, Epilogue};
use crate::providers::common::scope::{Orders, Scope};
use crate::providers::common::testing::Graph;
use crate::providers::cuda::library::cudnn::product::{Function, Matrix, PointwiseOp, Value};

fn names(g: &Graph) -> Vec<String> {
    let orders = Orders::default();
    let found = g.network.layers().find(|(_, layer)| layer.op.name == "MatMul");
    let layer = found.unwrap().0;
    let scope = Scope {
        network: &g.network,
        layer,
        orders: &orders,
    };
    let name = |epilogue: Epilogue| {
        let names = epilogue.layers().map(|id| g.network[id].op.name);
        names.collect::<Vec<_>>().join("+")
    };
    epilogues(&scope).into_iter().map(name).collect()
}

/// All that is behind the first product of a network.
fn epilogue(g: &Graph) -> Epilogue {
    let order = g.network.order().unwrap();
    let product = g.network[order[0]].outputs[0];
    Epilogue::new(&g.network, product, g.network[product].ty.rank() - 1, &order[1..]).unwrap()
}

#[test]
fn a_gate_that_is_read_twice_is_taken_whole() {
    let mut g = Graph::new();
    let x = g.input("x", "b 4 8");
    let (w, b, factor) = (g.weights(&[8, 6]), g.weights(&[6]), g.weights(&[1]));
    let y = g.op("MatMul", &[x, w]);
    let y = g.op("Add", &[y, b]);
    let gate = g.op("Mul", &[y, factor]);
    let gate = g.op("Sigmoid", &[gate]);
    let y = g.op("Mul", &[y, gate]);
    g.output(y);
    assert_eq!(names(&g), ["Add+Mul+Sigmoid+Mul", "Add", ""]);
}

#[test]
fn what_is_as_large_as_the_result_goes_along_and_a_part_of_it_does_not() {
    let mut g = Graph::new();
    let (x, up, mask) = (g.input("x", "b 4 8"), g.input("up", "b 4 6"), g.input("mask", "b 1 6"));
    let w = g.weights(&[8, 6]);
    let y = g.op("MatMul", &[x, w]);
    let y = g.op("Silu", &[y]);
    let y = g.op("Mul", &[y, up]);
    let y = g.op("Add", &[y, mask]);
    g.output(y);
    assert_eq!(names(&g), ["Silu+Mul", "Silu", ""]);
}

#[test]
fn vectors_are_multiplied_alone() {
    let mut g = Graph::new();
    let (x, v) = (g.input("x", "4 8"), g.input("v", "8"));
    let y = g.op("MatMul", &[x, v]);
    let y = g.op("Relu", &[y]);
    g.output(y);
    assert_eq!(names(&g), [""]);
}

#[test]
fn operands_are_read_where_their_places_say() {
    let mut g = Graph::new();
    let (x, up, number) = (g.input("x", "b 4 8"), g.input("up", "b 4 6"), g.input("number", "1"));
    let rows = g.input("rows", "b 4 1");
    let (w, b) = (g.weights(&[8, 6]), g.weights(&[6]));
    let product = g.op("MatMul", &[x, w]);
    let y = g.op("Add", &[b, product]);
    let y = g.op("Mul", &[y, up]);
    let y = g.op("Sub", &[y, number]);
    let y = g.op("Mul", &[y, rows]);
    g.output(y);
    let behind = Behind::new(&g.network, &epilogue(&g));
    let places: Vec<_> = behind.operands.iter().map(|operand| operand.broadcast).collect();
    assert_eq!(
        places,
        [Broadcast::Column, Broadcast::Full, Broadcast::Scalar, Broadcast::Row]
    );
    let call = "element(y, widen(x1[column]), sum, widen(x2[at]), widen(x3[0]), widen(x4[at / 6]));";
    assert!(behind.text.contains(call), "{}", behind.text);
    let call = "element(y, widen(read.p1.item[k]), sums[k], widen(read.p2.item[k]), widen(x3[0]), widen(read.r4));";
    assert!(behind.text.contains(call), "{}", behind.text);
}

#[test]
fn layers_that_differ_in_numbers_share_their_code() {
    let of = |scale: f64, half: f64| {
        let mut g = Graph::new();
        let x = g.input("x", "b 4 8");
        let w = g.weights(&[8, 6]);
        let (scale, half) = (g.scalar(scale), g.scalar(half));
        let product = g.op("MatMul", &[x, w]);
        let y = g.op("Mul", &[product, half]);
        let to = attrs([("to", Attr::Type(DType::UInt8))]);
        let y = g.op_with("QuantizeLinear", to, &[y, scale]);
        g.output(y);
        Behind::numbered(&g.network, &epilogue(&g), None)
    };
    let (one, other) = (of(0.25, 0.5), of(0.125, 3.0));
    assert_eq!((one.numbers, other.numbers), (vec![0.5, 4.0], vec![3.0, 8.0]));
    assert!(
        one.text.contains("f_code<0, 0, 255>(f_product(v0, n.at[1]))"),
        "{}",
        one.text
    );
    assert_eq!(one.text, other.text);
}

#[test]
fn what_is_quantized_next_takes_few_steps_and_is_encoded_once() {
    for (read, gelu) in [(false, "f_fast_gelu(x0)"), (true, "f_gelu(x0)")] {
        let mut g = Graph::new();
        let x = g.input("x", "b 4 8");
        let w = g.weights(&[8, 6]);
        let scale = g.scalar(0.25);
        let product = g.op("MatMul", &[x, w]);
        let y = g.op("Gelu", &[product]);
        let to = attrs([("to", Attr::Type(DType::Float8E4M3FN)), ("saturate", Attr::Int(1))]);
        let code = g.op_with("QuantizeLinear", to, &[y, scale]);
        g.output(code);
        if read {
            g.network.mark_output(y, "z").unwrap();
        }
        let text = Behind::numbered(&g.network, &epilogue(&g), None).text;
        assert!(text.contains(gelu), "{text}");
        assert!(read || text.contains("typedef Y0 Result;"), "{text}");
        let encoded = "const float8e4m3fn v1 = float8e4m3fn::of(f_product(v0, n.at[0]), true);";
        assert!(text.contains(encoded), "{text}");
    }
}

#[test]
fn nothing_behind_gives_the_sum() {
    let mut g = Graph::new();
    let x = g.input("x", "b 4 8");
    let w = g.weights(&[8, 6]);
    let product = g.op("MatMul", &[x, w]);
    g.output(product);
    let behind = Behind::new(&g.network, &epilogue(&g));
    assert!(behind.operands.is_empty() && behind.outputs == [product]);
    assert!(behind.text.contains("element(y, sum);"), "{}", behind.text);
}

/// The steps of the first product of a network with everything behind it.
fn steps(g: &Graph) -> Steps {
    Steps::new(&g.network, &epilogue(g))
}

#[test]
fn what_an_epilogue_lacks_is_a_pass() {
    let mut g = Graph::new();
    let x = g.input("x", "b 4 8");
    let (w, b) = (g.weights(&[8, 6]), g.weights(&[6]));
    let y = g.op("MatMul", &[x, w]);
    let y = g.op("Add", &[y, b]);
    let y = g.op("Sigmoid", &[y]);
    g.output(y);
    let steps = steps(&g);
    assert_eq!((steps.bias, steps.residual, steps.scale), (Some(b), None, 1.0));
    assert_eq!(steps.pass.unwrap().inputs, [None]);
}

#[test]
fn a_factor_a_residual_and_an_activation_are_no_pass() {
    let mut g = Graph::new();
    let (x, skip) = (g.input("x", "b 4 8"), g.input("skip", "b 4 6"));
    let (w, eighth) = (g.weights(&[8, 6]), g.scalar(0.125));
    let y = g.op("MatMul", &[x, w]);
    let y = g.op("Mul", &[eighth, y]);
    let y = g.op("Add", &[skip, y]);
    let y = g.op("Relu", &[y]);
    g.output(y);
    let steps = steps(&g);
    assert_eq!((steps.bias, steps.residual, steps.scale), (None, Some(skip), 0.125));
    assert!(steps.activation.is_some() && steps.pass.is_none());
}

/// What cuDNN is asked for the first product of a network with everything behind it.
fn fused(g: &Graph) -> Option<(fused::Steps, fused::Product)> {
    let order = g.network.order().unwrap();
    let operands = [0, 1].map(|i| g.network[order[0]].inputs[i].unwrap());
    let steps = fused::Steps::new(&g.network, &epilogue(g))?;
    let product = steps.of(&g.network, operands, [false; 2])?;
    Some((steps, product))
}

#[test]
fn a_gate_behind_a_product_is_steps_of_one_graph() {
    let mut g = Graph::new();
    let (x, up) = (g.input("x", "2 128 256"), g.input("up", "2 128 512"));
    let (w, b) = (g.weights(&[256, 512]), g.weights(&[512]));
    let y = g.op("MatMul", &[x, w]);
    let y = g.op("Add", &[b, y]);
    let gate = g.op("Sigmoid", &[y]);
    let y = g.op("Mul", &[y, gate]);
    let y = g.op("Sub", &[y, up]);
    g.output(y);
    let (steps, product) = fused(&g).unwrap();
    let step = |function, x, other| PointwiseOp { function, x, other };
    assert_eq!(
        product.steps,
        [
            step(Function::Add, 0, Some(Value::Operand(0))),
            step(Function::Sigmoid, 1, None),
            step(Function::Mul, 1, Some(Value::Given(2))),
            step(Function::Sub, 3, Some(Value::Operand(1))),
        ]
    );
    let read: Vec<_> = steps
        .operands
        .iter()
        .map(|operand| (operand.tensor, operand.broadcast))
        .collect();
    assert_eq!(read, [(b, Broadcast::Column), (up, Broadcast::Full)]);
    let sizes = |matrix: &Matrix| matrix.sizes;
    assert_eq!(product.sides.each_ref().map(sizes), [[1, 256, 256], [1, 256, 512]]);
    let operands: Vec<_> = product.operands.iter().map(sizes).collect();
    assert_eq!(operands, [[1, 1, 512], [1, 256, 512]]);
}

#[test]
fn a_graph_is_of_one_shape_and_even_and_worth_its_while() {
    let product = |x: &str, w: &[usize], op: &str| {
        let mut g = Graph::new();
        let (x, w) = (g.input("x", x), g.weights(w));
        let y = g.op("MatMul", &[x, w]);
        let y = g.op(op, &[y]);
        g.output(y);
        fused(&g).map(|(_, product)| product.sides)
    };
    assert!(product("256 256", &[256, 512], "Tanh").is_some());
    assert!(product("b 256", &[256, 512], "Tanh").is_none());
    assert!(product("256 256", &[256, 516], "Tanh").is_none());
    assert!(product("16 256", &[256, 512], "Tanh").is_none());
    assert!(product("256 256", &[256, 512], "Sin").is_none());
    let batch = product("8 128 128", &[8, 128, 256], "Tanh").unwrap();
    assert_eq!(batch[1].strides, [128 * 256, 256, 1]);
    assert_eq!(batch[1].sizes, [8, 128, 256]);
}
