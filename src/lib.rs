//! Neurenix: takes a trained model and gives the fastest correct inference that the machine at hand can give.
#![deny(missing_docs, unsafe_op_in_unsafe_fn)]

#[cfg(test)]
extern crate self as neurenix;

#[cfg(feature = "python")]
mod bindings;
#[cfg(not(feature = "python"))]
mod capi;
pub mod context;
pub mod device;
pub mod engine;
pub mod error;
pub mod fingerprint;
pub mod interrupt;
pub mod knobs;
pub mod nearest;
pub mod network;
pub mod passes;
pub mod plan;
pub mod precision;
pub mod providers;
pub mod replace;
pub mod runtime;
pub mod shutdown;
pub mod threads;
#[cfg(test)]
#[path = "../tests/rust.rs"]
mod whole;
