//! Runs one instruction on a tile.

use super::program::{Binary, IntBinary, Op, Unary};
use crate::network::attr::Attrs;
use crate::network::dtype::DType;
use crate::network::op::Pointwise;
use crate::providers::cpu::simd::{Vector, convert, map1, map2, map3, math, multiversion};
use std::cmp::Ordering;

/// Runs an instruction on `n` elements; `out` may be one of `args`.
///
/// # Safety
/// Arguments and result must hold `n` elements of the classes that the op has.
pub unsafe fn execute(op: &Op, n: usize, args: &[*const u8], out: *mut u8) {
    let float = |i: usize| args[i].cast::<f32>();
    let int = |i: usize| args[i].cast::<i64>();
    // SAFETY: the caller's promise.
    unsafe {
        match op {
            Op::Unary(u @ (Unary::Sin | Unary::Cos)) => trigonometric(*u, n, float(0), out.cast()),
            Op::Unary(u) => unary(*u, n, float(0), out.cast()),
            Op::Binary(b) => binary(*b, n, float(0), float(1), out.cast()),
            Op::Quantize(low, high) => quantize(n, float(0), float(1), float(2), [*low, *high], out.cast()),
            Op::Select => select(n, float(0), float(1), float(2), out.cast()),
            Op::SelectInt => each(n, out, |i| {
                if *float(0).add(i) != 0.0 {
                    *int(1).add(i)
                } else {
                    *int(2).add(i)
                }
            }),
            Op::IntBinary(b, dtype) => int_binary(*b, *dtype, n, int(0), int(1), out.cast()),
            Op::IntCompare(b) => {
                let compare: fn(i64, i64) -> bool = match b {
                    Binary::Less => |a, b| a < b,
                    Binary::LessOrEqual => |a, b| a <= b,
                    _ => |a, b| a == b,
                };
                each(n, out, |i| compare(*int(0).add(i), *int(1).add(i)) as u8 as f32);
            }
            Op::ToInt(dtype) => each(n, out, |i| wrap(*dtype, *float(0).add(i) as i64)),
            Op::ToUnsigned => convert::from_f32(DType::UInt64, float(0), out, n),
            Op::ToFloat => each(n, out, |i| *int(0).add(i) as f32),
            Op::UnsignedToFloat => each(n, out, |i| *int(0).add(i) as u64 as f32),
            Op::ToOdd => each(n, out, |i| odd((*int(0).add(i)).into())),
            Op::UnsignedToOdd => each(n, out, |i| odd((*int(0).add(i) as u64).into())),
            Op::Narrow(dtype, rounding) => convert::round_to(*dtype, *rounding, n, float(0), out.cast()),
            Op::Wrap(dtype) => each(n, out, |i| wrap(*dtype, *int(0).add(i))),
            Op::IntTruth => each(n, out, |i| (*int(0).add(i) != 0) as u8 as f32),
            Op::Float(rule, attrs) => by_rule(rule, attrs, n, args, out.cast()),
            Op::Int(rule, attrs, dtype) => {
                let value = |i: usize| {
                    let mut values = [i64::MIN; 3];
                    (0..args.len()).for_each(|k| values[k] = *int(k).add(i));
                    rule(attrs, &values[..args.len()])
                };
                match dtype {
                    DType::Bool => each(n, out, |i| (value(i) != 0) as u8 as f32),
                    _ => each(n, out, |i| wrap(*dtype, value(i))),
                }
            }
        }
    }
}

/// An integer as f32; where that is not exact, cut towards 0 with the last bit set.
#[inline]
fn odd(v: i128) -> f32 {
    let nearest = v as f32;
    let away = (nearest as i128).unsigned_abs();
    match away.cmp(&v.unsigned_abs()) {
        Ordering::Equal => nearest,
        Ordering::Greater => f32::from_bits((nearest.to_bits() - 1) | 1),
        Ordering::Less => f32::from_bits(nearest.to_bits() | 1),
    }
}

/// A value as a C cast to the dtype gives it.
#[inline]
fn wrap(dtype: DType, v: i64) -> i64 {
    match dtype {
        DType::Int8 => v as i8 as i64,
        DType::UInt8 => v as u8 as i64,
        DType::Int16 => v as i16 as i64,
        DType::UInt16 => v as u16 as i64,
        DType::Int32 => v as i32 as i64,
        DType::UInt32 => v as u32 as i64,
        _ => match dtype.narrow() {
            Some(narrow) => narrow.cut(v),
            None => v,
        },
    }
}

unsafe fn each<T>(n: usize, out: *mut u8, f: impl Fn(usize) -> T) {
    let out = out.cast::<T>();
    // SAFETY: the callers hand on the promise of `execute`.
    (0..n).for_each(|i| unsafe { out.add(i).write(f(i)) });
}

unsafe fn by_rule(rule: &Pointwise, attrs: &Attrs, n: usize, args: &[*const u8], out: *mut f32) {
    for i in 0..n {
        let mut values = [f64::NAN; 3];
        // SAFETY: the callers hand on the promise of `execute`.
        unsafe {
            (0..args.len()).for_each(|k| values[k] = *args[k].cast::<f32>().add(i) as f64);
            out.add(i).write((rule.float)(attrs, &values[..args.len()]) as f32);
        }
    }
}

/// Sine or cosine, in double precision where a tile has arguments beyond what the vectors reduce exactly.
unsafe fn trigonometric(op: Unary, n: usize, a: *const f32, out: *mut f32) {
    // SAFETY: the callers hand on the promise of `execute`.
    unsafe {
        let large = |v: f32| v.abs() > math::TRIG_LIMIT || v.is_nan();
        if !std::slice::from_raw_parts(a, n).iter().any(|&v| large(v)) {
            return unary(op, n, a, out);
        }
        let function = if op == Unary::Sin { f64::sin } else { f64::cos };
        each(n, out.cast(), |i| function(*a.add(i) as f64) as f32);
    }
}

multiversion! {
    unsafe fn unary<V>(op: Unary, n: usize, a: *const f32, out: *mut f32) {
        let s = V::splat;
        match op {
            Unary::Copy => map1!(V, n, a, out, |x| x),
            Unary::Neg => map1!(V, n, a, out, |x| s(-0.0) - x),
            Unary::Abs => map1!(V, n, a, out, |x| V::abs(x)),
            Unary::Sqrt => map1!(V, n, a, out, |x| V::sqrt(x)),
            Unary::PowHalf => map1!(V, n, a, out, |x| power_of_half(x)),
            Unary::PowMinusHalf => map1!(V, n, a, out, |x| s(1.0) / power_of_half(x)),
            Unary::Reciprocal => map1!(V, n, a, out, |x| s(1.0) / x),
            Unary::Square => map1!(V, n, a, out, |x| x * x),
            Unary::Exp => map1!(V, n, a, out, |x| math::exp(x)),
            Unary::Log => map1!(V, n, a, out, |x| math::log(x)),
            Unary::Sin => map1!(V, n, a, out, |x| math::sin(x)),
            Unary::Cos => map1!(V, n, a, out, |x| math::cos(x)),
            Unary::Tanh => map1!(V, n, a, out, |x| math::tanh(x)),
            Unary::Sigmoid => map1!(V, n, a, out, |x| math::sigmoid(x)),
            Unary::Erf => map1!(V, n, a, out, |x| math::erf(x)),
            Unary::Relu => map1!(V, n, a, out, |x| s(0.0).max(x)),
            Unary::Silu => map1!(V, n, a, out, |x| math::silu(x)),
            Unary::HardSwish => map1!(V, n, a, out, |x| {
                x * math::hard_sigmoid(x, s(1.0 / 6.0), s(0.5))
            }),
            Unary::HardSigmoid(alpha, beta) => map1!(V, n, a, out, |x| {
                math::hard_sigmoid(x, s(alpha), s(beta))
            }),
            Unary::LeakyRelu(alpha) => map1!(V, n, a, out, |x| V::select(x.lt(s(0.0)), x * s(alpha), x)),
            Unary::Elu { alpha, gamma, inner } => map1!(V, n, a, out, |x| {
                let low = math::expm1(x * s(inner)) * s(alpha);
                V::select(x.lt(s(0.0)), low, x) * s(gamma)
            }),
            Unary::Gelu => map1!(V, n, a, out, |x| math::gelu(x)),
            Unary::GeluTanh => map1!(V, n, a, out, |x| math::gelu_tanh(x)),
            Unary::Mish => map1!(V, n, a, out, |x| math::mish(x)),
            Unary::Softplus => map1!(V, n, a, out, |x| math::softplus(x)),
            Unary::Softsign => map1!(V, n, a, out, |x| x / (s(1.0) + x.abs())),
            Unary::ThresholdedRelu(alpha) => map1!(V, n, a, out, |x| V::select(s(alpha).lt(x), x, s(0.0))),
            Unary::Clip(low, high) => map1!(V, n, a, out, |x| s(high).min(s(low).max(x))),
            Unary::Floor => map1!(V, n, a, out, |x| V::floor(x)),
            Unary::Ceil => map1!(V, n, a, out, |x| V::ceil(x)),
            Unary::Round => map1!(V, n, a, out, |x| V::round(x)),
            Unary::Sign => map1!(V, n, a, out, |x| {
                let one = s(1.0).copysign(x);
                V::select(x.abs().le(s(0.0)), s(0.0), V::select(x.eq(x), one, x))
            }),
            Unary::Truth => map1!(V, n, a, out, |x| V::select(x.eq(s(0.0)), s(0.0), s(1.0))),
            Unary::Not => map1!(V, n, a, out, |x| V::select(x.eq(s(0.0)), s(1.0), s(0.0))),
        }
    }
}

#[inline(always)]
fn power_of_half<V: Vector>(x: V) -> V {
    let infinite = x.eq(V::splat(f32::NEG_INFINITY));
    V::select(infinite, x.abs(), (x + V::splat(0.0)).sqrt())
}

#[inline(always)]
fn truth<V: Vector>(mask: V::Mask) -> V {
    V::select(mask, V::splat(1.0), V::splat(0.0))
}

multiversion! {
    unsafe fn binary<V>(op: Binary, n: usize, a: *const f32, b: *const f32, out: *mut f32) {
        match op {
            Binary::Add => map2!(V, n, a, b, out, |x, y| x + y),
            Binary::Sub => map2!(V, n, a, b, out, |x, y| x - y),
            Binary::Mul | Binary::And => map2!(V, n, a, b, out, |x, y| x * y),
            Binary::Div => map2!(V, n, a, b, out, |x, y| x / y),
            // `max` gives its argument where either is NaN.
            Binary::Max => map2!(V, n, a, b, out, |x, y| V::select(x.eq(x), x.max(y), x)),
            Binary::Min => map2!(V, n, a, b, out, |x, y| V::select(x.eq(x), x.min(y), x)),
            Binary::Less => map2!(V, n, a, b, out, |x, y| truth::<V>(x.lt(y))),
            Binary::LessOrEqual => map2!(V, n, a, b, out, |x, y| truth::<V>(x.le(y))),
            Binary::Equal => map2!(V, n, a, b, out, |x, y| truth::<V>(x.eq(y))),
            Binary::Or => map2!(V, n, a, b, out, |x, y| x.max(y)),
            Binary::Xor => map2!(V, n, a, b, out, |x, y| (x - y).abs()),
            Binary::PRelu => map2!(V, n, a, b, out, |x, y| V::select(x.lt(V::splat(0.0)), x * y, x)),
        }
    }
}

multiversion! {
    unsafe fn quantize<V>(n: usize, x: *const f32, scale: *const f32, zero: *const f32, range: [f32; 2], out: *mut f32) {
        let [low, high] = range.map(V::splat);
        map3!(V, n, x, scale, zero, out, |x, scale, zero| {
            let q = (x / scale).round() + zero;
            V::select(q.eq(q), high.min(low.max(q)), V::splat(0.0))
        })
    }
}

multiversion! {
    unsafe fn select<V>(n: usize, mask: *const f32, yes: *const f32, no: *const f32, out: *mut f32) {
        map3!(V, n, mask, yes, no, out, |m, y, x| V::select(m.eq(V::splat(0.0)), x, y))
    }
}

multiversion! {
    unsafe fn int_binary<V>(op: IntBinary, dtype: DType, n: usize, a: *const i64, b: *const i64, out: *mut i64) {
        let _ = V::LANES;
        for i in 0..n {
            let (x, y) = (*a.add(i), *b.add(i));
            out.add(i).write(match op {
                IntBinary::Add => x.wrapping_add(y),
                IntBinary::Sub => x.wrapping_sub(y),
                IntBinary::Mul => x.wrapping_mul(y),
                IntBinary::Max => x.max(y),
                IntBinary::Min => x.min(y),
            });
        }
        if dtype.size() < 8 {
            (0..n).for_each(|i| *out.add(i) = wrap(dtype, *out.add(i)));
        }
    }
}
