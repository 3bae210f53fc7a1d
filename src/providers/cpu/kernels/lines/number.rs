//! The classes of numbers that lines are computed in.

use super::{Tile, arg};
use crate::network::dtype::DType;
use crate::providers::cpu::simd::convert;

/// A class of numbers.
pub trait Number: Copy + PartialOrd + Send + Sync + 'static {
    /// What sums and products are kept in.
    type Sum: Copy + Default;
    /// The sum and one element more.
    fn add(sum: Self::Sum, element: Self) -> Self::Sum;
    /// The product of nothing.
    const ONE: Self::Sum;
    /// The product and one element more.
    fn times(product: Self::Sum, element: Self) -> Self::Sum;
    /// A sum or product as a number.
    fn of(sum: Self::Sum) -> Self;
    /// Reads `n` neighbours of `dtype`.
    ///
    /// # Safety
    /// They must be readable and `to` writable.
    unsafe fn widen(dtype: DType, from: *const u8, to: *mut Self, n: usize);
    /// Writes `n` neighbours as `dtype`.
    ///
    /// # Safety
    /// They must be readable and `to` writable.
    unsafe fn narrow(dtype: DType, from: *const Self, to: *mut u8, n: usize);
    /// Writes the place of the (greatest or least, last or first) best element of each lane of a tile.
    ///
    /// # Safety
    /// The tile must be readable, and as many places as lanes writable.
    unsafe fn arg(from: *const Self, tile: &Tile, order: (bool, bool), to: *mut i64) {
        // SAFETY: the caller's promise.
        unsafe { arg::lanes(from, tile, order, to) }
    }
}

impl Number for f32 {
    type Sum = f64;
    #[inline(always)]
    fn add(sum: f64, element: f32) -> f64 {
        sum + element as f64
    }
    const ONE: f64 = 1.0;
    #[inline(always)]
    fn times(product: f64, element: f32) -> f64 {
        product * element as f64
    }
    #[inline(always)]
    fn of(sum: f64) -> f32 {
        sum as f32
    }
    unsafe fn widen(dtype: DType, from: *const u8, to: *mut f32, n: usize) {
        // SAFETY: the caller's promise.
        unsafe { convert::to_f32(dtype, from, to, n) }
    }
    unsafe fn narrow(dtype: DType, from: *const f32, to: *mut u8, n: usize) {
        // SAFETY: the caller's promise.
        unsafe { convert::from_f32(dtype, from, to, n) }
    }
    unsafe fn arg(from: *const f32, tile: &Tile, order: (bool, bool), to: *mut i64) {
        // SAFETY: the caller's promise.
        unsafe {
            match tile.width {
                1 => to.write(arg::line(std::slice::from_raw_parts(from, tile.length), order)),
                _ => arg::lanes_f32(from, tile, order, to),
            }
        }
    }
}

impl Number for f64 {
    type Sum = f64;
    fn add(sum: f64, element: f64) -> f64 {
        sum + element
    }
    const ONE: f64 = 1.0;
    fn times(product: f64, element: f64) -> f64 {
        product * element
    }
    fn of(sum: f64) -> f64 {
        sum
    }
    unsafe fn widen(_dtype: DType, from: *const u8, to: *mut f64, n: usize) {
        // SAFETY: the caller's promise; the only dtype of this class is itself.
        unsafe { std::ptr::copy_nonoverlapping(from.cast(), to, n) }
    }
    unsafe fn narrow(_dtype: DType, from: *const f64, to: *mut u8, n: usize) {
        // SAFETY: as above.
        unsafe { std::ptr::copy_nonoverlapping(from, to.cast(), n) }
    }
}

impl Number for i64 {
    type Sum = i64;
    fn add(sum: i64, element: i64) -> i64 {
        sum.wrapping_add(element)
    }
    const ONE: i64 = 1;
    fn times(product: i64, element: i64) -> i64 {
        product.wrapping_mul(element)
    }
    fn of(sum: i64) -> i64 {
        sum
    }
    unsafe fn widen(dtype: DType, from: *const u8, to: *mut i64, n: usize) {
        // SAFETY: the caller's promise.
        unsafe { convert::to_i64(dtype, from, to, n) }
    }
    unsafe fn narrow(dtype: DType, from: *const i64, to: *mut u8, n: usize) {
        // SAFETY: the caller's promise.
        unsafe { convert::from_i64(dtype, from, to, n) }
    }
}
