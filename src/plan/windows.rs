//! Which steps of a device may run beside each other, so that their memory must not be shared.

use crate::plan::program::Program;
use std::ops::Range;

/// For each step, the first and the last of those around it that may run beside it: their memory must not be that of what is
/// still, or already, in use.
pub(super) fn windows(program: &Program) -> Vec<Range<usize>> {
    let count = program.steps.len();
    let mut windows: Vec<Range<usize>> = (0..count).map(|step| step..step + 1).collect();
    for first in (0..count).filter(|&step| is_brief(program, step)) {
        let mut tainted = program.steps[first].outputs.clone();
        for next in first + 1..count.min(first + WIDEST) {
            let step = &program.steps[next];
            let depends = step.inputs.iter().any(|slot| tainted.contains(slot));
            if depends || !is_brief(program, next) {
                break;
            }
            tainted.extend(&step.outputs);
            windows[first].end = next + 1;
            windows[next].start = windows[next].start.min(first);
        }
    }
    windows
}

/// So many steps run beside each other.
const WIDEST: usize = 4;

/// Whether a step leaves so much of a device idle that another one beside it pays for the memory that this takes.
fn is_brief(program: &Program, step: usize) -> bool {
    /// Nanoseconds.
    const BRIEF: f64 = 10_000.0;
    let step = &program.steps[step];
    let on_device = program.providers[step.provider].space().device().is_some();
    on_device && step.time > 0.0 && step.time < BRIEF
}
