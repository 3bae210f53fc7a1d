//! NVIDIA's TensorRT, opened at run time: its builder makes a plan of a network, on machines without a GPU too where the
//! library allows that.

mod bridge;
mod convert;
mod handle;
mod layers;
pub mod library;
pub mod plan;
pub mod sink;
mod writer;

use crate::network::{LayerId, Network};

/// The provider's name in options and reports.
pub const NAME: &str = "tensorrt";

/// Whether a layer is taken as it stands, so that it is not written in smaller ones.
pub fn keeps_whole(network: &Network, layer: LayerId) -> bool {
    layers::find(network[layer].op.name).is_some()
}
