//! Concat: at best its inputs are written where they belong, else they are copied there.

use super::Answer;
use super::copy::{Mover, Origin};
use super::region::{Span, copy_box, zero_padding};
use super::scope::{Scope, uniform_forms};
use crate::error::Result;
use crate::network::attr::Read;
use crate::plan::layout::Layout;
use crate::plan::{Alias, Form, Kernel, Prepared, Request};

/// Concat in every layout.
pub fn offer(scope: &Scope) -> Answer {
    let Some(axis) = (scope.op() == "Concat").then(|| scope.layer().attrs.int("axis")) else {
        return Ok(vec![]);
    };
    let ty = scope.output_type(0);
    let Ok(axis) = ty.axis(axis) else { return Ok(vec![]) };
    let inputs: Vec<usize> = (0..scope.layer().inputs.len()).collect();
    let kernel = Concat {
        axis,
        inputs: inputs.len(),
        rank: ty.rank(),
    };
    Ok(vec![scope.alone(kernel, &inputs)])
}

struct Concat {
    axis: usize,
    inputs: usize,
    rank: usize,
}

impl Kernel for Concat {
    fn name(&self) -> String {
        "Concat".into()
    }

    fn identity(&self) -> String {
        format!("Concat {}", self.axis)
    }

    fn forms(&self) -> Vec<Form> {
        let layouts: Vec<Layout> = Layout::ALL.into_iter().filter(|l| l.fits(self.rank)).collect();
        uniform_forms(&layouts, self.inputs, 1)
    }

    fn alias(&self, _form: &Form) -> Alias {
        Alias::Concat(self.axis)
    }

    fn takes_slices(&self, _form: &Form) -> (bool, bool) {
        (true, true)
    }

    fn prepare(&self, request: &Request) -> Result<Prepared> {
        let to = &request.outputs[0];
        let mut moves = zero_padding(0, to);
        let mut start = 0;
        for (i, from) in request.inputs.iter().enumerate() {
            if !from.in_place {
                let span = |(axis, &size): (usize, &usize)| Span {
                    to: if axis == self.axis { start } else { 0 },
                    ..Span::whole(axis, size)
                };
                let spans: Vec<Span> = from.shape.iter().enumerate().map(span).collect();
                moves.extend(copy_box(Origin::Input(i), from, 0, to, &spans));
            }
            start += from.shape[self.axis] as isize;
        }
        Ok(Prepared::new("strided copy", Mover::new(moves)))
    }
}
