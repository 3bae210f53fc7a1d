//! The same elements under another shape: at best nothing is done, else they are copied as they lie.

use super::Answer;
use super::copy::{Axis, Move, Mover, Origin};
use super::scope::{Scope, uniform_forms};
use crate::error::Result;
use crate::plan::layout::Layout;
use crate::plan::{Alias, Form, Kernel, Prepared, Request};

/// Reshape and its relatives.
pub fn offer(scope: &Scope) -> Answer {
    match scope.op() {
        "Reshape" | "Flatten" | "Squeeze" | "Unsqueeze" | "Identity" => Ok(vec![scope.alone(Reshape, &[0])]),
        _ => Ok(vec![]),
    }
}

struct Reshape;

impl Kernel for Reshape {
    fn name(&self) -> String {
        "Reshape".into()
    }

    fn identity(&self) -> String {
        self.name()
    }

    fn forms(&self) -> Vec<Form> {
        uniform_forms(&[Layout::Plain], 1, 1)
    }

    fn alias(&self, _form: &Form) -> Alias {
        Alias::Reshape
    }

    fn prepare(&self, request: &Request) -> Result<Prepared> {
        let to = &request.outputs[0];
        let axes = vec![Axis {
            size: to.elements(),
            from: 1,
            to: 1,
        }];
        let copy = Move {
            origin: Origin::Input(0),
            output: 0,
            from: 0,
            to: 0,
            axes,
            size: to.dtype.size(),
        };
        Ok(Prepared::new("copy", Mover::new(vec![copy])))
    }
}
