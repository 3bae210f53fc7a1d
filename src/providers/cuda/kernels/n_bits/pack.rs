//! Weights of few bits as `n_bits.cu` reads them: tiles of 16 columns in pieces of 64 terms, and behind them scales and zero points.

use crate::device::Memory;
use crate::error::Result;
use crate::network::array::Array;
use crate::network::dtype::DType;
use crate::network::ops::matmul_n_bits::Geometry;
use crate::providers::cuda::device::memory::DeviceMemory;
use crate::providers::cuda::device::{Arguments, Device};
use crate::providers::cuda::kernels::spare::get_or_try_init;
use std::sync::{Arc, OnceLock};

/// `TILE`, `PIECE` and `TERMS` of `n_bits.cu`.
pub const TILE: usize = 16;
const PIECE: usize = 64;
const TERMS: usize = 16;
/// Lanes of a warp, and those that have the same columns.
const LANES: usize = 32;
const ROW: usize = 4;
/// What lists begin at multiples of.
const EVEN: usize = 256;

/// The weights of a layer, and what their codes stand for.
pub struct Weights {
    /// How they lie in the model.
    pub geometry: Geometry,
    codes: Array,
    /// A number for each block of each column.
    scales: Vec<f64>,
    zeros: Option<Vec<u8>>,
    /// The type that holds all scales.
    pub scale: DType,
    uploaded: OnceLock<Arc<DeviceMemory>>,
}

impl Weights {
    /// Those of a layer whose zero points are integers of as many bits; `None` for others, and for blocks that the kernel does not take.
    pub fn new(geometry: Geometry, codes: &Array, scales: &Array, zeros: Option<&Array>) -> Option<Self> {
        let middle = geometry.middle();
        let zeros = geometry
            .zeros(zeros)
            .filter(|zeros| zeros.iter().any(|&zero| zero != middle));
        let whole = |&zero: &f64| zero.fract() == 0.0 && (0.0..2.0 * middle).contains(&zero);
        let fits = matches!(geometry.bits, 4 | 8) && geometry.block.is_multiple_of(TERMS);
        if !fits || !zeros.iter().flatten().all(whole) {
            return None;
        }
        let scales = scales.to_f64();
        let halves = Array::from_f64(DType::Float16, vec![scales.len()], &scales).ok()?;
        let scale = if halves.to_f64() == scales {
            DType::Float16
        } else {
            DType::Float32
        };
        Some(Self {
            geometry,
            codes: codes.clone(),
            zeros: zeros.map(|zeros| zeros.iter().map(|&zero| zero as u8).collect()),
            scales,
            scale,
            uploaded: OnceLock::new(),
        })
    }

    /// Whether zero points are others than the middle.
    pub fn has_zeros(&self) -> bool {
        self.zeros.is_some()
    }

    /// Tiles of the columns.
    pub fn tiles(&self) -> usize {
        self.geometry.n.div_ceil(TILE)
    }

    /// Pieces of a tile.
    pub fn pieces(&self) -> usize {
        self.geometry.k.div_ceil(PIECE)
    }

    /// Columns, with those that fill the last tile up.
    pub fn pitch(&self) -> usize {
        self.tiles() * TILE
    }

    /// Where scales begin, and zero points.
    fn starts(&self) -> [usize; 2] {
        let codes = self.pitch() * self.pieces() * PIECE * self.geometry.bits / 8;
        let scales = codes.next_multiple_of(EVEN);
        let listed = self.pitch() * self.geometry.blocks() * self.scale.size();
        [scales, (scales + listed).next_multiple_of(EVEN)]
    }

    /// The code of a column and a term; 0 beyond both.
    fn code(&self, column: usize, term: usize) -> u32 {
        let Geometry { n, bits, block, .. } = self.geometry;
        let terms = self.geometry.blocks() * block;
        if column >= n || term >= terms {
            return 0;
        }
        let bit = term * bits;
        let byte = self.codes.bytes()[column * terms * bits / 8 + bit / 8];
        u32::from(byte >> (bit % 8)) & ((1 << bits) - 1)
    }

    /// The word at a place: for each product of a piece a lane has one of codes of 4 bits, two of 8 bits, in packs of four words that lie
    /// lane by lane. The pairs of codes of an operand are as `Codes` of `n_bits.cu` takes them apart.
    fn word(&self, at: usize) -> u32 {
        let bits = self.geometry.bits;
        let (in_pack, lane, rest) = (at % 4, at / 4 % LANES, at / 4 / LANES);
        let packs = bits / 4;
        let (pack, number) = (rest % packs, rest / packs);
        let (tile, piece) = (number / self.pieces(), number % self.pieces());
        let word = pack * 4 + in_pack;
        let (product, part) = (word / packs, word % packs);
        let (column, term) = (
            tile * TILE + lane / ROW,
            piece * PIECE + product * TERMS + lane % ROW * ROW,
        );
        // The second of a pair of 4 bits lies in the upper half.
        let (pairs, places): (_, [usize; 2]) = match bits {
            4 => (0..4, [4, 16]),
            _ => (part * 2..part * 2 + 2, [16, 8]),
        };
        let first = pairs.start;
        let pair = |pair: usize| {
            let (column, term) = (column + pair % 2 * 8, term + pair / 2 * 2);
            let of = |i: usize| self.code(column, term + i) << ((pair - first) * places[0] + i * places[1]);
            of(0) | of(1)
        };
        pairs.map(pair).fold(0, |word, codes| word | codes)
    }

    /// A list with an entry for each column of each block, zero in columns that fill the last tile up; both columns of a lane lie together.
    fn list<T: Copy>(&self, of: impl Fn(usize) -> T, none: T) -> Vec<T> {
        let (n, blocks) = (self.geometry.n, self.geometry.blocks());
        let entry = |block: usize, at: usize| {
            let column = at / TILE * TILE + at % TILE / 2 + at % 2 * (TILE / 2);
            if column < n { of(column * blocks + block) } else { none }
        };
        (0..blocks)
            .flat_map(|block| (0..self.pitch()).map(move |at| entry(block, at)))
            .collect()
    }

    fn packed(&self) -> Result<Vec<u8>> {
        let words = self.pitch() * self.pieces() * PIECE * self.geometry.bits / 32;
        let codes = Array::filled(DType::UInt32, vec![words], |first, bytes| {
            let slots = bytes.chunks_exact_mut(4).enumerate();
            slots.for_each(|(at, slot)| slot.copy_from_slice(&self.word(first + at).to_le_bytes()));
        })?;
        let [scales, zeros] = self.starts();
        let listed = self.list(|at| self.scales[at], 0.0);
        let listed = Array::from_f64(self.scale, vec![listed.len()], &listed)?;
        let mut bytes = codes.bytes().to_vec();
        bytes.resize(scales, 0);
        bytes.extend(listed.bytes());
        bytes.resize(zeros, 0);
        bytes.extend(self.zeros.iter().flat_map(|zeros| self.list(|at| zeros[at], 0)));
        Ok(bytes)
    }

    /// They in the memory of a GPU, once for all who ask.
    ///
    /// # Errors
    /// If there is too little of it.
    pub fn on(&self, device: &Arc<Device>) -> Result<OnDevice> {
        let memory = get_or_try_init(&self.uploaded, || device.upload(&self.packed()?).map(Arc::new))?;
        Ok(OnDevice {
            memory: memory.clone(),
            starts: self.starts(),
        })
    }
}

/// Weights in the memory of a GPU.
pub struct OnDevice {
    memory: Arc<DeviceMemory>,
    starts: [usize; 2],
}

impl OnDevice {
    /// Adds where codes, scales and zero points begin.
    pub fn pass<'a>(&self, arguments: &'a mut Arguments) -> &'a mut Arguments {
        let begin = self.memory.address().cast_const();
        let [scales, zeros] = self.starts.map(|start| begin.wrapping_add(start));
        arguments.address(begin).address(scales).address(zeros)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Weights whose codes follow one another.
    fn weights(bits: usize, zeros: Option<f64>) -> Option<Weights> {
        let geometry = Geometry {
            k: 64,
            n: 2,
            bits,
            block: 32,
        };
        let codes: Vec<u8> = (0..(2 * 64 * bits / 8) as u32)
            .map(|at| (at * 0x21 + 0x10) as u8)
            .collect();
        let codes = Array::from_bytes(DType::UInt8, vec![codes.len()], &codes).unwrap();
        let scales = Array::from_f64(DType::Float32, vec![4], &[0.5, 0.25, 2.0, 1.0]).unwrap();
        let zeros = zeros.map(|zero| Array::from_f64(DType::Float32, vec![4], &[zero; 4]).unwrap());
        Weights::new(geometry, &codes, &scales, zeros.as_ref())
    }

    #[test]
    fn lanes_have_four_terms_of_two_columns() {
        let of = weights(4, None).unwrap();
        // The second product of the piece, in the second lane of the second row: terms from 20 on of columns 1 and 9.
        let word = of.word((4 + 1) * 4 + 1);
        let code = |at: usize| of.code(1, 20 + at);
        assert_eq!(word, code(0) | code(1) << 16 | code(2) << 8 | code(3) << 24);
        let of = weights(8, None).unwrap();
        let code = |at: usize| of.code(1, 20 + at);
        assert_eq!(of.word((4 + 1) * 4 + 2), code(0) | code(1) << 8);
        assert_eq!(of.word((4 + 1) * 4 + 3), code(2) | code(3) << 8);
    }

    #[test]
    fn lists_are_block_by_block() {
        let bytes = weights(8, Some(7.0)).unwrap().packed().unwrap();
        let [scales, zeros] = weights(8, Some(7.0)).unwrap().starts();
        let half = |at: usize| u16::from_le_bytes([bytes[scales + 2 * at], bytes[scales + 2 * at + 1]]);
        // Column 1 is that of the second row of lanes.
        assert_eq!([0, 1, 2, TILE, TILE + 2].map(half), [0x3800, 0, 0x4000, 0x3400, 0x3c00]);
        assert_eq!([0, 1, 2, TILE + 2].map(|at| bytes[zeros + at]), [7, 0, 7, 7]);
    }

    #[test]
    fn zero_points_are_integers_of_as_many_bits() {
        assert!(weights(4, Some(8.0)).is_some_and(|found| !found.has_zeros()));
        assert!(weights(4, Some(15.0)).is_some_and(|found| found.has_zeros()));
        assert!(weights(4, Some(16.0)).is_none() && weights(4, Some(7.5)).is_none());
    }
}
