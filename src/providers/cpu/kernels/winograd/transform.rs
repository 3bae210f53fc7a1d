//! Tiles of the input as points, and points as tiles of the result, one vector of channels at a time.
//!
//! In loops rather than in closures: a closure is compiled without the vectors of the function that it stands in, unless it is inlined.

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
pub fn points<V: Vector>(mut d: [[V; SIDE]; SIDE]) -> [[V; SIDE]; SIDE] {
    for row in &mut d {
        *row = forward(*row);
    }
    for column in 0..SIDE {
        let points = forward([d[0][column], d[1][column], d[2][column], d[3][column]]);
        for (row, point) in d.iter_mut().zip(points) {
            row[column] = point;
        }
    }
    d
}

/// The results of a tile's points, `A' p A`.
#[inline(always)]
pub fn results<V: Vector>(p: [[V; SIDE]; SIDE]) -> [[V; TILE]; TILE] {
    let mut found = [[V::splat(0.0); TILE]; TILE];
    let mut rows = [[V::splat(0.0); TILE]; SIDE];
    for (row, points) in rows.iter_mut().zip(p) {
        *row = backward(points);
    }
    for column in 0..TILE {
        let results = backward([rows[0][column], rows[1][column], rows[2][column], rows[3][column]]);
        for (row, result) in found.iter_mut().zip(results) {
            row[column] = result;
        }
    }
    found
}
