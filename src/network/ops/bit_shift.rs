//! BitShift.

use crate::error::{Error, Result};
use crate::network::attr::{Attrs, Preset, Read, attr};
use crate::network::op::{Decomposition, Infer, OpDef, Pointwise, TensorType};
use crate::network::ops::pointwise;

/// The bits of an unsigned integer moved by as many places as another says, with broadcasting (ONNX BitShift).
pub static DEF: OpDef = OpDef {
    name: "BitShift",
    doc: "The bits of an unsigned integer moved by as many places as another says, with broadcasting (ONNX BitShift)",
    inputs: &["a", "b"],
    attrs: &[attr("direction", Preset::Text("LEFT"), "LEFT or RIGHT")],
    infer,
    evaluate,
    pointwise: Some(Pointwise {
        float: |a, v| shift(a, v[0] as i64, v[1] as i64) as f64,
        int: Some(|a, v| shift(a, v[0], v[1])),
    }),
    decomposition: Decomposition::None,
};
pointwise::pointwise_evaluate!();

fn shift(attrs: &Attrs, bits: i64, places: i64) -> i64 {
    let places = u32::try_from(places).unwrap_or(u32::MAX);
    let moved = match attrs.text("direction") {
        "LEFT" => (bits as u64).checked_shl(places),
        _ => (bits as u64).checked_shr(places),
    };
    moved.unwrap_or(0) as i64
}

fn infer(infer: &Infer) -> Result<Vec<TensorType>> {
    match infer.attrs.text("direction") {
        "LEFT" | "RIGHT" => pointwise::infer_unsigned(infer),
        other => Err(Error::invalid("attribute \"direction\" is unknown")
            .expected("LEFT or RIGHT")
            .got(other)),
    }
}
