//! Connected pointwise layers as one kernel, whose source is written for them.

pub mod code;
mod convert;
mod expression;

use super::{Answer, Gpu};
use crate::error::Result;
use crate::network::dtype::DType;
use crate::network::{Layer, LayerId, Network};
use crate::plan::layout::Layout;
use crate::plan::{Candidate, Form, Kernel, Prepared, Request};
use crate::providers::common::group;
use crate::providers::common::mean_of_8_bits;
use crate::providers::common::scope::{Scope, uniform_forms};
use crate::providers::cuda::kernels::strided::{Operands, Strided, copy_source};
use std::fmt::Write;
use std::sync::Arc;

/// A fusion of the pointwise layers around this one, and the layer alone.
pub fn offer(scope: &Scope, gpu: &Arc<Gpu>) -> Answer {
    if scope.op() == "BitCast" {
        return Ok(vec![bit_cast(scope, gpu)]);
    }
    if !code::is_pointwise(scope.network, scope.layer()) {
        return Ok(vec![]);
    }
    let group = group::grow(scope, takes);
    let mut found = vec![];
    if group.len() > 1 {
        found.push(candidate(scope.network, group, gpu));
    }
    found.push(candidate(scope.network, vec![scope.layer], gpu));
    Ok(found)
}

/// What goes together with other layers: Dequantize layers that products of 8 bits or means read alone do not.
fn takes(network: &Network, layer: &Layer) -> bool {
    let claimed = || super::quantized::claims(network, layer) || mean_of_8_bits::claims(network, layer);
    code::is_pointwise(network, layer) && !claimed()
}

fn candidate(network: &Network, layers: Vec<LayerId>, gpu: &Arc<Gpu>) -> Candidate {
    let code = code::of(network, &layers);
    let names: Vec<_> = layers.iter().map(|&l| network[l].op.name).collect();
    let rank = network[code.outputs[0]].ty.rank();
    let same_rank = |&t: &crate::network::TensorId| network[t].ty.rank() == rank;
    let kernel = Pointwise {
        name: names.join("+"),
        reads_layout: code.inputs.iter().map(same_rank).collect(),
        rank,
        outputs: code.outputs.len(),
        source: source(network, &code),
        gpu: gpu.clone(),
    };
    Candidate {
        kernel: Arc::new(kernel),
        layers,
        inputs: code.inputs,
        outputs: code.outputs,
    }
}

/// The bytes as they are; as a bool, what is not 0 is true. Alone: a NaN of another kind than the usual one would not come
/// through arithmetic.
fn bit_cast(scope: &Scope, gpu: &Arc<Gpu>) -> Candidate {
    let ty = scope.output_type(0);
    let source = match ty.dtype {
        DType::Bool => "typedef uint8 Y0;\ntypedef uint8 X0;\n\
                        __device__ __forceinline__ void element(uint8& y0, const uint8 x0) { y0 = x0 != 0; }\n"
            .into(),
        dtype => copy_source(dtype).0,
    };
    let kernel = Pointwise {
        name: scope.op().into(),
        reads_layout: vec![true],
        rank: ty.rank(),
        outputs: 1,
        source,
        gpu: gpu.clone(),
    };
    scope.alone(kernel, &[0])
}

/// The function of one element, as [`Strided`] wants it.
pub fn source(network: &Network, code: &code::Code) -> String {
    let ty = |&t: &crate::network::TensorId| code::element(network[t].ty.dtype).unwrap_or("float");
    let mut text = String::new();
    let mut parameters: Vec<String> = vec![];
    for (i, tensor) in code.outputs.iter().enumerate() {
        _ = writeln!(text, "typedef {} Y{i};", ty(tensor));
        parameters.push(format!("Wide<Y{i}>::type& y{i}"));
    }
    for (i, tensor) in code.inputs.iter().enumerate() {
        _ = writeln!(text, "typedef {} X{i};", ty(tensor));
        parameters.push(format!("const Wide<X{i}>::type x{i}"));
    }
    _ = writeln!(
        text,
        "__device__ __forceinline__ void element({}) {{\n{}}}",
        parameters.join(", "),
        code.body
    );
    text
}

struct Pointwise {
    name: String,
    /// For each input, whether it has the rank of the result, and so its layout.
    reads_layout: Vec<bool>,
    rank: usize,
    outputs: usize,
    source: String,
    gpu: Arc<Gpu>,
}

impl Kernel for Pointwise {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn identity(&self) -> String {
        self.source.clone()
    }

    fn forms(&self) -> Vec<Form> {
        let layouts = [Layout::Plain, Layout::ChannelsLast]
            .into_iter()
            .filter(|layout| layout.fits(self.rank));
        let mut forms = uniform_forms(&layouts.collect::<Vec<_>>(), self.reads_layout.len(), self.outputs);
        for form in &mut forms {
            let inputs = form.inputs.iter_mut().zip(&self.reads_layout);
            inputs
                .filter(|(_, reads)| !**reads)
                .for_each(|(layout, _)| *layout = Layout::Plain);
        }
        forms
    }

    fn takes_slices(&self, _form: &Form) -> (bool, bool) {
        (true, true)
    }

    fn prepare(&self, request: &Request) -> Result<Prepared> {
        let operands = Operands::of(request)?;
        Ok(Strided::new(&self.gpu, &self.source, operands).prepared())
    }
}
