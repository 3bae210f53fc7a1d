//! CUDA C++ for pointwise layers.

use crate::network::attr::Read;
use crate::network::dtype::DType;
use crate::network::{Layer, LayerId, Network, TensorId};
use crate::providers::common::group;
use std::collections::HashMap;
use std::fmt::Write;

/// The name of an element type in `kernels/types.cuh`; `None` for one that kernels do not compute with.
pub fn element(dtype: DType) -> Option<&'static str> {
    Some(match dtype {
        DType::Float32 => "float",
        DType::Float64 => "double",
        DType::Float16 => "float16",
        DType::BFloat16 => "bfloat16",
        DType::Int8 => "int8",
        DType::UInt8 => "uint8",
        DType::Int16 => "int16",
        DType::UInt16 => "uint16",
        DType::Int32 => "int32",
        DType::UInt32 => "uint32",
        DType::Int64 => "int64",
        DType::UInt64 => "uint64",
        DType::Bool => "bool",
        _ => return None,
    })
}

/// The type that an element type is computed in.
fn wide(dtype: DType) -> &'static str {
    match dtype {
        DType::Float16 | DType::BFloat16 => "float",
        other => element(other).unwrap_or("float"),
    }
}

/// The statements of some layers for one element, and what they read and give.
pub struct Code {
    /// The tensors that it reads: `x0`, `x1`, ...
    pub inputs: Vec<TensorId>,
    /// The tensors that it gives: `y0`, `y1`, ...
    pub outputs: Vec<TensorId>,
    /// The statements.
    pub body: String,
}

/// Whether there is code for a layer.
pub fn is_pointwise(network: &Network, layer: &Layer) -> bool {
    let typed = |t: &TensorId| element(network[*t].ty.dtype).is_some();
    let arguments: Vec<_> = layer.inputs.iter().map(|t| t.map(|_| "x".to_string())).collect();
    layer.inputs.iter().flatten().chain(&layer.outputs).all(typed)
        && layer.outputs.len() == 1
        && layer.inputs.iter().any(Option::is_some)
        && expression(network, layer, &arguments).is_some()
}

/// The code of these layers, which come in an order of execution.
pub fn of(network: &Network, layers: &[LayerId]) -> Code {
    let mut code = Code {
        inputs: vec![],
        outputs: group::outputs(network, layers),
        body: String::new(),
    };
    let mut names: HashMap<TensorId, String> = HashMap::new();
    for (number, &id) in layers.iter().enumerate() {
        let layer = &network[id];
        let arguments = layer
            .inputs
            .iter()
            .map(|t| t.map(|t| code.argument(network, &mut names, t)));
        let arguments: Vec<_> = arguments.collect();
        let output = layer.outputs[0];
        // `is_pointwise` lets no other layer in.
        let value = expression(network, layer, &arguments).unwrap_or_default();
        let name = format!("v{number}");
        _ = writeln!(
            code.body,
            "    const {} {name} = {value};",
            wide(network[output].ty.dtype)
        );
        names.insert(output, name);
    }
    for (number, output) in code.outputs.iter().enumerate() {
        _ = writeln!(code.body, "    y{number} = {};", names[output]);
    }
    code
}

impl Code {
    fn argument(&mut self, network: &Network, names: &mut HashMap<TensorId, String>, tensor: TensorId) -> String {
        if let Some(name) = names.get(&tensor) {
            return name.clone();
        }
        let dtype = network[tensor].ty.dtype;
        let uniform = network[tensor]
            .constant()
            .filter(|_| dtype.is_float())
            .and_then(|array| array.uniform());
        let name = match uniform {
            Some(value) => literal(value, dtype),
            None => {
                self.inputs.push(tensor);
                format!("x{}", self.inputs.len() - 1)
            }
        };
        names.insert(tensor, name.clone());
        name
    }
}

/// A number of a floating-point type.
fn literal(value: f64, dtype: DType) -> String {
    let ty = wide(dtype);
    if value.is_nan() {
        return format!("({ty})__longlong_as_double(0x7ff8000000000000ll)");
    }
    if value.is_infinite() {
        let sign = if value < 0.0 { "-" } else { "" };
        return format!("({ty})({sign}__longlong_as_double(0x7ff0000000000000ll))");
    }
    format!("({ty}){value:e}")
}

/// What a layer computes of its arguments, in the type that its output is computed in.
fn expression(network: &Network, layer: &Layer, arguments: &[Option<String>]) -> Option<String> {
    let output = network[*layer.outputs.first()?].ty.dtype;
    let input = network[layer.inputs.iter().copied().flatten().next()?].ty.dtype;
    let argument = |index: usize| arguments.get(index).and_then(Option::as_ref);
    let x = argument(0)?;
    let number = |name: &str| literal(layer.attrs.float(name), input);
    if let Some(moved) = any_type(layer, arguments, input, output) {
        return Some(moved);
    }
    if input.is_int() {
        return integer(layer.op.name, x, argument(1), input);
    }
    if !input.is_float() {
        return None;
    }
    let plain = |function: &str| Some(format!("{function}({x})"));
    if let Some(function) = FUNCTIONS.iter().find(|(op, _)| *op == layer.op.name) {
        return plain(function.1);
    }
    let two = |function: &str| Some(format!("{function}({x}, {})", argument(1)?));
    match layer.op.name {
        "Neg" => Some(format!("-{x}")),
        "Add" => Some(format!("{x} + {}", argument(1)?)),
        "Sub" => Some(format!("{x} - {}", argument(1)?)),
        "Mul" => Some(format!("{x} * {}", argument(1)?)),
        "Div" => Some(format!("{x} / {}", argument(1)?)),
        "Max" if arguments.len() == 2 => two("f_max"),
        "Min" if arguments.len() == 2 => two("f_min"),
        "Mod" if layer.attrs.flag("fmod") => two("fmod"),
        "PRelu" => two("f_leaky_relu"),
        "LeakyRelu" => Some(format!("f_leaky_relu({x}, {})", number("alpha"))),
        "ThresholdedRelu" => Some(format!("f_thresholded_relu({x}, {})", number("alpha"))),
        "Elu" => Some(format!("f_elu({x}, {})", number("alpha"))),
        "Celu" => Some(format!("f_celu({x}, {})", number("alpha"))),
        "Selu" => Some(format!("f_selu({x}, {}, {})", number("alpha"), number("gamma"))),
        "HardSigmoid" => Some(format!("f_hard_sigmoid({x}, {}, {})", number("alpha"), number("beta"))),
        "Gelu" if layer.attrs.text("approximate") == "tanh" => plain("f_gelu_tanh"),
        "Gelu" => plain("f_gelu"),
        "Pow" => power(network, layer, x, argument(1)?),
        _ => None,
    }
}

/// Ops that are one function of one floating-point number.
const FUNCTIONS: &[(&str, &str)] = &[
    ("Abs", "fabs"),
    ("Sqrt", "sqrt"),
    ("Exp", "exp"),
    ("Log", "log"),
    ("Sin", "sin"),
    ("Cos", "cos"),
    ("Tan", "tan"),
    ("Asin", "asin"),
    ("Acos", "acos"),
    ("Atan", "atan"),
    ("Sinh", "sinh"),
    ("Cosh", "cosh"),
    ("Asinh", "asinh"),
    ("Acosh", "acosh"),
    ("Atanh", "atanh"),
    ("Tanh", "tanh"),
    ("Erf", "erf"),
    ("Floor", "floor"),
    ("Ceil", "ceil"),
    ("Round", "rint"),
    ("Sign", "f_sign"),
    ("Reciprocal", "f_reciprocal"),
    ("Relu", "f_relu"),
    ("Sigmoid", "f_sigmoid"),
    ("Silu", "f_silu"),
    ("HardSwish", "f_hard_swish"),
    ("Mish", "f_mish"),
    ("Softplus", "f_softplus"),
    ("Softsign", "f_softsign"),
];

/// Ops that take any type, or give another one.
fn any_type(layer: &Layer, arguments: &[Option<String>], input: DType, output: DType) -> Option<String> {
    let argument = |index: usize| arguments.get(index).and_then(Option::as_ref);
    let x = argument(0)?;
    let two = |operator: &str| Some(format!("{x} {operator} {}", argument(1)?));
    match layer.op.name {
        "Identity" => Some(x.clone()),
        "Cast" => Some(cast(x, input, output)),
        "Where" => Some(format!("{x} ? {} : {}", argument(1)?, argument(2)?)),
        "Equal" => two("=="),
        "Less" => two("<"),
        "LessOrEqual" => two("<="),
        "Greater" => two(">"),
        "GreaterOrEqual" => two(">="),
        "And" => two("&&"),
        "Or" => two("||"),
        "Xor" => two("!="),
        "Not" => Some(format!("!{x}")),
        "IsNaN" => Some(format!("{x} != {x}")),
        "Clip" if input != DType::Bool => {
            let low = argument(1).map_or(x.clone(), |low| format!("f_max({x}, {low})"));
            Some(argument(2).map_or(low.clone(), |high| format!("f_min({low}, {high})")))
        }
        _ => None,
    }
}

/// A conversion; from floating point to a narrow integer through 64 bits, whose lowest ones stay.
fn cast(x: &str, input: DType, output: DType) -> String {
    let to = wide(output);
    match (input.is_float(), output) {
        (_, DType::Bool) => format!("{x} != 0"),
        (true, output) if output.is_int() && output.size() < 8 => format!("({to})(int64){x}"),
        _ => format!("({to}){x}"),
    }
}

/// Arithmetic of integers, which wraps.
fn integer(op: &str, x: &str, y: Option<&String>, dtype: DType) -> Option<String> {
    let ty = element(dtype)?;
    let wrapped = |operator: &str| Some(format!("({ty})((uint64){x} {operator} (uint64){})", y?));
    match op {
        "Add" => wrapped("+"),
        "Sub" => wrapped("-"),
        "Mul" => wrapped("*"),
        "Max" => Some(format!("f_max({x}, {})", y?)),
        "Min" => Some(format!("f_min({x}, {})", y?)),
        "Neg" => Some(format!("({ty})(0 - (uint64){x})")),
        "Abs" => Some(format!("({ty})({x} < 0 ? 0 - (uint64){x} : (uint64){x})")),
        "Sign" => Some(format!("f_sign({x})")),
        "Relu" => Some(format!("f_relu({x})")),
        "BitwiseAnd" => Some(format!("({ty})({x} & {})", y?)),
        "BitwiseOr" => Some(format!("({ty})({x} | {})", y?)),
        "BitwiseXor" => Some(format!("({ty})({x} ^ {})", y?)),
        "BitwiseNot" => Some(format!("({ty})(~{x})")),
        _ => None,
    }
}

fn power(network: &Network, layer: &Layer, x: &str, exponent: &str) -> Option<String> {
    let uniform = layer
        .inputs
        .get(1)
        .copied()
        .flatten()
        .and_then(|t| network[t].constant()?.uniform());
    Some(match uniform {
        Some(1.0) => x.into(),
        Some(2.0) => format!("f_square({x})"),
        Some(3.0) => format!("f_square({x}) * {x}"),
        Some(0.5) => format!("sqrt({x})"),
        Some(-0.5) => format!("f_rsqrt({x})"),
        Some(-1.0) => format!("f_reciprocal({x})"),
        _ => format!("pow({x}, {exponent})"),
    })
}
