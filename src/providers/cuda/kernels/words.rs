//! What kernels that only move elements share: their words for shapes, and types that have as many bytes.

use crate::network::dtype::DType;

/// Bytes that a thread moves at once, at most.
const WIDEST: usize = 16;

/// `Divisor` of `types.cuh`: what divides numbers below 2^31 by `size`.
pub fn divisor(size: usize) -> [i64; 3] {
    // Greater sizes are refused where words become fields.
    let by = (size as u64).clamp(1, 1 << 31);
    let shift = by.next_power_of_two().trailing_zeros();
    // Of 33 bits, the highest is 1 and left out.
    let multiplier = (((1u64 << shift) - by) << 32) / by + 1;
    [
        size.max(1) as i64,
        i64::from(multiplier as u32 as i32),
        i64::from(shift),
    ]
}

/// The unsigned integer that has as many bytes as an element.
pub fn bits(dtype: DType) -> &'static str {
    match dtype.size() {
        1 => "uint8",
        2 => "uint16",
        4 => "uint32",
        _ => "uint64",
    }
}

/// The most elements of so many bytes that a thread may take at once where each of these numbers is divided evenly.
pub fn pack(size: usize, evenly: impl IntoIterator<Item = usize>) -> usize {
    let common = evenly.into_iter().fold(WIDEST / size, greatest_common);
    // Of a power of two, every divisor is one.
    common.max(1)
}

fn greatest_common(a: usize, b: usize) -> usize {
    if b == 0 { a } else { greatest_common(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_multiplication_divides() {
        for size in [1usize, 2, 3, 5, 7, 64, 100, 641, 65537, (1 << 30) + 1, (1 << 31) - 1] {
            let [size, multiplier, shift] = divisor(size).map(|word| word as u32);
            for number in [
                0u32,
                1,
                size - 1,
                size,
                size.wrapping_add(1),
                12345,
                1 << 30,
                (1 << 31) - 1,
            ] {
                let number = number.min((1 << 31) - 1);
                let high = ((u64::from(number) * u64::from(multiplier)) >> 32) as u32;
                assert_eq!((high + number) >> shift, number / size, "{number} / {size}");
            }
        }
    }

    #[test]
    fn packs_divide_everything() {
        assert_eq!(pack(2, [768, 1536]), 8);
        assert_eq!(pack(4, [6, 0]), 2);
        assert_eq!(pack(8, [3]), 1);
        assert_eq!(pack(1, []), 16);
    }
}
