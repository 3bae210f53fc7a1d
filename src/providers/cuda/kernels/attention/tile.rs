//! How the kernel on tensor cores cuts rows and keys among its warps.

/// Rows of a warp.
const WARP_ROWS: usize = 16;
/// The largest head that tiles are made for, and that whose results leave registers for scores of many keys.
const MOST_SIZE: usize = 256;
const MANY_KEYS_SIZE: usize = 128;
/// Shared memory that a block has without asking for it.
const FREE_BYTES: usize = 48 << 10;
/// Warps of other rows, warps of the same rows with other keys, keys of a warp at a time, and blocks of small heads that the
/// registers of a multiprocessor should be enough for: more of them may run
/// in one round what fewer take two for.
const CUTS: [[usize; 4]; 10] = [
    [4, 1, 64, 4],
    [8, 1, 64, 2],
    [4, 1, 32, 5],
    [4, 1, 32, 6],
    [8, 1, 32, 3],
    [2, 2, 32, 4],
    [1, 4, 32, 4],
    [4, 1, 16, 4],
    [2, 2, 16, 4],
    [1, 4, 16, 4],
];
/// The largest of small heads.
const SMALL_SIZE: usize = 64;
/// Keys of a tile of warpgroups, and elements of a line of 128 bytes that they read it in.
const GROUP_KEYS: usize = 64;
pub const LINE: usize = 64;
/// The sizes of values that `groups.cuh` multiplies by; how many warpgroups a block of those has, and how many such blocks
/// registers should be enough for.
const GROUPS: [(usize, &[[usize; 2]]); 5] = [
    (64, &[[1, 4], [2, 2]]),
    (96, &[[1, 2], [2, 2], [3, 1]]),
    (128, &[[1, 2], [2, 1], [3, 1]]),
    (192, &[[1, 1], [2, 1]]),
    (256, &[[1, 1], [2, 1]]),
];

/// What a block of `attend` of `attention_tiles.cu`, or of `attend_in_groups`, has in shared memory and in its warps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tile {
    /// Of queries and keys, at most.
    pub size: usize,
    /// Of values, at most.
    pub v_size: usize,
    /// Keys of a warp at a time.
    pub keys: usize,
    /// Warps of other rows.
    pub row_warps: usize,
    /// Warps of the same rows, with other keys.
    pub key_warps: usize,
    /// Blocks that the registers of a multiprocessor should be enough for.
    pub residents: usize,
    /// Whether four warps each multiply as a warpgroup.
    pub grouped: bool,
}

impl Tile {
    /// Those for heads of these sizes that fit into so much shared memory, of a GPU that has warpgroups or not.
    pub fn all(sizes: [usize; 2], shared_bytes: usize, has_groups: bool) -> Vec<Self> {
        if !sizes.iter().all(|&size| (1..=MOST_SIZE).contains(&size)) {
            return vec![];
        }
        let [size, v_size] = sizes.map(|size| size.next_multiple_of(16));
        let mut found: Vec<Self> = vec![];
        for [row_warps, key_warps, keys, residents] in CUTS {
            let tile = Self {
                size,
                v_size,
                keys,
                row_warps,
                key_warps,
                residents: if size.max(v_size) <= SMALL_SIZE { residents } else { 1 },
                grouped: false,
            };
            // Few keys at a time are for where more do not fit.
            let same = |other: &Self| (other.row_warps, other.key_warps) == (row_warps, key_warps);
            let wanted = !found.contains(&tile) && (keys > 16 || !found.iter().any(same));
            if wanted && (keys < 64 || size.max(v_size) <= MANY_KEYS_SIZE) && tile.bytes(2) <= shared_bytes {
                found.push(tile);
            }
        }
        if has_groups {
            let tiles = Self::in_groups(sizes).into_iter();
            found.extend(tiles.filter(|tile| tile.bytes(2) * tile.residents <= shared_bytes));
        }
        found
    }

    /// Those of warpgroups.
    fn in_groups([size, v_size]: [usize; 2]) -> Vec<Self> {
        let widest = size.max(v_size);
        let blocks = GROUPS.iter().find(|(most, _)| widest <= *most);
        let (Some((most, blocks)), Some(v_size)) = (blocks, widest_values(v_size)) else {
            return vec![];
        };
        let tile = |&[groups, residents]: &[usize; 2]| Self {
            // Small heads share their kernels.
            size: if *most == SMALL_SIZE {
                SMALL_SIZE
            } else {
                size.next_multiple_of(16)
            },
            v_size,
            keys: GROUP_KEYS,
            row_warps: 4 * groups,
            key_warps: 1,
            residents,
            grouped: true,
        };
        blocks.iter().map(tile).collect()
    }

    /// Rows of a block.
    pub fn rows(self) -> usize {
        self.row_warps * WARP_ROWS
    }

    /// Keys of a block at a time.
    pub fn tile_keys(self) -> usize {
        self.key_warps * self.keys
    }

    /// Threads of a block.
    pub fn threads(self) -> usize {
        self.row_warps * self.key_warps * 32
    }

    /// Shared memory for a launch whose blocks go through so many tiles.
    pub fn shared_bytes(self, steps: usize) -> usize {
        // What is more than free is set for a kernel, not for its launches: there, all of them ask for the same.
        match self.bytes(1) {
            _ if self.grouped => self.bytes(2),
            bytes if steps <= 1 && bytes <= FREE_BYTES => bytes,
            _ => self.bytes(2),
        }
    }

    /// Shared memory with so many tiles in it.
    fn bytes(self, tiles: usize) -> usize {
        if self.grouped {
            let [size, v_size] = [self.size, self.v_size].map(|size| size.next_multiple_of(LINE));
            return 2 * (self.rows() * size.max(self.v_size + 8) + tiles * self.keys * (size + v_size));
        }
        let queries = self.rows() * (self.size.max(self.v_size) + 8);
        let keys = self.tile_keys() * (self.size + 8 + self.v_size + 8);
        // What warps of the same rows join: their results, greatest scores and sums.
        let joined = self.rows() * self.key_warps * (self.v_size + 8 + 2) * size_of::<f32>();
        let joined = if self.key_warps > 1 { joined } else { 0 };
        (2 * (queries + tiles * keys)).max(joined)
    }

    /// For reports.
    pub fn describe(self) -> String {
        let Self {
            size,
            v_size,
            residents,
            grouped,
            ..
        } = self;
        let (rows, keys) = (self.rows(), self.tile_keys());
        let how = if grouped { "warpgroups" } else { "tensor cores" };
        format!("{how}, {size} x {v_size}, {rows} rows, {keys} keys a tile, {residents} blocks at once")
    }
}

/// The size that warpgroups multiply values of, for those of a size.
pub fn widest_values(v_size: usize) -> Option<usize> {
    GROUPS.iter().map(|(most, _)| *most).find(|most| v_size <= *most)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cuts(sizes: [usize; 2], shared: usize) -> Vec<[usize; 4]> {
        let tiles = Tile::all(sizes, shared, false).into_iter();
        tiles
            .map(|tile| [tile.row_warps, tile.key_warps, tile.keys, tile.residents])
            .collect()
    }

    #[test]
    fn smaller_gpus_and_larger_heads_have_smaller_tiles() {
        let (hopper, ada, turing) = (232_448, 101_376, 65_536);
        assert_eq!(cuts([64, 64], hopper), CUTS[..7]);
        assert_eq!(cuts([64, 64], ada), CUTS[..7]);
        assert_eq!(cuts([64, 64], turing), [&CUTS[..6], &CUTS[9..]].concat());
        let alone = |[rows, sides, keys, _]: [usize; 4]| [rows, sides, keys, 1];
        assert_eq!(
            cuts([256, 256], hopper),
            [CUTS[2], CUTS[4], CUTS[5], CUTS[9]].map(alone)
        );
        assert_eq!(cuts([256, 256], turing), [] as [[usize; 4]; 0]);
        assert_eq!(cuts([257, 64], hopper), [] as [[usize; 4]; 0]);
    }

    #[test]
    fn warpgroups_have_shared_memory_for_their_tiles() {
        let grouped = |sizes| Tile::all(sizes, 232_448, true).into_iter().filter(|tile| tile.grouped);
        let cuts = |sizes| {
            grouped(sizes)
                .map(|tile| [tile.size, tile.v_size, tile.rows()])
                .collect::<Vec<_>>()
        };
        assert_eq!(cuts([80, 80]), [[80, 96, 64], [80, 96, 128], [80, 96, 192]]);
        assert_eq!(cuts([192, 128]), [[192, 128, 64], [192, 128, 128]]);
        assert_eq!(cuts([256, 256]), [[256, 256, 64], [256, 256, 128]]);
        let tiles: Vec<Tile> = grouped([64, 40]).collect();
        assert_eq!(
            (tiles[0].rows(), tiles[0].threads(), tiles[0].shared_bytes(1)),
            (64, 128, 41_984)
        );
        assert_eq!(
            (tiles[1].rows(), tiles[1].threads(), tiles[1].shared_bytes(1)),
            (128, 256, 51_200)
        );
    }

    #[test]
    fn one_tile_needs_room_for_one() {
        let tile = Tile::all([64, 64], 232_448, false)[6];
        assert_eq!((tile.rows(), tile.tile_keys(), tile.threads()), (16, 128, 128));
        assert_eq!((tile.shared_bytes(1), tile.shared_bytes(2)), (39_168, 76_032));
        // More than is free is the same for all launches.
        let tile = *Tile::all([128, 128], 232_448, false).last().unwrap();
        assert_eq!(tile.shared_bytes(1), tile.shared_bytes(2));
    }
}
