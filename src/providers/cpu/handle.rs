//! The safe side of the bridge to oneDNN: describe an operation, create its primitive, run it on addresses.
//!
//! Every spec (`Conv`, `Matmul`, ...) has a `create` that gives a [`Primitive`]. Constant weights are brought into the
//! primitive's [`WeightFormat`] once; a format chosen for one shape is offered to the next, which takes it unless
//! that would be slow.
mod desc;
mod images;
mod post;
mod primitive;
mod specs;

pub use desc::Desc;
pub use post::{Binary, Eltwise, Options, PostOp, Quantization};
pub use primitive::{Primitive, WeightFormat};
pub use specs::{
    Conv, LayerNorm, Matmul, Pooling, PoolingKind, ReductionKind, Resampling, Softmax, pointwise, reduction, reorder,
};

use super::bridge::ffi;
use crate::error::Error;

/// The version of the oneDNN library in this process, as "3.2.0".
pub fn onednn_version() -> String {
    ffi::onednn_version()
}

/// oneDNN's refusals are refusals of ours; everything else that it reports is a failure.
fn error(exception: cxx::Exception) -> Error {
    let text = exception.what();
    match text.split_once(": ") {
        Some(("unimplemented", message)) => Error::unsupported(format!("oneDNN has no implementation: {message}")),
        Some(("out_of_memory", message)) => Error::memory(format!("oneDNN ran out of memory: {message}")),
        _ => Error::device(format!("oneDNN failed: {text}")),
    }
}

#[cfg(test)]
mod tests;
