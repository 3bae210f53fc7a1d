//! Instances that are made at their first use: a form that is neither timed nor run costs nothing.

use super::super::Gpu;
use crate::error::Result;
use crate::plan::{Call, Instance};
use std::sync::{Arc, OnceLock};

/// What makes an instance.
type Make = Box<dyn Fn() -> Result<Box<dyn Instance>> + Send>;

/// An instance that is made at its first use.
pub struct LazyInstance {
    gpu: Arc<Gpu>,
    make: Make,
    made: OnceLock<Box<dyn Instance>>,
}

impl LazyInstance {
    /// The instance that `make` will make.
    pub fn new(gpu: &Arc<Gpu>, make: impl Fn() -> Result<Box<dyn Instance>> + Send + 'static) -> Self {
        Self {
            gpu: gpu.clone(),
            make: Box::new(make),
            made: OnceLock::new(),
        }
    }

    fn made(&self) -> Result<&dyn Instance> {
        let make = || {
            let _entered = self.gpu.device.enter()?;
            (self.make)()
        };
        get_or_try_init(&self.made, make).map(|made| &**made)
    }
}

/// The value of a cell, made by `make` if the cell is empty. A failure leaves it empty, so that the next call tries again.
///
/// # Errors
/// Those of `make`.
pub fn get_or_try_init<T>(cell: &OnceLock<T>, make: impl FnOnce() -> Result<T>) -> Result<&T> {
    if let Some(there) = cell.get() {
        return Ok(there);
    }
    let made = make()?;
    Ok(cell.get_or_init(|| made))
}

impl Instance for LazyInstance {
    fn ready(&self) -> Result<()> {
        let made = self.made().map_err(|error| self.gpu.device.blame(error))?;
        made.ready()
    }

    fn workspace(&self) -> usize {
        // The run reports what went wrong.
        self.made().map_or(0, |instance| instance.workspace())
    }

    fn implementation(&self) -> String {
        self.made()
            .map_or_else(|_| "nothing".into(), |instance| instance.implementation())
    }

    fn pdl_wait_inputs(&self) -> usize {
        self.made().map_or(0, |instance| instance.pdl_wait_inputs())
    }

    fn run(&mut self, call: &Call) -> Result<()> {
        self.made()?;
        self.made.get_mut().map_or(Ok(()), |instance| instance.run(call))
    }
}
