//! Those who can run a network: each probes the machine and offers candidates to the planner.
use crate::error::{Error, Result};
use crate::plan::Provider;
use std::sync::Arc;

pub mod common;
pub mod cpu;
pub mod cuda;
pub mod plugin;

/// How a provider is had, on the accelerator of this number where it is one of several, or why it is not.
pub type Probe = fn(u32) -> Result<Arc<dyn Provider>>;

/// Every provider by name, the preferred one first.
pub static PROVIDERS: &[(&str, Probe)] = &[
    ("cuda", |device| Ok(cuda::Cuda::shared(device)?)),
    ("cpu", |_| Ok(Arc::new(cpu::Cpu::default()))),
];

/// The provider of a name, on an accelerator of this number.
///
/// # Errors
/// If there is none of this name, or it can't be had on this machine.
pub fn find(name: &str, device: u32) -> Result<Arc<dyn Provider>> {
    match PROVIDERS.iter().find(|(known, _)| *known == name) {
        Some((_, probe)) => probe(device),
        None => Err(Error::unsupported(format!("there is no provider {name:?}"))
            .expected(PROVIDERS.iter().map(|(known, _)| *known).collect::<Vec<_>>().join(", "))),
    }
}

/// The providers that can run here, the preferred one first.
pub fn available() -> Vec<Arc<dyn Provider>> {
    PROVIDERS.iter().filter_map(|(_, probe)| probe(0).ok()).collect()
}
