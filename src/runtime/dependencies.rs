//! Which launches depend on which: those that access common memory, unless both only read it.

use crate::device::Space;
use crate::device::in_sequence;
use crate::plan::placement::Home;
use crate::runtime::segment::Launch;
use std::ops::Range;

/// What a launch reads and writes in the arenas and in the caller's arrays.
#[derive(Default)]
pub(super) struct Accesses {
    pub reads: Vec<Extent>,
    pub writes: Vec<Extent>,
    /// What of it may be read before the PDL wait ([`crate::plan::Pdl::wait_inputs`]).
    pub before_wait: Vec<Extent>,
}

/// Memory that no other one overlaps: who calls gives no output that lies over another array of the call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Region {
    /// The arena of a memory.
    Arena(Space),
    /// The caller's array for this input.
    Input(usize),
    /// The caller's array for this output.
    Output(usize),
}

impl Region {
    /// The region of an operand, and where it begins there; `None` for what does not change between calls.
    pub fn of(home: Home, space: Space, offset: usize) -> Option<(Self, usize)> {
        match home {
            Home::Arena(start) => Some((Region::Arena(space), start + offset)),
            Home::Input(number) => Some((Region::Input(number), offset)),
            Home::Output(number) => Some((Region::Output(number), offset)),
            Home::Fixed => None,
        }
    }
}

/// Bytes of a region.
pub(super) struct Extent {
    region: Region,
    bytes: Range<usize>,
}

impl Extent {
    /// The bytes of an operand; `None` where it has none, or they do not change between calls.
    pub fn of(home: Home, space: Space, offset: usize, bytes: usize) -> Option<Self> {
        let (region, first) = Region::of(home, space, offset)?;
        (bytes > 0).then(|| Self {
            region,
            bytes: first..first + bytes,
        })
    }

    fn meets(&self, other: &Self) -> bool {
        let (a, b) = (&self.bytes, &other.bytes);
        self.region == other.region && a.start < b.end && b.start < a.end
    }
}

fn both(a: &[Extent], b: &[Extent]) -> bool {
    a.iter().any(|a| b.iter().any(|b| a.meets(b)))
}

impl Accesses {
    /// Whether one of two launches has to wait for the other.
    fn meets(&self, other: &Self) -> bool {
        both(&self.writes, &other.writes) || both(&self.writes, &other.reads) || both(&self.reads, &other.writes)
    }
}

/// More launches than this are captured one after another: looking at all pairs would take too long.
const MOST: usize = 4_000;

/// For each launch those before it on which it depends, without those on which these depend themselves.
pub(super) fn predecessors(launches: &[Launch]) -> Vec<Vec<usize>> {
    if launches.len() > MOST {
        return in_sequence(launches.len());
    }
    let words = launches.len().div_ceil(64);
    let mut before: Vec<Vec<u64>> = vec![];
    let mut found = vec![];
    for (number, launch) in launches.iter().enumerate() {
        let (mut known, mut direct) = (vec![0u64; words], vec![]);
        for other in (0..number).rev() {
            let implied = known[other / 64] >> (other % 64) & 1 == 1;
            if !implied && launch.accesses.meets(&launches[other].accesses) {
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

/// Marks the launches that may read before their PDL wait what a predecessor still writes: these need a full barrier. A launch
/// in between that depends on the writer makes that unnecessary, since a kernel triggers only behind its own wait: ours do, and
/// those of cuBLASLt and cuDNN were seen to on an H200. In front of the first launch of a stream, by its `lane`, there may be a
/// kernel of another call that still writes one of the caller's arrays.
pub(super) fn place_full_barriers(launches: &mut [Launch], lane: impl Fn(&Launch) -> usize) {
    if launches.iter().all(|launch| launch.accesses.before_wait.is_empty()) {
        return;
    }
    for (number, before) in predecessors(launches).into_iter().enumerate() {
        let before_wait = &launches[number].accesses.before_wait;
        let unfinished = |&other: &usize| {
            let other: &Launch = &launches[other];
            other.instance.pdl.triggers && both(before_wait, &other.accesses.writes)
        };
        let first = || {
            !launches[..number]
                .iter()
                .any(|other| lane(other) == lane(&launches[number]))
        };
        let given = |extent: &Extent| matches!(extent.region, Region::Input(_));
        let full_barrier = before.iter().any(unfinished) || before_wait.iter().any(given) && first();
        launches[number].full_barrier = full_barrier;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Call, Instance};
    use crate::runtime::addresses::{Address, Addresses};

    #[test]
    fn launches_that_only_read_the_same_are_independent() {
        let within = |bytes, space| Extent {
            region: Region::Arena(space),
            bytes,
        };
        let accesses = |reads, writes| Accesses {
            reads: vec![within(reads, Space::Host)],
            writes: vec![within(writes, Space::Host)],
            before_wait: vec![],
        };
        let (a, b) = (accesses(0..4, 4..8), accesses(0..4, 8..12));
        assert!(!a.meets(&b));
        assert!(accesses(7..9, 20..21).meets(&a));
        assert!(accesses(20..21, 3..4).meets(&a));
        assert!(accesses(40..41, 0..30).meets(&b));
        let far = Accesses {
            reads: vec![],
            writes: vec![within(0..30, Space::Device(0))],
            before_wait: vec![],
        };
        assert!(!far.meets(&a) && far.meets(&far));
    }

    #[test]
    fn who_reads_before_its_wait_what_may_still_be_written_needs_a_full_barrier() {
        let extent = |at: usize| Extent {
            region: Region::Arena(Space::Device(0)),
            bytes: at..at + 1,
        };
        let launch = |pdl_triggers, reads: &[usize], before_wait: &[usize], writes: usize| {
            let accesses = Accesses {
                reads: reads.iter().chain(before_wait).map(|&at| extent(at)).collect(),
                writes: vec![extent(writes)],
                before_wait: before_wait.iter().map(|&at| extent(at)).collect(),
            };
            let addresses = Addresses {
                inputs: vec![],
                outputs: vec![],
                workspace: Address::Fixed(std::ptr::null_mut()),
            };
            let mut instance = Instance::new("", |_: &Call| Ok(()));
            instance.pdl.triggers = pdl_triggers;
            Launch::new(0, instance, addresses, accesses)
        };
        let full_barrier = |mut launches: Vec<Launch>| {
            place_full_barriers(&mut launches, |_| 0);
            launches.iter().map(|launch| launch.full_barrier).collect::<Vec<_>>()
        };
        // 1 is written, then read before the wait; or another launch in between waits for it; or the writer triggers nothing.
        let last = || launch(true, &[2], &[1], 3);
        let beside = vec![launch(true, &[0], &[], 1), launch(true, &[0], &[], 2), last()];
        assert_eq!(full_barrier(beside), [false, false, true]);
        let between = vec![launch(true, &[0], &[], 1), launch(true, &[1], &[], 2), last()];
        assert_eq!(full_barrier(between), [false; 3]);
        let polite = vec![launch(false, &[0], &[], 1), launch(true, &[0], &[], 2), last()];
        assert_eq!(full_barrier(polite), [false; 3]);
        // Nothing of the call is in front, but perhaps what writes the caller's array.
        let given = || {
            let mut launch = last();
            launch.accesses.before_wait[0].region = Region::Input(0);
            launch
        };
        assert_eq!(full_barrier(vec![given(), given()]), [true, false]);
    }
}
