//! Parts of tensors, and tensors that are broadcast: what a slice with steps of 0 gives.

use super::Family;
use crate::error::{Error, Result};
use crate::network::Layer;
use crate::network::attr::Read;
use crate::network::dim::Dim;
use crate::network::ops::values;
use crate::providers::tensorrt::handle::{Spec, Tensor};
use crate::providers::tensorrt::writer::{Extents, Writer};

/// See [`super::FAMILIES`].
pub const FAMILY: Family = Family {
    ops: &["Slice", "Split", "Expand"],
    write,
};

fn write(w: &mut Writer, layer: &Layer) -> Result<Vec<Tensor>> {
    match layer.op.name {
        "Slice" => Ok(vec![part(w, layer)?]),
        "Split" => split(w, layer),
        _ => Ok(vec![expand(w, layer)?]),
    }
}

/// A slice of TensorRT: where it starts, its size, its steps.
pub fn slice(
    w: &mut Writer,
    x: Tensor,
    start: &[Dim],
    size: &[Dim],
    steps: &[i64],
    mode: &str,
    fill: Option<Tensor>,
) -> Result<Tensor> {
    let (start, size) = (w.extents(start, false)?, w.extents(size, false)?);
    let given = |extents: &Extents| match extents {
        Extents::Known(known) => (known.clone(), None),
        // What comes with a call takes the place of these.
        Extents::Computed(computed) => (vec![1; steps.len()], Some(*computed)),
    };
    let ((start, at), (size, extents)) = (given(&start), given(&size));
    let spec = Spec::new("Slice")
        .input(x)
        .optional(at)
        .optional(extents)
        .optional(None)
        .optional(fill);
    w.one(
        spec.ints("start", start)
            .ints("size", size)
            .ints("stride", steps)
            .word("mode", mode),
    )
}

fn part(w: &mut Writer, layer: &Layer) -> Result<Tensor> {
    let (ty, y) = (w.ty(layer, 0)?, &w.network[layer.outputs[0]].ty);
    let x = w.input(layer, 0)?;
    let later = |what: &str| Error::unsupported(format!("{what} of the slice come with a call"));
    let numbers = |w: &Writer, index: usize, what: &str| -> Result<Option<Vec<i64>>> {
        match layer.inputs.get(index).copied().flatten() {
            None => Ok(None),
            Some(_) => {
                let values = w.value(layer, index).ok_or_else(|| later(what))?;
                let numbers = values.iter().map(Dim::as_const).collect::<Option<Vec<_>>>();
                numbers.map(Some).ok_or_else(|| later(what))
            }
        }
    };
    let starts = w.value(layer, 1).ok_or_else(|| later("starts"))?;
    let axes = numbers(w, 3, "axes")?.unwrap_or_else(|| (0..starts.len() as i64).collect());
    let given = numbers(w, 4, "steps")?.unwrap_or_else(|| vec![1; starts.len()]);
    let (mut first, mut steps) = (vec![Dim::from(0i64); ty.rank()], vec![1; ty.rank()]);
    for ((from, axis), step) in starts.iter().zip(axes).zip(given) {
        let axis = ty.axis(axis)?;
        steps[axis] = step;
        first[axis] = begin(from, &ty.shape[axis], step);
    }
    slice(w, x, &first, &y.shape, &steps, "STRICT_BOUNDS", None)
}

/// Where a slice begins: negative counts from the back, what lies outside is clamped.
fn begin(from: &Dim, extent: &Dim, step: i64) -> Dim {
    let counted = match values::bounds(from) {
        (_, high) if high < 0 => from.clone() + extent.clone(),
        _ => from.clone(),
    };
    let last = if step > 0 {
        extent.clone()
    } else {
        extent.clone() - 1i64.into()
    };
    values::greatest(&values::least(&counted, &last), &Dim::from(0i64))
}

fn split(w: &mut Writer, layer: &Layer) -> Result<Vec<Tensor>> {
    let ty = w.ty(layer, 0)?;
    let axis = ty.axis(layer.attrs.int("axis"))?;
    let x = w.input(layer, 0)?;
    let mut start = vec![Dim::from(0i64); ty.rank()];
    let mut parts = vec![];
    for &output in &layer.outputs {
        let shape = &w.network[output].ty.shape;
        parts.push(slice(w, x, &start, shape, &vec![1; ty.rank()], "STRICT_BOUNDS", None)?);
        start[axis] = start[axis].clone() + shape[axis].clone();
    }
    Ok(parts)
}

fn expand(w: &mut Writer, layer: &Layer) -> Result<Tensor> {
    let (ty, y) = (w.ty(layer, 0)?, &w.network[layer.outputs[0]].ty);
    let x = w.raised(layer, 0, y.rank())?;
    let front = y.rank() - ty.rank();
    let repeated = |axis: usize| axis < front || (ty.shape[axis - front].is(1) && !y.shape[axis].is(1));
    let steps: Vec<i64> = (0..y.rank()).map(|axis| i64::from(!repeated(axis))).collect();
    slice(
        w,
        x,
        &vec![Dim::from(0i64); y.rank()],
        &y.shape,
        &steps,
        "STRICT_BOUNDS",
        None,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_begin_where_numpys_do() {
        let dim = |text: &str| text.parse::<Dim>().unwrap();
        for (from, step, want) in [
            ("2", 1, "min(2, n)"),
            ("0", 1, "0"),
            ("-1", -1, "max(n - 1, 0)"),
            ("9", -1, "max(min(9, n - 1), 0)"),
        ] {
            assert_eq!(begin(&dim(from), &dim("n"), step), dim(want), "{from} by {step}");
        }
        for (from, step, want) in [(7i64, 1, 5i64), (-9, 1, 0), (-2, 1, 3), (7, -1, 4)] {
            assert_eq!(
                begin(&Dim::from(from), &Dim::from(5i64), step),
                Dim::from(want),
                "{from} by {step}"
            );
        }
    }
}
