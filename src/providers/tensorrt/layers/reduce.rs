//! Reductions, and where the greatest elements are.

use super::Family;
use crate::error::{Error, Result};
use crate::network::Layer;
use crate::network::attr::Read;
use crate::network::dim::Dim;
use crate::network::dtype::DType;
use crate::network::ops::reduce;
use crate::providers::tensorrt::handle::{Spec, Tensor};
use crate::providers::tensorrt::writer::Writer;

/// See [`super::FAMILIES`].
pub const FAMILY: Family = Family {
    ops: &[
        "ReduceSum",
        "ReduceProd",
        "ReduceMax",
        "ReduceMin",
        "ReduceMean",
        "ReduceL1",
        "ReduceL2",
        "ReduceSumSquare",
        "ReduceLogSum",
        "ReduceLogSumExp",
    ],
    write,
};
/// See [`super::FAMILIES`].
pub const INDEX: Family = Family {
    ops: &["TopK", "ArgMax", "ArgMin"],
    write: find,
};

/// TensorRT looks for so many elements at once.
const MOST: i64 = 3840;

fn write(w: &mut Writer, layer: &Layer) -> Result<Vec<Tensor>> {
    let ty = w.ty(layer, 0)?;
    let axes = reduce::axes(&layer.attrs, ty)?;
    let keep = layer.attrs.flag("keepdims");
    let x = w.input(layer, 0)?;
    if axes.is_empty() {
        return Err(Error::unsupported("TensorRT reduces along one axis at least"));
    }
    let y = match layer.op.name {
        "ReduceSum" => w.reduce("SUM", x, &axes, keep)?,
        "ReduceProd" => w.reduce("PROD", x, &axes, keep)?,
        "ReduceMax" => w.reduce("MAX", x, &axes, keep)?,
        "ReduceMin" => w.reduce("MIN", x, &axes, keep)?,
        "ReduceMean" => w.reduce("AVG", x, &axes, keep)?,
        "ReduceL1" => {
            let x = w.unary("ABS", x)?;
            w.reduce("SUM", x, &axes, keep)?
        }
        "ReduceL2" | "ReduceSumSquare" => {
            let squares = w.elementwise("PROD", x, x)?;
            let sum = w.reduce("SUM", squares, &axes, keep)?;
            match layer.op.name {
                "ReduceL2" => w.unary("SQRT", sum)?,
                _ => sum,
            }
        }
        "ReduceLogSum" => {
            let sum = w.reduce("SUM", x, &axes, keep)?;
            w.unary("LOG", sum)?
        }
        _ => log_sum_exp(w, x, &axes, keep)?,
    };
    Ok(vec![y])
}

/// The greatest element goes out of the sum, which could overflow.
fn log_sum_exp(w: &mut Writer, x: Tensor, axes: &[usize], keep: bool) -> Result<Tensor> {
    let greatest = w.reduce("MAX", x, axes, true)?;
    let below = w.elementwise("SUB", x, greatest)?;
    let powers = w.unary("EXP", below)?;
    let sum = w.reduce("SUM", powers, axes, keep)?;
    let sum = w.unary("LOG", sum)?;
    let greatest = if keep {
        greatest
    } else {
        w.reduce("MAX", x, axes, false)?
    };
    w.elementwise("SUM", sum, greatest)
}

fn find(w: &mut Writer, layer: &Layer) -> Result<Vec<Tensor>> {
    let (ty, attrs) = (w.ty(layer, 0)?, &layer.attrs);
    let axis = ty.axis(attrs.int("axis"))?;
    let x = w.input(layer, 0)?;
    let top = |w: &mut Writer, greatest: bool, k: i64| {
        let spec = Spec::new("TopK")
            .input(x)
            .word("operation", if greatest { "MAX" } else { "MIN" });
        w.add(spec.int("k", k).int("axes", axis as i64))
    };
    if layer.op.name == "TopK" {
        let k = w.value(layer, 1).and_then(|k| k.first()).and_then(Dim::as_const);
        let k = k.ok_or_else(|| Error::unsupported("the number of elements comes with a call"))?;
        if k > MOST {
            return Err(Error::unsupported(format!("TensorRT finds at most {MOST} elements")));
        }
        let found = top(w, attrs.flag("largest"), k)?;
        return Ok(vec![found[0], w.cast(found[1], DType::Int32, DType::Int64)?]);
    }
    if attrs.flag("select_last_index") {
        return Err(Error::unsupported("TensorRT finds the first of equal elements"));
    }
    let found = top(w, layer.op.name == "ArgMax", 1)?;
    let index = w.cast(found[1], DType::Int32, DType::Int64)?;
    Ok(vec![match attrs.flag("keepdims") {
        true => index,
        false => w.reshape(index, &w.network[layer.outputs[0]].ty.shape)?,
    }])
}
