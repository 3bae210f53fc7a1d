//! What the backend API calls a descriptor: everything in it is one.

use super::Cudnn;
use super::numbers::ty;
use crate::error::Result;
use crate::providers::cuda::library::driver::Handle;

/// A descriptor.
pub struct Descriptor {
    pub(super) library: &'static Cudnn,
    /// How the library names it.
    pub(super) handle: Handle,
}

// SAFETY: a finalized descriptor is only read; before, one thread owns it.
unsafe impl Send for Descriptor {}
// SAFETY: as above; a plan is run by one thread at a time.
unsafe impl Sync for Descriptor {}

impl Drop for Descriptor {
    fn drop(&mut self) {
        // SAFETY: it was created, and is not used any more.
        unsafe { (self.library.cudnnBackendDestroyDescriptor)(self.handle) };
    }
}

impl Descriptor {
    /// A descriptor to be filled.
    pub(super) fn new(library: &'static Cudnn, kind: i32) -> Result<Self> {
        let mut handle = std::ptr::null_mut();
        // SAFETY: the handle is written.
        let status = unsafe { (library.cudnnBackendCreateDescriptor)(kind, &mut handle) };
        library.able("cudnnBackendCreateDescriptor", status)?;
        Ok(Self { library, handle })
    }

    /// Sets an attribute to some values, whose type must be the one that is named.
    pub(super) fn set<T>(&self, name: i32, ty: i32, values: &[T]) -> Result<&Self> {
        // SAFETY: the values are of the type that the reference says for the attribute.
        let status = unsafe {
            let set = self.library.cudnnBackendSetAttribute;
            set(self.handle, name, ty, values.len() as i64, values.as_ptr().cast())
        };
        self.library.able("cudnnBackendSetAttribute", status)?;
        Ok(self)
    }

    /// Sets an attribute to other descriptors.
    pub(super) fn link(&self, name: i32, others: &[&Descriptor]) -> Result<&Self> {
        let handles: Vec<Handle> = others.iter().map(|other| other.handle).collect();
        self.set(name, ty::DESCRIPTOR, &handles)
    }

    /// Ends its making.
    pub(super) fn finish(self) -> Result<Self> {
        // SAFETY: the descriptor is alive.
        let status = unsafe { (self.library.cudnnBackendFinalize)(self.handle) };
        self.library.able("cudnnBackendFinalize", status)?;
        Ok(self)
    }

    /// Up to so many values of an attribute, over those that are given.
    pub(super) fn get<T>(&self, name: i32, ty: i32, values: &mut [T]) -> Result<usize> {
        let mut count = 0;
        // SAFETY: there is room for so many values of the type that the reference says.
        let status = unsafe {
            let get = self.library.cudnnBackendGetAttribute;
            get(
                self.handle,
                name,
                ty,
                values.len() as i64,
                &mut count,
                values.as_mut_ptr().cast(),
            )
        };
        self.library.able("cudnnBackendGetAttribute", status)?;
        Ok(count.max(0) as usize)
    }

    /// Up to so many descriptors of a kind that an attribute holds.
    pub(super) fn parts(&self, name: i32, kind: i32, most: usize) -> Result<Vec<Descriptor>> {
        let room = (0..most).map(|_| Descriptor::new(self.library, kind));
        let mut room = room.collect::<Result<Vec<_>>>()?;
        let mut handles: Vec<Handle> = room.iter().map(|part| part.handle).collect();
        let count = self.get(name, ty::DESCRIPTOR, &mut handles)?;
        room.truncate(count);
        Ok(room)
    }
}
