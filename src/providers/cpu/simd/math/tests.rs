//! Every function over the whole range of f32, against double precision.

use super::*;
use crate::providers::cpu::simd::{Isa, Portable, map1, multiversion};
use std::f64::consts::{FRAC_2_SQRT_PI, PI, SQRT_2};

#[derive(Clone, Copy, Debug)]
enum Function {
    Exp,
    Expm1,
    Log,
    Tanh,
    Sigmoid,
    Silu,
    Erf,
    Gelu,
    GeluTanh,
    Softplus,
    Mish,
    Sin,
    Cos,
}

use Function::*;
const ALL: [Function; 13] = [
    Exp, Expm1, Log, Tanh, Sigmoid, Silu, Erf, Gelu, GeluTanh, Softplus, Mish, Sin, Cos,
];

#[inline(always)]
unsafe fn apply_in<V: Vector>(f: Function, x: &[f32], y: *mut f32) {
    let (n, x) = (x.len(), x.as_ptr());
    // SAFETY: `y` is as long as `x`.
    unsafe {
        match f {
            Exp => map1!(V, n, x, y, |v| exp(v)),
            Expm1 => map1!(V, n, x, y, |v| expm1(v)),
            Log => map1!(V, n, x, y, |v| log(v)),
            Tanh => map1!(V, n, x, y, |v| tanh(v)),
            Sigmoid => map1!(V, n, x, y, |v| sigmoid(v)),
            Silu => map1!(V, n, x, y, |v| silu(v)),
            Erf => map1!(V, n, x, y, |v| erf(v)),
            Gelu => map1!(V, n, x, y, |v| gelu(v)),
            GeluTanh => map1!(V, n, x, y, |v| gelu_tanh(v)),
            Softplus => map1!(V, n, x, y, |v| softplus(v)),
            Mish => map1!(V, n, x, y, |v| mish(v)),
            Sin => map1!(V, n, x, y, |v| sin(v)),
            Cos => map1!(V, n, x, y, |v| cos(v)),
        }
    }
}

multiversion! {
    unsafe fn apply<V>(f: Function, x: &[f32], y: *mut f32) {
        apply_in::<V>(f, x, y)
    }
}

/// erf and erfc in double precision: Taylor's series, and a continued fraction from 2 on.
fn error_functions(x: f64) -> (f64, f64) {
    let a = x.abs();
    let (erf, erfc) = if a < 2.0 {
        let mut term = a;
        let mut sum = a;
        for n in 1..60 {
            term *= -a * a / n as f64;
            sum += term / (2 * n + 1) as f64;
        }
        (sum * FRAC_2_SQRT_PI, 1.0 - sum * FRAC_2_SQRT_PI)
    } else {
        let fraction = (1..80).rev().fold(0.0, |f, k| k as f64 / 2.0 / (a + f));
        let erfc = (-a * a).exp() / ((a + fraction) * PI.sqrt());
        (1.0 - erfc, erfc)
    };
    if x < 0.0 { (-erf, 2.0 - erfc) } else { (erf, erfc) }
}

fn logistic(x: f64) -> f64 {
    if x < 0.0 {
        x.exp() / (1.0 + x.exp())
    } else {
        1.0 / (1.0 + (-x).exp())
    }
}

/// What a function that falls to nothing on the left gives: its limit, where the formula has inf * 0.
fn faded(x: f64, value: f64) -> f64 {
    if x == f64::NEG_INFINITY { -0.0 } else { value }
}

fn exact(f: Function, x: f64) -> f64 {
    match f {
        Exp => x.exp(),
        Expm1 => x.exp_m1(),
        Log => x.ln(),
        Tanh => x.tanh(),
        Sigmoid => logistic(x),
        Silu => faded(x, x * logistic(x)),
        Erf => error_functions(x).0,
        Gelu => faded(x, 0.5 * x * error_functions(-x / SQRT_2).1),
        GeluTanh => {
            let inner = (2.0 / PI).sqrt() * x * (1.0 + 0.044_715 * x * x);
            faded(x, x * logistic(2.0 * inner))
        }
        Softplus => x.max(0.0) + (-x.abs()).exp().ln_1p(),
        Mish => {
            let e = x.min(300.0).exp();
            faded(x, x * (e * (e + 2.0) / (e * (e + 2.0) + 2.0)))
        }
        Sin => x.sin(),
        Cos => x.cos(),
    }
}

/// Distance in units in the last place of the exact value.
fn ulps(got: f32, exact: f64) -> f64 {
    let rounded = exact as f32;
    if got == rounded || (got.is_nan() && exact.is_nan()) {
        return 0.0;
    }
    if got.is_nan() || exact.is_nan() || exact.is_infinite() {
        return f64::INFINITY;
    }
    // Beyond the greatest number the units stay as they are.
    let a = rounded.abs().min(f32::MAX);
    let below = f32::from_bits(a.to_bits().saturating_sub(1));
    let unit = if a == 0.0 { f32::from_bits(1) } else { a - below };
    let got = if got.is_infinite() {
        2f64.powi(128).copysign(got as f64)
    } else {
        got as f64
    };
    (got - exact).abs() / unit as f64
}

fn arguments(shift: u32) -> impl Iterator<Item = f32> {
    let special = [
        0.0,
        f32::INFINITY,
        f32::NAN,
        f32::MAX,
        f32::MIN_POSITIVE,
        1e-45,
        1e-40,
        1.0,
        88.7,
        103.9,
    ];
    let ladder = (0..=u32::MAX >> shift).map(move |i| f32::from_bits(i << shift | 0x5a5 & ((1 << shift) - 1)));
    let dense = (-120_000..120_000).map(|i| i as f32 * 1.003e-3);
    special.into_iter().flat_map(|v| [v, -v]).chain(ladder).chain(dense)
}

/// The worst of all arguments for a function: units, argument, result.
fn worst(f: Function, isa: Isa, shift: u32) -> (f64, f32, f32) {
    let mut worst = (0.0, 0.0, 0.0);
    let mut arguments = arguments(shift).peekable();
    while arguments.peek().is_some() {
        let x: Vec<f32> = arguments.by_ref().take(1 << 12).collect();
        let mut y = vec![0f32; x.len()];
        // SAFETY: `y` is as long as `x`.
        match isa {
            Isa::Portable => unsafe { apply_in::<Portable>(f, &x, y.as_mut_ptr()) },
            _ => unsafe { apply(f, &x, y.as_mut_ptr()) },
        }
        for (&x, &y) in x.iter().zip(&y) {
            let off = ulps(y, exact(f, x as f64));
            if off > worst.0 && !(matches!(f, Sin | Cos) && x.abs() > TRIG_LIMIT) {
                worst = (off, x, y);
            }
        }
    }
    worst
}

fn check(shift: u32) {
    for isa in [Isa::here(), Isa::Portable] {
        let found = ALL.map(|f| (f, worst(f, isa, shift)));
        for (f, worst) in found {
            println!("{isa:?} {f:?}: {worst:?}");
        }
        for (f, worst) in found {
            assert!(worst.0 <= 2.0, "{isa:?} {f:?}: {worst:?}");
        }
    }
}

#[test]
fn functions_are_accurate_everywhere() {
    check(14);
}

#[test]
#[ignore = "minutes in release builds: cargo test --release -- --ignored every_64th"]
fn functions_are_accurate_at_every_64th_number() {
    check(6);
}
