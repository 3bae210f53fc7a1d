//! Gather and scatter: runs of elements that indices name, read or written.

mod gather;
mod places;
mod scatter;
#[cfg(test)]
mod tests;

use super::Answer;
use super::scope::Scope;
use crate::network::attr::Read;
use crate::plan::Form;
use crate::plan::layout::Layout;
use places::Rule;

/// Gather, GatherElements, GatherND, ScatterElements and ScatterND.
pub fn offer(scope: &Scope) -> Answer {
    let (Some(x), attrs) = (scope.input_type(0), &scope.layer().attrs) else {
        return Ok(vec![]);
    };
    let axis = || x.axis(attrs.int("axis")).unwrap_or(0);
    let rule = match scope.op() {
        "Gather" => Rule::Axis(axis()),
        "GatherElements" | "ScatterElements" => Rule::Elements(axis()),
        "GatherND" => Rule::Vectors(attrs.int("batch_dims").max(0) as usize),
        "ScatterND" => Rule::Vectors(0),
        _ => return Ok(vec![]),
    };
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
        tactic: 0,
        inputs: vec![Layout::Plain; inputs],
        outputs: vec![Layout::Plain],
    }]
}
