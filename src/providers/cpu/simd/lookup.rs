//! Bytes through a table.

use std::arch::x86_64::*;

/// `to[i] = table[from[i]]` for `i < n`; `to` may be `from`.
///
/// # Safety
/// `n` bytes must be readable at `from` and writable at `to`.
pub unsafe fn lookup(table: &[u8; 256], from: *const u8, to: *mut u8, n: usize) {
    let vectors = is_x86_feature_detected!("avx512vbmi") && is_x86_feature_detected!("avx512bw");
    // SAFETY: the caller's promise, and the instructions were found on this processor.
    unsafe {
        let done = if vectors { by_vectors(table, from, to, n) } else { 0 };
        for i in done..n {
            to.add(i).write(table[usize::from(*from.add(i))]);
        }
    }
}

/// As [`lookup`], 64 bytes at a time; gives how many it did.
///
/// # Safety
/// As [`lookup`], on a processor with AVX-512 BW and VBMI.
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
unsafe fn by_vectors(table: &[u8; 256], from: *const u8, to: *mut u8, n: usize) -> usize {
    let whole = n / 64 * 64;
    // SAFETY: the table has four times 64 bytes; of the others the caller's promise.
    unsafe {
        let [a, b, c, d] = [0, 64, 128, 192].map(|at| _mm512_loadu_si512(table.as_ptr().add(at).cast()));
        for i in (0..whole).step_by(64) {
            let codes = _mm512_loadu_si512(from.add(i).cast());
            // Seven bits choose from a pair of registers, the eighth between the pairs.
            let low = _mm512_permutex2var_epi8(a, codes, b);
            let high = _mm512_permutex2var_epi8(c, codes, d);
            let found = _mm512_mask_blend_epi8(_mm512_movepi8_mask(codes), low, high);
            _mm512_storeu_si512(to.add(i).cast(), found);
        }
    }
    whole
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_at_every_length() {
        let table: [u8; 256] = std::array::from_fn(|i| (i * 7 + 3) as u8);
        let bytes: Vec<u8> = (0..400u32).map(|i| (i * 89 + i / 256) as u8).collect();
        for n in [0, 1, 63, 64, 65, 256, 400] {
            let mut got = bytes.clone();
            let at = got.as_mut_ptr();
            // SAFETY: 400 bytes are there.
            unsafe { lookup(&table, at, at, n) };
            let want = bytes
                .iter()
                .enumerate()
                .map(|(i, &b)| if i < n { table[usize::from(b)] } else { b });
            assert!(want.eq(got), "{n}");
        }
    }
}
