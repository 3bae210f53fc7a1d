//! Rows of uint8, each with its scale and zero point, times weights of int8.

use crate::error::Result;
use crate::network::array::{Array, Buffer};
use crate::network::dtype::DType;
use std::arch::x86_64::*;

/// Columns of a group: a vector has a lane for each.
pub const LANES: usize = 16;
/// Groups that are computed at a time.
pub const WIDE: usize = 4;

/// The weights of a direction: for each 16 columns, and each four places along K, a vector with the four of a column in each lane.
pub struct Columns {
    /// Rows of the weights, which are summed over.
    pub k: usize,
    /// Columns.
    pub count: usize,
    integers: Buffer,
    /// By column, up to the end of the last group.
    scales: Vec<f32>,
    zeros: Vec<i32>,
    /// The sum of the integers of a column.
    sums: Vec<i32>,
    shifted: bool,
}

impl Columns {
    /// Packs the weights `[D, K, columns]` of a direction.
    ///
    /// # Errors
    /// If there is no memory.
    pub fn new(weights: &Array, scale: &Array, zero: &Array, direction: usize) -> Result<Self> {
        let (k, count) = (weights.shape()[1], weights.shape()[2]);
        let directions = weights.shape()[0];
        let room = count.next_multiple_of(LANES);
        // Of uint8 the signed integers of the same places are meant, with zero points as much lower.
        let shift = if weights.dtype() == DType::UInt8 { 128 } else { 0 };
        let parameter = |array: &Array| -> Vec<f64> {
            let values = array.to_f64();
            let own = match values.len() == directions {
                true => vec![values[direction]; count],
                false => values[direction * count..][..count].to_vec(),
            };
            own.into_iter().chain(std::iter::repeat_n(0.0, room - count)).collect()
        };
        let mut zeros: Vec<i32> = parameter(zero).iter().map(|&zero| zero as i32 - shift).collect();
        zeros[count..].fill(0);
        let mut made = Self {
            k,
            count,
            integers: Buffer::try_zeroed(room * k.next_multiple_of(4))?,
            scales: parameter(scale).iter().map(|&scale| scale as f32).collect(),
            shifted: zeros.iter().any(|&zero| zero != 0),
            zeros,
            sums: vec![0; room],
        };
        let codes = weights.to_i64();
        let quads = made.quads();
        for row in 0..k {
            for column in 0..count {
                let code = codes[(direction * k + row) * count + column] as i32 - shift;
                let vector = column / LANES * quads + row / 4;
                let at = vector * 4 * LANES + column % LANES * 4 + row % 4;
                made.integers.as_mut_slice()[at] = code as u8;
                made.sums[column] += code;
            }
        }
        Ok(made)
    }

    /// Whether a zero point is another one than 0.
    pub fn is_shifted(&self) -> bool {
        self.shifted
    }

    /// Fours along K.
    pub fn quads(&self) -> usize {
        self.k.div_ceil(4)
    }

    /// Groups of columns.
    pub fn groups(&self) -> usize {
        self.count.div_ceil(LANES)
    }
}

/// Rows of integers.
#[derive(Clone, Copy)]
pub struct Rows {
    pub codes: *const u8,
    /// What the integers of each row stand for.
    pub numbers: *const Number,
    pub count: usize,
}

/// What the integers of a row stand for: `(code - zero) * scale`.
#[derive(Clone, Copy)]
pub struct Number {
    pub scale: f32,
    pub zero: i32,
    /// Of the integers, where the weights have zero points.
    pub sum: i32,
}

impl Columns {
    /// A row as integers.
    pub fn round(&self, row: &[f32], (scale, zero): (f32, f32), codes: &mut [u8]) -> Number {
        crate::providers::cpu::kernels::quantized::dynamic::quantize(row, (scale, zero), codes);
        let sum = if self.shifted {
            codes.iter().map(|&code| i32::from(code)).sum()
        } else {
            0
        };
        Number {
            scale,
            zero: zero as i32,
            sum,
        }
    }

    /// The products of some groups and all rows, at `out`, with so many elements from a row to the next.
    ///
    /// # Safety
    /// The rows must hold four times `quads` integers each, and `out` the results; the processor must have AVX-512 and VNNI.
    pub unsafe fn product(&self, groups: std::ops::Range<usize>, rows: Rows, out: *mut f32, stride: usize) {
        let width = if rows.count < 3 { 2 * WIDE } else { WIDE };
        let mut group = groups.start;
        while group < groups.end {
            let wide = group + width <= groups.end;
            let mut row = 0;
            while row < rows.count {
                let left = rows.count - row;
                // SAFETY: the caller's promise.
                row += unsafe {
                    match (left, wide) {
                        (1, true) if width > WIDE => self.tile::<1, { 2 * WIDE }>(group, row, rows, out, stride),
                        (2, true) if width > WIDE => self.tile::<2, { 2 * WIDE }>(group, row, rows, out, stride),
                        (1, true) => self.tile::<1, WIDE>(group, row, rows, out, stride),
                        (2 | 3, true) => self.tile::<2, WIDE>(group, row, rows, out, stride),
                        (4 | 5, true) => self.tile::<4, WIDE>(group, row, rows, out, stride),
                        (_, true) => self.tile::<6, WIDE>(group, row, rows, out, stride),
                        (1..4, false) => self.tile::<1, 1>(group, row, rows, out, stride),
                        (_, false) => self.tile::<4, 1>(group, row, rows, out, stride),
                    }
                };
            }
            group += if wide { width } else { 1 };
        }
    }

    /// `R` rows times `V` groups; gives `R`.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
    unsafe fn tile<const R: usize, const V: usize>(
        &self,
        group: usize,
        first: usize,
        rows: Rows,
        out: *mut f32,
        stride: usize,
    ) -> usize {
        let quads = self.quads();
        let mut sums = [[_mm512_setzero_si512(); V]; R];
        // SAFETY: the caller's promise; vectors of the groups lie in the buffer.
        unsafe {
            let weights = self.integers.as_ptr().cast_const().add(group * quads * 4 * LANES);
            let codes = rows.codes.add(first * quads * 4);
            for quad in 0..quads {
                let mut w = [_mm512_setzero_si512(); V];
                for (v, w) in w.iter_mut().enumerate() {
                    *w = _mm512_loadu_si512(weights.add((v * quads + quad) * 4 * LANES).cast());
                }
                for (row, sums) in sums.iter_mut().enumerate() {
                    let four = codes.add((row * quads + quad) * 4).cast::<i32>().read_unaligned();
                    let four = _mm512_set1_epi32(four);
                    for (sum, &w) in sums.iter_mut().zip(&w) {
                        *sum = _mm512_dpbusd_epi32(*sum, four, w);
                    }
                }
            }
            for (row, sums) in sums.into_iter().enumerate() {
                let number = *rows.numbers.add(first + row);
                for (v, sum) in sums.into_iter().enumerate() {
                    let column = (group + v) * LANES;
                    let value = self.number(column, sum, number);
                    let left = (self.count - column).min(LANES);
                    let to = out.add((first + row) * stride + column);
                    _mm512_mask_storeu_ps(to, ((1u32 << left) - 1) as __mmask16, value);
                }
            }
        }
        R
    }

    /// Sums of integers as numbers.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
    unsafe fn number(&self, column: usize, sum: __m512i, row: Number) -> __m512 {
        // SAFETY: what each column has reaches to the end of its group.
        unsafe {
            let own = _mm512_loadu_si512(self.sums.as_ptr().add(column).cast());
            let mut sum = _mm512_sub_epi32(sum, _mm512_mullo_epi32(own, _mm512_set1_epi32(row.zero)));
            if self.shifted {
                let zeros = _mm512_loadu_si512(self.zeros.as_ptr().add(column).cast());
                let rest = (self.k as i32).wrapping_mul(row.zero).wrapping_sub(row.sum);
                sum = _mm512_add_epi32(sum, _mm512_mullo_epi32(zeros, _mm512_set1_epi32(rest)));
            }
            let scale = _mm512_mul_ps(
                _mm512_loadu_ps(self.scales.as_ptr().add(column)),
                _mm512_set1_ps(row.scale),
            );
            _mm512_mul_ps(_mm512_cvtepi32_ps(sum), scale)
        }
    }
}
