//! The best boxes that do not overlap better ones.

use super::Family;
use super::scalar::{count, scalar};
use crate::error::{Error, Result};
use crate::network::Layer;
use crate::network::attr::Read;
use crate::network::dim::Dim;
use crate::network::dtype::DType;
use crate::network::op::is_counted;
use crate::providers::tensorrt::handle::{Spec, Tensor};
use crate::providers::tensorrt::implemented;
use crate::providers::tensorrt::plan::with_counted;
use crate::providers::tensorrt::writer::Writer;

/// See [`super::FAMILIES`].
pub const FAMILY: Family = Family {
    ops: &["NonMaxSuppression"],
    write,
};

/// TensorRT looks at so many scores of an image, the best of all classes, and leaves the others out without a word.
const CANDIDATES: i64 = 5000;

fn write(w: &mut Writer, layer: &Layer) -> Result<Vec<Tensor>> {
    let [images, classes, count_of_boxes] = &w.ty(layer, 1)?.shape[..] else {
        return Err(Error::internal("scores have three dimensions"));
    };
    candidates(w, &(classes.clone() * count_of_boxes.clone()))?;
    let (mut boxes, scores) = (w.input(layer, 0)?, w.input(layer, 1)?);
    if !w.ty(layer, 0)?.shape[2].is(4) {
        // TensorRT wants to see the 4.
        boxes = w.reshape(boxes, &[images.clone(), count_of_boxes.clone(), 4i64.into()])?;
    }
    let scores = w.one(Spec::new("Shuffle").input(scores).ints("order", [0, 2, 1]))?;
    let most = match count(w, layer, 2)? {
        Some(most) => most,
        None => w.number(DType::Int32, 0.0, 0)?,
    };
    let mut threshold = |index: usize, otherwise: f32| match layer.inputs.get(index).copied().flatten() {
        Some(_) => scalar(w, layer, index),
        None => w.number(DType::Float32, f64::from(otherwise), 0),
    };
    let (overlap, least) = (threshold(3, 0.0)?, threshold(4, f32::MIN)?);
    let format = match layer.attrs.flag("center_point_box") {
        true => "CENTER_SIZES",
        false => "CORNER_PAIRS",
    };
    let spec = Spec::new("NMS").input(boxes).input(scores).input(most);
    let found = w.one(spec.input(overlap).input(least).word("format", format))?;
    let found = w.cast(found, DType::Int32, DType::Int64)?;
    implemented::check(w.session.library(), "NMS")?;
    Ok(vec![found])
}

/// Refuses more scores of an image than TensorRT looks at.
fn candidates(w: &Writer, scores: &Dim) -> Result<()> {
    // The network of a branch holds sizes of the one around, those that depend on data without a bound.
    let known = w.network.symbols.iter().filter(|(name, _)| !is_counted(name));
    let known = known.map(|(name, range)| (name.clone(), *range)).collect();
    let (_, greatest) = scores.bounds(&with_counted(&known, [scores]));
    if greatest <= CANDIDATES {
        return Ok(());
    }
    Err(Error::unsupported(format!(
        "TensorRT looks at the best {CANDIDATES} scores of an image, and there may be {greatest}"
    ))
    .hint("take the best with TopK before, or give a profile with fewer boxes"))
}
