//! A product of 8 bits whose codes are written first, and then added to those of a residual, in a pass of its own: oneDNN
//! takes longer for the same as post-ops, each of which saves and loads registers.

use crate::error::Result;
use crate::network::dtype::DType;
use crate::network::quantization::Scheme;
use crate::plan::{Call, Instance, Launcher, Prepared};
use crate::providers::cpu::kernels::parallel::{self, Shared};
use crate::providers::cpu::kernels::primitive::PrimitiveLauncher;
use crate::providers::cpu::simd::multiversion;

/// Codes that a thread should at least add.
const GRAIN: usize = 16 << 10;

/// What is done to two codes: they are dequantized, added, and quantized.
#[derive(Debug, Clone, Copy)]
pub struct Sum {
    /// What the product is rounded to.
    pub product: Scheme,
    /// Of the residual.
    pub residual: Scheme,
    /// Whether what is below zero becomes zero.
    pub relu: bool,
    /// Of the result.
    pub result: Scheme,
}

/// The product, and the sum behind it.
pub struct Summed {
    product: PrimitiveLauncher,
    pass: Pass,
}

/// Which codes are added, and how.
struct Pass {
    numbers: Numbers,
    /// The input that is the residual.
    residual: usize,
    codes: usize,
}

impl Summed {
    /// A product that writes its codes, so many, where the result will lie. The residual is input number `residual` of the kernel, in
    /// the layout of the result.
    pub fn new(product: PrimitiveLauncher, sum: Sum, residual: usize, codes: usize) -> Self {
        let pass = Pass {
            numbers: Numbers::new(&sum),
            residual,
            codes,
        };
        Self { product, pass }
    }

    /// It as a kernel at concrete shapes.
    pub fn prepared(self) -> Prepared {
        let (tier, workspace) = (self.product.tier(), self.product.workspace());
        let how = format!("{}, then a sum of codes", self.product.implementation());
        Prepared::from(Instance::new(how, self).with_workspace(workspace)).with_tier(tier)
    }
}

impl Launcher for Summed {
    fn launch(&mut self, call: &Call) -> Result<()> {
        self.product.launch(call)?;
        let (pass, call) = (&self.pass, Shared(call));
        parallel::over(pass.codes, GRAIN, |range| {
            let call = call.get();
            // SAFETY: the planner gives addresses that hold the operands of the request; they do not overlap.
            unsafe {
                let residual = call.inputs[pass.residual].add(range.start);
                add(range.len(), &pass.numbers, residual, call.outputs[0].add(range.start));
            }
        })
    }
}

/// A sum as the loop takes it.
struct Numbers {
    signed: [bool; 2],
    zeros: [f32; 2],
    scales: [f32; 2],
    inverse: f32,
    low: f32,
    high: f32,
    zero: i32,
}

impl Numbers {
    fn new(sum: &Sum) -> Self {
        let read = [sum.product, sum.residual];
        let (low, high) = sum.result.ends();
        Self {
            signed: read.map(|scheme| scheme.dtype == DType::Int8),
            zeros: read.map(|scheme| scheme.zero as f32),
            scales: read.map(|scheme| scheme.scale),
            inverse: 1.0 / sum.result.scale,
            low: if sum.relu { low.max(0.0) } else { low },
            high,
            zero: sum.result.zero,
        }
    }
}

multiversion! {
    /// Adds the codes of a residual to those of a product.
    ///
    /// # Safety
    /// There must be so many codes at both addresses, which do not overlap.
    unsafe fn add<V>(codes: usize, numbers: &Numbers, residual: *const u8, result: *mut u8) {
        let residual = std::slice::from_raw_parts(residual, codes);
        let result = std::slice::from_raw_parts_mut(result, codes);
        match numbers.signed {
            [false, false] => add_codes::<false, false>(numbers, residual, result),
            [false, true] => add_codes::<false, true>(numbers, residual, result),
            [true, false] => add_codes::<true, false>(numbers, residual, result),
            [true, true] => add_codes::<true, true>(numbers, residual, result),
        }
    }
}

/// `A` and `B`: whether the codes of the product and of the residual are signed.
#[inline(always)]
fn add_codes<const A: bool, const B: bool>(numbers: &Numbers, residual: &[u8], result: &mut [u8]) {
    let &Numbers {
        zeros,
        scales,
        inverse,
        low,
        high,
        zero,
        ..
    } = numbers;
    for (code, &other) in result.iter_mut().zip(residual) {
        let sum = (number::<A>(*code) - zeros[0]) * scales[0] + (number::<B>(other) - zeros[1]) * scales[1];
        let whole = (sum * inverse).round_ties_even();
        // What is compared is never NaN, and compares faster so than by `max`.
        let above = if whole > low { whole } else { low };
        let within = if above < high { above } else { high };
        // SAFETY: 8 bits hold it.
        *code = (unsafe { within.to_int_unchecked::<i32>() } + zero) as u8;
    }
}

#[inline(always)]
fn number<const SIGNED: bool>(code: u8) -> f32 {
    if SIGNED { f32::from(code as i8) } else { f32::from(code) }
}
