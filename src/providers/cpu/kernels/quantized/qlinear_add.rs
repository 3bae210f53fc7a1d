//! A product of 8 bits that is quantized into the memory of the result, and a loop that adds a residual of 8 bits there: oneDNN
//! takes longer for the same as post-ops, each of which saves and loads registers.

use crate::error::Result;
use crate::network::dtype::DType;
use crate::plan::{Call, Instance, Launcher, Prepared};
use crate::providers::cpu::kernels::chain::QLinearAdd;
use crate::providers::cpu::kernels::parallel::{self, Shared};
use crate::providers::cpu::kernels::primitive::PrimitiveLauncher;
use crate::providers::cpu::simd::{Vector, multiversion};

/// Elements that a thread should at least add.
const GRAIN: usize = 16 << 10;

/// The product, and the addition behind it.
pub struct ThenAdd {
    product: PrimitiveLauncher,
    constants: Constants,
    /// Which input of the kernel the residual is.
    residual: usize,
    elements: usize,
}

impl ThenAdd {
    /// A product of so many elements. The residual is input number `residual` of the kernel, in the layout of the result.
    pub fn new(product: PrimitiveLauncher, constants: Constants, residual: usize, elements: usize) -> Self {
        Self {
            product,
            constants,
            residual,
            elements,
        }
    }

    /// It as a kernel at concrete shapes.
    pub fn prepared(self) -> Prepared {
        let (tier, workspace) = (self.product.tier(), self.product.workspace());
        let how = format!("{}, then QLinearAdd", self.product.implementation());
        Prepared::from(Instance::new(how, self).with_workspace(workspace)).with_tier(tier)
    }
}

impl Launcher for ThenAdd {
    fn launch(&mut self, call: &Call) -> Result<()> {
        self.product.launch(call)?;
        let (constants, at, call) = (&self.constants, self.residual, Shared(call));
        parallel::over(self.elements, GRAIN, |range| {
            let call = call.get();
            // SAFETY: the planner gives addresses that hold the operands of the request; they do not overlap.
            unsafe {
                let residual = call.inputs[at].add(range.start);
                add(range.len(), constants, residual, call.outputs[0].add(range.start));
            }
        })
    }
}

/// An addition as the loop takes it: a factor for each of the two numbers (the product's first) and an offset, which make
/// steps of the result, and what is done to the nearest integer.
pub struct Constants {
    signed: [bool; 2],
    factors: [f32; 2],
    offset: f32,
    zero: i16,
    low: i16,
    to_signed: bool,
}

impl Constants {
    /// Of an addition, where zero points may be part of the offset without moving a tie.
    ///
    /// The offset is rounded, which matters where one operand is zero and the other is half a step from an integer: with a
    /// factor of few bits that is every second number, and the sums have to be exact then.
    pub fn of(add: &QLinearAdd) -> Option<Self> {
        let read = [add.product, add.residual];
        let factors = read.map(|scheme| f64::from(scheme.scale) / f64::from(add.result.scale));
        let offset: f64 = read
            .iter()
            .zip(factors)
            .map(|(scheme, factor)| -f64::from(scheme.zero) * factor)
            .sum();
        let (factors, greatest) = (factors.map(|factor| factor as f32), factors[0].max(factors[1]));
        let small = 510.0 * greatest < f64::from(1 << 30);
        let unit = lowest_bit(factors[0]).min(lowest_bit(factors[1]));
        let exact = 510.0 * greatest <= unit * f64::from(1 << 24);
        if !(small && (exact || !factors.iter().any(|&factor| few_bits(factor)))) {
            return None;
        }
        let low = add.result.limits()[0] as i16;
        let zero = add.result.zero as i16;
        Some(Self {
            signed: read.map(|scheme| scheme.dtype == DType::Int8),
            factors,
            offset: offset as f32,
            zero,
            low: if add.relu { low.max(zero) } else { low },
            to_signed: add.result.dtype == DType::Int8,
        })
    }
}

/// What the lowest bit of the significand stands for.
fn lowest_bit(factor: f32) -> f64 {
    let zeros = (factor.to_bits() | 1 << 23).trailing_zeros();
    let exponent = (factor.to_bits() >> 23) as i32 - 150;
    f64::from(exponent + zeros as i32).exp2()
}

/// Whether some of its products with integers of 8 bits are half a step from an integer, other than by chance.
fn few_bits(factor: f32) -> bool {
    f64::from(factor) <= lowest_bit(factor) * f64::from(1 << 14)
}

multiversion! {
    /// Adds a residual to the product that stands where the result will.
    ///
    /// # Safety
    /// There must be so many elements at both addresses, which do not overlap.
    unsafe fn add<V>(elements: usize, constants: &Constants, residual: *const u8, result: *mut u8) {
        let step = 4 * V::LANES;
        let whole = elements / step * step;
        let mut at = 0;
        while at < whole {
            add_step::<V>(constants, residual.add(at), result.add(at));
            at += step;
        }
        let rest = elements - whole;
        // As much as a step of the widest vectors.
        let (mut a, mut b) = ([0; 64], [0; 64]);
        a.as_mut_ptr().copy_from_nonoverlapping(result.add(whole), rest);
        b.as_mut_ptr().copy_from_nonoverlapping(residual.add(whole), rest);
        add_step::<V>(constants, b.as_ptr(), a.as_mut_ptr());
        result.add(whole).copy_from_nonoverlapping(a.as_ptr(), rest);
    }
}

/// As [`add`], of 4 * LANES elements. No closures: these would be compiled without the instruction set.
#[inline(always)]
unsafe fn add_step<V: Vector>(constants: &Constants, residual: *const u8, result: *mut u8) {
    let [first, second] = constants.factors;
    let (first, second, offset) = (V::splat(first), V::splat(second), V::splat(constants.offset));
    // SAFETY: the caller's promise.
    unsafe {
        let mut sums: [V; 4] = read(result, constants.signed[0]);
        let others: [V; 4] = read(residual, constants.signed[1]);
        for i in 0..4 {
            sums[i] = others[i].fma(second, sums[i].fma(first, offset));
        }
        V::store_8_bits(sums, constants.zero, constants.low, constants.to_signed, result);
    }
}

#[inline(always)]
unsafe fn read<V: Vector>(from: *const u8, signed: bool) -> [V; 4] {
    let mut read = [V::splat(0.0); 4];
    for (i, read) in read.iter_mut().enumerate() {
        // SAFETY: the caller's promise.
        *read = unsafe {
            let from = from.add(i * V::LANES);
            if signed {
                V::load_i8(from.cast())
            } else {
                V::load_u8(from)
            }
        };
    }
    read
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::quantization::Scheme;

    fn scheme(scale: f32, zero: i32, dtype: DType) -> Scheme {
        Scheme { scale, zero, dtype }
    }

    fn numbers(bits: &[u8], dtype: DType) -> Vec<f64> {
        let number = |&b: &u8| {
            if dtype == DType::Int8 {
                f64::from(b as i8)
            } else {
                f64::from(b)
            }
        };
        bits.iter().map(number).collect()
    }

    /// Scales that are powers of two, so that float64 gives what float32 should, halves among them.
    #[test]
    fn every_pair_of_dtypes_saturates_and_rounds_halves_to_even() {
        for add in every_addition([0.25, 0.5, 0.5]) {
            let (given, wanted) = given_and_wanted(&add);
            assert_eq!(given, wanted, "{add:?}");
        }
    }

    /// Scales of any bits: one in ten thousand may fall to the other side of a half.
    #[test]
    fn scales_of_any_bits_round_as_float64_does() {
        for add in every_addition([0.0317, 0.0471, 0.0523]) {
            let (given, wanted) = given_and_wanted(&add);
            let off: Vec<f64> = given
                .iter()
                .zip(&wanted)
                .map(|(a, b)| (a - b).abs())
                .filter(|&off| off > 0.0)
                .collect();
            assert!(
                off.len() <= given.len() / 10_000,
                "{} of {}: {add:?}",
                off.len(),
                given.len()
            );
            assert!(off.iter().all(|&off| off == 1.0), "{add:?}");
        }
    }

    #[test]
    fn where_an_offset_would_move_ties_there_is_no_loop() {
        let of = |product, residual| {
            Constants::of(&QLinearAdd {
                product: scheme(product, 121, DType::UInt8),
                residual: scheme(residual, 7, DType::UInt8),
                relu: false,
                result: scheme(1.0, 0, DType::UInt8),
            })
            .is_some()
        };
        assert!(of(0.5, 0.75) && of(0.3, 0.7) && of(1.0, 1.0));
        assert!(!of(0.5, 0.3) && !of(0.3, 1.5) && !of(1.0, 1.0 / 1_048_576.0));
        assert!(!of(1e30, 0.3) && !of(f32::MAX, f32::MAX));
    }

    /// All sums of two numbers of 8 bits, by the loop and in float64.
    fn given_and_wanted(add: &QLinearAdd) -> (Vec<f64>, Vec<f64>) {
        // Some are left behind the last vector.
        let first: Vec<u8> = (0..=255).flat_map(|a| [a; 256]).chain([7; 5]).collect();
        let residual: Vec<u8> = (0..256).flat_map(|_| 0..=255).chain([3; 5]).collect();
        let mut result = first.clone();
        let constants = Constants::of(add).unwrap();
        // SAFETY: both have as many elements.
        unsafe { super::add(result.len(), &constants, residual.as_ptr(), result.as_mut_ptr()) };
        let dequantized = |bits: &[u8], s: Scheme| -> Vec<f64> {
            let number = |x: f64| (x - f64::from(s.zero)) * f64::from(s.scale);
            numbers(bits, s.dtype).into_iter().map(number).collect()
        };
        let (a, b) = (dequantized(&first, add.product), dequantized(&residual, add.residual));
        let [low, high] = add.result.limits().map(f64::from);
        let wanted = a.iter().zip(&b).map(|(a, b)| {
            let sum = if add.relu { (a + b).max(0.0) } else { a + b };
            let whole = (sum / f64::from(add.result.scale)).round_ties_even() + f64::from(add.result.zero);
            whole.clamp(low, high)
        });
        (numbers(&result, add.result.dtype), wanted.collect())
    }

    /// Additions of every dtype with these scales of the product, the residual and the result, without and with Relu.
    fn every_addition(scales: [f32; 3]) -> Vec<QLinearAdd> {
        let of = |scale| [scheme(scale, -9, DType::Int8), scheme(scale, 121, DType::UInt8)];
        let [products, residuals, results] = scales.map(of);
        let mut found = vec![];
        for product in products {
            for residual in residuals {
                for result in results {
                    found.extend([false, true].map(|relu| QLinearAdd {
                        product,
                        residual,
                        relu,
                        result,
                    }));
                }
            }
        }
        found
    }
}
