//! The last resort: an op's own reference evaluation, slow and exact. Reports name it.

use super::Why;
use super::scope::{Scope, uniform_forms};
use crate::error::{Error, Result};
use crate::network::array::Array;
use crate::network::attr::{Attr, Attrs};
use crate::network::dim::{Binding, Dim};
use crate::network::dtype::DType;
use crate::network::op::{Evaluate, OpDef};
use crate::network::ops::plugin;
use crate::plan::layout::{Layout, Operand};
use crate::plan::{Call, Candidate, Form, Kernel, Launcher, Prepared, Request, Tier};
use crate::providers::cpu::decomposes;

/// What reports show for a layer that nothing faster runs.
pub const LABEL: &str = "naive reference";

/// The layer alone, on its reference evaluation.
///
/// # Errors
/// If an output's shape depends on data.
pub fn offer(scope: &Scope, refused: &[String]) -> std::result::Result<Candidate, Why> {
    let layer = scope.layer();
    if decomposes(scope.network, scope.layer) {
        return Err(Why::new(format!(
            "{} has no kernel of its own and runs as smaller ops",
            layer.op.name
        )));
    }
    if plugin::of(layer).is_some() {
        return Err(Why::new(refused.join("; ")));
    }
    let kernel = Reference {
        op: layer.op,
        attrs: layer.attrs.clone(),
        present: layer.inputs.iter().map(Option::is_some).collect(),
        outputs: layer.outputs.len(),
        refused: refused.join("; "),
    };
    let inputs: Vec<usize> = (0..layer.inputs.len()).collect();
    Ok(scope.alone(kernel, &inputs))
}

struct Reference {
    op: &'static OpDef,
    attrs: Attrs,
    present: Vec<bool>,
    outputs: usize,
    refused: String,
}

impl Kernel for Reference {
    fn name(&self) -> String {
        format!("{} ({LABEL})", self.op.name)
    }

    fn identity(&self) -> String {
        format!("{} {:?}", self.name(), self.attrs)
    }

    fn forms(&self) -> Vec<Form> {
        uniform_forms(
            &[Layout::Plain],
            self.present.iter().filter(|p| **p).count(),
            self.outputs,
        )
    }

    fn prepare(&self, request: &Request) -> Result<Prepared> {
        let launcher = ReferenceInstance {
            op: self.op,
            attrs: bound(&self.attrs, request.binding)?,
            present: self.present.clone(),
            inputs: request.inputs.to_vec(),
            outputs: request.outputs.iter().map(|o| (o.dtype, o.shape.clone())).collect(),
        };
        let how = match self.refused.as_str() {
            "" => LABEL.into(),
            why => format!("{LABEL} ({why})"),
        };
        Ok(Prepared::new(how, launcher).with_tier(Tier::Reference))
    }
}

/// Attributes with their symbolic dimensions bound.
fn bound(attrs: &Attrs, binding: &Binding) -> Result<Attrs> {
    let bind = |(name, value): (&String, &Attr)| {
        let value = match value {
            Attr::Dims(dims) => {
                let dims = dims.iter().map(|d| d.eval(binding).map(Dim::from));
                Attr::Dims(dims.collect::<Result<_>>()?)
            }
            other => other.clone(),
        };
        Ok((name.clone(), value))
    };
    attrs.iter().map(bind).collect()
}

struct ReferenceInstance {
    op: &'static OpDef,
    attrs: Attrs,
    present: Vec<bool>,
    inputs: Vec<Operand>,
    outputs: Vec<(DType, Vec<usize>)>,
}

impl Launcher for ReferenceInstance {
    fn launch(&mut self, call: &Call) -> Result<()> {
        let mut given = self.inputs.iter().zip(call.inputs);
        let mut next = |present: &bool| {
            let Some((operand, &address)) = given.next().filter(|_| *present) else {
                return Ok(None);
            };
            // SAFETY: the planner gives addresses that hold the operands of the request.
            let bytes = unsafe { std::slice::from_raw_parts(address, operand.bytes()) };
            Array::from_bytes(operand.dtype, operand.shape.clone(), bytes).map(Some)
        };
        let mut inputs = vec![];
        for present in &self.present {
            inputs.push(if *present { next(present)? } else { None });
        }
        let results = self.op.evaluated(&Evaluate {
            attrs: &self.attrs,
            inputs: &inputs,
            outputs: &self.outputs,
            runner: None,
        })?;
        for ((array, (dtype, shape)), &address) in results.iter().zip(&self.outputs).zip(call.outputs) {
            if array.dtype() != *dtype || array.shape() != shape {
                return Err(Error::shape("the result has another shape than was planned")
                    .expected(format!("{dtype}{shape:?}"))
                    .got(format!("{array:?}")));
            }
            let bytes = array.bytes();
            // SAFETY: as above; the array has the bytes of the output.
            unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), address, bytes.len()) };
        }
        Ok(())
    }
}
