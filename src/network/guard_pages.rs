//! Memory between pages that nobody may touch, so that an access outside of a buffer ends the process where it happens.
//! For tests: `NEURENIX_GUARD_PAGES` switches it on.

use crate::knobs::{self, Placement};
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::OnceLock;

/// Where the page lies that no access may reach; `None` where buffers come from the allocator, as they do without the knob.
pub fn placement() -> Option<Placement> {
    static PLACEMENT: OnceLock<Option<Placement>> = OnceLock::new();
    // What can't be read is told by `neurenix info --knobs`, and by whoever reads all knobs.
    *PLACEMENT.get_or_init(|| knobs::GUARD_PAGES.get().unwrap_or_default())
}

/// Bytes of a page.
pub fn page() -> usize {
    static PAGE: OnceLock<usize> = OnceLock::new();
    // SAFETY: sysconf only reads.
    *PAGE.get_or_init(|| usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096))
}

/// Zeroed bytes, with a page before them and one behind them that nobody may touch. On the side of the placement not one
/// byte lies between.
pub struct Fenced {
    base: NonNull<u8>,
    whole: usize,
    first: NonNull<u8>,
}

impl Fenced {
    /// So many bytes; `None` if there are not so many.
    pub fn new(bytes: usize, placement: Placement) -> Option<Self> {
        let page = page();
        let inside = bytes.checked_next_multiple_of(page)?;
        let whole = inside.checked_add(2 * page)?;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping, of no file.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), whole, libc::PROT_NONE, flags, -1, 0) };
        if base == libc::MAP_FAILED {
            return None;
        }
        let base = NonNull::new(base.cast::<u8>())?;
        let skipped = match placement {
            Placement::Before => 0,
            Placement::Behind => inside - bytes,
        };
        // SAFETY: within the mapping.
        let first = unsafe { base.add(page + skipped) };
        let fenced = Self { base, whole, first };
        // SAFETY: the pages lie within the mapping, which is this value's own.
        let opened = unsafe {
            protect(
                base.as_ptr().wrapping_add(page),
                inside,
                libc::PROT_READ | libc::PROT_WRITE,
            )
        };
        opened.then_some(fenced)
    }

    /// The first byte.
    pub fn first(&self) -> NonNull<u8> {
        self.first
    }
}

impl Drop for Fenced {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.whole) };
    }
}

/// The blocks of these sizes one behind the other in memory that begins at a page, each with pages of its own and one
/// between it and the next: their offsets, and the bytes of the whole.
pub fn apart(blocks: &[usize], placement: Placement) -> (Vec<usize>, usize) {
    let page = page();
    let mut end = page;
    let mut place = |&bytes: &usize| {
        let (start, inside) = (end, bytes.next_multiple_of(page));
        end += inside + page;
        match placement {
            Placement::Before => start,
            Placement::Behind => start + inside - bytes,
        }
    };
    let offsets = blocks.iter().map(&mut place).collect();
    (offsets, end)
}

/// Lets nobody touch memory but for the pages of these ranges of it.
///
/// # Safety
/// The memory must be a [`Fenced`] that begins at a page, which nobody uses meanwhile.
pub unsafe fn fence(memory: *mut u8, bytes: usize, open: &[Range<usize>]) {
    let page = page();
    // SAFETY: the caller's promise.
    unsafe {
        protect(memory, bytes.next_multiple_of(page), libc::PROT_NONE);
        for range in open.iter().filter(|range| !range.is_empty()) {
            let (start, end) = (range.start / page * page, range.end.next_multiple_of(page));
            protect(
                memory.wrapping_add(start),
                end - start,
                libc::PROT_READ | libc::PROT_WRITE,
            );
        }
    }
}

/// # Safety
/// Nobody may rely on another protection of these pages.
unsafe fn protect(first: *mut u8, bytes: usize, protection: i32) -> bool {
    // SAFETY: the caller's promise.
    bytes == 0 || unsafe { libc::mprotect(first.cast(), bytes, protection) } == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether a child process that touches a byte lives on.
    fn survives(place: *const u8) -> bool {
        let mut status = 0;
        // SAFETY: the child only reads one byte and ends.
        unsafe {
            let child = libc::fork();
            if child == 0 {
                libc::signal(libc::SIGSEGV, libc::SIG_DFL);
                std::ptr::read_volatile(place);
                libc::_exit(0);
            }
            libc::waitpid(child, &mut status, 0);
        }
        libc::WIFEXITED(status)
    }

    #[test]
    fn the_first_byte_outside_is_out_of_reach() {
        for bytes in [1, 100, 4096, 5000] {
            let behind = Fenced::new(bytes, Placement::Behind).unwrap().keep();
            let before = Fenced::new(bytes, Placement::Before).unwrap().keep();
            let at = |fenced: &Fenced, i: isize| fenced.first().as_ptr().wrapping_offset(i).cast_const();
            let last = bytes as isize - 1;
            for fenced in [&behind, &before] {
                assert!(survives(at(fenced, 0)) && survives(at(fenced, last)), "{bytes}");
            }
            assert!(!survives(at(&behind, last + 1)), "{bytes}");
            assert!(!survives(at(&before, -1)), "{bytes}");
        }
    }

    impl Fenced {
        /// Every byte can be written.
        fn keep(self) -> Self {
            let bytes = self.base.addr().get() + self.whole - page() - self.first.addr().get();
            // SAFETY: the bytes up to the last page are this value's own.
            unsafe { self.first.as_ptr().write_bytes(1, bytes) };
            self
        }
    }

    #[test]
    fn blocks_lie_apart_and_what_lies_between_is_closed() {
        let sizes = [1, 4096, 70, 9000];
        for placement in [Placement::Behind, Placement::Before] {
            let (offsets, total) = apart(&sizes, placement);
            let memory = Fenced::new(total, placement).unwrap();
            let open: Vec<_> = offsets.iter().zip(sizes).map(|(&at, bytes)| at..at + bytes).collect();
            // SAFETY: the memory is this test's own.
            unsafe { fence(memory.first().as_ptr(), total, &open) };
            let at = |i: usize| memory.first().as_ptr().wrapping_add(i).cast_const();
            for range in open {
                assert!(survives(at(range.start)) && survives(at(range.end - 1)));
                match placement {
                    Placement::Behind => assert!(!survives(at(range.end))),
                    Placement::Before => assert!(!survives(at(range.start - 1))),
                }
            }
        }
    }
}
