//! Split: at best its outputs are read where they lie, else they are copied out.

use super::Answer;
use super::copy::{Mover, Origin};
use super::region::{Span, copy_box, zero_padding};
use super::scope::{Scope, uniform_forms};
use crate::error::Result;
use crate::network::attr::Read;
use crate::plan::layout::Layout;
use crate::plan::{Alias, Form, Kernel, Prepared, Request};

/// Split in every layout.
pub fn offer(scope: &Scope) -> Answer {
    if scope.op() != "Split" {
        return Ok(vec![]);
    }
    let ty = scope.output_type(0);
    let Ok(axis) = ty.axis(scope.layer().attrs.int("axis")) else {
        return Ok(vec![]);
    };
    let kernel = Split {
        axis,
        outputs: scope.layer().outputs.len(),
        rank: ty.rank(),
    };
    Ok(vec![scope.alone(kernel, &[0])])
}

struct Split {
    axis: usize,
    outputs: usize,
    rank: usize,
}

impl Kernel for Split {
    fn name(&self) -> String {
        "Split".into()
    }

    fn identity(&self) -> String {
        format!("Split {}", self.axis)
    }

    fn forms(&self) -> Vec<Form> {
        let layouts: Vec<Layout> = Layout::ALL.into_iter().filter(|l| l.fits(self.rank)).collect();
        uniform_forms(&layouts, 1, self.outputs)
    }

    fn alias(&self, _form: &Form) -> Alias {
        Alias::Split(self.axis, 0i64.into())
    }

    fn takes_slices(&self, _form: &Form) -> (bool, bool) {
        (true, true)
    }

    fn prepare(&self, request: &Request) -> Result<Prepared> {
        let from = &request.inputs[0];
        let mut moves = vec![];
        let mut start = 0;
        for (o, to) in request.outputs.iter().enumerate() {
            if !to.in_place {
                let span = |(axis, &size): (usize, &usize)| Span {
                    from: if axis == self.axis { start } else { 0 },
                    ..Span::whole(axis, size)
                };
                let spans: Vec<Span> = to.shape.iter().enumerate().map(span).collect();
                moves.extend(copy_box(Origin::Input(0), from, o, to, &spans));
                moves.extend(zero_padding(o, to));
            }
            start += to.shape[self.axis] as isize;
        }
        Ok(Prepared::new("strided copy", Mover::new(moves)))
    }
}
