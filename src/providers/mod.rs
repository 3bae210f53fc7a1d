//! Those who can run a network: each probes the machine and offers candidates to the planner.
use crate::error::{Error, Result};
use crate::plan::Provider;
use std::sync::{Arc, Mutex, PoisonError};

pub mod common;
pub mod cpu;
pub mod cuda;
pub mod plugin;
pub mod tensorrt;

/// How a provider is had, on the accelerator of this number where it is one of several, or why it is not.
pub type Probe = fn(u32) -> Result<Arc<dyn Provider>>;

/// Every provider by name, the preferred one first.
pub static PROVIDERS: &[(&str, Probe)] = &[
    (tensorrt::NAME, tensorrt::probe),
    ("cuda", |device| Ok(cuda::Cuda::shared(device)?)),
    ("cpu", |_| Ok(Arc::new(cpu::Cpu::default()))),
];

/// The provider of a name, on an accelerator of this number.
///
/// # Errors
/// If there is none of this name, or it can't be had on this machine.
pub fn find(name: &str, device: u32) -> Result<Arc<dyn Provider>> {
    if let Some((_, probe)) = PROVIDERS.iter().find(|(known, _)| *known == name) {
        return probe(device);
    }
    let outside = outside();
    let found = outside.iter().find(|provider| provider.name() == name).cloned();
    found.ok_or_else(|| {
        let known = PROVIDERS.iter().map(|(known, _)| *known);
        let all: Vec<_> = known.chain(outside.iter().map(|p| p.name())).collect();
        Error::unsupported(format!("there is no provider {name:?}")).expected(all.join(", "))
    })
}

/// Those that came from outside of the crate. None is called or dropped while this is locked.
static OUTSIDE: Mutex<Vec<Arc<dyn Provider>>> = Mutex::new(vec![]);

/// The providers from outside, in the order in which they came.
pub fn outside() -> Vec<Arc<dyn Provider>> {
    // Each change is one more element: a panic elsewhere leaves the list whole.
    OUTSIDE.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Adds a provider from outside, for the life of the process.
///
/// # Errors
/// If there is one of its name.
pub fn register(provider: Arc<dyn Provider>) -> Result<()> {
    let name = provider.name();
    let own = PROVIDERS.iter().any(|(known, _)| *known == name);
    let mut outside = OUTSIDE.lock().unwrap_or_else(PoisonError::into_inner);
    if own || outside.iter().any(|other| other.name() == name) {
        return Err(Error::invalid(format!("there is a provider {name:?} already")));
    }
    outside.push(provider);
    Ok(())
}

/// The providers that can run here, the preferred one first.
pub fn available() -> Vec<Arc<dyn Provider>> {
    PROVIDERS.iter().filter_map(|(_, probe)| probe(0).ok()).collect()
}
