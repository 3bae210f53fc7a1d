//! Which commands of a device may run beside each other, so that their memory must not be shared.

use crate::plan::program::Program;
use std::ops::Range;

/// For each command, the first and the last of those around it that may run beside it: their memory must not be that of what is
/// still, or already, in use.
pub(super) fn windows(program: &Program) -> Vec<Range<usize>> {
    let count = program.commands.len();
    let mut windows: Vec<Range<usize>> = (0..count).map(|command| command..command + 1).collect();
    for first in (0..count).filter(|&command| is_brief(program, command)) {
        let mut tainted = program.commands[first].outputs.clone();
        for next in first + 1..count.min(first + WIDEST) {
            let command = &program.commands[next];
            let depends = command.inputs.iter().any(|slot| tainted.contains(slot));
            if depends || !is_brief(program, next) {
                break;
            }
            tainted.extend(&command.outputs);
            windows[first].end = next + 1;
            windows[next].start = windows[next].start.min(first);
        }
    }
    windows
}

/// So many commands run beside each other.
const WIDEST: usize = 4;

/// Whether a command leaves so much of a device idle that another one beside it pays for the memory that this takes.
fn is_brief(program: &Program, command: usize) -> bool {
    /// Nanoseconds.
    const BRIEF: f64 = 10_000.0;
    let command = &program.commands[command];
    let on_device = program.providers[command.provider].space().device().is_some();
    on_device && command.time > 0.0 && command.time < BRIEF
}
