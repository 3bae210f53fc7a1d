//! Whether arrays were written to by somebody who tells nobody: a few words of each.

/// A word.
const WORD: usize = size_of::<u64>();
/// So many words of an array are read, from the first to the last.
const WORDS: usize = 8;

/// What a few words of an array come to. Another number means that it was written to; the same one, that whatever was
/// written changed none of these words.
///
/// # Safety
/// So many bytes can be read at the address. Others may write there meanwhile: then the number is that of neither state.
pub unsafe fn fingerprint(address: *const u8, bytes: usize) -> u64 {
    let word = |start: usize, size: usize| {
        let mut word = [0; WORD];
        for (at, byte) in word.iter_mut().enumerate().take(size) {
            // SAFETY: within the bytes that the caller vouches for; volatile, as another thread may write them.
            *byte = unsafe { address.add(start + at).read_volatile() };
        }
        u64::from_le_bytes(word)
    };
    if bytes <= WORD * WORDS {
        return (0..bytes)
            .step_by(WORD)
            .fold(0, |all, start| mixed(all, word(start, WORD.min(bytes - start))));
    }
    let last = (bytes - WORD) / WORD;
    (0..WORDS).fold(0, |all, number| {
        let start = last * number / (WORDS - 1) * WORD;
        // SAFETY: as above; the address need not be a multiple of a word.
        let word = unsafe { address.add(start).cast::<[u8; WORD]>().read_volatile() };
        mixed(all, u64::from_le_bytes(word))
    })
}

/// A number in which each bit of both shows.
fn mixed(all: u64, word: u64) -> u64 {
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
    (all.rotate_left(29) ^ word).wrapping_mul(ODD)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(array: &[u8]) -> u64 {
        // SAFETY: the slice can be read.
        unsafe { fingerprint(array.as_ptr(), array.len()) }
    }

    #[test]
    fn each_byte_of_a_small_array_counts() {
        for bytes in 0..=WORD * WORDS {
            let mut array = vec![7; bytes];
            let before = of(&array);
            for at in 0..bytes {
                array[at] ^= 1;
                assert_ne!(of(&array), before, "{at} of {bytes}");
                array[at] ^= 1;
            }
            assert_eq!(of(&array), before);
        }
    }

    #[test]
    fn a_change_of_every_element_shows_in_a_large_one() {
        for bytes in [WORD * WORDS + 1, 1000, 4 * 4096 + 3] {
            let array: Vec<u8> = (0..bytes).map(|at| at as u8).collect();
            let other: Vec<u8> = array.iter().map(|byte| byte.wrapping_add(1)).collect();
            assert_ne!(of(&array), of(&other));
            let shifted = &array[1..];
            assert_ne!(of(shifted), of(&array[..bytes - 1]));
        }
    }
}
