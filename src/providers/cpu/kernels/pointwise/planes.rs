//! Planes of few channels that become pixels of 8 bits: what a first Quantize layer gives to a product that wants its channels last.

use crate::plan::Request;
use crate::plan::layout::{BLOCK, Layout, axes};
use crate::providers::cpu::simd::Isa;
use std::arch::x86_64::{_mm_loadu_si128, _mm_or_si128, _mm_setzero_si128, _mm_shuffle_epi8, _mm_storeu_si128};

/// A tensor that is read plane by plane and written pixel by pixel.
pub struct Planes {
    /// Planes of an image.
    pub channels: usize,
    /// Elements of a plane.
    pub pixels: usize,
    /// Pixels of all images.
    pub total: usize,
}

impl Planes {
    /// Those of a request: of one tensor that lies plainly, and one of 8 bits whose pixels lie one after another.
    pub fn of(request: &Request) -> Option<Self> {
        let ([x], [y]) = (request.inputs, request.outputs) else {
            return None;
        };
        let (channels, images) = (*y.shape.get(1)?, y.shape[0]);
        let pixels: usize = y.shape[2..].iter().product();
        let dense = |strides: &[usize]| {
            let mut stride = channels;
            let inner = (2..y.shape.len()).rev().all(|axis| {
                let own = strides[axis] == stride || y.shape[axis] == 1;
                stride *= y.shape[axis];
                own
            });
            inner && (images == 1 || strides[0] == stride)
        };
        let form = &request.form;
        let turned = form.inputs[..] == [Layout::Plain] && form.outputs[..] == [Layout::ChannelsLast];
        let fits = turned && x.shape == y.shape && y.dtype.size() == 1 && (2..=BLOCK).contains(&channels);
        (fits && pixels > 0 && dense(&axes(y).strides)).then_some(Self {
            channels,
            pixels,
            total: images * pixels,
        })
    }
}

/// Writes `n` pixels of so many channels, whose planes lie `pitch` bytes apart.
///
/// # Safety
/// The planes must hold `n` bytes each, and the pixels all of them.
pub unsafe fn interleave(channels: usize, planes: *const u8, pitch: usize, n: usize, to: *mut u8) {
    let done = match (channels, Isa::here()) {
        // SAFETY: the caller's promise; who has AVX2 has SSSE3.
        (3, Isa::Avx2 | Isa::Avx512) => unsafe { interleave_three(planes, pitch, n, to) },
        _ => 0,
    };
    for pixel in done..n {
        for channel in 0..channels {
            // SAFETY: the caller's promise.
            unsafe { *to.add(pixel * channels + channel) = *planes.add(channel * pitch + pixel) };
        }
    }
}

/// The same for pixels of three channels, sixteen at a time; returns how many there were.
///
/// # Safety
/// As [`interleave`], where SSSE3 is there.
#[target_feature(enable = "ssse3")]
unsafe fn interleave_three(planes: *const u8, pitch: usize, n: usize, to: *mut u8) -> usize {
    const EACH: usize = 16;
    /// For each part of the pixels and each channel, where its bytes are; what is negative becomes 0.
    const FROM: [[[i8; EACH]; 3]; 3] = {
        let mut from = [[[-1; EACH]; 3]; 3];
        let mut at = 0;
        while at < 3 * EACH {
            from[at / EACH][at % 3][at % EACH] = (at / 3) as i8;
            at += 1;
        }
        from
    };
    let whole = n / EACH * EACH;
    for pixel in (0..whole).step_by(EACH) {
        for (part, from) in FROM.iter().enumerate() {
            let mut bytes = _mm_setzero_si128();
            for (channel, places) in from.iter().enumerate() {
                // SAFETY: the caller's promise; there are as many places as bytes.
                let (plane, places) = unsafe {
                    let plane = planes.add(channel * pitch + pixel);
                    (_mm_loadu_si128(plane.cast()), _mm_loadu_si128(places.as_ptr().cast()))
                };
                bytes = _mm_or_si128(bytes, _mm_shuffle_epi8(plane, places));
            }
            // SAFETY: as above.
            unsafe { _mm_storeu_si128(to.add(pixel * 3 + part * EACH).cast(), bytes) };
        }
    }
    whole
}
