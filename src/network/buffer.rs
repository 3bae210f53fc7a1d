//! Memory that Neurenix allocates.

use crate::error::{Error, Result};
use crate::network::free_memory;
use crate::network::guard_pages::{self, Fenced};
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::NonNull;

/// Alignment of every buffer that Neurenix allocates: a cache line, and one AVX-512 register.
pub const ALIGNMENT: usize = 64;

/// Less than this is not worth asking the system whether it has it.
const WORTH_ASKING: usize = 64 << 20;

/// Refuses what would need more memory than there is.
///
/// # Errors
/// If the system says that there are not so many bytes left.
pub fn require(bytes: usize) -> Result<()> {
    if bytes < WORTH_ASKING {
        return Ok(());
    }
    match free_memory::bytes().filter(|&left| bytes > left) {
        Some(left) => Err(Error::memory("there is not enough memory")
            .expected(format!("{bytes} bytes more"))
            .got(format!("{left} bytes that are left"))
            .hint("give smaller shapes or a smaller batch, or free memory")),
        None => Ok(()),
    }
}

/// A vector of as many equal elements, for counts that follow from a model or a call: `vec![value; count]` ends the
/// process where there is not so much memory.
///
/// # Errors
/// If there is not so much memory.
pub fn try_vec<T: Clone>(count: usize, value: T) -> Result<Vec<T>> {
    let bytes = count.saturating_mul(size_of::<T>());
    require(bytes)?;
    let mut elements = Vec::new();
    elements.try_reserve_exact(count).map_err(|_| missing(bytes))?;
    elements.resize(count, value);
    Ok(elements)
}

fn missing(bytes: usize) -> Error {
    Error::memory("there is not enough memory").expected(format!("{bytes} bytes more"))
}

/// Owned bytes, aligned to [`ALIGNMENT`], zero at first.
pub struct Buffer {
    pointer: NonNull<u8>,
    bytes: usize,
    block: Block,
}

/// What holds the bytes of a buffer.
enum Block {
    /// What the allocator gave: the bytes begin up to [`ALIGNMENT`] behind it.
    Heap(NonNull<u8>),
    /// Behind [`guard_pages`], the bytes are aligned as their number is.
    Fenced(#[allow(dead_code)] Fenced),
}

// SAFETY: a Buffer owns its memory; shared references only read it.
unsafe impl Send for Buffer {}
// SAFETY: as above.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// Allocates `bytes` zeroed bytes; ends the process if there are not so many. For sizes that follow from a model
    /// or a call there is [`Buffer::try_zeroed`].
    pub fn zeroed(bytes: usize) -> Self {
        Self::try_zeroed(bytes).unwrap_or_else(|_| handle_alloc_error(Self::layout(bytes)))
    }

    /// Allocates `bytes` zeroed bytes.
    ///
    /// # Errors
    /// If there is not so much memory.
    pub fn try_zeroed(bytes: usize) -> Result<Self> {
        let refuse = || missing(bytes);
        if bytes > isize::MAX as usize - 2 * ALIGNMENT {
            return Err(refuse());
        }
        require(bytes)?;
        if let Some(placement) = guard_pages::placement() {
            let fenced = Fenced::new(bytes, placement).ok_or_else(refuse)?;
            return Ok(Self {
                pointer: fenced.first(),
                bytes,
                block: Block::Fenced(fenced),
            });
        }
        // The allocator is asked for little alignment: only then does it leave the zeros of fresh pages to the system.
        // SAFETY: the layout has a size of at least ALIGNMENT.
        let block = NonNull::new(unsafe { alloc_zeroed(Self::layout(bytes)) }).ok_or_else(refuse)?;
        let beyond = block.align_offset(ALIGNMENT);
        // SAFETY: the block is ALIGNMENT bytes longer than what is asked for.
        let pointer = unsafe { block.add(beyond) };
        Ok(Self {
            pointer,
            bytes,
            block: Block::Heap(block),
        })
    }

    /// The address of the first byte; writing through it needs exclusive use of the buffer.
    pub fn as_ptr(&self) -> *mut u8 {
        self.pointer.as_ptr()
    }

    /// The number of bytes.
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// The bytes, writable.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: the pointer is valid for `bytes` bytes and `self` is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.pointer.as_ptr(), self.bytes) }
    }

    fn layout(bytes: usize) -> Layout {
        // Whole cache lines: no other buffer shares one.
        let padded = bytes.max(1).div_ceil(ALIGNMENT) * ALIGNMENT;
        Layout::from_size_align(padded + ALIGNMENT, align_of::<usize>()).expect("buffer size fits isize")
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: the pointer is valid for `bytes` initialised bytes as long as `self` lives.
        unsafe { std::slice::from_raw_parts(self.pointer.as_ptr(), self.bytes) }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let Block::Heap(block) = self.block {
            // SAFETY: allocated in `try_zeroed` with this very layout.
            unsafe { dealloc(block.as_ptr(), Self::layout(self.bytes)) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    #[test]
    fn what_no_memory_holds_is_refused() {
        for count in [1 << 45, usize::MAX] {
            assert_eq!(try_vec(count, 0u64).unwrap_err().kind(), ErrorKind::Memory);
            assert_eq!(Buffer::try_zeroed(count).err().unwrap().kind(), ErrorKind::Memory);
        }
        assert_eq!(try_vec(3, 7).unwrap(), [7; 3]);
    }
}
