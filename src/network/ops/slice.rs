//! Slice.

use crate::error::{Error, Result};
use crate::network::array::Array;
use crate::network::dim::Dim;
use crate::network::op::{Evaluate, Infer, Lowering, Movement, OpDef, TensorType};
use crate::network::ops::values::{self, bounds, greatest, least};
use crate::network::ops::{indexing, reduce};

/// Every `steps`-th element from `starts` (included) to `ends` (excluded) along `axes` (ONNX Slice).
pub static DEF: OpDef = OpDef {
    name: "Slice",
    doc: "Every steps-th element from starts (included) to ends (excluded) along axes; negative counts from the back, \
          what lies outside is clamped (ONNX Slice)",
    inputs: &["x", "starts", "ends", "axes?", "steps?"],
    attrs: &[],
    infer,
    evaluate,
    lowering: Lowering::COMPUTES,
    movement: Movement::Slice,
    ..OpDef::PLAIN
};

fn infer(infer: &Infer) -> Result<Vec<TensorType>> {
    let x = infer.input(0)?;
    let (starts, ends) = (infer.value(1), infer.value(2));
    let count = infer.input(1)?.shape.first().and_then(Dim::as_const).unwrap_or(0);
    if count > x.rank() as i64 {
        return Err(Error::shape("a slice names more axes than there are")
            .expected(format!("at most {}", x.rank()))
            .got(count.to_string()));
    }
    let numbers = |index: usize, default: &dyn Fn(i64) -> i64| match infer.optional(index) {
        Some(_) => infer.numbers(index),
        None => Ok((0..count).map(default).collect()),
    };
    let (Ok(axes), Ok(steps)) = (numbers(3, &|i| i), numbers(4, &|_| 1)) else {
        let shape: Vec<Dim> = (0..x.rank()).map(|axis| infer.fresh(axis)).collect();
        return Ok(vec![TensorType::new(x.dtype, shape)]);
    };
    let lengths = [
        starts.map(<[_]>::len),
        ends.map(<[_]>::len),
        Some(axes.len()),
        Some(steps.len()),
    ];
    if lengths.iter().flatten().any(|&n| n as i64 != count) {
        let counts = lengths.map(|n| n.map_or("?".into(), |n| n.to_string()));
        return Err(Error::shape("starts, ends, axes and steps differ in length").got(counts.join(", ")));
    }
    reduce::distinct(&axes, x)?;
    let mut shape = x.shape.clone();
    for (i, (&axis, &step)) in axes.iter().zip(&steps).enumerate() {
        let axis = x.axis(axis)?;
        if step == 0 {
            return Err(Error::invalid("a step is 0").expected("a positive or negative step"));
        }
        shape[axis] = match (starts, ends) {
            (Some(starts), Some(ends)) => {
                let end = until_the_end(infer, &ends[i], &shape[axis], step)?;
                let ends = [
                    counted(infer, &starts[i], &shape[axis])?,
                    counted(infer, &end, &shape[axis])?,
                ];
                extent(&starts[i], ends, &shape[axis], step)
            }
            _ => infer.fresh(axis),
        };
    }
    let outputs = vec![TensorType::new(x.dtype, shape)];
    Ok(values::moved(infer, &[0], outputs, evaluate))
}

/// A place counted from the front. A symbolic one is taken to be counted so already, unless it is surely negative.
fn counted(infer: &Infer, place: &Dim, size: &Dim) -> Result<Dim> {
    let (low, high) = bounds(place);
    if high < 0 {
        return Ok(place.clone() + size.clone());
    }
    if low < 0 {
        let zero = Dim::default();
        infer.require_equal(
            &place.greatest(&zero),
            place,
            "a symbolic place in a slice is taken to be positive",
        )?;
    }
    Ok(place.clone())
}

/// The end of an axis that no int32 counts beyond is what exporters write for all of it: a longer axis is refused, so that
/// the extent stays free of it.
fn until_the_end(infer: &Infer, end: &Dim, size: &Dim, step: i64) -> Result<Dim> {
    let most = Dim::from(i64::from(i32::MAX));
    if *end != most || step < 0 || size.as_const().is_some() {
        return Ok(end.clone());
    }
    infer.require_at_most(
        size,
        &most,
        "a slice ends at 2^31 - 1, which is taken to be the end of its axis",
    )?;
    Ok(i64::MAX.into())
}

/// The number of elements between two places.
fn extent(start: &Dim, [first, end]: [Dim; 2], size: &Dim, step: i64) -> Dim {
    let (zero, one) = (Dim::default(), Dim::from(1i64));
    let span = if step < 0 {
        let last = size.clone() - one.clone();
        let mut first = least(&first, &last);
        if start.as_const().is_some_and(|back| back < -1) {
            first = greatest(&first, &least(&zero, &last));
        }
        first - greatest(&end, &-one)
    } else {
        let end = least(&end, size);
        match start.as_const() {
            // From the back to the end: what is asked for, or all there is.
            Some(back) if back < 0 && end == *size => least(&(-back).into(), size),
            _ => end - greatest(&first, &zero),
        }
    };
    greatest(&span.ceildiv(&step.abs().into()), &zero)
}

fn evaluate(e: &Evaluate) -> Result<Vec<Array>> {
    let x = e.input(0)?;
    let ty = crate::network::constant_type(x);
    let (starts, ends) = (e.input(1)?.to_i64(), e.input(2)?.to_i64());
    let (axes, steps) = (e.optional(3).map(Array::to_i64), e.optional(4).map(Array::to_i64));
    let mut along: Vec<Vec<usize>> = x.shape().iter().map(|&size| (0..size).collect()).collect();
    for i in 0..starts.len() {
        let axis = ty.axis(axes.as_ref().map_or(i as i64, |a| a[i]))?;
        let step = steps.as_ref().map_or(1, |s| s[i]);
        let size = x.shape()[axis] as i64;
        let counted = |place: i64| if place < 0 { place.saturating_add(size) } else { place };
        let (mut at, end) = (counted(starts[i]), counted(ends[i]));
        at = if step > 0 { at.max(0) } else { at.min(size - 1).max(0) };
        let mut taken = vec![];
        while (0..size).contains(&at) && (end - at).signum() == step.signum() {
            taken.push(at as usize);
            at = at.saturating_add(step);
        }
        along[axis] = taken;
    }
    let places = indexing::grid(x.shape(), &along);
    let shape = along.iter().map(Vec::len).collect();
    Ok(vec![indexing::pick(x, shape, &places)?])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::Network;
    use crate::network::attr::Attrs;
    use crate::network::dim::Binding;
    use crate::network::dtype::DType;
    use crate::network::reference::evaluate_op;

    const LONG: i64 = i32::MAX as i64;
    const CASES: [[i64; 3]; 14] = [
        [LONG, i64::MAX, 1],
        [0, LONG, 1],
        [3, LONG, 2],
        [LONG, 0, -1],
        [-7, i64::MIN, -3],
        [-3, -9, -1],
        [0, i64::MAX, 2],
        [1, i64::MAX, 2],
        [-2, i64::MAX, 1],
        [0, -1, 1],
        [-1, i64::MIN, -1],
        [2, 5, 1],
        [i64::MAX, -3, -1],
        [-4, -2, 1],
    ];

    #[test]
    fn symbolic_extents_are_those_of_the_reference() {
        for [start, end, step] in CASES {
            let mut network = Network::new("");
            let x = network.add_input("x", DType::Int64, vec![Dim::symbol("n")]).unwrap();
            let parts = [start, end, 0, step].map(|v| Some(network.add_constant("", Array::ints(&[v]))));
            let inputs = [&[Some(x)], &parts[..]].concat();
            let out = network.add_layer("s", &DEF, Attrs::new(), &inputs).unwrap()[0];
            for n in 0..8i64 {
                let data = Array::ints(&(0..n).collect::<Vec<_>>());
                let parts = [start, end, 0, step].map(|v| Some(Array::ints(&[v])));
                let got = evaluate_op(&DEF, &Attrs::new(), &[&[Some(data)], &parts[..]].concat()).unwrap();
                let want = network[out].ty.shape[0]
                    .eval(&Binding::from([("n".into(), n)]))
                    .unwrap();
                assert_eq!(got[0].len() as i64, want, "[{start}:{end}:{step}] of {n}");
            }
        }
    }

    #[test]
    fn an_axis_may_be_longer_than_an_int32_counts() {
        let slice = |start: i64, end: i64, step: i64| {
            let mut network = Network::new("");
            let x = network.add_input("x", DType::Int8, vec![Dim::symbol("n")]).unwrap();
            let parts = [start, end, 0, step].map(|v| Some(network.add_constant("", Array::ints(&[v]))));
            let inputs = [&[Some(x)], &parts[..]].concat();
            let out = network.add_layer("s", &DEF, Attrs::new(), &inputs).unwrap()[0];
            let binding = Binding::from([("n".into(), LONG + 10)]);
            network.check_guards(&binding)?;
            network[out].ty.shape[0].eval(&binding)
        };
        assert_eq!(slice(LONG, i64::MAX, 1).unwrap(), 10);
        assert_eq!(slice(LONG - 1, LONG + 2, 1).unwrap(), 3);
        assert_eq!(slice(LONG + 4, LONG, -2).unwrap(), 2);
        let refused = slice(0, LONG, 1).unwrap_err().to_string();
        assert!(refused.contains("2^31 - 1"), "{refused}");
    }

    #[test]
    fn common_slices_have_short_extents() {
        let n = Dim::symbol("n");
        let all: Dim = i64::MAX.into();
        assert_eq!(extent(&0i64.into(), [0i64.into(), all.clone()], &n, 1), n);
        let odd = extent(&1i64.into(), [1i64.into(), all], &n, 2);
        assert_eq!(odd, n.floordiv(&2i64.into()));
    }
}
