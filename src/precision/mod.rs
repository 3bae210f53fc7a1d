//! Quantization that we place: where Quantize and Dequantize layers go, and the ranges that decide their scales.

mod guard;
pub mod histogram;
mod least;
mod per_token;
pub mod place;
pub mod points;
mod shared;
mod unfold;

pub use histogram::{Histogram, Method};
pub use place::{Dtypes, Ranges, place, residuals_in_floats};
pub use points::{Point, Role, integers, points};
pub use unfold::unfold;
