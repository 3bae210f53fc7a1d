//! A program with what its instances share.

use crate::device::Memory;
use crate::error::Result;
use crate::plan::Form;
use crate::plan::program::{Program, SlotId};
use std::collections::{BTreeSet, HashMap};
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

/// A program with what its instances share: packed constants, the program in other forms, and what calls found out about it.
pub struct Executable {
    program: Program,
    constants: Mutex<HashMap<SlotId, Weak<dyn Memory>>>,
    variants: Mutex<Vec<(Vec<Form>, Weak<Executable>)>>,
    degraded: Arc<OnceLock<String>>,
    replacements: Arc<Mutex<BTreeSet<String>>>,
}

/// So many replaced tactics are noted.
const NOTED: usize = 16;

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
            replacements: Arc::default(),
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
            replacements: self.replacements.clone(),
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

    /// The tactics that did not serve the shapes of a call, and what ran in their place.
    pub fn replacements(&self) -> Vec<String> {
        lock(&self.replacements).iter().cloned().collect()
    }

    /// Notes that a tactic does not serve the shapes of a call.
    pub(super) fn note_replacement(&self, note: String) {
        let mut notes = lock(&self.replacements);
        if notes.len() < NOTED {
            notes.insert(note);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic elsewhere leaves it whole: each change is one insertion.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
