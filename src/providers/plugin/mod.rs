//! Plugins as kernels: what the processor's and the GPU's provider offer for a layer that somebody else runs.

pub mod library;

use crate::error::Result;
use crate::network::ops::plugin;
use crate::network::plugin::{Device, Plugin, Run, Shaped, blame};
use crate::plan::layout::{Layout, Operand};
use crate::plan::{self, Call, Candidate, Form, Instance, Kernel, Request};
use crate::providers::common::scope::{Scope, uniform_forms};
use crate::providers::common::{Answer, Why};
use std::sync::Arc;

/// The plugin of a layer, at the edge of a kernel.
pub struct Port {
    /// The plugin.
    pub plugin: Arc<dyn Plugin>,
    /// The inputs of the layer that its kernel gets; the others only tell shapes.
    pub inputs: Vec<usize>,
    outputs: usize,
}

impl Port {
    /// The plugin of a layer, where it runs on this device; nothing for a layer that is none.
    ///
    /// # Errors
    /// Why it does not run there.
    pub fn of(scope: &Scope, device: Device) -> std::result::Result<Option<Self>, Why> {
        let layer = scope.layer();
        let Some(held) = plugin::of(layer) else {
            return Ok(None);
        };
        let plugin = held.plugin(&layer.name).map_err(|e| Why::new(e.message()))?;
        let devices = plugin.devices();
        if devices.iter().any(|name| name == device.word()) {
            let read = layer.inputs.len() - held.shape_inputs();
            return Ok(Some(Self {
                plugin,
                inputs: (0..read).collect(),
                outputs: layer.outputs.len(),
            }));
        }
        Err(Why {
            reason: format!(
                "plugin {} runs on {} (its `devices`), not on {}",
                held.identity(),
                devices.join(", "),
                device.word()
            ),
            hint: "allow a provider on which the plugin runs, or let its `devices` name this one",
        })
    }
}

/// Operands as plugins see them.
pub fn shaped(operands: &[Operand]) -> Vec<Shaped> {
    let one = |operand: &Operand| Shaped {
        dtype: operand.dtype,
        shape: operand.shape.clone(),
    };
    operands.iter().map(one).collect()
}

/// The layer on its plugin's own code.
///
/// # Errors
/// Why it does not run on this device.
pub fn offer(scope: &Scope, device: Device) -> Answer {
    match Port::of(scope, device)? {
        Some(port) => Ok(kernel(scope, port, move |port, request| called(port, device, request))),
        None => Ok(vec![]),
    }
}

/// The layer on what `make` gets ready for a request.
pub fn kernel<M>(scope: &Scope, port: Port, make: M) -> Vec<Candidate>
where
    M: Fn(&Port, &Request) -> Result<plan::Prepared> + Send + Sync + 'static,
{
    let inputs = port.inputs.clone();
    vec![scope.alone(Ported { port, make }, &inputs)]
}

struct Ported<M> {
    port: Port,
    make: M,
}

impl<M> Kernel for Ported<M>
where
    M: Fn(&Port, &Request) -> Result<plan::Prepared> + Send + Sync,
{
    fn name(&self) -> String {
        format!("Plugin {}", self.port.plugin.identity())
    }

    fn identity(&self) -> String {
        self.name()
    }

    /// Plugins take and give rows, as numpy has them.
    fn forms(&self) -> Vec<Form> {
        uniform_forms(&[Layout::Plain], self.port.inputs.len(), self.port.outputs)
    }

    fn is_timed(&self) -> bool {
        false
    }

    fn prepare(&self, request: &Request) -> Result<plan::Prepared> {
        (self.make)(&self.port, request).map_err(blame(&self.port.plugin.identity()))
    }
}

fn called(port: &Port, device: Device, request: &Request) -> Result<plan::Prepared> {
    let (inputs, outputs) = (shaped(request.inputs), shaped(request.outputs));
    let mut prepared = port.plugin.prepare(device, &inputs, &outputs)?;
    let on_host = device == Device::Cpu;
    let (workspace, capturable) = (prepared.workspace(), on_host || prepared.is_capturable());
    let plugin = port.plugin.clone();
    let launch = move |call: &Call| {
        let run = Run {
            inputs: call.inputs,
            outputs: call.outputs,
            workspace: call.workspace,
            stream: call.stream,
        };
        prepared.run(&run).map_err(blame(&plugin.identity()))
    };
    let instance = Instance::new("the plugin's own code", launch).with_workspace(workspace);
    // What libraries launch in a plugin on a GPU, and when that reads, is not known.
    let wait_inputs = if on_host { usize::MAX } else { 0 };
    Ok(instance
        .with_capturable(capturable)
        .with_wait_inputs(wait_inputs)
        .into())
}
