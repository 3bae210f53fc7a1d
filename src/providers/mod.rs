//! Those who can run a network: each probes the machine and offers candidates to the planner.
pub mod cpu;

use crate::plan::Provider;
use std::sync::Arc;

/// The providers of this build that can run here, the preferred one first.
pub fn available() -> Vec<Arc<dyn Provider>> {
    vec![Arc::new(cpu::Cpu::default())]
}
