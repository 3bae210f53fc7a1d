//! Transpose.

use super::Answer;
use super::copy::{Mover, Origin};
use super::region::{Span, copy_box, zero_padding};
use super::scope::Scope;
use crate::error::Result;
use crate::network::ops::transpose::permutation;
use crate::plan::layout::Layout;
use crate::plan::{Alias, Form, Kernel, Prepared, Request, Tactic};

/// Transpose between any two layouts: where they cancel the permutation, it is one run of bytes.
pub fn offer(scope: &Scope) -> Answer {
    if scope.op() != "Transpose" {
        return Ok(vec![]);
    }
    let rank = scope.output_type(0).rank();
    let Ok(perm) = permutation(&scope.layer().attrs, rank) else {
        return Ok(vec![]);
    };
    Ok(vec![scope.alone(Transpose { perm }, &[0])])
}

struct Transpose {
    perm: Vec<usize>,
}

impl Kernel for Transpose {
    fn name(&self) -> String {
        "Transpose".into()
    }

    fn identity(&self) -> String {
        format!("Transpose {:?}", self.perm)
    }

    fn forms(&self) -> Vec<Form> {
        let fits = |l: &Layout| l.fits(self.perm.len()) && (*l != Layout::Blocked16 || self.perm[1] == 1);
        let layouts: Vec<Layout> = Layout::ALL.into_iter().filter(fits).collect();
        let form = |&from: &Layout, &to: &Layout| Form {
            tactic: Tactic::ONLY,
            inputs: vec![from],
            outputs: vec![to],
        };
        layouts
            .iter()
            .flat_map(|from| layouts.iter().map(|to| form(from, to)))
            .collect()
    }

    fn alias(&self, form: &Form) -> Alias {
        Alias::of_transpose(&self.perm, form)
    }

    fn takes_slices(&self, _form: &Form) -> (bool, bool) {
        (true, true)
    }

    fn prepare(&self, request: &Request) -> Result<Prepared> {
        let (from, to) = (&request.inputs[0], &request.outputs[0]);
        let spans: Vec<Span> = self
            .perm
            .iter()
            .zip(&to.shape)
            .map(|(&axis, &size)| Span::whole(axis, size))
            .collect();
        let mut moves = copy_box(Origin::Input(0), from, 0, to, &spans);
        moves.extend(zero_padding(0, to));
        Ok(Prepared::new("strided copy", Mover::new(moves)))
    }
}
