//! Convolutions of 3x3 with stride 1 by Winograd's minimal filtering F(2x2, 3x3): a tile of 2x2 results comes from 16 products in place
//! of 36, each of them a matrix product over the channels (Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks", 2015).
//!
//! It is about as exact as the sums in their plain order: its transforms add and subtract. Larger tiles multiply by 4 and 5 as well:
//! F(4x4, 3x3) took two thirds of the time again, and was off by 7e-5 of a result's standard deviation.

mod epilogue;
mod launch;
mod product;
#[cfg(test)]
mod tests;
mod transform;
mod weights;

use crate::providers::cpu::simd::{Avx512, Vector};
pub use epilogue::is_supported;
pub use launch::{Spec, prepare};
pub use weights::Transformed;

/// Results along an axis of a tile.
const TILE: usize = 2;
/// Elements of the input along an axis of a tile: that many products.
const SIDE: usize = TILE + 2;
/// Products of a tile.
const POINTS: usize = SIDE * SIDE;
/// Channels of a vector.
const LANES: usize = Avx512::LANES;
