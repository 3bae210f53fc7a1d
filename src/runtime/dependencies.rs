//! Which runs of a recording may go on beside each other: those that touch no common memory, or only read it.

use crate::device::Space;
use crate::device::in_sequence;
use crate::plan::placement::Home;
use crate::runtime::segment::Run;
use std::ops::Range;

/// What a run uses of the arenas.
#[derive(Default)]
pub(super) struct Touched {
    pub reads: Vec<Extent>,
    pub writes: Vec<Extent>,
    /// What of it is read before the run has waited for others ([`crate::plan::Instance::pdl_wait_inputs`]).
    pub early: Vec<Extent>,
}

/// Bytes of the arena of a memory.
pub(super) struct Extent {
    space: Space,
    bytes: Range<usize>,
}

impl Extent {
    /// The bytes of an operand; `None` where it lies in no arena, or has none.
    pub fn of(home: Home, space: Space, offset: usize, bytes: usize) -> Option<Self> {
        let Home::Arena(start) = home else { return None };
        let first = start + offset;
        (bytes > 0).then(|| Self {
            space,
            bytes: first..first + bytes,
        })
    }

    fn meets(&self, other: &Self) -> bool {
        let (a, b) = (&self.bytes, &other.bytes);
        self.space == other.space && a.start < b.end && b.start < a.end
    }
}

fn both(a: &[Extent], b: &[Extent]) -> bool {
    a.iter().any(|a| b.iter().any(|b| a.meets(b)))
}

impl Touched {
    /// Whether one of two runs has to wait for the other.
    fn meets(&self, other: &Self) -> bool {
        both(&self.writes, &other.writes) || both(&self.writes, &other.reads) || both(&self.reads, &other.writes)
    }
}

/// More runs than this are recorded one after another: looking at all pairs would take too long.
const MOST: usize = 4_000;

/// For each run those before it that it has to wait for, without those that these wait for themselves.
pub(super) fn after(runs: &[Run]) -> Vec<Vec<usize>> {
    if runs.len() > MOST {
        return in_sequence(runs.len());
    }
    let words = runs.len().div_ceil(64);
    let mut before: Vec<Vec<u64>> = vec![];
    let mut found = vec![];
    for (number, run) in runs.iter().enumerate() {
        let (mut known, mut direct) = (vec![0u64; words], vec![]);
        for other in (0..number).rev() {
            let implied = known[other / 64] >> (other % 64) & 1 == 1;
            if !implied && run.touched.meets(&runs[other].touched) {
                direct.push(other);
                known[other / 64] |= 1 << (other % 64);
                known
                    .iter_mut()
                    .zip(&before[other])
                    .for_each(|(word, more)| *word |= more);
            }
        }
        before.push(known);
        found.push(direct);
    }
    found
}

/// Lets those runs be full_barrier from what is before them in their stream that would read early what may still be written there.
/// Only what no run between them waits for can be: a kernel lets the next one begin when it has waited itself. Ours do, and
/// those of cuBLASLt and cuDNN were seen to on an H200.
pub(super) fn part(runs: &mut [Run]) {
    if runs.iter().all(|run| run.touched.early.is_empty()) {
        return;
    }
    for (number, before) in after(runs).into_iter().enumerate() {
        let early = &runs[number].touched.early;
        let unfinished = |&other: &usize| {
            let other: &Run = &runs[other];
            other.instance.pdl_triggers() && both(early, &other.touched.writes)
        };
        runs[number].full_barrier = before.iter().any(unfinished);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Result;
    use crate::plan::{Call, Instance};
    use crate::runtime::addresses::{Address, Addresses};

    #[test]
    fn who_only_reads_the_same_waits_for_nobody() {
        let within = |bytes, space| Extent { space, bytes };
        let touched = |reads, writes| Touched {
            reads: vec![within(reads, Space::Host)],
            writes: vec![within(writes, Space::Host)],
            early: vec![],
        };
        let (a, b) = (touched(0..4, 4..8), touched(0..4, 8..12));
        assert!(!a.meets(&b));
        assert!(touched(7..9, 20..21).meets(&a));
        assert!(touched(20..21, 3..4).meets(&a));
        assert!(touched(40..41, 0..30).meets(&b));
        let far = Touched {
            reads: vec![],
            writes: vec![within(0..30, Space::Device(0))],
            early: vec![],
        };
        assert!(!far.meets(&a) && far.meets(&far));
    }

    /// What reads some inputs early, and may or may not give way.
    struct Hasty(bool);

    impl Instance for Hasty {
        fn implementation(&self) -> String {
            String::new()
        }

        fn pdl_triggers(&self) -> bool {
            self.0
        }

        fn run(&mut self, _call: &Call) -> Result<()> {
            Ok(())
        }
    }

    #[test]
    fn who_reads_early_what_may_still_be_written_is_parted_from_it() {
        let extent = |at: usize| Extent {
            space: Space::Device(0),
            bytes: at..at + 1,
        };
        let run = |gives_way, reads: &[usize], early: &[usize], writes: usize| {
            let touched = Touched {
                reads: reads.iter().chain(early).map(|&at| extent(at)).collect(),
                writes: vec![extent(writes)],
                early: early.iter().map(|&at| extent(at)).collect(),
            };
            let addresses = Addresses {
                inputs: vec![],
                outputs: vec![],
                workspace: Address::Fixed(std::ptr::null_mut()),
            };
            Run::new(0, Box::new(Hasty(gives_way)), addresses, touched)
        };
        let full_barrier = |mut runs: Vec<Run>| {
            part(&mut runs);
            runs.iter().map(|run| run.full_barrier).collect::<Vec<_>>()
        };
        // 1 is written, then read early; or waited for by another run in between; or by one that gives way to nobody.
        let last = || run(true, &[2], &[1], 3);
        let beside = vec![run(true, &[0], &[], 1), run(true, &[0], &[], 2), last()];
        assert_eq!(full_barrier(beside), [false, false, true]);
        let between = vec![run(true, &[0], &[], 1), run(true, &[1], &[], 2), last()];
        assert_eq!(full_barrier(between), [false; 3]);
        let polite = vec![run(false, &[0], &[], 1), run(true, &[0], &[], 2), last()];
        assert_eq!(full_barrier(polite), [false; 3]);
    }
}
