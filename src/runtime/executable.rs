//! A program with what its instances share.

use crate::device::Memory;
use crate::error::Result;
use crate::plan::Form;
use crate::plan::program::{Program, SlotId};
use std::collections::HashMap;
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

/// A program with what its instances share: packed constants, the program in other forms, and why calls are slower than they
/// could be.
pub struct Executable {
    program: Program,
    constants: Mutex<HashMap<SlotId, Weak<dyn Memory>>>,
    variants: Mutex<Vec<(Vec<Form>, Weak<Executable>)>>,
    degraded: Arc<OnceLock<String>>,
}

impl Deref for Executable {
    type Target = Program;

    fn deref(&self) -> &Program {
        &self.program
    }
}

impl Executable {
    /// A program that nobody has run yet.
    pub fn new(program: Program) -> Self {
        Self {
            program,
            constants: Mutex::default(),
            variants: Mutex::default(),
            degraded: Arc::default(),
        }
    }

    /// The same kernels in other forms. Who asks for forms that somebody uses shares their executable.
    ///
    /// # Errors
    /// As [`Program::in_forms`].
    pub fn in_forms(&self, forms: Vec<Form>) -> Result<Arc<Self>> {
        let mut variants = lock(&self.variants);
        variants.retain(|(_, variant)| variant.strong_count() > 0);
        let known = variants.iter().find(|(known, _)| *known == forms);
        if let Some(variant) = known.and_then(|(_, variant)| variant.upgrade()) {
            return Ok(variant);
        }
        let made = Arc::new(Self {
            degraded: self.degraded.clone(),
            ..Self::new(self.program.in_forms(&forms)?)
        });
        variants.push((forms, Arc::downgrade(&made)));
        Ok(made)
    }

    /// A constant in the layout and memory of a slot, which is made where no instance holds it.
    ///
    /// # Errors
    /// As `make`.
    pub(super) fn constant(
        &self,
        slot: SlotId,
        make: impl FnOnce() -> Result<Arc<dyn Memory>>,
    ) -> Result<Arc<dyn Memory>> {
        let mut constants = lock(&self.constants);
        if let Some(memory) = constants.get(&slot).and_then(Weak::upgrade) {
            return Ok(memory);
        }
        let memory = make()?;
        constants.insert(slot, Arc::downgrade(&memory));
        Ok(memory)
    }

    /// Why calls are slower than they could be, once one found that.
    pub fn degraded(&self) -> Option<&str> {
        self.degraded.get().map(String::as_str)
    }

    /// Tells why calls are slower than they could be; the first reason is kept.
    pub(super) fn degrade(&self, reason: String) {
        let _ = self.degraded.set(reason);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic elsewhere leaves the map whole: each change is one insertion.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
