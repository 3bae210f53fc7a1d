//! Histogram.

use crate::error::{Error, Result};
use crate::network::array::Array;
use crate::network::dtype::DType;
use crate::network::op::{Evaluate, Infer, Lowering, OpDef, TensorType};

/// How often numbers of each size come: what calibration reads of a tensor.
pub static DEF: OpDef = OpDef {
    name: "Histogram",
    doc: "how often magnitudes of x come in 2048 bins of equal width from 0 to 2^exponent, the least power of two that is not \
          below the greatest of them, which the last bin takes too; that exponent; and the least and the greatest number. \
          Where one is not finite nothing is counted, and the exponent is 2147483647",
    inputs: &["x"],
    attrs: &[],
    infer,
    evaluate,
    lowering: Lowering::BOUNDED,
    ..OpDef::PLAIN
};

/// Bins of a histogram.
pub const BINS: usize = 2048;
/// The exponent of what holds a number that is not finite.
pub const NOT_FINITE: i32 = i32::MAX;
/// The least exponent: below it, numbers are not told from zero.
pub const LEAST: i32 = -100;
/// The greatest exponent.
pub const MOST: i32 = 127;
/// Numbers whose bins are found together.
const PACK: usize = 256;

/// What a histogram holds.
pub struct Counted {
    /// How many numbers fall into each bin.
    pub counts: Vec<u64>,
    /// The bins cover 0 to `2^exponent`.
    pub exponent: i32,
    /// The least and the greatest number; infinite where there is none.
    pub ends: [f32; 2],
}

impl Counted {
    /// Of numbers; nothing where one is not finite. Zeros count to the first bin.
    pub fn of(values: &[f32]) -> Option<Self> {
        let ends = ends(values)?;
        let exponent = exponent(ends[1].max(-ends[0]).max(0.0));
        let width = BINS as f32 * 2f32.powi(-exponent);
        // Four tables, so that equal numbers in a row do not wait for each other.
        let mut tables = vec![[0u32; 4]; BINS];
        let (packs, rest) = values.as_chunks::<PACK>();
        for pack in packs {
            for bins in find_bins(pack, width).as_chunks::<4>().0 {
                for (lane, &bin) in bins.iter().enumerate() {
                    tables[bin as usize % BINS][lane] += 1;
                }
            }
        }
        for &bin in &find_bins(rest, width)[..rest.len()] {
            tables[bin as usize % BINS][0] += 1;
        }
        Some(Self {
            counts: tables
                .iter()
                .map(|lanes| lanes.iter().map(|&n| u64::from(n)).sum())
                .collect(),
            exponent,
            ends,
        })
    }
}

/// Of the least power of two that is not below a magnitude.
fn exponent(magnitude: f32) -> i32 {
    let (field, fraction) = (magnitude.to_bits() >> 23, magnitude.to_bits() & 0x007f_ffff);
    (field as i32 - 127 + i32::from(fraction != 0)).clamp(LEAST, MOST)
}

/// The least and the greatest number, infinite where there is none; nothing where one is not finite.
fn ends(values: &[f32]) -> Option<[f32; 2]> {
    const LANES: usize = 16;
    let (mut low, mut high, mut zeros) = ([f32::INFINITY; LANES], [f32::NEG_INFINITY; LANES], [0.0; LANES]);
    let mut look = |lane: usize, value: f32| {
        low[lane] = if value < low[lane] { value } else { low[lane] };
        high[lane] = if value > high[lane] { value } else { high[lane] };
        // NaN for what is not finite.
        zeros[lane] += value * 0.0;
    };
    let (packs, rest) = values.as_chunks::<LANES>();
    for pack in packs {
        for (lane, &value) in pack.iter().enumerate() {
            look(lane, value);
        }
    }
    rest.iter().for_each(|&value| look(0, value));
    let fold = |of: [f32; LANES], f: fn(f32, f32) -> f32| of.into_iter().reduce(f).unwrap_or_default();
    (!fold(zeros, |a, b| a + b).is_nan()).then(|| [fold(low, f32::min), fold(high, f32::max)])
}

/// The bin of each of at most `PACK` finite numbers, by itself so that it is compiled to vectors.
fn find_bins(values: &[f32], width: f32) -> [i32; PACK] {
    const LAST: f32 = (BINS - 1) as f32;
    let mut bins = [0; PACK];
    for (bin, &value) in bins.iter_mut().zip(values) {
        let place = value.abs() * width;
        // SAFETY: the lesser of a number and `LAST` is no NaN and fits; a cast that saturates takes twice as long.
        *bin = unsafe { (if place < LAST { place } else { LAST }).to_int_unchecked() };
    }
    bins
}

fn infer(infer: &Infer) -> Result<Vec<TensorType>> {
    let x = infer.input(0)?;
    if x.dtype != DType::Float32 {
        return Err(Error::dtype("the input must be a float32 tensor").got(x.describe()));
    }
    Ok(vec![
        TensorType::new(DType::Int32, vec![(BINS as i64).into()]),
        TensorType::new(DType::Int32, vec![]),
        TensorType::new(DType::Float32, vec![2i64.into()]),
    ])
}

fn evaluate(e: &Evaluate) -> Result<Vec<Array>> {
    let values: Vec<f32> = e.input(0)?.f64s().map(|v| v as f32).collect();
    let Counted { counts, exponent, ends } = Counted::of(&values).unwrap_or(Counted {
        counts: vec![0; BINS],
        exponent: NOT_FINITE,
        ends: [f32::NAN; 2],
    });
    let counts: Vec<i64> = counts.into_iter().map(|n| n as i64).collect();
    Ok(vec![
        Array::from_i64(DType::Int32, vec![BINS], &counts)?,
        Array::scalar(DType::Int32, f64::from(exponent)),
        Array::from_f64(DType::Float32, vec![2], &ends.map(f64::from))?,
    ])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::attr::Attrs;
    use crate::network::reference::evaluate_op;

    #[test]
    fn each_power_of_two_is_the_least_that_holds_what_is_below() {
        for power in -100..128 {
            let two = 2f32.powi(power);
            assert_eq!(exponent(two), power);
            assert_eq!(exponent(f32::from_bits(two.to_bits() + 1)), (power + 1).min(127));
        }
        assert_eq!([0.0, 1e-45, 2f32.powi(-120)].map(exponent), [LEAST; 3]);
    }

    #[test]
    fn every_number_falls_into_a_bin() {
        let values: Vec<f64> = (0..1000).map(|i| f64::from(i) / 500.0 - 1.0).collect();
        let x = Array::from_f64(DType::Float32, vec![10, 100], &values).unwrap();
        let out = evaluate_op(&DEF, &Attrs::new(), &[Some(x)]).unwrap();
        let counts = out[0].to_i64();
        assert_eq!((counts.iter().sum::<i64>(), out[1].to_i64()[0]), (1000, 0));
        let of = |bin: usize| {
            values
                .iter()
                .filter(|v| ((v.abs() as f32 * 2048.0) as usize).min(2047) == bin)
                .count()
        };
        assert!((0..BINS).all(|bin| counts[bin] == of(bin) as i64));
        assert_eq!(out[2].to_f64(), [-1.0, f64::from(0.998f32)]);
    }

    #[test]
    fn what_is_not_finite_is_told() {
        for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            let x = Array::from_f64(DType::Float32, vec![3], &[1.0, bad, 2.0]).unwrap();
            let out = evaluate_op(&DEF, &Attrs::new(), &[Some(x)]).unwrap();
            assert_eq!(out[1].to_i64(), [i64::from(NOT_FINITE)]);
            assert!(out[0].to_i64().iter().all(|&n| n == 0));
        }
    }
}
