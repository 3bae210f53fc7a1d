//! The CPU provider: oneDNN primitives and our own kernels, on one team of threads.
mod bridge;
pub mod handle;
pub mod team;
