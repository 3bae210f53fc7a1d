//! The shapes of tiles in which `implicit_gemm.cu` multiplies.

use crate::network::dtype::DType;
use crate::providers::cuda::device::Boxes;
use crate::providers::cuda::kernels::conv::left_operand::lines;
use crate::providers::cuda::kernels::matmul::warpgroup;

/// Rows of a tile.
pub const ROWS: usize = 128;

/// `Shape` of `warpgroup.cu`, for steps of 128 bytes; there are more of fewer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Columns of a tile.
    pub columns: usize,
    /// Bytes for stages and for what stays.
    room: usize,
    /// Blocks of a processor: one has nobody to hide behind while it writes its results.
    pub blocks: usize,
    /// Bytes of a row that are brought at once.
    pub line: usize,
    /// How often a step brings as many.
    pub lines: usize,
    /// Bytes of weights that are brought once and stay, or 0.
    pub staying: usize,
    /// Whether something is added to results, which is brought a tile ahead.
    pub residual: bool,
}

impl Shape {
    /// For rows that are brought in so many bytes.
    pub fn all(line: usize, size: &Size, residual: bool) -> Vec<Self> {
        let shapes: [(usize, usize, usize); 3] = match (size.columns <= 32, residual) {
            (true, _) => [(32, 3, 3), (32, 2, 4), (64, 2, 3)],
            (false, true) => [(64, 2, 3), (128, 2, 2), (256, 3, 1)],
            (false, false) => [(64, 3, 3), (128, 3, 2), (256, 4, 1)],
        };
        let lines = lines(line, size.terms);
        let shape = |(columns, stages, blocks)| Self {
            columns,
            room: stages * 128 * (ROWS + columns),
            blocks,
            line,
            lines,
            staying: 0,
            residual,
        };
        shapes.map(shape).to_vec()
    }

    /// With all weights in the place of some stages, if that leaves two and columns are those of one tile.
    pub fn staying(self, size: &Size) -> Option<Self> {
        let staying = size.terms.div_ceil(self.line / 2) * self.columns * self.line;
        let own = Self { staying, ..self };
        (size.columns <= self.columns && own.stages() >= 2).then_some(own)
    }

    fn stage_bytes(&self) -> usize {
        let columns = if self.staying > 0 { 0 } else { self.columns };
        self.lines * (ROWS + columns) * self.line
    }

    fn stages(&self) -> usize {
        self.room.saturating_sub(self.staying) / self.stage_bytes()
    }

    /// Shared memory of a block.
    pub fn shared_bytes(&self) -> usize {
        /// What may be skipped in front; tiles of residuals.
        const PATTERN: usize = 1024;
        const SLOTS: usize = 2;
        let residuals = if self.residual { SLOTS * ROWS * self.columns } else { 0 };
        self.stages() * self.stage_bytes() + self.staying + residuals + PATTERN
    }

    /// What is added to results, as the copy engine brings it.
    pub fn residuals(&self, size: &Size) -> Boxes {
        Boxes {
            dtype: DType::Float16,
            extents: vec![size.columns / 2, size.rows, 1],
            strides: vec![size.columns, size.columns * size.rows],
            size: vec![self.columns.min(128) / 2, ROWS, 1],
        }
    }

    /// Threads of a block: those that multiply, and a warp that fetches, or a warpgroup that lends them its registers.
    pub fn threads(&self) -> u32 {
        if self.blocks == 1 { warpgroup::THREADS } else { 256 + 32 }
    }

    /// It as CUDA source names it.
    pub fn text(&self) -> String {
        let Self {
            columns,
            blocks,
            line,
            lines,
            staying,
            ..
        } = self;
        let stages = self.stages();
        format!("Shape<{columns}, {stages}, false, true, 1, {line}, {blocks}, {lines}, {staying}>")
    }

    /// How many tiles there are.
    pub fn tiles(&self, size: &Size) -> usize {
        size.rows.div_ceil(ROWS) * size.columns.div_ceil(self.columns)
    }

    /// About how many cycles it takes: good enough to tell which shapes are worth timing.
    pub fn guess(&self, size: &Size, processors: usize) -> f64 {
        /// Products of a processor in a cycle, results, and the cycles of a wait for memory.
        const RATE: f64 = 3_500.0;
        const RESULTS: f64 = 14.0;
        const WAIT: f64 = 1_500.0;
        let area = (ROWS * self.columns) as f64;
        let (sums, results) = (area * (2 * size.terms) as f64 / RATE, area / RESULTS);
        let alone = sums + results + WAIT;
        let tile = sums.max(results).max(alone / self.blocks as f64);
        let waves = self.tiles(size).div_ceil(processors * self.blocks) * self.blocks;
        waves as f64 * tile
    }
}

/// The matrices: rows, columns, and pairs of terms.
pub struct Size {
    /// Rows of the left one and of the result.
    pub rows: usize,
    /// Columns of the right one and of the result.
    pub columns: usize,
    /// Pairs of terms of a sum.
    pub terms: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_of_every_shape_fit_into_a_processor() {
        let lines = [(128, 576), (64, 288), (32, 16), (32, 9 * 16), (32, 16 * 16)];
        let all = lines
            .into_iter()
            .flat_map(|line| [(32, false), (32, true), (64, false), (64, true)].map(|other| (line, other)));
        for ((line, terms), (columns, residual)) in all {
            let rows = 1000;
            let size = Size { rows, columns, terms };
            let any = Shape::all(line, &size, residual);
            let staying = any.iter().filter_map(|shape| shape.staying(&size));
            assert!(
                line > 32 || terms > 9 * 16 || staying.clone().count() > 0,
                "{line} {terms}"
            );
            for shape in any.iter().copied().chain(staying) {
                // A block has 1 KiB more than it asks for.
                assert!(shape.blocks * (shape.shared_bytes() + 1024) <= 228 << 10, "{shape:?}");
                assert!(shape.shared_bytes() <= 227 << 10, "{shape:?}");
                let threads = shape.blocks * shape.threads() as usize;
                assert!(threads <= 2048, "{shape:?}");
                // One is brought while another one is multiplied.
                assert!(shape.stages() >= 2, "{shape:?}");
                assert!(terms.is_multiple_of(shape.lines * line / 2), "{shape:?}");
            }
        }
    }
}
