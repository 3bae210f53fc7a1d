//! Transposes of tiles of up to 16 by 16 elements.

use crate::providers::cpu::simd::Isa;
use std::arch::x86_64::*;

/// `to[r * to_stride + c] = from[c * from_stride + r]` for `r < rows`, `c < columns`; strides in elements.
///
/// # Safety
/// All those elements, of `size` bytes, must be readable and writable.
pub unsafe fn transpose_tile(
    size: usize,
    (rows, columns): (usize, usize),
    from: *const u8,
    from_stride: isize,
    to: *mut u8,
    to_stride: isize,
) {
    // SAFETY: the caller's promise; AVX2 was found where it is used.
    unsafe {
        match size {
            4 if Isa::here() != Isa::Portable => {
                transpose_avx2((rows, columns), from.cast(), from_stride, to.cast(), to_stride);
            }
            1 => plain::<u8>(0..rows, 0..columns, from.cast(), from_stride, to.cast(), to_stride),
            2 => plain::<u16>(0..rows, 0..columns, from.cast(), from_stride, to.cast(), to_stride),
            4 => plain::<u32>(0..rows, 0..columns, from.cast(), from_stride, to.cast(), to_stride),
            _ => plain::<u64>(0..rows, 0..columns, from.cast(), from_stride, to.cast(), to_stride),
        }
    }
}

#[inline(always)]
unsafe fn plain<T: Copy>(
    rows: std::ops::Range<usize>,
    columns: std::ops::Range<usize>,
    from: *const T,
    from_stride: isize,
    to: *mut T,
    to_stride: isize,
) {
    for r in rows {
        for c in columns.clone() {
            let (r, c) = (r as isize, c as isize);
            // SAFETY: the caller's promise.
            unsafe { to.offset(r * to_stride + c).write(*from.offset(c * from_stride + r)) };
        }
    }
}

/// As [`transpose_tile`] for four bytes: squares of eight in registers, the rest one by one.
#[target_feature(enable = "avx2")]
unsafe fn transpose_avx2(
    (rows, columns): (usize, usize),
    from: *const f32,
    from_stride: isize,
    to: *mut f32,
    to_stride: isize,
) {
    let (whole_rows, whole_columns) = (rows / 8 * 8, columns / 8 * 8);
    // SAFETY: the caller's promise; squares lie within the tile.
    unsafe {
        for r in (0..whole_rows as isize).step_by(8) {
            for c in (0..whole_columns as isize).step_by(8) {
                square(
                    from.offset(c * from_stride + r),
                    from_stride,
                    to.offset(r * to_stride + c),
                    to_stride,
                );
            }
        }
        plain(whole_rows..rows, 0..columns, from, from_stride, to, to_stride);
        plain(0..whole_rows, whole_columns..columns, from, from_stride, to, to_stride);
    }
}

#[target_feature(enable = "avx2")]
unsafe fn square(from: *const f32, from_stride: isize, to: *mut f32, to_stride: isize) {
    let mut a = [_mm256_setzero_ps(); 8];
    for (i, row) in a.iter_mut().enumerate() {
        // SAFETY: the caller's promise.
        *row = unsafe { _mm256_loadu_ps(from.offset(i as isize * from_stride)) };
    }
    let pairs = |i: usize| (_mm256_unpacklo_ps(a[i], a[i + 1]), _mm256_unpackhi_ps(a[i], a[i + 1]));
    let ((a0, a1), (a2, a3)) = (pairs(0), pairs(2));
    let ((a4, a5), (a6, a7)) = (pairs(4), pairs(6));
    let quads = |x, y| (_mm256_shuffle_ps::<0x44>(x, y), _mm256_shuffle_ps::<0xee>(x, y));
    let ((b0, b1), (b2, b3)) = (quads(a0, a2), quads(a1, a3));
    let ((b4, b5), (b6, b7)) = (quads(a4, a6), quads(a5, a7));
    let halves = |x, y| {
        (
            _mm256_permute2f128_ps::<0x20>(x, y),
            _mm256_permute2f128_ps::<0x31>(x, y),
        )
    };
    let ((c0, c4), (c1, c5)) = (halves(b0, b4), halves(b1, b5));
    let ((c2, c6), (c3, c7)) = (halves(b2, b6), halves(b3, b7));
    for (i, row) in [c0, c1, c2, c3, c4, c5, c6, c7].into_iter().enumerate() {
        // SAFETY: the caller's promise.
        unsafe { _mm256_storeu_ps(to.offset(i as isize * to_stride), row) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiles_of_any_extent_are_turned() {
        for (rows, columns) in [(16, 16), (8, 16), (3, 16), (16, 5), (11, 13), (1, 1)] {
            let from: Vec<u32> = (0..20 * 16).collect();
            let mut to = vec![0u32; 20 * 16];
            // SAFETY: both hold 16 rows of 20.
            unsafe { transpose_tile(4, (rows, columns), from.as_ptr().cast(), 20, to.as_mut_ptr().cast(), 20) };
            for r in 0..rows {
                assert!((0..columns).all(|c| to[r * 20 + c] == (c * 20 + r) as u32));
            }
        }
    }
}
