//! `_native.Replacement`: files that Python writes and that appear whole.

use crate::error::{Error, Result};
use crate::replace;
use pyo3::prelude::*;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

/// An empty file beside the one that it will replace, which is removed unless it is committed.
#[pyclass(frozen, module = "neurenix._native")]
pub struct Replacement(Mutex<Option<replace::Replacement>>);

#[pymethods]
impl Replacement {
    /// Creates the file; it has the owner and the rights of the one that is there.
    #[new]
    fn new(path: PathBuf) -> Result<Self> {
        let (made, _) = replace::Replacement::beside(&path, None)?;
        Ok(Self(Mutex::new(Some(made))))
    }

    /// The path of the file.
    #[getter]
    fn temporary(&self) -> Result<PathBuf> {
        let held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let path = held.as_ref().map(|made| made.temporary().to_path_buf());
        path.ok_or_else(ended)
    }

    /// Puts it into its place.
    fn commit(&self) -> Result<()> {
        let held = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        Ok(held.ok_or_else(ended)?.commit()?)
    }

    /// Removes it, unless it was committed.
    fn discard(&self) {
        drop(self.0.lock().unwrap_or_else(PoisonError::into_inner).take());
    }
}

fn ended() -> Error {
    Error::invalid("the file was committed or discarded")
}
