//! Rows of 8 bits times weights of 4 or 8 bits, summed as integers within a unit.

use super::columns::{Bytes, per_vector};
use super::pack::{LANES, Units, VECTOR};
use super::results::{Target, Totals};
use super::rows::{Rounded, by_rows};
use crate::providers::cpu::simd::{Avx2, Avx512, Isa, Portable};

/// One group of columns times a tile of up to twelve rounded rows.
///
/// # Safety
/// `group` must hold a packed group, `x` a tile of rounded rows, and `target` the results.
pub unsafe fn direct(units: &Units, rows: usize, group: *const u8, x: *mut u8, target: Target) {
    let vnni = is_x86_feature_detected!("avx512vnni");
    // SAFETY: the caller's promise, and the instruction sets were found on this processor.
    unsafe {
        match Isa::here() {
            Isa::Avx512 if vnni => avx512(units, rows, group, x, target),
            Isa::Avx512 | Isa::Avx2 => avx2(units, rows, group, x, target),
            Isa::Portable => by_bits::<Portable>(units, rows, group, x, target),
        }
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
unsafe fn avx512(units: &Units, rows: usize, group: *const u8, x: *mut u8, target: Target) {
    // SAFETY: the caller's promise.
    unsafe { by_bits::<Avx512>(units, rows, group, x, target) }
}

#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn avx2(units: &Units, rows: usize, group: *const u8, x: *mut u8, target: Target) {
    // SAFETY: the caller's promise.
    unsafe { by_bits::<Avx2>(units, rows, group, x, target) }
}

#[inline(always)]
unsafe fn by_bits<V: Bytes>(units: &Units, rows: usize, group: *const u8, x: *mut u8, target: Target) {
    // SAFETY: the caller's promise.
    unsafe {
        by_rows!(rows, [1 2 3 4 5 6 7 8 9 10 11; 12], |R| match units.geometry.bits {
            4 => of_rows::<V, R, 4>(units, group, x, target),
            _ => of_rows::<V, R, 8>(units, group, x, target),
        });
    }
}

#[inline(always)]
unsafe fn of_rows<V: Bytes, const R: usize, const BITS: usize>(
    units: &Units,
    group: *const u8,
    x: *mut u8,
    target: Target,
) {
    let x = Rounded::at(x, units, R);
    let mut totals = Totals::<V, R>::new();
    // SAFETY: the caller's promise.
    unsafe {
        for unit in 0..units.count() {
            for part in 0..LANES / V::LANES {
                let from = group.add(unit * units.unit_bytes() + part * V::LANES * 4);
                let mut sums = [V::start(0); R];
                for (row, sum) in sums.iter_mut().enumerate() {
                    *sum = V::start(*x.starts.add(unit * R + row));
                }
                let codes = x.codes.add(unit * units.unit * R).cast::<i32>();
                accumulate::<V, R, BITS>(units, from.add(units.header()), codes, &mut sums);
                let scale = V::load(from.cast());
                for (row, sum) in sums.into_iter().enumerate() {
                    let scale = scale * V::splat(*x.scales.add(unit * R + row));
                    totals.add(row, part, V::finish(sum), scale);
                }
                if units.shifted {
                    totals.add_shift(part, from, x.sums.add(unit * R));
                }
            }
        }
        totals.put(&target);
    }
}

/// Adds the products of a unit.
#[inline(always)]
unsafe fn accumulate<V: Bytes, const R: usize, const BITS: usize>(
    units: &Units,
    integers: *const u8,
    codes: *const i32,
    sums: &mut [V::Sums; R],
) {
    // Four neighbours are an integer of 32 bits.
    let fours = per_vector(BITS) / 4;
    // SAFETY: the caller's promise.
    unsafe {
        for vector in 0..units.unit * BITS / 32 {
            let w = integers.add(vector * VECTOR);
            for (row, sum) in sums.iter_mut().enumerate() {
                let x = codes.add(fours * vector * R + row);
                *sum = match BITS {
                    4 => V::add_of_4(*sum, w, x, R),
                    _ => V::add_of_8(*sum, w, x),
                };
            }
        }
    }
}
