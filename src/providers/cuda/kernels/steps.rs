//! Kernels of ours that take several launches, or packs of elements where the addresses allow.

use super::Gpu;
use super::launch::Complaint;
use crate::error::Result;
use crate::network::dtype::DType;
use crate::plan::{Call, Form, Instance, Kernel, Request};
use crate::providers::cuda::device::{Arguments, Function, Grid};
use std::sync::Arc;

/// Bytes that a thread reads or writes at once, at most.
pub const WIDEST: usize = 16;

/// A kernel whose instance follows from the shapes.
pub struct Stepped {
    /// For reports.
    pub name: String,
    /// What its speed depends on besides shapes, dtypes and layouts.
    pub identity: String,
    /// The forms.
    pub forms: Vec<Form>,
    /// The GPU.
    pub gpu: Arc<Gpu>,
    /// The instance at some shapes.
    pub make: Make,
}

/// What finds the instance at some shapes.
pub type Make = Box<dyn Fn(&Gpu, &Request) -> Result<Box<dyn Instance>> + Send + Sync>;

impl Stepped {
    /// One of this name.
    pub fn new(
        name: &str,
        identity: &str,
        forms: Vec<Form>,
        gpu: &Arc<Gpu>,
        make: impl Fn(&Gpu, &Request) -> Result<Box<dyn Instance>> + Send + Sync + 'static,
    ) -> Self {
        Self {
            name: name.into(),
            identity: format!("{name} {identity}"),
            forms,
            gpu: gpu.clone(),
            make: Box::new(make),
        }
    }
}

impl Kernel for Stepped {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn identity(&self) -> String {
        self.identity.clone()
    }

    fn forms(&self) -> Vec<Form> {
        self.forms.clone()
    }

    fn instantiate(&self, request: &Request) -> Result<Box<dyn Instance>> {
        (self.make)(&self.gpu, request)
    }
}

/// One launch of several.
pub struct Step {
    /// The kernel.
    pub function: Function,
    /// Its blocks.
    pub grid: Grid,
    /// The fields of its struct.
    pub fields: Vec<i32>,
}

/// Launches one after another. The parameters of each kernel are the outputs, the inputs, the workspace if there is one, its
/// fields as one struct, and the flag if there is one.
pub struct Steps {
    /// The launches.
    pub steps: Vec<Step>,
    /// Bytes of scratch memory.
    pub workspace: usize,
    /// Where they leave what is wrong with the data.
    pub complaint: Option<Complaint>,
    /// How they work, for reports.
    pub how: String,
}

impl Steps {
    /// One launch without workspace.
    pub fn one(function: Function, grid: Grid, fields: Vec<i32>, how: impl Into<String>) -> Self {
        Self {
            steps: vec![Step { function, grid, fields }],
            workspace: 0,
            complaint: None,
            how: how.into(),
        }
    }
}

impl Instance for Steps {
    fn workspace(&self) -> usize {
        self.workspace
    }

    fn implementation(&self) -> String {
        self.how.clone()
    }

    fn run(&mut self, call: &Call) -> Result<()> {
        for step in &self.steps {
            let mut arguments = Arguments::of(call);
            if self.workspace > 0 {
                arguments.address(call.workspace);
            }
            arguments.fields(&step.fields);
            if let Some(complaint) = &self.complaint {
                arguments.address(complaint.flag.address());
            }
            // SAFETY: the source that the function comes from declares these parameters, for operands that the planner
            // vouches for.
            unsafe { step.function.launch(step.grid, &arguments, call.queue)? };
        }
        Ok(())
    }

    fn finished(&mut self) -> Result<()> {
        match &self.complaint {
            Some(Complaint { flag, meaning }) => flag.take().map_or(Ok(()), |found| Err(meaning(found))),
            None => Ok(()),
        }
    }
}

/// Launches for packs of elements, and those for single ones where an operand begins in the middle of a pack.
struct Packed {
    packed: Steps,
    single: Steps,
}

impl Instance for Packed {
    fn workspace(&self) -> usize {
        self.packed.workspace.max(self.single.workspace)
    }

    fn implementation(&self) -> String {
        self.packed.implementation()
    }

    fn run(&mut self, call: &Call) -> Result<()> {
        let outputs = call.outputs.iter().map(|address| address.cast_const());
        let even = |address: *const u8| address.addr().is_multiple_of(WIDEST);
        match outputs.chain(call.inputs.iter().copied()).all(even) {
            true => self.packed.run(call),
            false => self.single.run(call),
        }
    }
}

/// An instance of what `make` gives for packs of so many elements, with what it gives for single ones to fall back on.
///
/// # Errors
/// What `make` returns.
pub fn in_packs(pack: usize, make: impl Fn(usize) -> Result<Steps>) -> Result<Box<dyn Instance>> {
    let single = make(1)?;
    if pack == 1 {
        return Ok(Box::new(single));
    }
    let packed = make(pack)?;
    Ok(Box::new(Packed { packed, single }))
}

/// How many elements a thread takes at once where all these numbers of elements are whole packs.
pub fn pack(dtype: DType, numbers: impl IntoIterator<Item = usize>) -> usize {
    /// Each element has a register.
    const MOST: usize = 8;
    let widest = (WIDEST / dtype.size()).min(MOST);
    // The greatest power of two that divides all of them; any does so with 0.
    let bits = numbers.into_iter().fold(widest, |bits, number| bits | number);
    1 << bits.trailing_zeros()
}

/// The words of a number of 64 bits, which must come before all others of a struct.
pub fn double(number: f64) -> [i64; 2] {
    let bits = number.to_bits();
    [bits as u32 as i32, (bits >> 32) as i32].map(i64::from)
}

/// A source with an entry point of this name, for blocks of at most so many threads: these leave each of them registers
/// enough.
pub fn entry(sources: &[&str], name: &str, threads: u32, parameters: &str, body: &str) -> String {
    let source = sources.join("\n");
    let bounds = format!("__launch_bounds__({threads})");
    format!("{source}\nextern \"C\" __global__ void {bounds} {name}({parameters}) {{\n    {body}\n}}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packs_divide_every_number() {
        assert_eq!(pack(DType::Float16, [768, 24]), 8);
        assert_eq!(pack(DType::Float32, [768]), 4);
        assert_eq!(pack(DType::Float16, [768, 12]), 4);
        assert_eq!(pack(DType::Float16, [768, 7]), 1);
        assert_eq!(pack(DType::Int8, [0]), 8);
        assert_eq!(pack(DType::Float64, []), 2);
    }
}
