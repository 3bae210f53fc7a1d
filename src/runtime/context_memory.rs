//! What the programs of a context share, at whatever shapes: an arena in each memory, and streams. A context runs one call at a
//! time, so each of them may use all of it.

use crate::device::{Memory, Space};
use crate::error::{ErrorKind, Result};
use crate::plan::Provider;
use crate::runtime::streams::Streams;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Memory and streams of a context. Programs that share them run one at a time.
#[derive(Clone, Default)]
pub struct ContextMemory(Arc<Mutex<Resources>>);

/// The streams and arenas themselves.
#[derive(Default)]
pub(super) struct Resources {
    // Before the arenas, so that nothing works in these any longer when they go.
    pub streams: Streams,
    arenas: Vec<(Space, Arc<dyn Memory>)>,
}

impl ContextMemory {
    /// Gives the arenas back; the next call makes those that it needs.
    ///
    /// # Errors
    /// If work that used them failed.
    pub fn clear(&self) -> Result<()> {
        let mut resources = self.lock();
        resources.streams.synchronize()?;
        resources.arenas.clear();
        Ok(())
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Resources> {
        // A panic in a kernel leaves arenas and streams as they are.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Resources {
    /// The arena of a memory, if it has so many bytes.
    pub fn arena(&self, space: Space, bytes: usize) -> Option<&Arc<dyn Memory>> {
        let mut arenas = self.arenas.iter();
        let found = arenas.find(|(of, memory)| *of == space && memory.bytes() >= bytes);
        found.map(|(_, memory)| memory)
    }

    /// The arena of a provider's memory, with at least so many bytes: a larger one takes the place of one that is too small,
    /// whose addresses no longer hold then.
    ///
    /// # Errors
    /// If there is not so much memory; the arena is as large as it was, where it can be had again.
    pub fn reserve(&mut self, provider: &dyn Provider, bytes: usize) -> Result<Arc<dyn Memory>> {
        let space = provider.space();
        if let Some(arena) = self.arena(space, bytes) {
            return Ok(arena.clone());
        }
        // Work of calls that have returned may still use the one that goes.
        self.streams.synchronize()?;
        let before = self.arenas.iter().position(|(of, _)| *of == space);
        // It goes first: there may not be memory for both.
        let before = before.map(|at| self.arenas.swap_remove(at).1.bytes());
        let made = provider.device().allocate(bytes);
        if let (Err(error), Some(bytes)) = (&made, before)
            && error.kind() == ErrorKind::Memory
            && let Ok(again) = provider.device().allocate(bytes)
        {
            self.arenas.push((space, Arc::from(again)));
        }
        let arena: Arc<dyn Memory> = Arc::from(made?);
        self.arenas.push((space, arena.clone()));
        Ok(arena)
    }
}
