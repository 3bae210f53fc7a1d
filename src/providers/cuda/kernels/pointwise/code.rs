//! CUDA C++ for pointwise layers.

use super::expression::expression;
use crate::network::dtype::DType;
use crate::network::narrow::Narrow;
use crate::network::quantization::Scheme;
use crate::network::{Layer, LayerId, Network, TensorId};
use crate::providers::common::group;
use std::collections::HashMap;
use std::fmt::Write;

/// The name of an element type in `kernels/types.cuh`.
pub fn element(dtype: DType) -> Option<&'static str> {
    Some(name(dtype))
}

fn name(dtype: DType) -> &'static str {
    match dtype {
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
        DType::Float8E4M3FN => "float8e4m3fn",
        DType::Float8E4M3FNUZ => "float8e4m3fnuz",
        DType::Float8E5M2 => "float8e5m2",
        DType::Float8E5M2FNUZ => "float8e5m2fnuz",
        DType::Float8E8M0 => "float8e8m0",
        DType::Float4E2M1 => "float4e2m1",
        DType::Int4 => "signed4",
        DType::UInt4 => "unsigned4",
        DType::Int2 => "signed2",
        DType::UInt2 => "unsigned2",
    }
}

/// The type that an element type is computed in.
pub(super) fn wide(dtype: DType) -> &'static str {
    match dtype {
        DType::Float16 | DType::BFloat16 => "float",
        other => match other.narrow().map(Narrow::is_int) {
            Some(true) => "int32",
            Some(false) => "float",
            None => name(other),
        },
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
    /// Constants that `n.at[0]`, `n.at[1]`, ... stand for, where the code is for more layers than these.
    pub numbers: Option<Vec<f32>>,
}

/// Whether there is code for a layer.
pub fn is_pointwise(network: &Network, layer: &Layer) -> bool {
    let arguments: Vec<_> = layer.inputs.iter().map(|t| t.map(|_| "x".to_string())).collect();
    layer.outputs.len() == 1
        && layer.inputs.iter().any(Option::is_some)
        && expression(network, layer, &arguments).is_some()
}

/// The code of these layers, which come in an order of execution.
pub fn of(network: &Network, layers: &[LayerId]) -> Code {
    written(network, layers, None)
}

/// As [`of`], with float32 constants as numbers that a kernel is given, so that layers which differ in these alone share their code.
/// Scales of 8 bits are multiplied by, not divided by.
pub fn numbered(network: &Network, layers: &[LayerId]) -> Code {
    written(network, layers, Some(vec![]))
}

fn written(network: &Network, layers: &[LayerId], numbers: Option<Vec<f32>>) -> Code {
    let mut code = Code {
        inputs: vec![],
        outputs: group::outputs(network, layers),
        body: String::new(),
        numbers,
    };
    let mut names: HashMap<TensorId, String> = HashMap::new();
    for (number, &id) in layers.iter().enumerate() {
        let layer = &network[id];
        let output = layer.outputs[0];
        let value = code
            .in_8_bits(network, &mut names, layer)
            .unwrap_or_else(|| code.value(network, &mut names, layer));
        let (variable, dtype) = (format!("v{number}"), network[output].ty.dtype);
        let coded = code.gives_codes(network, layer);
        let ty = if coded { name(dtype) } else { wide(dtype) };
        _ = writeln!(code.body, "    const {ty} {variable} = {value};");
        if let Some(at) = code.outputs.iter().position(|&t| t == output) {
            _ = writeln!(code.body, "    y{at} = {variable};");
        }
        names.insert(
            output,
            if coded {
                format!("{variable}.number()")
            } else {
                variable
            },
        );
    }
    code
}

impl Code {
    fn value(&mut self, network: &Network, names: &mut HashMap<TensorId, String>, layer: &Layer) -> String {
        let arguments = layer.inputs.iter().map(|t| t.map(|t| self.argument(network, names, t)));
        let arguments: Vec<_> = arguments.collect();
        // `is_pointwise` lets no other layer in.
        expression(network, layer, &arguments).unwrap_or_default()
    }

    /// Quantize and Dequantize layers of 8 bits, in code with numbers.
    fn in_8_bits(&mut self, network: &Network, names: &mut HashMap<TensorId, String>, layer: &Layer) -> Option<String> {
        self.numbers.as_ref()?;
        let scheme = Scheme::of(network, layer)?;
        let x = self.argument(network, names, layer.inputs[0]?);
        let zero = scheme.zero;
        if layer.op.name == "DequantizeLinear" {
            let scale = self.number(scheme.scale);
            let centred = if scheme.is_int() { format!("({x} - {zero})") } else { x };
            return Some(format!("f_product((float){centred}, {scale})"));
        }
        if !scheme.is_int() {
            let (inverse, ty) = (self.number(1.0 / scheme.scale), name(scheme.dtype));
            return Some(format!("{ty}::of(f_product({x}, {inverse}), true)"));
        }
        let [low, high] = scheme.limits();
        // What is below zero has the code of zero.
        let clamped = relu_in_front(network, layer).filter(|_| low == zero);
        let x = clamped.and_then(|tensor| names.get(&tensor).cloned()).unwrap_or(x);
        let inverse = self.number(1.0 / scheme.scale);
        let ty = wide(scheme.dtype);
        Some(format!(
            "({ty})f_code<{zero}, {low}, {high}>(f_product({x}, {inverse}))"
        ))
    }

    /// Whether the variable of a layer holds codes of 8 bits, not the number that one stands for.
    pub fn gives_codes(&self, network: &Network, layer: &Layer) -> bool {
        let scheme = self.numbers.as_ref().and_then(|_| Scheme::of(network, layer));
        layer.op.name == "QuantizeLinear" && scheme.is_some_and(|scheme| !scheme.is_int())
    }

    fn number(&mut self, value: f32) -> String {
        let numbers = self.numbers.get_or_insert_default();
        numbers.push(value);
        format!("n.at[{}]", numbers.len() - 1)
    }

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
            Some(value) if dtype == DType::Float32 && self.numbers.is_some() => self.number(value as f32),
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

/// What the Relu in front of a layer reads, if there is one.
fn relu_in_front(network: &Network, layer: &Layer) -> Option<TensorId> {
    let (_, relu) = network.producer(layer.inputs[0]?)?;
    relu.inputs[0].filter(|_| relu.op.name == "Relu")
}

/// A number of a floating-point type.
pub(super) fn literal(value: f64, dtype: DType) -> String {
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
