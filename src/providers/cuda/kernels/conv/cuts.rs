//! How a convolution is cut into tiles and their sums into steps, and which cuts are worth timing.

use super::problem::Problem;
use crate::providers::cuda::device::{Device, HOPPER};
use std::cmp::Reverse;

/// How a block works: `Block` of `products.cuh`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tile {
    /// Places and channels of the result, and channels of the input at a time.
    pub size: [usize; 3],
    /// Warps along these.
    pub warps: [usize; 3],
    /// How many steps are on their way at once.
    pub stages: usize,
    /// How many blocks share the sums.
    pub split: usize,
    /// Whether warpgroups multiply.
    pub groups: bool,
}

/// Each warp takes 32 by 32 of the result where there are as many: it reads the least for what it multiplies.
const TILES: [([usize; 3], [usize; 3], usize); 12] = [
    ([128, 64, 64], [4, 2, 1], 4),
    ([64, 64, 128], [2, 2, 4], 3),
    ([64, 64, 64], [2, 2, 2], 6),
    ([64, 32, 128], [2, 1, 4], 4),
    ([32, 64, 128], [1, 2, 4], 4),
    ([32, 32, 128], [1, 1, 4], 4),
    ([64, 32, 64], [2, 1, 4], 8),
    ([32, 64, 64], [1, 2, 4], 8),
    ([32, 32, 64], [1, 1, 4], 8),
    ([16, 64, 64], [1, 2, 4], 8),
    ([64, 64, 32], [2, 2, 2], 8),
    ([64, 32, 32], [2, 1, 2], 8),
];
/// What is best for many pixels of 8 bits besides.
const LARGE_TILES: [([usize; 3], [usize; 3], usize); 3] = [
    ([128, 64, 32], [4, 2, 1], 3),
    ([64, 64, 32], [2, 2, 1], 3),
    ([64, 128, 32], [2, 4, 1], 3),
];
/// Of warpgroups, whose warps take rows alone.
const GROUP_TILES: [([usize; 3], [usize; 3], usize); 12] = [
    ([128, 128, 64], [8, 1, 1], 3),
    ([128, 128, 64], [8, 1, 1], 5),
    ([128, 64, 64], [8, 1, 1], 3),
    ([128, 64, 64], [8, 1, 1], 5),
    ([64, 64, 64], [4, 1, 1], 4),
    ([64, 128, 64], [4, 1, 1], 3),
    ([128, 256, 64], [8, 1, 1], 3),
    ([256, 64, 64], [8, 1, 1], 3),
    ([128, 64, 32], [8, 1, 1], 3),
    ([128, 128, 32], [8, 1, 1], 3),
    ([64, 64, 32], [4, 1, 1], 3),
    ([64, 128, 32], [4, 1, 1], 3),
];
const SPLITS: [usize; 4] = [1, 2, 4, 8];

impl Tile {
    /// Every tile that a GPU has room for.
    pub fn all(device: &Device) -> Vec<Self> {
        let clusters = device.capability >= HOPPER;
        let fits = |tile: &Self| tile.shared_bytes() <= device.shared_bytes && (tile.split == 1 || clusters);
        Self::every().filter(fits).collect()
    }

    /// Every tile for 8 bits that a GPU has room for.
    pub fn all_of_8_bits(device: &Device) -> Vec<Self> {
        let groups = device.capability == HOPPER;
        let fits =
            |tile: &Self| tile.shared_bytes() <= device.shared_bytes && (groups || !tile.groups && tile.split == 1);
        Self::every_of_8_bits().filter(fits).collect()
    }

    /// Every tile that there is for halves.
    pub fn every() -> impl Iterator<Item = Self> {
        TILES.into_iter().flat_map(|tile| Self::split(tile, false))
    }

    /// Every tile that there is for 8 bits.
    pub fn every_of_8_bits() -> impl Iterator<Item = Self> {
        let large = LARGE_TILES.into_iter().flat_map(|tile| Self::split(tile, false));
        let groups = GROUP_TILES.into_iter().flat_map(|tile| Self::split(tile, true));
        Self::every().chain(large).chain(groups)
    }

    fn split((size, warps, stages): ([usize; 3], [usize; 3], usize), groups: bool) -> impl Iterator<Item = Self> {
        SPLITS.into_iter().map(move |split| Self {
            size,
            warps,
            stages,
            split,
            groups,
        })
    }

    /// The type that the kernel is written for.
    pub fn block(&self) -> String {
        let ([m, n, k], [down, across, deep]) = (self.size, self.warps);
        format!(
            "Block<{m}, {n}, {k}, {down}, {across}, {deep}, {}, {}>",
            self.stages, self.split
        )
    }

    /// What an entry point says of its blocks.
    pub fn attributes(&self) -> String {
        let cluster = match self.split {
            1 => String::new(),
            split => format!("__cluster_dims__(1, 1, {split}) "),
        };
        match self.together() {
            1 => format!("{cluster}__launch_bounds__({})", self.threads()),
            blocks => format!("{cluster}__launch_bounds__({}, {blocks})", self.threads()),
        }
    }

    /// How many blocks a processor is to have registers for: where warpgroups multiply, threads hold more than they need at once.
    fn together(&self) -> usize {
        let (threads, sums) = (self.threads(), self.size[0] * self.size[1] / self.threads());
        match (self.groups, sums) {
            (true, ..=32) => 512 / threads,
            (true, ..=64) if threads > 128 => 2,
            (true, ..=64) => 3,
            _ => 1,
        }
    }

    /// How it works, for reports.
    pub fn describe(&self) -> String {
        let [rows, columns, _] = self.size;
        let who = if self.groups { "warpgroups" } else { "tensor cores" };
        format!("{who}, tiles of {rows} x {columns}, sums in {}", self.split)
    }

    /// Threads of a block.
    pub fn threads(&self) -> usize {
        32 * self.warps.iter().product::<usize>()
    }

    /// Bytes of shared memory: operands on their way, and then the sums, whose rows are eight floats longer; behind them what
    /// blocks of a cluster send one another.
    pub fn shared_bytes(&self) -> usize {
        let [m, n, k] = self.size;
        let sent = if self.split > 1 { m * n * size_of::<f32>() } else { 0 };
        (self.stages * 2 * k * (m + n)).max(self.warps[2] * m * (n + 8) * size_of::<f32>()) + sent
    }

    /// Steps of all sums.
    pub fn steps(&self, problem: &Problem) -> usize {
        problem.channels.div_ceil(self.size[2]) * problem.taps()
    }

    /// Steps of a block.
    fn share(&self, problem: &Problem) -> usize {
        self.steps(problem).div_ceil(self.split)
    }

    /// Blocks along each axis of the grid.
    pub fn grid(&self, problem: &Problem, cut: &Cut) -> [usize; 3] {
        let [down, across] = cut.tiles(problem);
        [
            problem.images * down * across,
            problem.results.div_ceil(self.size[1]),
            self.split,
        ]
    }

    /// How many regions a block sees, at most, where each is of all elements of the kernel.
    fn regions_seen(&self, problem: &Problem) -> usize {
        let (share, steps, taps) = (self.share(problem), self.steps(problem), problem.taps());
        let seen = |first: usize| (first + share).min(steps).div_ceil(taps) - first / taps;
        (0..self.split)
            .map(|block| block * share)
            .filter(|&first| first < steps)
            .map(seen)
            .max()
            .unwrap_or(0)
    }
}

/// How a tile lies in the result, and its regions in shared memory: `Shape` of `tiled_conv.cu`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cut {
    /// Places of a tile along both axes.
    pub places: [usize; 2],
    /// Slots of a region.
    pub region: [usize; 2],
    /// Regions that there is room for.
    pub regions: usize,
    /// Whether each is of one element of the kernel.
    pub single: bool,
    /// Pixels from one slot to the next.
    pub pixels: [usize; 2],
    /// Slots from what one place of the tile sees to what the next one does.
    pub place_slots: [usize; 2],
    /// Slots of a region from one element of the kernel to the next.
    pub tap_slots: [usize; 2],
    /// Pixels from one region to the next.
    pub tap_pixels: [usize; 2],
}

impl Cut {
    /// Slots of a region.
    pub fn slots(&self) -> usize {
        self.region[0] * self.region[1]
    }

    /// Tiles along both axes.
    pub fn tiles(&self, problem: &Problem) -> [usize; 2] {
        [0, 1].map(|axis| problem.output[axis].div_ceil(self.places[axis]))
    }

    /// The cut into the fewest tiles, of those the one whose regions are the smallest, and of those the widest: neighbours in
    /// a row lie in different banks.
    fn new(tile: &Tile, problem: &Problem) -> Self {
        let [height, width] = problem.output;
        let cuts = (1..=width.min(tile.size[0])).flat_map(|across| {
            let down = (tile.size[0] / across).min(height);
            let whole = Self::of_all_taps(tile, problem, [down, across]);
            [Some(Self::of_one_tap(tile, problem, [down, across])), whole]
        });
        let order = |cut: &Self| {
            let [down, across] = cut.tiles(problem);
            (down * across, cut.fetched(tile, problem), Reverse(cut.places[1]))
        };
        // One place is a tile, and a region of one element of the kernel always fits.
        cuts.flatten()
            .min_by_key(order)
            .unwrap_or_else(|| Self::of_one_tap(tile, problem, [1, 1]))
    }

    fn of_one_tap(tile: &Tile, problem: &Problem, places: [usize; 2]) -> Self {
        Self {
            places,
            region: places,
            regions: tile.stages,
            single: true,
            pixels: problem.strides,
            place_slots: [places[1], 1],
            tap_slots: [0, 0],
            tap_pixels: problem.dilations,
        }
    }

    /// Regions of all elements of the kernel, if there is room for as many as are needed at once.
    fn of_all_taps(tile: &Tile, problem: &Problem, places: [usize; 2]) -> Option<Self> {
        let (strides, dilations) = (problem.strides, problem.dilations);
        let region =
            [0, 1].map(|axis| (places[axis] - 1) * strides[axis] + (problem.kernel[axis] - 1) * dilations[axis] + 1);
        let at_once = (tile.stages - 1).div_ceil(problem.taps()) + 1;
        let regions = at_once.min(tile.regions_seen(problem));
        let room = tile.stages * tile.size[0];
        (regions * region[0] * region[1] <= room).then_some(Self {
            places,
            region,
            regions,
            single: false,
            pixels: [1, 1],
            place_slots: [strides[0] * region[1], strides[1]],
            tap_slots: [dilations[0] * region[1], dilations[1]],
            tap_pixels: [0, 0],
        })
    }

    /// Slots that a block brings.
    fn fetched(&self, tile: &Tile, problem: &Problem) -> usize {
        let regions = if self.single {
            tile.share(problem)
        } else {
            tile.regions_seen(problem)
        };
        regions * self.slots()
    }

    /// About how many nanoseconds it takes: good enough to tell which cuts are worth timing. The numbers are those that fit 400
    /// cuts of the layers of ResNet-50 best, as they were timed on an H200.
    fn guess(&self, tile: &Tile, problem: &Problem, processors: usize) -> f64 {
        /// The start of a block until its first operands have come.
        const START: f64 = 1_500.0;
        /// A step of a block, and for each quarter of its warps what a warp reads and multiplies, 16 by 16 numbers at a time.
        const STEP: f64 = 260.0;
        const READ: f64 = 2.4;
        const MULTIPLY: f64 = 2.6;
        /// The same of a warpgroup, whose warps read one operand.
        const GROUP_MULTIPLY: f64 = 1.3;
        /// Bytes in a nanosecond that come to one processor, and to all.
        const CACHE: f64 = 43.0;
        const BANDWIDTH: f64 = 9_500.0;
        /// What is written: eight numbers of a thread, each further share of a step in them, and what blocks send one another.
        const WRITE: f64 = 590.0;
        const PART: f64 = 36.0;
        const EXCHANGE: f64 = 830.0;
        /// Of two that take as long, the one that reads less.
        const GREED: f64 = 0.8;
        /// Shared memory of a processor, and its threads.
        const ROOM: usize = 224 << 10;
        const THREADS: usize = 2048;
        let ([m, n, k], [down, across, deep]) = (tile.size, tile.warps);
        let blocks = tile.grid(problem, self).iter().product::<usize>();
        let room = (ROOM / tile.shared_bytes()).min(THREADS / tile.threads()).max(1);
        let together = blocks.div_ceil(processors).min(room);
        let waves = blocks.div_ceil(processors * room) as f64;
        let [rows, columns, times] = [m / down / 16, n / across / 16, k / deep / 16];
        let issues = (down * across * deep * together) as f64 / 4.0;
        let (read, multiply) = if tile.groups {
            (rows, GROUP_MULTIPLY)
        } else {
            (rows + columns, MULTIPLY)
        };
        let reads = (read * times) as f64 * issues;
        let products = (2 * rows * columns * times) as f64 * issues;
        let steps = tile.share(problem);
        let work = (STEP + READ * reads + multiply * products) * steps as f64;
        let fetched = (2 * k * (self.fetched(tile, problem) + n * steps)) as f64;
        let all = fetched * blocks as f64 / BANDWIDTH;
        let busy = work.max(fetched * together as f64 / CACHE).max(all);
        let written = (m * n) as f64 / (8 * tile.threads()) as f64;
        let exchange = if tile.split > 1 { EXCHANGE } else { 0.0 };
        let end = (WRITE + PART * (deep - 1) as f64) * written + exchange;
        waves * (START + busy + end) + GREED * all
    }
}

/// Tiles with their cuts, what looks best first; at most two ways to run each size, so that a few differ.
pub fn ranked(tiles: Vec<Tile>, problem: &Problem, processors: usize) -> Vec<(Tile, Cut)> {
    const WAYS: usize = 2;
    // No block is left without a step.
    let fair = |tile: &Tile| (tile.split - 1) * tile.share(problem) < tile.steps(problem);
    let mut cuts: Vec<(f64, Tile, Cut)> = tiles
        .into_iter()
        .filter(fair)
        .map(|tile| {
            let cut = Cut::new(&tile, problem);
            (cut.guess(&tile, problem, processors), tile, cut)
        })
        .collect();
    cuts.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut kept: Vec<(Tile, Cut)> = vec![];
    for (_, tile, cut) in cuts {
        let alike = |(other, _): &&(Tile, Cut)| (other.size, other.groups) == (tile.size, tile.groups);
        if kept.iter().filter(alike).count() < WAYS {
            kept.push((tile, cut));
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    fn square(extent: usize, kernel: usize, stride: usize, channels: usize, results: usize) -> Problem {
        Problem {
            images: 1,
            input: [extent * stride; 2],
            output: [extent; 2],
            kernel: [kernel; 2],
            begin: [kernel as i64 / 2; 2],
            strides: [stride; 2],
            dilations: [1; 2],
            channels,
            results,
        }
    }

    fn best(problem: &Problem) -> (Tile, Cut) {
        ranked(Tile::every().collect(), problem, 132)[0]
    }

    #[test]
    fn layers_of_resnet_keep_most_processors_busy() {
        for (extent, channels) in [(56, 64), (28, 128), (14, 256), (7, 512)] {
            let problem = square(extent, 3, 1, channels, channels);
            let (tile, cut) = best(&problem);
            let blocks: usize = tile.grid(&problem, &cut).iter().product();
            assert!((80..=264).contains(&blocks) && !cut.single, "{tile:?} {cut:?}");
        }
    }

    #[test]
    fn regions_have_room_and_lie_within_them() {
        for problem in [
            square(56, 3, 1, 64, 64),
            square(14, 3, 2, 256, 256),
            square(7, 1, 2, 1024, 2048),
            square(20, 5, 1, 40, 24),
            Problem {
                dilations: [18, 18],
                ..square(30, 3, 1, 256, 256)
            },
        ] {
            for tile in Tile::every() {
                let cut = Cut::new(&tile, &problem);
                assert!(cut.places[0] * cut.places[1] <= tile.size[0], "{tile:?} {cut:?}");
                assert!(
                    cut.regions * cut.slots() <= tile.stages * tile.size[0],
                    "{tile:?} {cut:?}"
                );
                let last = |axis: usize| {
                    (cut.places[axis] - 1) * cut.place_slots[axis] + (problem.kernel[axis] - 1) * cut.tap_slots[axis]
                };
                assert_eq!(last(0) + last(1), cut.slots() - 1, "{tile:?} {cut:?}");
            }
        }
    }

    #[test]
    fn every_tile_is_shared_evenly_by_its_threads() {
        for tile in Tile::every() {
            let ([m, n, k], [down, across, deep]) = (tile.size, tile.warps);
            assert!((m / down).is_multiple_of(16) && (n / across).is_multiple_of(16) && k.is_multiple_of(16 * deep));
            // Threads keep their column where results are written, and their chunk where operands are read.
            assert!(
                tile.threads().is_multiple_of(n / 8) && (m * n / 8 / tile.split).is_multiple_of(n / 8),
                "{tile:?}"
            );
            assert!(
                (tile.threads() / (k / 8)).is_multiple_of(8) && (tile.split > 1 || tile.shared_bytes() <= 99 << 10),
                "{tile:?}"
            );
        }
    }

    #[test]
    fn large_convolutions_are_left_to_others() {
        assert!(square(56, 3, 1, 64, 256).is_small(132));
        assert!(!square(256, 3, 1, 64, 64).is_small(132));
    }
}
