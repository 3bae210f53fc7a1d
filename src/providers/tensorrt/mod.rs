//! NVIDIA's TensorRT, opened at run time: its builder makes a plan of a network, on machines without a GPU too where the
//! library allows that.

mod bridge;
mod convert;
mod gpu;
mod handle;
mod hosted;
mod layers;
pub mod library;
pub mod plan;
pub mod sink;
mod writer;

pub use handle::Description;

use crate::error::{Error, Result};
use crate::network::{LayerId, Network};
use crate::plan::Provider;
use library::Library;
use std::sync::Arc;

/// The provider's name in options and reports.
pub const NAME: &str = "tensorrt";

/// Whether a layer is taken as it stands, so that it is not written in smaller ones.
pub fn keeps_whole(network: &Network, layer: LayerId) -> bool {
    layers::find(network[layer].op.name).is_some()
}

/// What TensorRT-RTX runs on.
const RTX_CAPABILITIES: [(i32, i32); 5] = [(7, 5), (8, 0), (8, 6), (8, 9), (12, 0)];

/// Why this provider can't be had on a GPU.
///
/// # Errors
/// Always: plans are built, and not run yet. Before that, whatever else is missing.
pub fn probe(device: u32) -> Result<Arc<dyn Provider>> {
    let capability = gpu::capability(device)?;
    let library = Library::find()?;
    if let Some(error) = misfit(library.is_rtx(), capability) {
        return Err(error.got(format!("{}, TensorRT-RTX {}", library.path(), library.version())));
    }
    Err(
        Error::unsupported("this version of Neurenix builds TensorRT's plans and does not run them yet").got(format!(
            "{}, version {}",
            library.path(),
            library.version()
        )),
    )
}

/// Why a GPU of this compute capability does not go with a library.
fn misfit(is_rtx: bool, capability: (i32, i32)) -> Option<Error> {
    let (major, minor) = capability;
    let runs = !is_rtx || major >= 12 || RTX_CAPABILITIES.contains(&capability);
    (!runs).then(|| {
        let known = RTX_CAPABILITIES.map(|(major, minor)| format!("{major}.{minor}"));
        Error::unsupported(format!(
            "TensorRT-RTX does not run on GPUs of compute capability {major}.{minor}"
        ))
        .expected(known.join(", "))
        .hint("install TensorRT itself: pip install \"neurenix[tensorrt]\"")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rtx_is_refused_where_it_has_no_code_and_only_there() {
        assert!(misfit(true, (9, 0)).unwrap().message().contains("9.0"));
        assert!(misfit(true, (8, 9)).is_none() && misfit(true, (12, 1)).is_none());
        assert!(misfit(false, (9, 0)).is_none());
    }
}
