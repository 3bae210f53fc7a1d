//! Where TensorRT's words go.

use crate::plan::regions::Watch;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Takes a message: its severity as TensorRT names it, and its text.
pub type Say = Box<dyn Fn(&str, &str) + Send + Sync>;
/// Takes how far a phase of a build is (steps done, steps in all or 0); `false` ends the build.
pub type Step = Box<dyn Fn(&str, i32, i32) -> bool + Send + Sync>;

/// Where a build tells what it does; TensorRT calls it from threads of its own.
pub struct Sink {
    say: Say,
    step: Step,
}

impl Sink {
    /// A place for messages and for progress.
    pub fn new(say: Say, step: Step) -> Self {
        Self { say, step }
    }

    /// One that hands on to whoever watches a build.
    pub fn watched(watch: &Watch) -> Self {
        let Watch { say, step } = watch.clone();
        Self::new(
            Box::new(move |severity, text| say(severity, text)),
            Box::new(move |phase, done, steps| step(phase, done, steps)),
        )
    }

    /// One that drops everything: errors still come as errors.
    pub fn silent() -> Self {
        Self::new(Box::new(|_, _| {}), Box::new(|_, _, _| true))
    }
}

/// What C++ calls with a message. A panic ends here: it must not unwind through foreign frames.
pub(super) fn say(sink: &Sink, severity: &str, text: &str) {
    let _ = catch_unwind(AssertUnwindSafe(|| (sink.say)(severity, text)));
}

/// What C++ calls with each step; a panic ends the build.
pub(super) fn step(sink: &Sink, phase: &str, done: i32, steps: i32) -> bool {
    catch_unwind(AssertUnwindSafe(|| (sink.step)(phase, done, steps))).unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panics_of_callbacks_stay_on_this_side() {
        let sink = Sink::new(Box::new(|_, _| panic!("say")), Box::new(|_, _, _| panic!("step")));
        say(&sink, "ERROR", "text");
        assert!(!step(&sink, "phase", 0, 1));
        assert!(step(&Sink::silent(), "phase", 0, 1));
    }
}
