//! NVIDIA's TensorRT, opened at run time: its builder makes a plan of a network, on machines without a GPU too where the
//! library allows that.

mod bridge;
pub mod library;
pub mod sink;
