//! Networks for compilers that are not ours: brought into the form that providers read, and not planned.

use crate::engine::builder::widen_ranges;
use crate::engine::config::BuilderConfig;
use crate::engine::default_dims;
use crate::error::Result;
use crate::network::{LayerId, Network};
use crate::passes;

/// The network after all passes, with those composite ops in smaller ones that the compiler does not keep whole.
///
/// # Errors
/// If it is not well-formed, or as the passes.
pub fn simplified(
    mut network: Network,
    config: &BuilderConfig,
    keeps_whole: &dyn Fn(&Network, LayerId) -> bool,
) -> Result<Network> {
    network.verify()?;
    widen_ranges(&mut network, &config.profiles)?;
    simplify(network, config, keeps_whole)
}

/// The same for networks that layers hold too: their engines are not ours.
fn simplify(
    mut network: Network,
    config: &BuilderConfig,
    keeps_whole: &dyn Fn(&Network, LayerId) -> bool,
) -> Result<Network> {
    default_dims::choose(&mut network);
    let settings = passes::Settings {
        compute: config.compute,
        tf32: config.tf32,
        eight_bits: passes::EIGHT_BITS.to_vec(),
        refittable: false,
        ..Default::default()
    };
    passes::simplify(&mut network, &settings, keeps_whole)?;
    let ranges = network.symbols.clone();
    network.change_bodies(|mut body| {
        body.take_ranges(|name| ranges.get(name).copied());
        simplify(body, config, keeps_whole)
    })?;
    Ok(network)
}
