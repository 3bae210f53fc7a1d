//! NVIDIA's TensorRT, opened at run time: its builder makes a plan of a network, on machines without a GPU too where the
//! library allows that, and its runtime runs plans of regions of a network on a GPU.

mod bridge;
mod collector;
mod contexts;
mod convert;
mod cut;
mod handle;
mod hosted;
mod implemented;
mod keep;
mod layers;
pub mod library;
mod pieces;
pub mod plan;
mod provider;
mod region;
mod regions;
pub mod runtime;
pub mod sink;
mod writer;

pub use handle::Description;

use crate::error::{Error, Result};
use crate::network::{LayerId, Network};
use crate::plan::Provider;
use crate::providers::cuda::Cuda;
use library::{Library, TENSORRT};
use provider::TensorRt;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// The provider's name in options and reports.
pub const NAME: &str = "tensorrt";

/// Whether a layer is taken as it stands, so that it is not written in smaller ones.
pub fn keeps_whole(network: &Network, layer: LayerId) -> bool {
    layers::find(network[layer].op.name).is_some()
}

/// What TensorRT-RTX runs on.
const RTX_CAPABILITIES: [(i32, i32); 5] = [(7, 5), (8, 0), (8, 6), (8, 9), (12, 0)];

/// The provider for a GPU, opened once a process: plans that are open are kept as long as somebody runs them.
///
/// # Errors
/// If there is no such GPU, no library that this build can drive, or one that has no code for the GPU; says which.
pub fn probe(device: u32) -> Result<Arc<dyn Provider>> {
    static OPEN: Mutex<BTreeMap<u32, Arc<TensorRt>>> = Mutex::new(BTreeMap::new());
    let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(provider) = open.get(&device) {
        return Ok(provider.clone());
    }
    // Where libraries of the CUDA provider are missing, its memory and streams are all that is needed.
    let gpu = Cuda::shared(device).or_else(|_| Cuda::without_kernels(device));
    let gpu = gpu.map_err(|e| Error::device(format!("no NVIDIA GPU ({})", e.message())))?;
    let library = Library::find()?;
    if let Some(error) = misfit(library.is_rtx(), gpu.device().capability) {
        return Err(error.got(format!("{}, TensorRT-RTX {}", library.path(), library.version())));
    }
    let provider = Arc::new(TensorRt::new(library, gpu));
    open.insert(device, provider.clone());
    Ok(provider)
}

/// What TensorRT is to build for: RTX for this GPU alone, which needs not be there then; the others for the one at hand.
fn targets(is_rtx: bool, capability: (i32, i32)) -> Vec<String> {
    let (major, minor) = capability;
    match RTX_CAPABILITIES.contains(&capability) {
        _ if !is_rtx => vec![],
        true => vec![format!("{major}.{minor}")],
        false => vec!["current".into()],
    }
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
        .hint(format!("install TensorRT itself: pip install \"{TENSORRT}\""))
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
        assert_eq!(targets(true, (8, 6)), ["8.6"]);
        assert_eq!(targets(true, (12, 1)), ["current"]);
        assert!(targets(false, (8, 6)).is_empty());
    }
}
