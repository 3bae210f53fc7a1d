//! What products of 8-bit integers share: their rules, and how they are computed exactly by float32 arithmetic.

use crate::error::{Error, Result};
use crate::network::array::Array;
use crate::network::dim::Dim;
use crate::network::dtype::DType;
use crate::network::op::{Evaluate, Infer};
use crate::network::ops::quantize_linear::range;
use crate::network::ops::rewrite::Rewrite;
use crate::network::ops::{add, mul, pointwise, round, sub};
use crate::network::{Network, TensorId};

/// Up to here float32 has every integer: a sum that stays below is exact in whatever order it is taken.
const EXACT: f64 = (1u64 << 24) as f64;

/// The most terms that a sum of products may have to be computed in float32.
pub const MOST_TERMS: i64 = (1 << 24) / 256;

/// Checks the dtypes of both operands and of their zero points, which must be broadcast to them.
pub fn check(infer: &Infer) -> Result<()> {
    for index in 0..2 {
        let x = infer.input(index)?;
        if !matches!(x.dtype, DType::Int8 | DType::UInt8) {
            return Err(Error::dtype(format!("input {index} must be an 8-bit integer tensor"))
                .expected("int8 or uint8")
                .got(x.dtype.name()));
        }
        let Some(zero) = infer.optional(index + 2) else {
            continue;
        };
        if zero.dtype != x.dtype {
            return Err(Error::dtype("a zero point has another dtype than its operand")
                .expected(x.dtype.name())
                .got(zero.dtype.name()));
        }
        let lead = x.rank().checked_sub(zero.rank()).ok_or_else(|| {
            Error::shape("a zero point has more dimensions than its operand")
                .expected(format!("at most {}", x.rank()))
                .got(zero.rank().to_string())
        })?;
        for (dim, zero) in x.shape[lead..].iter().zip(&zero.shape).filter(|(_, zero)| !zero.is(1)) {
            infer.require_equal(dim, zero, "a zero point is not broadcast to its operand")?;
        }
    }
    Ok(())
}

/// An operand less its zero point, as int32.
pub fn centred(e: &Evaluate, index: usize) -> Result<Array> {
    let x = e.input(index)?;
    let mut values = x.to_i64();
    if let Some(zero) = e.optional(index + 2) {
        let places = pointwise::broadcast_places(zero.shape(), x.shape());
        let zero = zero.to_i64();
        values.iter_mut().zip(places).for_each(|(v, at)| *v -= zero[at]);
    }
    Array::from_i64(DType::Int32, x.shape().to_vec(), &values)
}

/// An operand on its way into a product.
#[derive(Clone, Copy)]
pub struct Operand {
    /// The operand less its zero point.
    pub tensor: TensorId,
    /// No element is further from zero.
    pub bound: f64,
    /// No elements that meet in one sum are, together, further from zero.
    pub reach: f64,
}

impl Operand {
    /// An operand of the layer, as this dtype; `terms` of its elements meet in one sum.
    pub fn new(network: &Network, rewrite: &mut Rewrite, index: usize, dtype: DType, terms: i64) -> Result<Self> {
        let x = rewrite.input(index)?;
        let zero = rewrite.optional(index + 2);
        let bound = bound(network, x, zero);
        let mut tensor = rewrite.cast(x, dtype)?;
        if let Some(zero) = zero {
            let zero = rewrite.cast(zero, dtype)?;
            tensor = rewrite.apply(&sub::DEF, &[tensor, zero])?;
            // Where the zero point knows more of a dimension than the operand does, that is a guard, and no new shape.
            tensor = rewrite.reshape(tensor, rewrite.ty(x).shape.clone())?;
        }
        let reach = bound * terms as f64;
        Ok(Self { tensor, bound, reach })
    }

    /// The same, given that it is the right operand of the layer, and that all elements at one place along `axis` meet:
    /// a constant is summed, which mostly gives far less than the greatest element does.
    pub fn summed(self, network: &Network, rewrite: &Rewrite, axis: usize) -> Result<Self> {
        let (w, zero) = (rewrite.input(1)?, rewrite.optional(3));
        let Some(array) = network[w].constant() else {
            return Ok(self);
        };
        let zero = match zero.map(|zero| network[zero].constant()) {
            Some(None) => return Ok(self),
            Some(Some(zero)) => zero.clone(),
            None => Array::scalar(array.dtype(), 0.0),
        };
        let places = pointwise::broadcast_places(zero.shape(), array.shape());
        let (values, zeros) = (array.to_f64(), zero.to_f64());
        let inner: usize = array.shape()[axis + 1..].iter().product();
        let mut sums = vec![0.0; array.shape()[axis]];
        let count = sums.len();
        for (at, (value, place)) in values.iter().zip(places).enumerate() {
            sums[at / inner % count] += (value - zeros[place]).abs();
        }
        let reach = sums.into_iter().fold(0.0, f64::max).min(self.reach);
        Ok(Self { reach, ..self })
    }
}

/// How far an element of a tensor less its zero point may be from zero.
fn bound(network: &Network, x: TensorId, zero: Option<TensorId>) -> f64 {
    let ends = |t: TensorId| match network[t].constant().filter(|array| !array.is_empty()) {
        Some(array) => {
            let values = array.to_f64();
            let least = values.iter().copied().fold(f64::INFINITY, f64::min);
            (least, values.into_iter().fold(f64::NEG_INFINITY, f64::max))
        }
        None => range(network[t].ty.dtype).unwrap_or((-128.0, 255.0)),
    };
    let (x, zero) = (ends(x), zero.map_or((0.0, 0.0), ends));
    (x.1 - zero.0).max(zero.1 - x.0).max(1.0)
}

/// A product of two operands, as int32. `multiply` sums `terms` products in float32.
///
/// Where such a sum could be too great to be exact, the right operand is split into two digits:
/// `a * b = a * high * base + a * low`.
pub fn product(
    rewrite: &mut Rewrite,
    [a, b]: [Operand; 2],
    terms: i64,
    multiply: &dyn Fn(&mut Rewrite, TensorId, TensorId) -> Result<TensorId>,
) -> Result<TensorId> {
    if a.bound * b.reach <= EXACT || b.bound <= 1.0 {
        let sum = multiply(rewrite, a.tensor, b.tensor)?;
        return rewrite.cast(sum, DType::Int32);
    }
    let base = b.bound.sqrt().log2().ceil().exp2();
    let high = rewrite.apply_number(&mul::DEF, b.tensor, 1.0 / base)?;
    let high = rewrite.apply(&round::DEF, &[high])?;
    let shifted = rewrite.apply_number(&mul::DEF, high, base)?;
    let low = rewrite.apply(&sub::DEF, &[b.tensor, shifted])?;
    let digit = |tensor, bound| Operand {
        tensor,
        bound,
        reach: bound * terms as f64,
    };
    let high = product(rewrite, [a, digit(high, (b.bound / base).ceil())], terms, multiply)?;
    let low = product(rewrite, [a, digit(low, base / 2.0)], terms, multiply)?;
    let high = rewrite.apply_number(&mul::DEF, high, base)?;
    rewrite.apply(&add::DEF, &[high, low])
}

/// The product of these dimensions, if it is known and not too large for [`product`].
pub fn terms(dims: &[Dim]) -> Option<i64> {
    let factors = dims.iter().map(Dim::as_const).collect::<Option<Vec<_>>>()?;
    let terms = factors.into_iter().try_fold(1i64, i64::checked_mul)?;
    (terms <= MOST_TERMS).then_some(terms)
}
