//! The part of its input that a Slice takes.

use super::Why;
use super::scope::Scope;
use crate::network::dim::Dim;
use crate::plan::Alias;

/// For each axis the first place, if the layer names one, and the step. A negative or too great place is counted and clamped as
/// ONNX says.
pub type Places = Vec<(Option<Dim>, i64)>;

/// Where the part of a Slice lies.
///
/// # Errors
/// If that depends on data.
pub fn places(scope: &Scope) -> Result<Places, Why> {
    let starts = scope.known(1)?;
    let (axes, steps) = (scope.numbers(3)?, scope.numbers(4)?);
    let ty = scope.output_type(0);
    let mut places = vec![(None, 1); ty.rank()];
    for (i, start) in starts.into_iter().enumerate() {
        let axis = ty.axis(axes.as_ref().map_or(i as i64, |a| a[i]));
        let axis = axis.map_err(|e| Why::new(e.message()))?;
        places[axis] = (Some(start), steps.as_ref().map_or(1, |s| s[i]));
    }
    Ok(places)
}

/// How a Slice may lie in its input: where it cuts one axis, and takes neighbours.
pub fn alias(scope: &Scope, places: &Places) -> Alias {
    let whole = scope.input_type(0).map(|ty| ty.shape.as_slice()).unwrap_or_default();
    let part = &scope.output_type(0).shape;
    let mut cut = (0..part.len()).filter(|&axis| places[axis].1 != 1 || whole.get(axis) != Some(&part[axis]));
    let (Some(axis), None) = (cut.next(), cut.next()) else {
        return Alias::None;
    };
    match &places[axis] {
        (Some(start), 1) if start.as_const().is_some_and(|start| start >= 0) => Alias::Split(axis, start.clone()),
        _ => Alias::None,
    }
}
