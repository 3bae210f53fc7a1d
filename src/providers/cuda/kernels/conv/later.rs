//! Instances that are made when they are needed: a form that nobody times or runs costs nothing.

use super::super::Gpu;
use crate::error::Result;
use crate::plan::{Call, Instance};
use std::cell::OnceCell;
use std::sync::Arc;

/// What makes an instance.
type Make = Box<dyn Fn() -> Result<Box<dyn Instance>> + Send>;

/// An instance that is made when it is first asked for its workspace, or run.
pub struct Later {
    gpu: Arc<Gpu>,
    make: Make,
    made: OnceCell<Result<Box<dyn Instance>>>,
}

impl Later {
    /// What `make` will make.
    pub fn new(gpu: &Arc<Gpu>, make: impl Fn() -> Result<Box<dyn Instance>> + Send + 'static) -> Self {
        Self {
            gpu: gpu.clone(),
            make: Box::new(make),
            made: OnceCell::new(),
        }
    }

    fn made(&self) -> &Result<Box<dyn Instance>> {
        self.made.get_or_init(|| {
            let _entered = self.gpu.device.enter()?;
            (self.make)()
        })
    }
}

impl Instance for Later {
    fn workspace(&self) -> usize {
        // What went wrong is told by the run.
        self.made().as_ref().map_or(0, |instance| instance.workspace())
    }

    fn implementation(&self) -> String {
        match self.made() {
            Ok(instance) => instance.implementation(),
            Err(_) => "nothing".into(),
        }
    }

    fn run(&mut self, call: &Call) -> Result<()> {
        self.made();
        match self.made.get_mut() {
            Some(Ok(instance)) => instance.run(call),
            Some(Err(error)) => Err(error.clone()),
            None => Ok(()),
        }
    }
}
