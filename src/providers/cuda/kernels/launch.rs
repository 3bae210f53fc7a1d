//! Kernels of ours that are launched in the same way at every run.

use super::Gpu;
use crate::error::{Error, Result};
use crate::plan::{Alias, Call, Form, Instance, Kernel, Request};
use crate::providers::cuda::device::{Arguments, Flag, Function, Grid};
use std::sync::Arc;

/// A kernel of one source, whose launch follows from the shapes.
pub struct Sourced {
    /// For reports.
    pub name: String,
    /// What its speed depends on besides shapes, dtypes and layouts.
    pub identity: String,
    /// The forms.
    pub forms: Vec<Form>,
    /// Whether it only moves data.
    pub alias: Alias,
    /// Pairs of input and output that may be the same memory.
    pub in_place: Vec<(usize, usize)>,
    /// The GPU.
    pub gpu: Arc<Gpu>,
    /// The launch at some shapes.
    pub make: Make,
}

/// What finds the launch at some shapes.
pub type Make = Box<dyn Fn(&Gpu, &Request) -> Result<Launch> + Send + Sync>;

impl Sourced {
    /// One that computes something.
    pub fn new(
        name: &str,
        identity: String,
        forms: Vec<Form>,
        gpu: &Arc<Gpu>,
        make: impl Fn(&Gpu, &Request) -> Result<Launch> + Send + Sync + 'static,
    ) -> Self {
        Self {
            name: name.into(),
            identity: format!("{name} {identity}"),
            forms,
            alias: Alias::None,
            in_place: vec![],
            gpu: gpu.clone(),
            make: Box::new(make),
        }
    }
}

impl Kernel for Sourced {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn identity(&self) -> String {
        self.identity.clone()
    }

    fn forms(&self) -> Vec<Form> {
        self.forms.clone()
    }

    fn alias(&self) -> Alias {
        self.alias.clone()
    }

    fn in_place(&self) -> Vec<(usize, usize)> {
        self.in_place.clone()
    }

    fn instantiate(&self, request: &Request) -> Result<Box<dyn Instance>> {
        Ok(Box::new((self.make)(&self.gpu, request)?))
    }
}

/// One launch. Its kernel's parameters are the outputs, the inputs, the workspace if there is one, the fields as one struct
/// if there are any, and the flag if there is one.
pub struct Launch {
    /// The kernel.
    pub function: Function,
    /// Its blocks.
    pub grid: Grid,
    /// The fields of the struct.
    pub fields: Vec<i32>,
    /// Bytes of scratch memory.
    pub workspace: usize,
    /// Where it leaves what is wrong with the data.
    pub complaint: Option<Complaint>,
    /// How it works, for reports.
    pub how: String,
}

/// What a kernel says of bad data.
pub struct Complaint {
    /// Where it leaves a number.
    pub flag: Flag,
    /// What the number means.
    pub meaning: Box<dyn Fn(i64) -> Error + Send>,
}

impl Launch {
    /// A launch without workspace and complaint.
    pub fn new(function: Function, grid: Grid, fields: Vec<i32>, how: &str) -> Self {
        Self {
            function,
            grid,
            fields,
            workspace: 0,
            complaint: None,
            how: how.into(),
        }
    }
}

impl Instance for Launch {
    fn workspace(&self) -> usize {
        self.workspace
    }

    fn implementation(&self) -> String {
        self.how.clone()
    }

    fn run(&mut self, call: &Call) -> Result<()> {
        let mut arguments = Arguments::of(call);
        if self.workspace > 0 {
            arguments.address(call.workspace);
        }
        if !self.fields.is_empty() {
            arguments.fields(&self.fields);
        }
        if let Some(complaint) = &self.complaint {
            arguments.address(complaint.flag.address());
        }
        // SAFETY: the source that the function comes from declares these parameters, for operands that the planner vouches for.
        unsafe { self.function.launch(self.grid, &arguments, call.queue) }
    }

    fn finished(&mut self) -> Result<()> {
        match &self.complaint {
            Some(Complaint { flag, meaning }) => flag.take().map_or(Ok(()), |found| Err(meaning(found))),
            None => Ok(()),
        }
    }
}

/// Numbers of a struct, which have 32 bits.
///
/// # Errors
/// If one has more.
pub fn fields(numbers: impl IntoIterator<Item = i64>) -> Result<Vec<i32>> {
    let narrow = |number: i64| {
        i32::try_from(number).map_err(|_| {
            Error::unsupported("the tensors are too large for one kernel")
                .expected(format!("sizes and strides up to {}", i32::MAX))
                .got(number.to_string())
        })
    };
    numbers.into_iter().map(narrow).collect()
}
