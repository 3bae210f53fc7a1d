//! Regions: many layers at once, of which a compiler that is not ours makes one kernel.

use crate::error::{Error, Result};
use crate::interrupt;
use crate::network::LayerId;
use crate::plan::{Candidate, Refusal};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// What a provider makes of a network that runs many layers as one.
#[derive(Default)]
pub struct Regions {
    /// The regions, each convex; no two share a layer.
    pub candidates: Vec<Candidate>,
    /// The free layers that are in none, with the reasons.
    pub refusals: Vec<Refusal>,
    /// What the user should know.
    pub notes: Vec<String>,
    /// How many of the regions were compiled now; the others were known.
    pub compiled: usize,
}

/// The layers that each provider must not run in regions, by its name, with the reasons.
pub type ExcludedLayers = BTreeMap<String, BTreeMap<LayerId, String>>;

/// Receives a message of a compiler: its severity, and its text.
type OnMessage = Arc<dyn Fn(&str, &str) + Send + Sync>;
/// Receives the progress of a phase (steps done, steps in all or 0); `false` ends the build.
type OnProgress = Arc<dyn Fn(&str, i32, i32) -> bool + Send + Sync>;

/// Callbacks for the progress of a build and for messages of compilers, which call from threads of their own.
#[derive(Clone)]
pub struct Watch {
    /// Receives messages.
    pub on_message: OnMessage,
    /// Receives progress.
    pub on_progress: OnProgress,
}

impl Default for Watch {
    /// Callbacks that do nothing.
    fn default() -> Self {
        Self {
            on_message: Arc::new(|_, _| {}),
            on_progress: Arc::new(|_, _, _| true),
        }
    }
}

impl Watch {
    /// Reports the progress of a phase.
    ///
    /// # Errors
    /// If the callback, or a signal, ends the build.
    pub fn progress(&self, phase: &str, done: usize, steps: usize) -> Result<()> {
        interrupt::poll()?;
        let number = |count: usize| i32::try_from(count).unwrap_or(i32::MAX);
        if (self.on_progress)(phase, number(done), number(steps)) {
            return Ok(());
        }
        Err(Error::invalid("the build was ended by who follows its progress")
            .got(format!("{phase}: {done} of {steps} steps done")))
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Watch")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_ends_the_build_and_names_the_step() {
        let watch = Watch {
            on_progress: Arc::new(|_, done, _| done < 2),
            ..Watch::default()
        };
        assert!(watch.progress("tuning", 1, 3).is_ok());
        let error = watch.progress("tuning", 2, 3).unwrap_err().to_string();
        assert!(error.contains("tuning: 2 of 3 steps done"), "{error}");
    }
}
