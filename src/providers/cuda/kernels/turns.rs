//! Copies after which another axis is innermost: tiles that are read along one axis and written along the other, or, where
//! one is short, strips that a thread turns.

use super::Gpu;
use super::launch::{Launches, fields};
use super::words::{bits, divisor, pack};
use crate::error::Result;
use crate::network::dtype::DType;
use crate::providers::common::operand_strides::coalesce;
use crate::providers::cuda::device::Grid;

const TILES: &str = include_str!("../../../../kernels/tiles.cu");
const STRIPS: &str = include_str!("../../../../kernels/strips.cu");
/// `TILE_THREADS` of `tiles.cu`.
const THREADS: u32 = 256;
/// `AROUND` of both sources.
const AROUND: usize = 4;
/// Elements of a tile.
const TILE: usize = 4096;
/// Along a shorter axis than this, tiles would mostly be empty.
const SHORTEST: usize = 8;

/// Two axes that change places, and those around them; strides in elements.
#[derive(Debug, PartialEq)]
struct Turn {
    /// Extents of the axis that is innermost in the target (rows), and of the one that is in the source (columns).
    extents: [usize; 2],
    /// From row to row in the source, and from column to column in the target.
    strides: [usize; 2],
    /// Extent and strides in target and source of the axes around.
    around: Vec<[usize; 3]>,
}

impl Turn {
    /// The turn that a copy is, if it is one.
    fn of(sizes: &[usize], to: &[usize], from: &[usize]) -> Option<Self> {
        let (sizes, strides) = coalesce(sizes, &[to, from]);
        let (to, from) = (&strides[0], &strides[1]);
        let inner = |strides: &[usize]| strides.iter().position(|&stride| stride == 1);
        let (row, column) = (inner(to)?, inner(from)?);
        let around: Vec<[usize; 3]> = (0..sizes.len())
            .filter(|axis| ![row, column].contains(axis))
            .map(|axis| [sizes[axis], to[axis], from[axis]])
            .collect();
        let extents = [sizes[row], sizes[column]];
        (row != column && around.len() <= AROUND).then_some(Self {
            extents,
            strides: [from[row], to[column]],
            around,
        })
    }

    /// Rows and columns of a tile: square, unless one axis is short.
    fn tile(&self) -> [usize; 2] {
        let side = |extent: usize, most: usize| extent.next_power_of_two().clamp(16, most);
        let [rows, columns] = self.extents.map(|extent| side(extent, 64));
        if rows < columns {
            [rows, TILE / rows]
        } else {
            [TILE / columns, columns]
        }
    }

    /// Elements that are read at once, and that are written at once.
    fn packs(&self, size: usize) -> [usize; 2] {
        let [rows, columns] = self.extents;
        let read = self
            .around
            .iter()
            .map(|around| around[2])
            .chain([columns, self.strides[0]]);
        let written = self
            .around
            .iter()
            .map(|around| around[1])
            .chain([rows, self.strides[1]]);
        [pack(size, read), pack(size, written)]
    }

    /// The words of the axes around, and how often what is within them comes.
    fn around(&self) -> (Vec<i64>, usize) {
        let mut around = vec![[1, 0, 0]; AROUND - self.around.len()];
        around.extend(&self.around);
        let mut words: Vec<i64> = around.iter().flat_map(|axis| divisor(axis[0])).collect();
        words.extend((1..3).flat_map(|side| around.iter().map(move |axis| axis[side] as i64)));
        (words, around.iter().map(|axis| axis[0]).product())
    }

    /// `Tiles` of `tiles.cu`, and how many there are.
    fn tiles(&self) -> (Vec<i64>, usize) {
        let tile = self.tile();
        let tiles = [0, 1].map(|side| self.extents[side].div_ceil(tile[side]));
        let mut words: Vec<i64> = self.extents.iter().map(|&extent| extent as i64).collect();
        words.extend(tiles.iter().flat_map(|&count| divisor(count)));
        words.extend(self.strides.iter().map(|&stride| stride as i64));
        let (around, times) = self.around();
        (words.into_iter().chain(around).collect(), times * tiles[0] * tiles[1])
    }

    /// The turn in strips, where one axis is short and side by side with the other when it is innermost.
    fn strip(&self) -> Option<Strip> {
        let join = self.extents[0] < self.extents[1];
        let [short, long] = if join { [0, 1] } else { [1, 0] }.map(|side| self.extents[side]);
        let [dense, apart] = if join { [1, 0] } else { [0, 1] }.map(|side| self.strides[side]);
        (short < SHORTEST && long >= SHORTEST && dense == short).then_some(Strip {
            join,
            short,
            long,
            apart,
        })
    }
}

/// A long axis and a short one that change places.
#[derive(Debug, PartialEq)]
struct Strip {
    /// Whether the short one becomes the innermost one.
    join: bool,
    short: usize,
    long: usize,
    /// From one element of the short axis to the next, where it is not innermost.
    apart: usize,
}

/// The launch for a copy along these strides, if it turns axes.
///
/// # Errors
/// If there are more elements than 32 bits count, or the kernel does not compile.
pub fn launch(gpu: &Gpu, dtype: DType, sizes: &[usize], to: &[usize], from: &[usize]) -> Result<Option<Launches>> {
    let Some(turn) = Turn::of(sizes, to, from) else {
        return Ok(None);
    };
    if turn.extents.iter().all(|&extent| extent >= SHORTEST) {
        return in_tiles(gpu, dtype, &turn).map(Some);
    }
    turn.strip()
        .map(|strip| in_strips(gpu, dtype, &turn, &strip))
        .transpose()
}

fn in_tiles(gpu: &Gpu, dtype: DType, turn: &Turn) -> Result<Launches> {
    let ([rows, columns], [read, written]) = (turn.tile(), turn.packs(dtype.size()));
    let ty = bits(dtype);
    let source = format!(
        "{TILES}\nextern \"C\" __global__ void __launch_bounds__(TILE_THREADS) turn({ty}* y, const {ty}* x, \
         const __grid_constant__ Tiles tiles) {{\n    \
         transpose<{ty}, {rows}, {columns}, {read}, {written}>(y, x, tiles);\n}}\n"
    );
    let (words, count) = turn.tiles();
    let function = gpu.compiler.entry(&source, "turn", 0);
    let grid = Grid::over(count * THREADS as usize, THREADS)?;
    let how = format!("tiles of {rows} x {columns}, read {read} and written {written} at a time");
    Ok(Launches::one(function, grid, fields(words)?, &how))
}

fn in_strips(gpu: &Gpu, dtype: DType, turn: &Turn, strip: &Strip) -> Result<Launches> {
    let (ty, Strip { join, short, .. }) = (bits(dtype), strip);
    let strides = turn.around.iter().flat_map(|around| [around[1], around[2]]);
    let taken = pack(dtype.size(), strides.chain([strip.long, strip.apart]));
    let source = format!(
        "{STRIPS}\nextern \"C\" __global__ void __launch_bounds__({THREADS}) turn({ty}* y, const {ty}* x, \
         const __grid_constant__ Strips strips) {{\n    strip<{ty}, {short}, {taken}, {join}>(y, x, strips);\n}}\n"
    );
    let (around, times) = turn.around();
    let items = times * strip.long / taken;
    let head = [&[items as i64][..], &divisor(strip.long / taken), &[strip.apart as i64]].concat();
    let function = gpu.compiler.entry(&source, "turn", 0);
    let how = format!("strips of {short} x {taken}");
    let words = fields(head.into_iter().chain(around))?;
    Ok(Launches::one(function, Grid::over(items, THREADS)?, words, &how))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reorders_are_turns() {
        // [2, 30, 5, 7] from the plain layout to channels last.
        let turn = Turn::of(&[2, 5, 7, 30], &[1050, 210, 30, 1], &[1050, 7, 1, 35]).unwrap();
        let wanted = Turn {
            extents: [30, 35],
            strides: [35, 30],
            around: vec![[2, 1050, 1050]],
        };
        assert_eq!(turn, wanted);
        assert_eq!((turn.tile(), turn.packs(2)), ([32, 128], [1, 2]));
        let (words, count) = turn.tiles();
        assert_eq!((words.len(), count), (2 + 6 + 2 + 3 * AROUND + 2 * AROUND, 2));
    }

    #[test]
    fn heads_keep_their_innermost_axis() {
        // [B, S, H, D] to [B, H, S, D], and to [B, H, D, S].
        let kept = Turn::of(&[2, 12, 128, 64], &[98304, 8192, 64, 1], &[98304, 64, 768, 1]);
        assert_eq!(kept, None);
        // Heads and their elements are one axis there.
        let keys = Turn::of(&[2, 12, 64, 128], &[98304, 8192, 128, 1], &[98304, 64, 1, 768]).unwrap();
        assert_eq!(
            (keys.extents, keys.strides, keys.packs(2)),
            ([128, 768], [768, 128], [8, 8])
        );
    }

    #[test]
    fn three_channels_are_strips() {
        // [2, 3, 50] from the plain layout to channels last, and back.
        let turn = Turn::of(&[2, 50, 3], &[150, 3, 1], &[150, 1, 50]).unwrap();
        let wanted = Strip {
            join: true,
            short: 3,
            long: 50,
            apart: 50,
        };
        assert_eq!(turn.strip(), Some(wanted));
        let back = Turn::of(&[2, 3, 50], &[150, 50, 1], &[150, 1, 3]).unwrap();
        assert_eq!(back.strip().map(|strip| (strip.join, strip.apart)), Some((false, 50)));
        // Channels of a larger tensor do not lie side by side.
        assert_eq!(Turn::of(&[50, 3], &[9, 1], &[1, 50]).unwrap().strip(), None);
        assert_eq!(Turn::of(&[50, 40], &[40, 1], &[0, 1]), None);
    }
}
