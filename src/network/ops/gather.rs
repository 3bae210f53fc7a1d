//! Gather.

use crate::error::{Error, Result};
use crate::network::array::Array;
use crate::network::attr::{Preset, Read, attr};
use crate::network::op::{Evaluate, Infer, Lowering, Movement, OpDef, TensorType};
use crate::network::ops::{indexing, values};

/// The entries of an axis that integers name (ONNX Gather).
pub static DEF: OpDef = OpDef {
    name: "Gather",
    doc: "The entries of an axis that integers name: the axis is replaced by the shape of the indices; negative ones \
          count from the back (ONNX Gather)",
    inputs: &["x", "indices"],
    attrs: &[attr("axis", Preset::Int(0), "the axis from which to gather")],
    infer,
    evaluate,
    lowering: Lowering::COMPUTES,
    movement: Movement::Pick,
    // It brings the zero points of blocks to their elements.
    narrow: true,
    ..OpDef::PLAIN
};

fn infer(infer: &Infer) -> Result<Vec<TensorType>> {
    let x = infer.input(0)?;
    let indices = index_tensor(infer, 1)?;
    let axis = x.axis(infer.attrs.int("axis"))?;
    let shape = [&x.shape[..axis], &indices.shape, &x.shape[axis + 1..]].concat();
    if let (Some(size), Ok(numbers)) = (x.shape[axis].as_const(), infer.numbers(1)) {
        numbers
            .iter()
            .try_for_each(|&i| indexing::index(i, size as usize).map(drop))?;
    }
    let outputs = vec![TensorType::new(x.dtype, shape)];
    Ok(values::moved(infer, &[0], outputs, evaluate))
}

/// An input that holds indices.
pub(super) fn index_tensor<'a>(infer: &'a Infer, index: usize) -> Result<&'a TensorType> {
    let indices = infer.input(index)?;
    if indices.dtype.is_int() {
        return Ok(indices);
    }
    Err(Error::dtype("indices must be integers")
        .expected("int64 or int32")
        .got(indices.dtype.name()))
}

fn evaluate(e: &Evaluate) -> Result<Vec<Array>> {
    let (x, indices) = (e.input(0)?, e.input(1)?);
    let axis = crate::network::constant_type(x).axis(e.attrs.int("axis"))?;
    let size = x.shape()[axis];
    let counted = indices.to_i64().into_iter().map(|i| indexing::index(i, size));
    let places = indexing::along_axis(x.shape(), axis, counted.collect::<Result<_>>()?);
    Ok(vec![indexing::pick(x, e.outputs[0].1.clone(), &places)?])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::Network;
    use crate::network::attr::{Attr, Attrs, attrs};
    use crate::network::dtype::DType;
    use crate::network::ops::{concat, mul, shape};

    #[test]
    fn shape_arithmetic_stays_symbolic() {
        let mut network = Network::new("");
        let dims = ["n", "3", "h"].map(|d| d.parse().unwrap()).to_vec();
        let x = network.add_input("x", DType::Float32, dims).unwrap();
        let last = network.add_constant("", Array::ints(&[-1, 0]));
        let mut layer = |op, attrs: Attrs, inputs: &[_]| {
            let inputs: Vec<_> = inputs.iter().map(|&t| Some(t)).collect();
            network.add_layer("", op, attrs, &inputs).unwrap()[0]
        };
        let s = layer(&shape::DEF, Attrs::new(), &[x]);
        let g = layer(&DEF, Attrs::new(), &[s, last]);
        let square = layer(&mul::DEF, Attrs::new(), &[g, g]);
        let all = layer(&concat::DEF, attrs([("axis", Attr::Int(0))]), &[square, s]);
        let value = network[all].ty.value.clone().unwrap();
        let printed: Vec<_> = value.iter().map(|d| d.to_string()).collect();
        assert_eq!(printed, ["h*h", "n*n", "n", "3", "h"]);
    }
}
