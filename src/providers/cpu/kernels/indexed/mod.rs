//! Gather and scatter: runs of elements that indices name, read or written.

mod gather;
mod run_offsets;
mod scatter;
#[cfg(test)]
mod tests;

use super::Answer;
use super::scope::Scope;
use crate::network::attr::Read;
use crate::plan::layout::Layout;
use crate::plan::{Form, Tactic};
use crate::providers::common::indexed::Rule;

/// Gather, GatherElements, GatherND, ScatterElements and ScatterND.
pub fn offer(scope: &Scope) -> Answer {
    let (Some(rule), Some(x)) = (Rule::of(scope), scope.input_type(0)) else {
        return Ok(vec![]);
    };
    let attrs = &scope.layer().attrs;
    let name = scope.op();
    if name.starts_with("Gather") {
        return Ok(vec![scope.alone(gather::Gather { name, rule }, &[0, 1])]);
    }
    let fold = scatter::fold(attrs.text("reduction"), x.dtype)?;
    Ok(vec![scope.alone(scatter::Scatter { name, rule, fold }, &[0, 1, 2])])
}

/// The only form: everything row-major.
fn plain(inputs: usize) -> Vec<Form> {
    vec![Form {
        tactic: Tactic::ONLY,
        inputs: vec![Layout::Plain; inputs],
        outputs: vec![Layout::Plain],
    }]
}
