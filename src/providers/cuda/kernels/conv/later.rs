//! Instances that are made when they are needed: a form that nobody times or runs costs nothing.

use super::super::Gpu;
use crate::error::Result;
use crate::plan::{Call, Instance};
use std::sync::{Arc, OnceLock};

/// What makes an instance.
type Make = Box<dyn Fn() -> Result<Box<dyn Instance>> + Send>;

/// An instance that is made when it is first asked for its workspace, or run.
pub struct Later {
    gpu: Arc<Gpu>,
    make: Make,
    made: OnceLock<Box<dyn Instance>>,
}

impl Later {
    /// What `make` will make.
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
        kept(&self.made, make).map(|made| &**made)
    }
}

/// What a cell holds, made if there is nothing yet. A failure is not kept: what was short may be there the next time.
///
/// # Errors
/// That of the making.
pub fn kept<T>(cell: &OnceLock<T>, make: impl FnOnce() -> Result<T>) -> Result<&T> {
    if let Some(there) = cell.get() {
        return Ok(there);
    }
    let made = make()?;
    Ok(cell.get_or_init(|| made))
}

impl Instance for Later {
    fn ready(&self) -> Result<()> {
        let made = self.made().map_err(|error| self.gpu.device.blame(error))?;
        made.ready()
    }

    fn workspace(&self) -> usize {
        // What went wrong is told by the run.
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
