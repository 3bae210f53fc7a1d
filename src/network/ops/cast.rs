//! Cast.

use crate::error::{Error, Result};
use crate::network::array::Array;
use crate::network::attr::{Attr, AttrDef, Attrs, Preset, Read, attr, attrs};
use crate::network::dim::Dim;
use crate::network::dtype::DType;
use crate::network::narrow::{Mode, Rounding};
use crate::network::op::{Evaluate, Infer, Lowering, OpDef, TensorType, Uint64};
use crate::network::ops::values;

/// The same values as another dtype (ONNX Cast).
pub static DEF: OpDef = OpDef {
    name: "Cast",
    doc: "The same values as another dtype: floats round to nearest even, to integers they truncate (ONNX Cast)",
    inputs: &["x"],
    attrs: &[
        attr("to", Preset::RequiredType, "the dtype of the output"),
        attr(
            "saturate",
            Preset::Int(1),
            "to a float of 8 bits: what is out of range becomes the nearest end, not infinity or NaN",
        ),
        attr(
            "round_mode",
            Preset::Text("up"),
            "to float8_e8m0fnu: up, down or nearest, from between two powers of two",
        ),
        ELIDABLE,
    ],
    infer,
    evaluate,
    lowering: Lowering::WIDE.exact(&[0]),
    uint64: Uint64::Exact,
    narrow: true,
    ..OpDef::PLAIN
};

/// The mark of a Cast that a pass placed. The casts of the model itself round what they are given, always; between these and
/// the layers beside them a kernel may go on in wider numbers.
const ELIDABLE: AttrDef = attr(
    "elidable",
    Preset::Mark,
    "placed by a pass: within a kernel the numbers may stay as wide as they are",
);

/// The attributes of a Cast to a dtype whose rounding may be left out within a kernel.
pub fn elidable(to: DType) -> Attrs {
    attrs([("to", Attr::Type(to)), (ELIDABLE.name, Attr::Int(1))])
}

/// Whether a Cast must round to the floats of 16 bits that it takes or gives, even where a kernel computes in wider ones.
pub fn rounds(cast: &Attrs) -> bool {
    !cast.is_marked(ELIDABLE.name)
}

/// Without the mark of [`elidable`].
pub fn rounding_always(mut cast: Attrs) -> Attrs {
    cast.remove(ELIDABLE.name);
    cast
}

/// How numbers are rounded by a layer with `saturate` and, perhaps, `round_mode`.
///
/// # Errors
/// If the mode is none.
pub fn rounding(attrs: &Attrs) -> Result<Rounding> {
    let mode = match attrs.get("round_mode") {
        None => Mode::Up,
        Some(_) => match attrs.text("round_mode") {
            "up" => Mode::Up,
            "down" => Mode::Down,
            "nearest" => Mode::Nearest,
            other => {
                return Err(Error::invalid("attribute \"round_mode\" is unknown")
                    .expected("up, down or nearest")
                    .got(other));
            }
        },
    };
    let saturate = attrs.flag("saturate");
    Ok(Rounding { saturate, mode })
}

fn infer(infer: &Infer) -> Result<Vec<TensorType>> {
    rounding(infer.attrs)?;
    let (x, to) = (infer.input(0)?, infer.attrs.dtype("to"));
    // Symbolic dimensions fit 32 bits; numbers may not.
    let fits = |d: &Dim| to != DType::Int32 || d.as_const().is_none_or(|v| i32::try_from(v).is_ok());
    let keeps = values::carried(x.dtype) && values::carried(to) && (to != DType::Bool || x.dtype == to);
    Ok(vec![TensorType {
        dtype: to,
        shape: x.shape.clone(),
        value: x.value.clone().filter(|value| keeps && value.iter().all(fits)),
    }])
}

fn evaluate(e: &Evaluate) -> Result<Vec<Array>> {
    Ok(vec![e.input(0)?.cast_by(e.attrs.dtype("to"), rounding(e.attrs)?)])
}
