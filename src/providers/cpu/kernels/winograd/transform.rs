//! Tiles of the input as points, and points as tiles of the result, one vector of channels at a time.

use super::{SIDE, TILE};
use crate::providers::cpu::simd::Vector;

/// `B' d` along an axis.
#[inline(always)]
fn forward<V: Vector>(d: [V; SIDE]) -> [V; SIDE] {
    [d[0] - d[2], d[1] + d[2], d[2] - d[1], d[1] - d[3]]
}

/// `A' p` along an axis.
#[inline(always)]
fn backward<V: Vector>(p: [V; SIDE]) -> [V; TILE] {
    [p[0] + p[1] + p[2], p[1] - p[2] - p[3]]
}

/// The points of a tile, `B' d B`.
#[inline(always)]
pub fn points<V: Vector>(d: [[V; SIDE]; SIDE]) -> [[V; SIDE]; SIDE] {
    transposed(transposed(d.map(forward)).map(forward))
}

/// The results of a tile's points, `A' p A`.
#[inline(always)]
pub fn results<V: Vector>(p: [[V; SIDE]; SIDE]) -> [[V; TILE]; TILE] {
    transposed(transposed(p.map(backward)).map(backward))
}

#[inline(always)]
fn transposed<V: Vector, const R: usize, const C: usize>(rows: [[V; C]; R]) -> [[V; R]; C] {
    std::array::from_fn(|column| std::array::from_fn(|row| rows[row][column]))
}
