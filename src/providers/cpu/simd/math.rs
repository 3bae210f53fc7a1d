//! Elementary functions of vectors, accurate to about 2 units in the last place over the whole range.

#![allow(clippy::excessive_precision)] // Coefficients stand as they were published.

use super::Vector;
use std::f32::consts::{FRAC_1_SQRT_2, FRAC_2_PI, LOG2_E};

/// `c[0] x^n + ... + c[n]`.
#[inline(always)]
fn polynomial<V: Vector, const N: usize>(x: V, c: [f32; N]) -> V {
    let mut sum = V::splat(c[0]);
    let mut i = 1;
    while i < N {
        sum = sum.fma(x, V::splat(c[i]));
        i += 1;
    }
    sum
}

#[inline(always)]
fn is_nan_or<V: Vector>(x: V, y: V) -> V {
    V::select(x.eq(x), y, x)
}

/// e^x.
#[inline(always)]
pub fn exp<V: Vector>(x: V) -> V {
    // `min` and `max` give their argument where either is NaN.
    let x = V::splat(-104.0).max(V::splat(89.0).min(x));
    let n = (x * V::splat(LOG2_E)).round();
    let r = n.fma(V::splat(-0.693_359_4), x);
    let r = n.fma(V::splat(2.121_944_4e-4), r);
    let c = [
        1.987_569_1e-4,
        1.398_199_9e-3,
        8.333_452e-3,
        4.166_579_6e-2,
        1.666_666_5e-1,
        0.5,
    ];
    let p = polynomial(r, c);
    (p.fma(r * r, r) + V::splat(1.0)).scale(n)
}

/// e^x - 1.
#[inline(always)]
pub fn expm1<V: Vector>(x: V) -> V {
    let c = [
        1.0 / 362_880.0,
        1.0 / 40320.0,
        1.0 / 5040.0,
        1.0 / 720.0,
        1.0 / 120.0,
        1.0 / 24.0,
        1.0 / 6.0,
        0.5,
    ];
    let near = polynomial(x, c).fma(x * x, x);
    V::select(x.abs().lt(V::splat(0.5)), near, exp(x) - V::splat(1.0))
}

/// The natural logarithm.
#[inline(always)]
pub fn log<V: Vector>(x: V) -> V {
    let small = x.lt(V::splat(f32::MIN_POSITIVE));
    let scaled = V::select(small, x * V::splat(8_388_608.0), x);
    let (m, e) = scaled.split();
    let e = V::select(small, e - V::splat(23.0), e);
    let low = m.lt(V::splat(FRAC_1_SQRT_2));
    let e = V::select(low, e - V::splat(1.0), e);
    let r = V::select(low, m + m, m) - V::splat(1.0);
    let z = r * r;
    let c = [
        7.037_683_6e-2,
        -1.151_461e-1,
        1.167_699_9e-1,
        -1.242_014_1e-1,
        1.424_932_3e-1,
        -1.666_805_8e-1,
        2.000_071_5e-1,
        -2.499_999_4e-1,
        3.333_333_1e-1,
    ];
    let y = polynomial(r, c) * r * z;
    let y = e.fma(V::splat(-2.121_944_4e-4), y);
    let y = z.fma(V::splat(-0.5), y);
    let y = e.fma(V::splat(0.693_359_4), r + y);
    let zero = V::splat(0.0);
    let y = V::select(x.eq(zero), V::splat(f32::NEG_INFINITY), y);
    let y = V::select(x.lt(zero), V::splat(f32::NAN), y);
    let y = V::select(x.eq(V::splat(f32::INFINITY)), x, y);
    is_nan_or(x, y)
}

/// log(1 + x).
#[inline(always)]
pub fn log1p<V: Vector>(x: V) -> V {
    // The rounding error of 1 + x is put right to first order (Goldberg).
    let u = V::splat(1.0) + x;
    let y = log(u) * (x / (u - V::splat(1.0)));
    let y = V::select(u.eq(V::splat(1.0)), x, y);
    V::select(x.eq(V::splat(f32::INFINITY)), x, y)
}

/// The hyperbolic tangent.
#[inline(always)]
pub fn tanh<V: Vector>(x: V) -> V {
    let a = x.abs();
    let z = x * x;
    let c = [
        -5.704_988_7e-3,
        2.063_908_9e-2,
        -5.373_972e-2,
        1.333_144_2e-1,
        -3.333_328e-1,
    ];
    let near = (polynomial(z, c) * z).fma(x, x);
    let far = V::splat(1.0) - V::splat(2.0) / (exp(a + a) + V::splat(1.0));
    is_nan_or(x, V::select(a.lt(V::splat(0.625)), near, far.copysign(x)))
}

/// 1 / (1 + e^-x).
#[inline(always)]
pub fn sigmoid<V: Vector>(x: V) -> V {
    let one = V::splat(1.0);
    let e = exp(V::splat(0.0) - x.abs());
    let top = V::select(x.lt(V::splat(0.0)), e, one);
    is_nan_or(x, top / (one + e))
}

/// x / (1 + e^-x); faster than [`sigmoid`], within a few units of the last place.
#[inline(always)]
pub fn silu<V: Vector>(x: V) -> V {
    let y = x / (V::splat(1.0) + exp(V::splat(0.0) - x));
    V::select(x.eq(V::splat(f32::NEG_INFINITY)), V::splat(-0.0), y)
}

/// The error function (coefficients of N. Juffa's single-precision fit).
#[inline(always)]
pub fn erf<V: Vector>(x: V) -> V {
    let t = x.abs();
    let s = x * x;
    let r = V::splat(-1.728_534_7e-5).fma(t, V::splat(3.831_972e-4));
    let u = V::splat(-3.883_964_4e-3).fma(t, V::splat(2.425_462_2e-2));
    let r = r.fma(s, u);
    let r = r.fma(t, V::splat(-1.067_778_8e-1));
    let r = r.fma(t, V::splat(-6.348_468_7e-1));
    let r = r.fma(t, V::splat(-1.287_175_1e-1));
    let r = r.fma(t, V::splat(0.0) - t);
    // Beyond 4 the result is 1, and the polynomial may meet inf - inf.
    let far = V::splat(1.0) - exp(r);
    let far = V::select(V::splat(4.0).lt(t), V::splat(1.0), far).copysign(x);
    let c = [
        -5.967_617e-4,
        4.991_194e-3,
        -2.676_813_5e-2,
        1.128_199_25e-1,
        -3.761_253_4e-1,
        1.283_791_7e-1,
    ];
    let near = polynomial(s, c).fma(x, x);
    is_nan_or(x, V::select(V::splat(0.927_734_4).lt(t), far, near))
}

/// x/2 (1 + erf(x / sqrt 2)).
#[inline(always)]
pub fn gelu<V: Vector>(x: V) -> V {
    let half = x * V::splat(0.5);
    let y = half.fma(erf(x * V::splat(FRAC_1_SQRT_2)), half);
    V::select(x.eq(V::splat(f32::NEG_INFINITY)), V::splat(-0.0), y)
}

/// GELU's approximation by tanh.
#[inline(always)]
pub fn gelu_tanh<V: Vector>(x: V) -> V {
    let inner = V::splat(0.797_884_56) * x * (x * x).fma(V::splat(0.044_715), V::splat(1.0));
    // x/2 (1 + tanh u) = x sigmoid(2u)
    V::select(
        x.eq(V::splat(f32::NEG_INFINITY)),
        V::splat(-0.0),
        x * sigmoid(inner + inner),
    )
}

/// log(1 + e^x).
#[inline(always)]
pub fn softplus<V: Vector>(x: V) -> V {
    let tail = log1p(exp(V::splat(0.0) - x.abs()));
    is_nan_or(x, V::splat(0.0).max(x) + tail)
}

/// x tanh(log(1 + e^x)).
#[inline(always)]
pub fn mish<V: Vector>(x: V) -> V {
    // tanh(log(1 + e)) = (e^2 + 2 e) / (e^2 + 2 e + 2)
    let e = exp(V::splat(20.0).min(x));
    let n = e * (e + V::splat(2.0));
    let y = x * (n / (n + V::splat(2.0)));
    V::select(x.eq(V::splat(f32::NEG_INFINITY)), V::splat(-0.0), y)
}

/// The greatest argument of [`sin`] and [`cos`] whose reduction stays exact enough.
pub const TRIG_LIMIT: f32 = 20_000.0;

/// sin of the k-th quarter turn on: shared by [`sin`] (quarter 0) and [`cos`] (quarter 1).
#[inline(always)]
fn turn<V: Vector>(x: V, quarter: f32) -> V {
    let n = (x * V::splat(FRAC_2_PI)).round();
    // pi/2 in three parts; n times the first is nearly exact.
    let r = n.fma(V::splat(f32::from_bits(0xbfc9_0fd8)), x);
    let r = n.fma(V::splat(-3.139_164_7e-7), r);
    let r = n.fma(V::splat(-5.390_302_5e-15), r);
    let z = r * r;
    let sine = (polynomial(z, [-1.951_529_6e-4, 8.332_161e-3, -1.666_665_5e-1]) * z).fma(r, r);
    let cosine = polynomial(z, [2.443_315_7e-5, -1.388_731_6e-3, 4.166_664_6e-2]) * z * z;
    let cosine = cosine + (V::splat(1.0) - z * V::splat(0.5));
    let q = n + V::splat(quarter);
    let rest = q - (q * V::splat(0.25)).floor() * V::splat(4.0);
    let odd = rest - (rest * V::splat(0.5)).floor() * V::splat(2.0);
    let y = V::select(odd.eq(V::splat(0.0)), sine, cosine);
    V::select(rest.lt(V::splat(1.5)), y, V::splat(0.0) - y)
}

/// Sine, for arguments up to [`TRIG_LIMIT`].
#[inline(always)]
pub fn sin<V: Vector>(x: V) -> V {
    turn(x, 0.0)
}

/// Cosine, for arguments up to [`TRIG_LIMIT`].
#[inline(always)]
pub fn cos<V: Vector>(x: V) -> V {
    turn(x, 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::providers::cpu::simd::{Isa, map1, multiversion};

    #[derive(Clone, Copy, Debug)]
    enum Function {
        Exp,
        Expm1,
        Log,
        Log1p,
        Tanh,
        Sigmoid,
        Erf,
        Softplus,
        Sin,
        Cos,
    }

    multiversion! {
        unsafe fn apply<V>(f: Function, x: &[f32], y: *mut f32) {
            let (n, x) = (x.len(), x.as_ptr());
            match f {
                Function::Exp => map1!(V, n, x, y, |v| exp(v)),
                Function::Expm1 => map1!(V, n, x, y, |v| expm1(v)),
                Function::Log => map1!(V, n, x, y, |v| log(v)),
                Function::Log1p => map1!(V, n, x, y, |v| log1p(v)),
                Function::Tanh => map1!(V, n, x, y, |v| tanh(v)),
                Function::Sigmoid => map1!(V, n, x, y, |v| sigmoid(v)),
                Function::Erf => map1!(V, n, x, y, |v| erf(v)),
                Function::Softplus => map1!(V, n, x, y, |v| softplus(v)),
                Function::Sin => map1!(V, n, x, y, |v| sin(v)),
                Function::Cos => map1!(V, n, x, y, |v| cos(v)),
            }
        }
    }

    /// erf in double precision: Taylor's series, and a continued fraction for erfc from 2 on.
    fn erf64(x: f64) -> f64 {
        let a = x.abs();
        let value = if a < 2.0 {
            let mut term = a;
            let mut sum = a;
            for n in 1..60 {
                term *= -a * a / n as f64;
                sum += term / (2 * n + 1) as f64;
            }
            sum * std::f64::consts::FRAC_2_SQRT_PI
        } else {
            let mut fraction = 0.0;
            for k in (1..80).rev() {
                fraction = k as f64 / 2.0 / (a + fraction);
            }
            1.0 - (-a * a).exp() / ((a + fraction) * std::f64::consts::PI.sqrt())
        };
        value.copysign(x)
    }

    fn exact(f: Function, x: f64) -> f64 {
        match f {
            Function::Exp => x.exp(),
            Function::Expm1 => x.exp_m1(),
            Function::Log => x.ln(),
            Function::Log1p => x.ln_1p(),
            Function::Tanh => x.tanh(),
            Function::Sigmoid => {
                if x < 0.0 {
                    x.exp() / (1.0 + x.exp())
                } else {
                    1.0 / (1.0 + (-x).exp())
                }
            }
            Function::Erf => erf64(x),
            Function::Softplus => x.max(0.0) + (-x.abs()).exp().ln_1p(),
            Function::Sin => x.sin(),
            Function::Cos => x.cos(),
        }
    }

    /// Distance in units in the last place of the exact value.
    fn ulps(got: f32, exact: f64) -> f64 {
        let rounded = exact as f32;
        if got == rounded || (got.is_nan() && exact.is_nan()) {
            return 0.0;
        }
        if !rounded.is_finite() || !got.is_finite() {
            return f64::INFINITY;
        }
        let up = f32::from_bits(rounded.abs().to_bits() + 1);
        (got as f64 - exact).abs() / (up as f64 - rounded.abs() as f64)
    }

    fn arguments() -> Vec<f32> {
        let special = [
            0.0,
            -0.0,
            f32::INFINITY,
            f32::NEG_INFINITY,
            f32::NAN,
            f32::MAX,
            f32::MIN,
            1e-45,
            -1e-45,
            1.0,
            -1.0,
        ];
        let ladder = (0..=u32::MAX >> 13).map(|i| f32::from_bits(i << 13 | 0x5a5));
        let dense = (-120_000..120_000).map(|i| i as f32 * 1.003e-3);
        special.into_iter().chain(ladder).chain(dense).collect()
    }

    #[test]
    fn functions_are_accurate_everywhere() {
        let x = arguments();
        let mut y = vec![0f32; x.len()];
        let slack = if Isa::here() == Isa::Portable { 2.0 } else { 1.0 };
        let limits = [
            (Function::Exp, 2.0),
            (Function::Expm1, 3.0),
            (Function::Log, 2.0),
            (Function::Log1p, 3.0),
            (Function::Tanh, 2.0),
            (Function::Sigmoid, 2.5),
            (Function::Erf, 2.0),
            (Function::Softplus, 3.0),
            (Function::Sin, 2.0),
            (Function::Cos, 2.0),
        ];
        for (f, limit) in limits {
            // SAFETY: `y` is as long as `x`.
            unsafe { apply(f, &x, y.as_mut_ptr()) };
            let trig = matches!(f, Function::Sin | Function::Cos);
            let pairs = x.iter().zip(&y).filter(|(x, _)| !trig || x.abs() <= 100.0);
            let errors = pairs.map(|(&x, &y)| (ulps(y, exact(f, x as f64)), x, y));
            let worst = errors.max_by(|a, b| a.0.total_cmp(&b.0)).unwrap();
            println!("{f:?}: {worst:?}");
            assert!(worst.0 <= limit * slack, "{f:?}: {worst:?}");
        }
    }
}
