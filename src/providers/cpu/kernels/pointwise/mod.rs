//! Connected pointwise layers as one kernel: a small register program, interpreted over tiles that stay in the cache.

mod execute;
mod fetch;
mod instance;
mod lower;
mod planes;
mod program;
mod quantize;
mod table;

use super::{Answer, quantized};
pub use lower::unary;
pub use program::Unary;

use super::operand_strides::BLOCK;
use super::scope::{Scope, uniform_forms};
use crate::error::Result;
use crate::network::dim::Dim;
use crate::network::{LayerId, Network, TensorId};
use crate::plan::layout::Layout;
use crate::plan::{Candidate, Form, Kernel, Prepared, Request, Tactic};
use crate::providers::common::group;
use program::{Feed, Program, Value};
use std::sync::Arc;

/// A fusion of the pointwise layers around this one, and the layer alone.
pub fn offer(scope: &Scope) -> Answer {
    if !lower::is_pointwise(scope.network, scope.layer()) {
        return Ok(vec![]);
    }
    if quantized::claims(scope.network, scope.layer()) {
        return Ok(vec![candidate(scope.network, vec![scope.layer])]);
    }
    let group = group::grow(scope, |network, layer| {
        lower::is_pointwise(network, layer) && !quantized::claims(network, layer)
    });
    let together = table::share(scope.network, group, scope.layer);
    let mut found = vec![];
    if together.len() > 1 {
        found.push(candidate(scope.network, together));
    }
    found.push(candidate(scope.network, vec![scope.layer]));
    Ok(found)
}

fn candidate(network: &Network, layers: Vec<LayerId>) -> Candidate {
    let outputs = group::outputs(network, &layers);
    let lowered = lower::lower(network, &layers, &outputs);
    let names: Vec<_> = layers.iter().map(|&l| network[l].op.name).collect();
    let identity: Vec<_> = layers
        .iter()
        .map(|&l| format!("{:?}{:?}", network[l].op, network[l].attrs))
        .collect();
    let shape = &network[outputs[0]].ty.shape;
    let shapes: Vec<_> = lowered.inputs.iter().map(|&t| network[t].ty.shape.as_slice()).collect();
    let kernel = Pointwise {
        name: names.join("+"),
        identity: identity.join(" "),
        layouts: layouts(shape, &shapes),
        in_place: in_place(network, &lowered, &outputs, shape),
        transposes: transposes(network, &lowered.inputs, &outputs),
        inputs: shapes.iter().map(|s| s.len() == shape.len()).collect(),
        outputs: outputs.len(),
        program: Arc::new(lowered.program),
    };
    Candidate {
        kernel: Arc::new(kernel),
        layers,
        inputs: lowered.inputs,
        outputs,
    }
}

/// The layouts in which a result of this shape can be computed from inputs of these shapes.
fn layouts(shape: &[Dim], inputs: &[&[Dim]]) -> Vec<Layout> {
    // An operand of lower rank lies plainly: whole blocks are read from it only if there are whole blocks.
    let reads_whole_blocks = |input: &&[Dim]| {
        input.len() == shape.len()
            || input.len() + 1 < shape.len()
            || input[input.len() + 1 - shape.len()].is(1)
            || shape[1].as_const().is_some_and(|c| c % BLOCK as i64 == 0)
    };
    let fits = |layout: &Layout| {
        layout.fits(shape.len()) && (*layout != Layout::Blocked16 || inputs.iter().all(reads_whole_blocks))
    };
    Layout::ALL.into_iter().filter(fits).collect()
}

/// Whether one tensor in the layout of a caller, of few channels, becomes one of 8 bits, which the product behind it reads with
/// channels last: a reorder between them takes as long as the rounding.
fn transposes(network: &Network, inputs: &[TensorId], outputs: &[TensorId]) -> bool {
    let ([x], [y]) = (inputs, outputs) else { return false };
    let [x, y] = [x, y].map(|&t| &network[t].ty);
    let few = |channels: &Dim| channels.as_const().is_some_and(|channels| channels <= BLOCK as i64);
    x.shape == y.shape && y.rank() > 2 && y.dtype.size() == 1 && few(&y.shape[1])
}

/// Pairs of input and output where no element is read after it is overwritten.
fn in_place(network: &Network, lowered: &lower::Lowered, outputs: &[TensorId], shape: &[Dim]) -> Vec<(usize, usize)> {
    let program = &lowered.program;
    let mut pairs = vec![];
    for (operand, feed) in program.feeds.iter().enumerate() {
        let Feed::Input(input) = *feed else { continue };
        let ty = &network[lowered.inputs[input]].ty;
        let last = program.last_read(Value::Operand(operand)).unwrap_or(0);
        for (o, &value) in program.outputs.iter().enumerate() {
            let out = &network[outputs[o]].ty;
            let Value::Result(written) = value else { continue };
            // A value that is converted on its way to memory is stored after all instructions.
            let safe = last <= written || !program.class(value).is_native(out.dtype);
            if safe && ty.shape == shape && ty.dtype.size() == out.dtype.size() {
                pairs.push((input, o));
            }
        }
    }
    pairs
}

struct Pointwise {
    name: String,
    identity: String,
    layouts: Vec<Layout>,
    in_place: Vec<(usize, usize)>,
    /// Whether it writes with channels last what it reads plainly.
    transposes: bool,
    /// For each input, whether it has the rank of the result, and so its layout.
    inputs: Vec<bool>,
    outputs: usize,
    program: Arc<Program>,
}

impl Kernel for Pointwise {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn identity(&self) -> String {
        self.identity.clone()
    }

    fn forms(&self) -> Vec<Form> {
        let mut forms = uniform_forms(&self.layouts, self.inputs.len(), self.outputs);
        if self.transposes {
            forms.push(Form {
                tactic: Tactic::ONLY,
                inputs: vec![Layout::Plain],
                outputs: vec![Layout::ChannelsLast],
            });
        }
        for form in &mut forms {
            for (layout, &follows) in form.inputs.iter_mut().zip(&self.inputs) {
                if !follows {
                    *layout = Layout::Plain;
                }
            }
        }
        forms
    }

    fn in_place(&self) -> Vec<(usize, usize)> {
        self.in_place.clone()
    }

    fn takes_slices(&self, _form: &Form) -> (bool, bool) {
        (true, true)
    }

    fn prepare(&self, request: &Request) -> Result<Prepared> {
        let launcher = instance::PointwiseInstance::new(self.program.clone(), request)?;
        if let Some(table) = table::Table::of(&self.program, &launcher, request)? {
            return Ok(Prepared::new("table of 8 bits", table));
        }
        Ok(Prepared::new(
            format!("interpreted {:?}", crate::providers::cpu::simd::Isa::here()),
            launcher,
        ))
    }
}

#[cfg(test)]
mod tests;
