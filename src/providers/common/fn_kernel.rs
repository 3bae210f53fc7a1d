//! A kernel that is a name, its forms, and a function from a request to what is launched.

use crate::error::Result;
use crate::plan::{Form, Kernel, Prepared, Request};

type Prepare = Box<dyn Fn(&Request) -> Result<Prepared> + Send + Sync>;

/// A kernel that follows from the shapes.
pub struct FnKernel {
    name: String,
    identity: String,
    forms: Vec<Form>,
    /// Pairs of input and output that may be the same memory.
    pub in_place: Vec<(usize, usize)>,
    /// Whether inputs may be slices.
    pub reads_slices: bool,
    prepare: Prepare,
}

impl FnKernel {
    /// One of this name. `identity` is all that its speed depends on besides shapes, dtypes and layouts.
    pub fn new<P: Into<Prepared>>(
        name: impl Into<String>,
        identity: impl Into<String>,
        forms: Vec<Form>,
        prepare: impl Fn(&Request) -> Result<P> + Send + Sync + 'static,
    ) -> Self {
        Self {
            name: name.into(),
            identity: identity.into(),
            forms,
            in_place: vec![],
            reads_slices: false,
            prepare: Box::new(move |request| prepare(request).map(Into::into)),
        }
    }
}

impl Kernel for FnKernel {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn identity(&self) -> String {
        self.identity.clone()
    }

    fn forms(&self) -> Vec<Form> {
        self.forms.clone()
    }

    fn in_place(&self) -> Vec<(usize, usize)> {
        self.in_place.clone()
    }

    fn takes_slices(&self, _form: &Form) -> (bool, bool) {
        (self.reads_slices, false)
    }

    fn prepare(&self, request: &Request) -> Result<Prepared> {
        (self.prepare)(request)
    }
}
