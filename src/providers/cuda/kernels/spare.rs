//! What is made when it is first needed, and perhaps never.

use crate::error::Result;
use crate::plan::{Call, Instance, Prepared};
use std::sync::OnceLock;

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

/// What is launched where operands lie as another kernel does not take them, made when that first happens. It needs no workspace.
pub struct Spare {
    make: Box<dyn Fn() -> Result<Prepared> + Send>,
    made: Option<Instance>,
}

impl Spare {
    /// What `make` prepares.
    pub fn new(make: impl Fn() -> Result<Prepared> + Send + 'static) -> Self {
        Self {
            make: Box::new(make),
            made: None,
        }
    }

    /// It, to be launched by itself.
    ///
    /// # Errors
    /// If it can't be made.
    pub fn instance(&self) -> Result<Instance> {
        (self.make)()?.finish()
    }

    /// Puts it into the stream of a call.
    ///
    /// # Errors
    /// If it can't be made, or the device refuses.
    pub fn launch(&mut self, call: &Call) -> Result<()> {
        let made = match self.made.take() {
            Some(made) => made,
            None => self.instance()?,
        };
        self.made.insert(made).launch(call)
    }
}
