//! An example of a provider: it runs Relu of float32 in a loop of Rust's, in the processor's memory, and refuses all else.

use super::common::fn_kernel::FnKernel;
use super::common::scope::uniform_forms;
use super::cpu::Cpu;
use crate::device::Device;
use crate::error::Result;
use crate::network::dtype::DType;
use crate::network::op::TensorType;
use crate::network::{LayerId, Network};
use crate::plan::layout::Layout;
use crate::plan::{Call, Candidate, Job, Kernel, Offer, Prepared, Provider, Refusal, Request, Settings};
use std::slice::{from_raw_parts, from_raw_parts_mut};
use std::sync::Arc;

/// The provider.
#[derive(Default)]
pub struct Loops {
    /// Who moves data for it, and on whose threads it works.
    host: Cpu,
}

impl Provider for Loops {
    fn name(&self) -> &'static str {
        "loops"
    }

    fn conditions(&self, settings: &Settings) -> Vec<(String, String)> {
        self.host.conditions(settings)
    }

    fn device(&self) -> &dyn Device {
        self.host.device()
    }

    fn compute_dtype(&self, _dtype: DType) -> DType {
        DType::Float32
    }

    fn candidates(&self, network: &Network, id: LayerId, _settings: &Settings) -> Offer {
        let layer = &network[id];
        let dtype = network[layer.outputs[0]].ty.dtype;
        if layer.op.name != "Relu" || dtype != DType::Float32 {
            return Err(Refusal {
                provider: self.name().into(),
                layer: layer.name.clone(),
                reason: format!("no loop runs {} of {dtype}", layer.op.name),
                hint: String::new(),
            });
        }
        let forms = uniform_forms(&[Layout::Plain], 1, 1);
        Ok(vec![Candidate {
            kernel: Arc::new(FnKernel::new("Relu", "Relu in a loop", forms, relu)),
            layers: vec![id],
            inputs: layer.inputs.iter().flatten().copied().collect(),
            outputs: layer.outputs.clone(),
        }])
    }

    fn reorder(&self, from: Layout, to: Layout, ty: &TensorType) -> Arc<dyn Kernel> {
        self.host.reorder(from, to, ty)
    }

    fn run(&self, threads: usize, job: Job) -> Result<()> {
        self.host.run(threads, job)
    }
}

fn relu(request: &Request) -> Result<Prepared> {
    let length = request.outputs[0].elements();
    let launch = move |call: &Call| {
        let (x, y) = (call.inputs[0].cast::<f32>(), call.outputs[0].cast::<f32>());
        // SAFETY: the planner gives addresses that hold the operands of the request, and no kernel runs in place unasked.
        let (x, y) = unsafe { (from_raw_parts(x, length), from_raw_parts_mut(y, length)) };
        // Not f32::max, which takes 0 for NaN.
        y.iter_mut()
            .zip(x)
            .for_each(|(y, &x)| *y = if x < 0.0 { 0.0 } else { x });
        Ok(())
    };
    Ok(Prepared::new("a loop", launch))
}
