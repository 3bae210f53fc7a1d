//! The same elements in another layout.

use super::copy::{Mover, Origin};
use super::region::{Span, copy_box, zero_padding};
use crate::error::Result;
use crate::plan::layout::Layout;
use crate::plan::{Alias, Form, Kernel, Prepared, Request, Tactic};

/// A kernel that brings a tensor from one layout to another.
pub struct Reorder {
    /// The layout of the input.
    pub from: Layout,
    /// The layout of the output.
    pub to: Layout,
    /// Whether the memory is the same in both.
    pub bitcast: bool,
}

impl Kernel for Reorder {
    fn name(&self) -> String {
        format!("reorder {} to {}", self.from, self.to)
    }

    fn identity(&self) -> String {
        self.name()
    }

    fn forms(&self) -> Vec<Form> {
        vec![Form {
            tactic: Tactic::ONLY,
            inputs: vec![self.from],
            outputs: vec![self.to],
        }]
    }

    fn alias(&self, _form: &Form) -> Alias {
        if self.bitcast { Alias::Reshape } else { Alias::None }
    }

    fn takes_slices(&self, _form: &Form) -> (bool, bool) {
        (true, true)
    }

    fn prepare(&self, request: &Request) -> Result<Prepared> {
        let (from, to) = (&request.inputs[0], &request.outputs[0]);
        let spans: Vec<Span> = to
            .shape
            .iter()
            .enumerate()
            .map(|(axis, &size)| Span::whole(axis, size))
            .collect();
        let mut moves = copy_box(Origin::Input(0), from, 0, to, &spans);
        moves.extend(zero_padding(0, to));
        Ok(Prepared::new("strided copy", Mover::new(moves)))
    }
}
