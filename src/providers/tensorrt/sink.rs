//! The receiver of TensorRT's messages and progress.

use crate::plan::regions::Watch;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Receives a message: its severity as TensorRT names it, and its text.
pub type OnMessage = Box<dyn Fn(&str, &str) + Send + Sync>;
/// Receives the progress of a phase of a build (steps done, steps in all or 0); `false` ends the build.
pub type OnProgress = Box<dyn Fn(&str, i32, i32) -> bool + Send + Sync>;

/// Callbacks of a build, which TensorRT calls from threads of its own.
pub struct Sink {
    on_message: OnMessage,
    on_progress: OnProgress,
}

impl Sink {
    /// A sink of these callbacks.
    pub fn new(on_message: OnMessage, on_progress: OnProgress) -> Self {
        Self {
            on_message,
            on_progress,
        }
    }

    /// A sink that forwards to the callbacks of a build.
    pub fn watched(watch: &Watch) -> Self {
        let Watch {
            on_message,
            on_progress,
        } = watch.clone();
        Self::new(
            Box::new(move |severity, text| on_message(severity, text)),
            Box::new(move |phase, done, steps| on_progress(phase, done, steps)),
        )
    }

    /// A sink that drops everything; errors are still returned.
    pub fn silent() -> Self {
        Self::new(Box::new(|_, _| {}), Box::new(|_, _, _| true))
    }
}

/// What C++ calls with a message. A panic ends here: it must not unwind through foreign frames.
pub(super) fn say(sink: &Sink, severity: &str, text: &str) {
    let _ = catch_unwind(AssertUnwindSafe(|| (sink.on_message)(severity, text)));
}

/// What C++ calls with each step; a panic ends the build.
pub(super) fn step(sink: &Sink, phase: &str, done: i32, steps: i32) -> bool {
    catch_unwind(AssertUnwindSafe(|| (sink.on_progress)(phase, done, steps))).unwrap_or(false)
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
