//! What rules share that carry the symbolic elements of small integer tensors.

use crate::error::{Error, Result};
use crate::network::LONGEST_VALUE;
use crate::network::array::Array;
use crate::network::dim::{Dim, Symbols};
use crate::network::dtype::DType;
use crate::network::op::{Evaluate, HIGHEST_RANK, Infer, TensorType};

/// Whether tensors of a dtype carry values through ops: the narrow and unsigned ones wrap, which dims do not.
pub fn carried(dtype: DType) -> bool {
    matches!(dtype, DType::Int32 | DType::Int64 | DType::Bool)
}

/// The least and greatest value that holds whatever ranges the symbols are given: dims are never negative.
///
/// Shape rules decide by these and not by the ranges of a network, so that a shape stays what it is when ranges change.
pub fn bounds(dim: &Dim) -> (i64, i64) {
    dim.bounds(&Symbols::new())
}

/// The lesser of two, simpler than [`Dim::least`] where the bounds decide.
pub fn least(a: &Dim, b: &Dim) -> Dim {
    match bounds(&(a.clone() - b.clone())) {
        (_, high) if high <= 0 => a.clone(),
        (low, _) if low >= 0 => b.clone(),
        _ => a.least(b),
    }
}

/// The greater of two, simpler than [`Dim::greatest`] where the bounds decide.
pub fn greatest(a: &Dim, b: &Dim) -> Dim {
    match bounds(&(a.clone() - b.clone())) {
        (_, high) if high <= 0 => b.clone(),
        (low, _) if low >= 0 => a.clone(),
        _ => a.greatest(b),
    }
}

/// `a / b` truncated towards zero, where `b` is known to be positive or both are numbers.
pub fn divided(a: &Dim, b: &Dim) -> Option<Dim> {
    if let (Some(a), Some(b)) = (a.as_const(), b.as_const()) {
        return a.checked_div(b).map(Dim::from);
    }
    if bounds(b).0 <= 0 && b.as_symbol().is_none() {
        return None;
    }
    Some(match bounds(a) {
        (low, _) if low >= 0 => a.floordiv(b),
        (_, high) if high <= 0 => -(-a.clone()).floordiv(b),
        _ => {
            let zero = Dim::default();
            a.greatest(&zero).floordiv(b) - (-a.clone()).greatest(&zero).floordiv(b)
        }
    })
}

/// The least value of an integer dtype.
pub fn lowest(dtype: DType) -> i64 {
    match dtype {
        DType::Int8 | DType::Int16 | DType::Int32 | DType::Int64 => i64::MIN >> (64 - 8 * dtype.size()),
        _ => 0,
    }
}

/// The greatest value of an integer dtype (as its bits, for uint64).
pub fn highest(dtype: DType) -> i64 {
    match dtype {
        DType::Bool => 1,
        _ => !lowest(dtype) & (u64::MAX >> (64 - 8 * dtype.size())) as i64,
    }
}

/// The elements of an integer input that gives a shape; where they depend on data, fresh dimensions.
///
/// # Errors
/// If not even the number of elements is known.
pub fn target(infer: &Infer, index: usize) -> Result<Vec<Dim>> {
    if let Some(value) = infer.value(index) {
        return Ok(value.to_vec());
    }
    let ty = infer.input(index)?;
    let count = match ty.shape.as_slice() {
        [count] => count.as_const(),
        _ => None,
    };
    let count = count.ok_or_else(|| {
        Error::unsupported("the rank of the output depends on data")
            .expected("a vector of integers of fixed length")
            .got(ty.describe())
    })?;
    if count > HIGHEST_RANK as i64 {
        return Err(Error::unsupported("the output would have too many dimensions")
            .expected(format!("at most {HIGHEST_RANK}"))
            .got(count.to_string()));
    }
    Ok((0..count as usize).map(|i| infer.fresh(i)).collect())
}

/// Adds the values of outputs whose elements are elements of the inputs `data`, only moved: the reference moves
/// their numbers. An element that comes from nowhere is zero.
pub fn moved(
    infer: &Infer,
    data: &[usize],
    mut outputs: Vec<TensorType>,
    evaluate: fn(&Evaluate) -> Result<Vec<Array>>,
) -> Vec<TensorType> {
    let values = move_values(infer, data, &outputs, evaluate).into_iter().flatten();
    for (output, value) in outputs.iter_mut().zip(values) {
        output.value = Some(value);
    }
    outputs
}

fn move_values(
    infer: &Infer,
    data: &[usize],
    outputs: &[TensorType],
    evaluate: fn(&Evaluate) -> Result<Vec<Array>>,
) -> Option<Vec<Vec<Dim>>> {
    let mut table = vec![Dim::default()];
    let mut inputs = vec![];
    for (i, ty) in infer.inputs.iter().enumerate() {
        let Some(ty) = ty else {
            inputs.push(None);
            continue;
        };
        inputs.push(Some(if data.contains(&i) {
            let value = ty.value.as_ref().filter(|_| carried(ty.dtype))?;
            let numbers: Vec<_> = (table.len()..table.len() + value.len()).map(|n| n as i64).collect();
            table.extend(value.iter().cloned());
            Array::from_i64(DType::Int64, ty.concrete()?, &numbers).ok()?
        } else if let Some(constant) = infer.constant(i) {
            constant.clone()
        } else {
            Array::from_i64(ty.dtype, ty.concrete()?, &infer.numbers(i).ok()?).ok()?
        }));
    }
    let types = outputs.iter().map(|ty| Some((DType::Int64, ty.concrete()?)));
    let types = types.collect::<Option<Vec<_>>>()?;
    if types.iter().any(|(_, s)| s.iter().product::<usize>() > LONGEST_VALUE) {
        return None;
    }
    let arrays = evaluate(&Evaluate {
        attrs: infer.attrs,
        inputs: &inputs,
        outputs: &types,
        runner: None,
    });
    let dims = |a: &Array| a.to_i64().iter().map(|&n| table[n as usize].clone()).collect();
    Some(arrays.ok()?.iter().map(dims).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn division_truncates_for_either_sign() {
        let n = Dim::symbol("n");
        assert_eq!(divided(&n, &2i64.into()), Some(n.floordiv(&2i64.into())));
        assert_eq!(divided(&(-7i64).into(), &2i64.into()), Some((-3i64).into()));
        let mixed = divided(&(n - 3i64.into()), &2i64.into()).unwrap();
        for (value, want) in [(0, -1), (2, 0), (8, 2)] {
            assert_eq!(mixed.eval(&[("n".into(), value)].into()).unwrap(), want);
        }
    }

    #[test]
    fn bounds_decide_where_they_can() {
        let n = Dim::symbol("n");
        assert_eq!(least(&n, &i64::MAX.into()), n);
        assert_eq!(greatest(&n, &0i64.into()), n);
        assert_eq!(least(&n, &4i64.into()).to_string(), n.least(&4i64.into()).to_string());
    }
}
