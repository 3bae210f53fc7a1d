//! Ops that give the bytes of their input another shape.

use super::copies::copy_instance;
use super::{Answer, Gpu};
use crate::error::Result;
use crate::plan::layout::Layout;
use crate::plan::{Alias, Form, Kernel, Prepared, Request};
use crate::providers::common::scope::{Scope, uniform_forms};
use std::sync::Arc;

/// Reshape, and what decomposes into it.
pub fn offer(scope: &Scope, gpu: &Arc<Gpu>) -> Answer {
    if scope.op() != "Reshape" {
        return Ok(vec![]);
    }
    Ok(vec![scope.alone(Reshape { gpu: gpu.clone() }, &[0])])
}

struct Reshape {
    gpu: Arc<Gpu>,
}

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
        copy_instance(&self.gpu, to.dtype, vec![to.elements()], vec![1], vec![1])
    }
}
