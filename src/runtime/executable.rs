//! A program with what its instances share.

use crate::device::Memory;
use crate::error::Result;
use crate::plan::Form;
use crate::plan::io_signature::IoSignature;
use crate::plan::program::{Program, Slot, SlotId};
use std::collections::{BTreeSet, HashMap};
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

/// A program with what its instances share, and those of the same kernels in other forms or for arrays elsewhere.
pub struct Executable {
    program: Program,
    shared: Arc<Shared>,
}

/// What a program shares with its variants.
#[derive(Default)]
struct Shared {
    constants: Mutex<HashMap<Slot, Weak<dyn Memory>>>,
    variants: Mutex<Vec<(Vec<Form>, Weak<Executable>)>>,
    degraded: OnceLock<String>,
    replacements: Mutex<BTreeSet<String>>,
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
            shared: Arc::default(),
        }
    }

    /// The same kernels in other forms.
    ///
    /// # Errors
    /// As [`Program::in_forms`].
    pub fn in_forms(&self, forms: Vec<Form>) -> Result<Arc<Self>> {
        self.variant(forms, &self.program.signature)
    }

    /// The same kernels for arrays that lie there.
    ///
    /// # Errors
    /// As [`Program::in_forms`].
    pub fn for_arrays(self: &Arc<Self>, signature: &IoSignature) -> Result<Arc<Self>> {
        match self.program.signature == *signature {
            true => Ok(self.clone()),
            false => self.variant(self.kernels().map(|command| command.form.clone()).collect(), signature),
        }
    }

    /// Who asks for what somebody uses shares his executable.
    fn variant(&self, forms: Vec<Form>, signature: &IoSignature) -> Result<Arc<Self>> {
        let mut variants = lock(&self.shared.variants);
        variants.retain(|(_, variant)| variant.strong_count() > 0);
        let same_forms = variants.iter().filter(|(known, _)| *known == forms);
        let mut known = same_forms.filter_map(|(_, variant)| variant.upgrade());
        if let Some(variant) = known.find(|variant| variant.program.signature == *signature) {
            return Ok(variant);
        }
        let made = Arc::new(Self {
            program: self.program.in_forms(&forms, signature.clone())?,
            shared: self.shared.clone(),
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
        let slot = self.program.slots[slot];
        let mut constants = lock(&self.shared.constants);
        if let Some(memory) = constants.get(&slot).and_then(Weak::upgrade) {
            return Ok(memory);
        }
        let memory = make()?;
        constants.insert(slot, Arc::downgrade(&memory));
        Ok(memory)
    }

    /// Why calls are slower than they could be, once one found that.
    pub fn degraded(&self) -> Option<&str> {
        self.shared.degraded.get().map(String::as_str)
    }

    /// Tells why calls are slower than they could be; the first reason is kept.
    pub(super) fn degrade(&self, reason: String) {
        let _ = self.shared.degraded.set(reason);
    }

    /// The tactics that did not serve the shapes of a call, and what ran in their place.
    pub fn replacements(&self) -> Vec<String> {
        lock(&self.shared.replacements).iter().cloned().collect()
    }

    /// Notes that a tactic does not serve the shapes of a call.
    pub(super) fn note_replacement(&self, note: String) {
        let mut notes = lock(&self.shared.replacements);
        if notes.len() < NOTED {
            notes.insert(note);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic elsewhere leaves it whole: each change is one insertion.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
