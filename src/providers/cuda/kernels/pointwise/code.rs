//! CUDA C++ for pointwise layers.

use super::expression::expression;
use crate::network::dtype::DType;
use crate::network::narrow::Narrow;
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
