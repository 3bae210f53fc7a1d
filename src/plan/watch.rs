//! Who follows a build, and may end it.

use crate::error::{Error, Result};
use std::fmt;
use std::sync::Arc;

/// What is told of a step: the phase, how many of its steps are done, how many there are. False ends the build.
type Listen = dyn Fn(&str, usize, usize) -> bool + Send + Sync;

/// Hears of each step of a build.
#[derive(Clone)]
pub struct Watch(Arc<Listen>);

impl Watch {
    /// One that calls a function.
    pub fn new(listen: impl Fn(&str, usize, usize) -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(listen))
    }

    /// Tells how far a phase is.
    ///
    /// # Errors
    /// If who follows wants the build to end.
    pub fn step(&self, phase: &str, done: usize, steps: usize) -> Result<()> {
        if (self.0)(phase, done, steps) {
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
        let watch = Watch::new(|_, done, _| done < 2);
        assert!(watch.step("tuning", 1, 3).is_ok());
        let error = watch.step("tuning", 2, 3).unwrap_err().to_string();
        assert!(error.contains("tuning: 2 of 3 steps done"), "{error}");
    }
}
