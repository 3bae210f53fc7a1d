//! The source of a layer's kernels: the functions of its gates, and the entry points.

use crate::network::dtype::DType;
use crate::network::ops::activation::{Activation, Function};
use crate::network::ops::recurrent::{Kind, Spec};
use crate::providers::cuda::kernels::pointwise::code::element;

const SOURCE: &str = include_str!("../../../../../kernels/recurrent.cu");

/// What a layer of this dtype is computed in.
pub fn wide(dtype: DType) -> DType {
    if dtype == DType::Float64 {
        DType::Float64
    } else {
        DType::Float32
    }
}

/// Whether a step multiplies the state that is reset before.
pub fn resets(spec: &Spec) -> bool {
    spec.kind == Kind::Gru && !spec.linear_before_reset
}

/// The source with entry points `layer_begin`, `layer_reset`, `layer_step` and `layer_end`; a warp works on `rows` sequences.
pub fn source(spec: &Spec, dtype: DType, rows: usize) -> String {
    let [t, w] = [dtype, wide(dtype)].map(|dtype| element(dtype).unwrap_or("float"));
    let state = "state_at(l, e, count)";
    let step = match spec.kind {
        Kind::Rnn => format!("step<1, {rows}>(l, e, count, {state}, 1, 0, {})", kind(1, "rnn")),
        Kind::Gru if spec.linear_before_reset => {
            format!("step<3, {rows}>(l, e, count, {state}, 3, 0, {})", kind(3, "linear_gru"))
        }
        Kind::Gru => format!("step<1, {rows}>(l, e, count, l.reset, 3, 2, {})", kind(1, "gru")),
        Kind::Lstm => {
            let cell = format!("lstm<{}>", spec.input_forget);
            format!("step<4, {rows}>(l, e, count, {state}, 4, 0, {})", kind(4, &cell))
        }
    };
    let mut text = format!("typedef {t} T;\ntypedef {w} W;\n{}{SOURCE}", activations(spec));
    let reset = resets(spec).then(|| ("layer_reset", format!("reset<{rows}>(l, e, count)")));
    let entries = [
        ("layer_begin", "begin(l, e, flag)".to_string()),
        ("layer_step", step),
        ("layer_end", "end(l, e)".into()),
    ];
    for (name, body) in entries.into_iter().chain(reset) {
        text += &entry(name, &body);
    }
    text
}

/// A function of a cell, as one that is known where it is called.
fn kind(products: usize, function: &str) -> String {
    format!(
        "[](const Cell& c, const W (&products)[{products}], W before) {{ return {function}(c, products, before); }}"
    )
}

fn entry(name: &str, body: &str) -> String {
    format!(
        "extern \"C\" __global__ void {name}(const Layer l, const Extents e, const int32 count, int64* flag) {{\n    {body};\n}}\n"
    )
}

/// `activation`: the functions of each direction, what goes into them clipped.
fn activations(spec: &Spec) -> String {
    let mut text = String::from("template <int N>\n__device__ __forceinline__ W activation(int32 direction, W x) {\n");
    if spec.clip.is_finite() {
        text += &format!("    x = f_clip(x, (W)-{0:e}, (W){0:e});\n", spec.clip);
    }
    for number in 0..spec.activations[0].len() {
        let of = |direction: usize| function(&spec.activations[direction][number]);
        let value = match spec.activations.len() {
            1 => of(0),
            _ => format!("direction == 0 ? {} : {}", of(0), of(1)),
        };
        text += &format!("    if (N == {number}) return {value};\n");
    }
    text + "    return x;\n}\n"
}

/// A function of x.
fn function(activation: &Activation) -> String {
    let (a, b) = (
        format!("(W){:e}", activation.alpha),
        format!("(W){:e}", activation.beta),
    );
    match activation.function {
        Function::Relu => "f_relu(x)".into(),
        Function::Tanh => "tanh(x)".into(),
        Function::Sigmoid => "f_sigmoid(x)".into(),
        Function::Softsign => "f_softsign(x)".into(),
        Function::Softplus => "f_softplus(x)".into(),
        Function::Affine => format!("({a} * x + {b})"),
        Function::LeakyRelu => format!("f_leaky_relu(x, {a})"),
        Function::ThresholdedRelu => format!("(x < {a} ? (W)0 : x)"),
        Function::ScaledTanh => format!("({a} * tanh({b} * x))"),
        Function::HardSigmoid => format!("f_hard_sigmoid(x, {a}, {b})"),
        Function::Elu => format!("f_elu(x, {a})"),
    }
}
