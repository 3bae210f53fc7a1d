//! Concat.

use crate::error::{Error, Result};
use crate::network::array::Array;
use crate::network::attr::{Preset, Read, attr};
use crate::network::least::Least;
use crate::network::op::{Evaluate, Infer, Lowering, Movement, OpDef, TensorType};
use crate::network::ops::{pointwise, values};

/// The inputs one after the other along an axis (ONNX Concat).
pub static DEF: OpDef = OpDef {
    name: "Concat",
    doc: "The inputs one after the other along an axis (ONNX Concat)",
    inputs: &["x*"],
    attrs: &[attr(
        "axis",
        Preset::RequiredInt,
        "the axis along which the inputs stand",
    )],
    infer,
    evaluate,
    lowering: Lowering::COMPUTES,
    movement: Movement::Concat,
    least: Least::OfAll,
    ..OpDef::PLAIN
};

fn infer(infer: &Infer) -> Result<Vec<TensorType>> {
    let first = infer.input(0)?;
    let axis = first.axis(infer.attrs.int("axis"))?;
    let inputs = (0..infer.inputs.len()).map(|i| infer.input(i));
    let inputs = inputs.collect::<Result<Vec<_>>>()?;
    pointwise::same_dtype(&inputs)?;
    let mut shape = first.shape.clone();
    for other in &inputs[1..] {
        if other.rank() != shape.len() {
            return Err(Error::shape("the inputs differ in rank")
                .expected(first.describe())
                .got(other.describe()));
        }
        for (i, dim) in other.shape.iter().enumerate() {
            if i == axis {
                shape[i] = shape[i].clone() + dim.clone();
                continue;
            }
            infer.require_equal(&shape[i], dim, "the inputs differ outside the axis")?;
            if dim.as_const().is_some() {
                shape[i] = dim.clone();
            }
        }
    }
    let data: Vec<_> = (0..inputs.len()).collect();
    let outputs = vec![TensorType::new(first.dtype, shape)];
    Ok(values::moved(infer, &data, outputs, evaluate))
}

fn evaluate(e: &Evaluate) -> Result<Vec<Array>> {
    let (_, shape) = &e.outputs[0];
    let axis = crate::network::constant_type(e.input(0)?).axis(e.attrs.int("axis"))?;
    let inputs: Vec<&Array> = e.inputs.iter().flatten().collect();
    let outer: usize = shape[..axis].iter().product();
    let mut bytes = vec![];
    for i in 0..outer {
        for x in &inputs {
            let chunk = x.bytes().len() / outer;
            bytes.extend_from_slice(&x.bytes()[i * chunk..(i + 1) * chunk]);
        }
    }
    Ok(vec![Array::from_bytes(inputs[0].dtype(), shape.clone(), &bytes)?])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::Network;
    use crate::network::attr::{Attr, attrs};
    use crate::network::dtype::DType;

    #[test]
    fn extents_add_up_and_the_rest_is_guarded() {
        let mut network = Network::new("");
        let mut input = |name: &str, shape: [&str; 2]| {
            let shape = shape.map(|d| d.parse().unwrap()).to_vec();
            network.add_input(name, DType::Float32, shape).unwrap()
        };
        let (a, b) = (input("a", ["n", "h"]), input("b", ["n", "2*h"]));
        let c = input("c", ["m", "1"]);
        let inputs = [Some(a), Some(b), Some(c)];
        let axis = attrs([("axis", Attr::Int(-1))]);
        let out = network.add_layer("cat", &DEF, axis, &inputs).unwrap()[0];
        assert_eq!(network[out].ty.describe(), "float32[n, 3*h + 1]");
        assert_eq!(network.guards.len(), 1);
    }
}
