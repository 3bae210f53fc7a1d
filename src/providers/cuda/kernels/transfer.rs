//! Copies between the GPU's memory and the processor's.

use super::Gpu;
use crate::error::Result;
use crate::plan::layout::Layout;
use crate::plan::{Call, Form, Instance, Kernel, Request};
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

    fn instantiate(&self, request: &Request) -> Result<Box<dyn Instance>> {
        Ok(Box::new(Copying {
            gpu: self.gpu.clone(),
            bytes: request.outputs[0].bytes(),
        }))
    }
}

struct Copying {
    gpu: Arc<Gpu>,
    bytes: usize,
}

impl Instance for Copying {
    fn implementation(&self) -> String {
        format!("copy of {} bytes", self.bytes)
    }

    /// The other side is the caller's memory, at another address in each call.
    fn capturable(&self) -> bool {
        false
    }

    fn pdl_triggers(&self) -> bool {
        false
    }

    fn run(&mut self, call: &Call) -> Result<()> {
        let (to, from) = (call.outputs[0] as u64, call.inputs[0] as u64);
        // SAFETY: the planner vouches for both addresses until the stream is finished.
        unsafe { self.gpu.device.copy(to, from, self.bytes, call.stream) }
    }
}
