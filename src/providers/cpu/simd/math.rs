//! Elementary functions of vectors, accurate to 2 units in the last place over the whole range.

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

/// e^r - 1, for `r` between the halves of log 2.
#[inline(always)]
fn exp_series<V: Vector>(r: V) -> V {
    let c = [
        1.987_569_1e-4,
        1.398_199_9e-3,
        8.333_452e-3,
        4.166_579_6e-2,
        1.666_666_5e-1,
        0.5,
    ];
    polynomial(r, c).fma(r * r, r)
}

/// The parts of e^x: 2^n (1 + s), as (s, n), where `x` lies in -120..=89.
#[inline(always)]
fn exp_parts<V: Vector>(x: V) -> (V, V) {
    let n = (x * V::splat(LOG2_E)).round();
    // The first part of log 2 has few bits: nothing is rounded before the second.
    let r = n.fma(V::splat(2.121_944_4e-4), n.fma(V::splat(-0.693_359_4), x));
    (exp_series(r), n)
}

/// As [`exp_parts`], of e^(x + low), where `low` is far smaller than 1.
#[inline(always)]
fn exp_parts_of_sum<V: Vector>(x: V, low: V) -> (V, V) {
    let n = (x * V::splat(LOG2_E)).round();
    let r = n.fma(V::splat(-0.693_359_4), x) + n.fma(V::splat(2.121_944_4e-4), low);
    (exp_series(r), n)
}

/// e^x.
#[inline(always)]
pub fn exp<V: Vector>(x: V) -> V {
    // `min` and `max` give their argument where either is NaN.
    let (s, n) = exp_parts(V::splat(-104.0).max(V::splat(89.0).min(x)));
    (s + V::splat(1.0)).scale(n)
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
    let (s, n) = exp_parts(V::splat(-104.0).max(V::splat(89.0).min(x)));
    let two = V::splat(1.0).scale(n);
    let far = s.fma(two, two - V::splat(1.0));
    // Where 2^n is too large by itself, 1 is too small to count.
    let far = V::select(V::splat(64.0).lt(x), (s + V::splat(1.0)).scale(n), far);
    V::select(x.abs().lt(V::splat(0.5)), near, far)
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

/// Where [`gated`] falls with e^x, and with which sign it takes its argument.
#[inline(always)]
fn side<V: Vector>(x: V) -> (V::Mask, V) {
    let falls = x.lt(V::splat(-1.0));
    (falls, V::select(falls, V::splat(1.0), V::splat(-1.0)))
}

/// g / (1 + e^-x), given the parts of e^x where it falls with that, and of e^-x elsewhere.
#[inline(always)]
fn gated<V: Vector>(g: V, falls: V::Mask, (s, n): (V, V)) -> V {
    let one = V::splat(1.0);
    let e = (s + one).scale(n);
    let quotient = V::select(falls, e, g) / (one + e);
    // g e^x is rounded once, and 1 / (1 + e^-x) is e^x (1 - e^x / (1 + e^x)).
    let falling = g.fused(s, g).scale(n);
    V::select(falls, (V::splat(0.0) - falling).fused(quotient, falling), quotient)
}

/// 1 / (1 + e^-x).
#[inline(always)]
pub fn sigmoid<V: Vector>(x: V) -> V {
    let (falls, sign) = side(x);
    let y = gated(V::splat(1.0), falls, exp_parts(V::splat(-120.0).max(x * sign)));
    is_nan_or(x, y)
}

/// min(max(alpha * x + beta, 0), 1); NaN of NaN.
#[inline(always)]
pub fn hard_sigmoid<V: Vector>(x: V, alpha: V, beta: V) -> V {
    V::splat(1.0).min(V::splat(0.0).max(x.fma(alpha, beta)))
}

/// x / (1 + e^-x).
#[inline(always)]
pub fn silu<V: Vector>(x: V) -> V {
    // Further left the result is 0, which minus infinity would not give.
    let x = V::splat(-120.0).max(x);
    let (falls, sign) = side(x);
    gated(x, falls, exp_parts(V::splat(-120.0).max(x * sign)))
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
    // With t = |x| and u = t/(t + 2) it is max(x, 0) - t erfc(t / sqrt 2)/2, and that is e^(-t^2/2) u (1 + u p(2u - 1)).
    let t = V::splat(15.0).min(x.abs());
    let (one, two) = (V::splat(1.0), V::splat(2.0));
    let d = t + two;
    let over = one / d;
    let u = t * over;
    let c = [
        -1.297_808_5e-4,
        -1.657_524_8e-4,
        4.316_392_6e-4,
        1.237_785_8e-3,
        4.079_639e-4,
        -4.309_452e-3,
        -9.158_706e-3,
        8.218_922e-3,
        6.521_971e-2,
        -7.624_951_7e-3,
        1.066_009_6e-3,
    ];
    let straight = u.fused(V::splat(-0.656_25), one);
    let bent = polynomial((t - two) * over, c) * u;
    let p = straight + bent;
    let h = u * p;
    // What was rounded off, in p, in u and in their product, goes on to the last addition.
    let zero = V::splat(0.0);
    let minus = zero - u;
    let p_lost = ((straight - p) + bent) + u.fused(V::splat(-0.656_25), one - straight);
    let part = d - t;
    let d_lost = (t - (d - part)) + (two - part);
    let u_lost = d_lost.fused(minus, minus.fused(d, t)) * over;
    let lost = u_lost.fused(p + p - one, u.fused(p_lost, u.fused(p, zero - h)));
    let square = t * t;
    let low = t.fused(t, zero - square);
    let (s, n) = exp_parts_of_sum(square * V::splat(-0.5), low * V::splat(-0.5));
    let tail = (h + h.fused(s, lost)).scale(n);
    // `max` gives its argument where either is NaN; -0 keeps the sign of what is too small.
    V::splat(-0.0).max(x) - tail
}

/// GELU's approximation by tanh.
#[inline(always)]
pub fn gelu_tanh<V: Vector>(x: V) -> V {
    // x/2 (1 + tanh u) = x sigmoid(2u), where 2u = a x + b x^3 in two parts: what e^2u makes of it is many times as far off.
    let (a, a_low) = (V::splat(1.595_769_2), V::splat(-4.534_068e-8));
    let (b, b_low) = (V::splat(7.135_481_4e-2), V::splat(2.398_832_5e-9));
    let x = V::splat(-15.0).max(x);
    let near = V::splat(15.0).min(x);
    let zero = V::splat(0.0);
    let square = near * near;
    let square_low = near.fused(near, zero - square);
    let cubic = square * b;
    let cubic_low = square.fused(b, zero - cubic) + square.fused(b_low, square_low * b);
    let sum = a + cubic;
    let kept = sum - a;
    let sum_low = (a - (sum - kept)) + (cubic - kept) + (cubic_low + a_low);
    let w = near * sum;
    let w_low = near.fused(sum_low, near.fused(sum, zero - w));
    let (falls, sign) = side(w);
    gated(x, falls, exp_parts_of_sum(V::splat(-120.0).max(w * sign), w_low * sign))
}

/// log(1 + e^x).
#[inline(always)]
pub fn softplus<V: Vector>(x: V) -> V {
    // With y = e^-|x| in 0..=1 it is max(x, 0) + y - y^2 (1/2 - y p(y)).
    let zero = V::splat(0.0);
    let y = exp(zero - x.abs());
    let c = [
        2.277_810_4e-3,
        -1.468_926_9e-2,
        4.431_317_4e-2,
        -8.593_57e-2,
        1.268_078_8e-1,
        -1.622_890_4e-1,
        1.992_646_6e-1,
        -2.499_332_9e-1,
        3.333_309_3e-1,
    ];
    let minus = zero - y;
    let half = polynomial(y, c).fused(minus, V::splat(0.5));
    is_nan_or(x, minus.fused(y * half, zero.max(x)) + y)
}

/// x tanh(log(1 + e^x)).
#[inline(always)]
pub fn mish<V: Vector>(x: V) -> V {
    // tanh(log(1 + e)) = 1 - 2 / d = e (1 - (e^2 + e) / d), where d = e^2 + 2 e + 2
    let (zero, one, two) = (V::splat(0.0), V::splat(1.0), V::splat(2.0));
    let x = V::splat(-120.0).max(x);
    let (s, n) = exp_parts(V::splat(20.0).min(x));
    let e = (s + one).scale(n);
    let more = e + two;
    let d = e.fused(more, two);
    let over = one / d;
    // Left of -1 it falls with e^x, and x e^x is rounded once.
    let falling = x.fused(s, x).scale(n);
    let falling = falling.fused((zero - e.fused(e, e)) * over, falling);
    // What the sums and the quotient round off goes on to the difference.
    let quotient = over + over;
    let lost = e.fused(e - (more - two), e.fused(more, two - d));
    let lost = (zero - quotient).fused(lost, (zero - quotient).fused(d, two)) * over;
    let rest = one - quotient;
    let y = x.fused(rest, x * (((one - rest) - quotient) - lost));
    let y = V::select(V::splat(20.0).lt(x), x, y);
    V::select(x.lt(V::splat(-1.0)), falling, y)
}

/// The greatest argument of [`sin`] and [`cos`] whose reduction stays exact enough.
pub const TRIG_LIMIT: f32 = 20_000.0;

/// sin of the k-th quarter turn on: shared by [`sin`] (quarter 0) and [`cos`] (quarter 1).
#[inline(always)]
fn turn<V: Vector>(x: V, quarter: f32) -> V {
    let n = (x * V::splat(FRAC_2_PI)).round();
    // pi/2 in three parts; n times the first is nearly exact.
    let r = n.fused(V::splat(f32::from_bits(0xbfc9_0fd8)), x);
    let r = n.fused(V::splat(-3.139_164_7e-7), r);
    let r = n.fused(V::splat(-5.390_302_5e-15), r);
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
mod tests;
