//! Kernels of ours that are launched in the same way at every run, once or several times.

use super::Gpu;
use crate::error::{Error, Result};
use crate::plan::{Call, Form, Instance, Launcher, Prepared, Request};
use crate::providers::common::fn_kernel::FnKernel;
use crate::providers::cuda::compile::{EntryPoint, compiled};
use crate::providers::cuda::device::{Arguments, Boxes, Flag, Grid};
use std::fmt::Display;
use std::sync::Arc;

/// A kernel of this name, which its identity need not have, that follows from the shapes.
pub fn sourced<P: Into<Prepared>>(
    name: &str,
    identity: impl Display,
    forms: Vec<Form>,
    gpu: &Arc<Gpu>,
    make: impl Fn(&Gpu, &Request) -> Result<P> + Send + Sync + 'static,
) -> FnKernel {
    let gpu = gpu.clone();
    FnKernel::new(name, format!("{name} {identity}"), forms, move |request| {
        make(&gpu, request)
    })
}

/// The launch of a kernel.
pub struct KernelLaunch {
    /// The kernel.
    pub function: EntryPoint,
    /// Its blocks.
    pub grid: Grid,
    /// The fields of its struct.
    pub fields: Vec<i32>,
    /// Inputs that the copy engine reads, by their numbers.
    pub boxes: Vec<(usize, Boxes)>,
}

impl KernelLaunch {
    /// A launch that copies nothing ahead.
    pub fn new(function: EntryPoint, grid: Grid, fields: Vec<i32>) -> Self {
        Self {
            function,
            grid,
            fields,
            boxes: vec![],
        }
    }
}

/// Launches one after another. The parameters of each kernel are the outputs, the inputs, the workspace if there is one, its
/// fields as one struct if there are any, the flag if there is one, and the boxes.
pub struct Launches {
    /// The launches, in order.
    pub launches: Vec<KernelLaunch>,
    /// Bytes of scratch memory.
    pub workspace: usize,
    /// What they check in the data.
    pub device_check: Option<DeviceCheck>,
    /// How they work, for reports.
    pub how: String,
}

/// A check of the data that a kernel makes on the device: it writes a number to a flag if the data are invalid.
pub struct DeviceCheck {
    /// The flag.
    pub flag: Flag,
    /// The error that a number stands for.
    pub meaning: Box<dyn Fn(i64) -> Error + Send>,
}

impl DeviceCheck {
    /// Reads and clears the flag, once the kernel has completed.
    ///
    /// # Errors
    /// That of the number in it, if there is one.
    pub fn check(&self) -> Result<()> {
        self.flag.take().map_or(Ok(()), |found| Err((self.meaning)(found)))
    }
}

impl Launches {
    /// One launch without workspace and check of data.
    pub fn one(function: EntryPoint, grid: Grid, fields: Vec<i32>, how: impl Into<String>) -> Self {
        Self {
            launches: vec![KernelLaunch::new(function, grid, fields)],
            workspace: 0,
            device_check: None,
            how: how.into(),
        }
    }
}

impl Launches {
    /// What is to be compiled.
    pub fn entries(&self) -> Vec<EntryPoint> {
        self.launches.iter().map(|launch| launch.function.clone()).collect()
    }
}

impl From<Launches> for Prepared {
    fn from(launches: Launches) -> Self {
        let (entries, workspace) = (launches.entries(), launches.workspace);
        compiled(
            entries,
            Instance::new(launches.how.clone(), launches).with_workspace(workspace),
        )
    }
}

impl Launcher for Launches {
    fn launch(&mut self, call: &Call) -> Result<()> {
        for launch in &self.launches {
            let mut arguments = Arguments::of(call);
            if self.workspace > 0 {
                arguments.address(call.workspace);
            }
            arguments.fields(&launch.fields);
            if let Some(device_check) = &self.device_check {
                arguments.address(device_check.flag.address());
            }
            for (input, boxes) in &launch.boxes {
                arguments.map(&boxes.at(launch.function.device(), call.inputs[*input])?);
            }
            // SAFETY: the source that the function comes from declares these parameters, for operands that the planner
            // vouches for.
            unsafe { launch.function.launch(launch.grid, &arguments, call.stream)? };
        }
        Ok(())
    }

    fn finished(&mut self) -> Result<()> {
        self.device_check.as_ref().map_or(Ok(()), DeviceCheck::check)
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
