//! Weights as the kernels read them: for each 16 columns, one after another, units of weights behind their scales.

use crate::error::Result;
use crate::network::array::{Array, Buffer};
use crate::network::ops::matmul_n_bits::Geometry;
use crate::providers::cpu::kernels::parallel;
use crate::providers::cpu::team;

/// Columns of a group: a vector has a lane for each.
pub const LANES: usize = 16;
/// Bytes of a vector.
pub const VECTOR: usize = 64;
/// More weights than this behind a scale are several units: sums of products of 8 bits stay exact, and what a unit needs small.
const LONGEST: usize = 128;

/// How the weights of a layer are packed.
///
/// A group of 16 columns is a run of units, each of which is 16 scales, 16 shifts (if the layer has zero points), and the integers:
/// each vector has a lane of 32 bits for each column. With 8 bits, its bytes are 4 neighbours along K. With 4, the low halves of its
/// bytes are 4 neighbours and the high halves the next 4, so that either half is an operand of a product of bytes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Units {
    /// What is packed.
    pub geometry: Geometry,
    /// Weights of a column in a unit.
    pub unit: usize,
    /// Whether there are zero points other than the middle.
    pub shifted: bool,
}

impl Units {
    /// The units of weights that the kernels take.
    pub fn of(geometry: &Geometry, shifted: bool) -> Option<Self> {
        let whole = |unit: &usize| unit.is_multiple_of(16) && geometry.block.is_multiple_of(*unit);
        let unit = (16..=LONGEST.min(geometry.block)).rev().find(whole)?;
        matches!(geometry.bits, 4 | 8).then_some(Self {
            geometry: *geometry,
            unit,
            shifted,
        })
    }

    /// Weights of a column, up to the end of its last block.
    pub fn terms(&self) -> usize {
        self.geometry.blocks() * self.geometry.block
    }

    /// Units of a column.
    pub fn count(&self) -> usize {
        self.terms() / self.unit
    }

    /// Units that share a scale.
    pub fn per_block(&self) -> usize {
        self.geometry.block / self.unit
    }

    /// Groups of columns.
    pub fn groups(&self) -> usize {
        self.geometry.n.div_ceil(LANES)
    }

    /// Bytes of scales and shifts in front of the integers of a unit.
    pub fn header(&self) -> usize {
        VECTOR * (1 + usize::from(self.shifted))
    }

    /// Bytes of a unit.
    pub fn unit_bytes(&self) -> usize {
        self.header() + self.unit * self.geometry.bits * LANES / 8
    }

    /// Bytes of a group.
    pub fn group_bytes(&self) -> usize {
        self.count() * self.unit_bytes()
    }
}

/// Packed weights.
pub struct Packed {
    /// How they lie.
    pub units: Units,
    bytes: Buffer,
}

impl Packed {
    /// Packs weights.
    ///
    /// # Errors
    /// If there is no memory.
    pub fn new(units: Units, b: &Array, scales: &Array, zeros: Option<&Array>, threads: usize) -> Result<Self> {
        let bytes = Buffer::try_zeroed(units.groups() * units.group_bytes())?;
        let from = Stored {
            units,
            b,
            scales: scales.to_f64(),
            zeros: units.geometry.zeros(zeros),
        };
        let to = parallel::Address(bytes.as_ptr());
        team::run(threads, || {
            parallel::over(units.groups(), 1, |groups| {
                let mut codes = vec![0; units.terms()];
                for group in groups {
                    // SAFETY: the groups of the threads are disjoint parts of the buffer.
                    let bytes = unsafe {
                        let start = to.get().add(group * units.group_bytes());
                        std::slice::from_raw_parts_mut(start, units.group_bytes())
                    };
                    from.pack(group, bytes, &mut codes);
                }
            })
        })?;
        Ok(Self { units, bytes })
    }

    /// Where a group begins.
    pub fn group(&self, group: usize) -> *const u8 {
        self.bytes.as_ptr().wrapping_add(group * self.units.group_bytes())
    }

    /// Bytes of all groups.
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }
}

/// Weights as the model has them.
struct Stored<'a> {
    units: Units,
    b: &'a Array,
    scales: Vec<f64>,
    zeros: Option<Vec<f64>>,
}

impl Stored<'_> {
    /// Columns behind the last one keep scales of 0.
    fn pack(&self, group: usize, bytes: &mut [u8], codes: &mut [u8]) {
        let Units { geometry, unit, .. } = self.units;
        let columns = group * LANES..geometry.n.min((group + 1) * LANES);
        for (lane, column) in columns.enumerate() {
            geometry.codes(self.b, column, codes);
            let runs = bytes
                .chunks_exact_mut(self.units.unit_bytes())
                .zip(codes.chunks_exact(unit));
            for (at, (bytes, codes)) in runs.enumerate() {
                let (header, integers) = bytes.split_at_mut(self.units.header());
                self.number(column * geometry.blocks() + at / self.units.per_block(), lane, header);
                interleave(geometry.bits, lane, codes, integers);
            }
        }
    }

    /// The scale of a block, and what is added to its product for each unit of the rows: the zero point's distance from the middle.
    fn number(&self, block: usize, lane: usize, header: &mut [u8]) {
        let scale = self.scales[block];
        let mut put = |vector: usize, number: f64| {
            let at = vector * VECTOR + lane * 4;
            header[at..at + 4].copy_from_slice(&(number as f32).to_ne_bytes());
        };
        put(0, scale);
        if let Some(zeros) = &self.zeros {
            put(1, (self.units.geometry.middle() - zeros[block]) * scale);
        }
    }
}

fn interleave(bits: usize, lane: usize, codes: &[u8], integers: &mut [u8]) {
    let vectors = integers.chunks_exact_mut(VECTOR);
    for (vector, codes) in vectors.zip(codes.chunks_exact(32 / bits)) {
        let bytes = &mut vector[lane * 4..][..4];
        match bits {
            4 => (0..4).for_each(|i| bytes[i] = codes[i] | codes[4 + i] << 4),
            _ => bytes.copy_from_slice(codes),
        }
    }
}
