//! Quantization that we place: where Quantize and Dequantize layers go, and the ranges that decide their scales.

pub mod histogram;
mod least;
pub mod place;
pub mod points;
mod shared;
mod unfold;

pub use histogram::{Histogram, Method};
pub use place::{Dtypes, Ranges, place};
pub use points::{Point, integers, points};
pub use unfold::unfold;
