//! Copies between the GPU's memory and the processor's.

use super::Gpu;
use crate::error::Result;
use crate::plan::layout::Layout;
use crate::plan::{Call, Form, Instance, Kernel, Prepared, Request};
use crate::providers::common::scope::uniform_forms;
use std::sync::Arc;

/// A copy either way: the addresses tell which.
pub struct Transfer {
    /// The GPU.
    pub gpu: Arc<Gpu>,
}

impl Kernel for Transfer {
    fn name(&self) -> String {
        "transfer".into()
    }

    fn identity(&self) -> String {
        self.name()
    }

    fn forms(&self) -> Vec<Form> {
        uniform_forms(&[Layout::Plain], 1, 1)
    }

    fn prepare(&self, request: &Request) -> Result<Prepared> {
        let (gpu, bytes) = (self.gpu.clone(), request.outputs[0].bytes());
        let copy = move |call: &Call| {
            let (to, from) = (call.outputs[0] as u64, call.inputs[0] as u64);
            // SAFETY: the planner vouches for both addresses until the stream is finished.
            unsafe { gpu.device.copy(to, from, bytes, call.stream) }
        };
        // The other side is the caller's memory, at another address in each call.
        let mut instance = Instance::new(format!("copy of {bytes} bytes"), copy).with_capturable(false);
        instance.pdl.triggers = false;
        Ok(instance.into())
    }
}
