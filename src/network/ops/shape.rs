//! Shape.

use crate::error::Result;
use crate::network::array::Array;
use crate::network::attr::{Preset, Read, attr};
use crate::network::dtype::DType;
use crate::network::op::{Decomposition, Evaluate, Infer, Lowering, OpDef, TensorType, Uint64};
use crate::network::ops::rewrite::Rewrite;
use crate::network::patch::Patch;
use crate::network::{LayerId, Network};

/// The extents of the input's dimensions, as an int64 vector (ONNX Shape).
pub static DEF: OpDef = OpDef {
    name: "Shape",
    doc: "The extents of the dimensions from start (included) to end (excluded), as an int64 vector (ONNX Shape)",
    inputs: &["x"],
    attrs: &[
        attr("start", Preset::Int(0), "the first axis; negative counts from the back"),
        attr(
            "end",
            Preset::Int(i64::MAX),
            "the axis after the last; negative counts from the back",
        ),
    ],
    infer,
    evaluate,
    lowering: Lowering::WIDE,
    uint64: Uint64::Exact,
    narrow: true,
    decomposition: Decomposition::Always(decompose),
    ..OpDef::PLAIN
};

fn infer(infer: &Infer) -> Result<Vec<TensorType>> {
    let x = infer.input(0)?;
    let rank = x.rank() as i64;
    let place = |name: &str| {
        let axis = infer.attrs.int(name);
        (if axis < 0 { axis + rank } else { axis }).clamp(0, rank) as usize
    };
    let (start, end) = (place("start"), place("end"));
    let value = x.shape[start..end.max(start)].to_vec();
    Ok(vec![TensorType {
        dtype: DType::Int64,
        shape: vec![value.len().into()],
        value: Some(value),
    }])
}

fn evaluate(e: &Evaluate) -> Result<Vec<Array>> {
    let x = crate::network::constant_type(e.input(0)?);
    let shape = x.concrete().unwrap_or_default();
    let start = e.attrs.int("start");
    let rank = shape.len() as i64;
    let start = (if start < 0 { start + rank } else { start }).clamp(0, rank) as usize;
    let extents = shape[start..].iter().map(|&d| d as i64);
    Ok(vec![Array::ints(&extents.take(e.outputs[0].1[0]).collect::<Vec<_>>())])
}

/// What the shapes determine is nothing to compute.
pub(super) fn decompose(network: &Network, id: LayerId) -> Result<Patch<'_>> {
    let mut rewrite = Rewrite::of(network, id);
    let result = rewrite.known_output()?;
    rewrite.finish(result)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::attr::{Attr, attrs};

    #[test]
    fn the_shape_is_its_own_value() {
        let mut network = Network::new("");
        let shape = ["n", "3", "2*h"].map(|d| d.parse().unwrap()).to_vec();
        let x = network.add_input("x", DType::Float32, shape).unwrap();
        let attrs = attrs([("start", Attr::Int(-3)), ("end", Attr::Int(-1))]);
        let out = network.add_layer("s", &DEF, attrs, &[Some(x)]).unwrap()[0];
        let value = network[out].ty.value.clone().unwrap();
        assert_eq!(value.iter().map(|d| d.to_string()).collect::<Vec<_>>(), ["n", "3"]);
    }
}
