//! The memory that the caller's arrays lie in, for which a program is made.

use crate::device::Space;
use crate::network::Network;

/// The memory of each input and output of a call: no transfer is planned between an array and kernels that work in its memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IoSignature {
    /// In the order of the network's inputs.
    pub inputs: Vec<Space>,
    /// In the order of the network's outputs.
    pub outputs: Vec<Space>,
}

impl IoSignature {
    /// All arrays in the processor's memory.
    pub fn host(network: &Network) -> Self {
        Self {
            inputs: vec![Space::Host; network.inputs().len()],
            outputs: vec![Space::Host; network.outputs().len()],
        }
    }

    /// Whether all arrays lie in the processor's memory.
    pub fn is_host(&self) -> bool {
        let mut all = self.inputs.iter().chain(&self.outputs);
        all.all(|&space| space == Space::Host)
    }
}
