//! Weights of few bits as `n_bits.cu` reads them: tiles of 16 columns in pieces of 128 terms, each with its codes, scales and zero points.

use crate::error::Result;
use crate::network::array::Array;
use crate::network::dtype::DType;
use crate::network::ops::matmul_n_bits::Geometry;
use crate::providers::cuda::device::Device;
use crate::providers::cuda::device::memory::DeviceMemory;
use crate::providers::cuda::kernels::spare::get_or_try_init;
use half::f16;
use std::sync::{Arc, OnceLock};

/// `TILE`, `PIECE`, `HALF` and `TERMS` of `n_bits.cu`.
pub const TILE: usize = 16;
const PIECE: usize = 128;
const HALF: usize = 64;
const TERMS: usize = 16;
/// Lanes of a warp, those that have the same columns, and rows of these.
const LANES: usize = 32;
const ROW: usize = 4;
const ROWS: usize = LANES / ROW;
/// Bytes of a word.
const WORD: usize = 4;

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

    /// Groups of a piece whose terms share scales for sure.
    fn groups(&self) -> usize {
        let together = [PIECE, HALF, 2 * TERMS].into_iter();
        let shared = together
            .filter(|&terms| self.geometry.block.is_multiple_of(terms))
            .max();
        PIECE / shared.unwrap_or(TERMS)
    }

    /// Words of the codes of a piece, and of what is said of both columns of a row of lanes.
    fn words(&self) -> [usize; 2] {
        let said = self.scale.size() * if self.has_zeros() { 4 } else { 2 };
        [TILE * PIECE * self.geometry.bits / 8 / WORD, said / WORD]
    }

    /// Bytes of a piece.
    pub fn piece_bytes(&self) -> usize {
        let [codes, said] = self.words();
        (codes + said * ROWS * self.groups()) * WORD
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

    /// A word of the codes of a piece that begins with a column and a term: for each product a lane has one of codes of 4 bits, two of
    /// 8 bits, in packs of four words that lie lane by lane. The pairs of codes of an operand are as `Codes` of `n_bits.cu` takes them apart.
    fn codes_at(&self, at: usize, [column, term]: [usize; 2]) -> u32 {
        let bits = self.geometry.bits;
        let (in_pack, lane, pack) = (at % 4, at / 4 % LANES, at / 4 / LANES);
        let (word, of_product) = (pack * 4 + in_pack, bits / 4);
        let (product, part) = (word / of_product, word % of_product);
        let (half, product) = (product / 4, product % 4);
        // Terms of a lane lie together where they share a scale.
        let own = if self.groups() <= 2 {
            lane % ROW * TERMS + product * ROW
        } else {
            product * TERMS + lane % ROW * ROW
        };
        let (column, term) = (column + lane / ROW, term + half * HALF + own);
        // The second of a pair of 4 bits lies in the upper half.
        let (pairs, places): (_, [usize; 2]) = match bits {
            4 => (0..4, [4, 16]),
            _ => (part * 2..part * 2 + 2, [16, 8]),
        };
        let first = pairs.start;
        let pair = |pair: usize| {
            let (column, term) = (column + pair % 2 * ROWS, term + pair / 2 * 2);
            let of = |i: usize| self.code(column, term + i) << ((pair - first) * places[0] + i * places[1]);
            of(0) | of(1)
        };
        pairs.map(pair).fold(0, |word, codes| word | codes)
    }

    /// A word of what is said of the columns of a piece: two scales for each row of lanes in each group, and then two zero points.
    fn said_at(&self, at: usize, [column, term]: [usize; 2]) -> u32 {
        let (n, blocks, [_, words]) = (self.geometry.n, self.geometry.blocks(), self.words());
        let (entry, word) = (at / words, at % words);
        let (group, row) = (entry / ROWS, entry % ROWS);
        // A piece may go beyond the last block.
        let block = ((term + group * (PIECE / self.groups())) / self.geometry.block).min(blocks - 1);
        let place = |half: usize| {
            Some(column + row + half * ROWS)
                .filter(|&at| at < n)
                .map(|at| at * blocks + block)
        };
        let scale = |half: usize| place(half).map_or(0.0, |at| self.scales[at]);
        let zero = |half: usize| place(half).zip(self.zeros.as_ref()).map_or(0, |(at, zeros)| zeros[at]);
        let short = |half: usize| u32::from(f16::from_f64(scale(half)).to_bits());
        match (self.scale, word) {
            (DType::Float16, 0) => short(0) | short(1) << 16,
            (DType::Float16, _) | (_, 2) => u32::from(zero(0)) | u32::from(zero(1)) << 8,
            (_, 0 | 1) => (scale(word) as f32).to_bits(),
            _ => 0,
        }
    }

    fn packed(&self) -> Result<Array> {
        let (of_piece, [codes, _]) = (self.piece_bytes() / WORD, self.words());
        let word = |at: usize| {
            let (number, at) = (at / of_piece, at % of_piece);
            let begin = [number / self.pieces() * TILE, number % self.pieces() * PIECE];
            match at.checked_sub(codes) {
                Some(said) => self.said_at(said, begin),
                None => self.codes_at(at, begin),
            }
        };
        Array::filled(
            DType::UInt32,
            vec![self.tiles() * self.pieces() * of_piece],
            |first, bytes| {
                let slots = bytes.chunks_exact_mut(WORD).enumerate();
                slots.for_each(|(at, slot)| slot.copy_from_slice(&word(first + at).to_le_bytes()));
            },
        )
    }

    /// They in the memory of a GPU, once for all who ask.
    ///
    /// # Errors
    /// If there is too little of it.
    pub fn on(&self, device: &Arc<Device>) -> Result<Arc<DeviceMemory>> {
        let upload = || device.upload(self.packed()?.bytes()).map(Arc::new);
        get_or_try_init(&self.uploaded, upload).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Weights whose codes follow one another, with so many of a block.
    fn weights(bits: usize, block: usize, zeros: Option<f64>) -> Option<Weights> {
        let geometry = Geometry {
            k: 128,
            n: 2,
            bits,
            block,
        };
        let blocks = 2 * 128 / block;
        let codes: Vec<u8> = (0..(2 * 128 * bits / 8) as u32)
            .map(|at| (at * 0x21 + 0x10) as u8)
            .collect();
        let codes = Array::from_bytes(DType::UInt8, vec![codes.len()], &codes).unwrap();
        let scales: Vec<f64> = (0..blocks).map(|at| 0.5 + at as f64).collect();
        let scales = Array::from_f64(DType::Float32, vec![blocks], &scales).unwrap();
        let zeros = zeros.map(|zero| Array::from_f64(DType::Float32, vec![blocks], &vec![zero; blocks]).unwrap());
        Weights::new(geometry, &codes, &scales, zeros.as_ref())
    }

    #[test]
    fn lanes_have_four_terms_of_two_columns() {
        // The second product of the second half, in the second lane of the second row: column 1, and none that is 9.
        let word =
            |of: &Weights, pack: usize, in_pack: usize| of.codes_at((pack * LANES + ROW + 1) * 4 + in_pack, [0, 0]);
        for (block, term) in [(32, 64 + 16 + 4), (64, 64 + 16 + 4)] {
            let of = weights(4, block, None).unwrap();
            let code = |at: usize| of.code(1, term + at);
            assert_eq!(word(&of, 1, 1), code(0) | code(1) << 16 | code(2) << 8 | code(3) << 24);
        }
        // In the third product, terms that lie together and those that don't are others.
        for (block, term) in [(32, 64 + 32 + 4), (64, 64 + 16 + 8)] {
            let of = weights(8, block, None).unwrap();
            let code = |at: usize| of.code(1, term + at);
            assert_eq!(word(&of, 3, 0), code(0) | code(1) << 8);
            assert_eq!(word(&of, 3, 1), code(2) | code(3) << 8);
        }
    }

    #[test]
    fn each_group_of_a_piece_has_scales_and_zero_points() {
        let of = weights(8, 32, Some(7.0)).unwrap();
        assert_eq!((of.groups(), of.words()), (4, [512, 2]));
        assert_eq!(of.piece_bytes(), 2048 + 4 * ROWS * 8);
        let said = |group: usize, row: usize, word: usize| of.said_at((group * ROWS + row) * 2 + word, [0, 0]);
        let half = |number: f64| u32::from(f16::from_f64(number).to_bits());
        // Column 1 is that of the second row of lanes; nothing lies in columns that are not there.
        assert_eq!([0, 1, 2].map(|row| said(2, row, 0)), [half(2.5), half(6.5), 0]);
        assert_eq!([0, 1, 2].map(|row| said(2, row, 1)), [7, 7, 0]);
        let packed = of.packed().unwrap();
        assert_eq!(packed.bytes().len(), of.piece_bytes());
        assert_eq!(packed.bytes()[2048..2052], half(0.5).to_le_bytes());
    }

    #[test]
    fn zero_points_are_integers_of_as_many_bits() {
        assert!(weights(4, 32, Some(8.0)).is_some_and(|found| !found.has_zeros()));
        assert!(weights(4, 32, Some(15.0)).is_some_and(|found| found.has_zeros()));
        assert!(weights(4, 32, Some(16.0)).is_none() && weights(4, 32, Some(7.5)).is_none());
    }
}
