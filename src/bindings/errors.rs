//! Our error as Python's exceptions, and panics as our error.

use super::calls;
use crate::error::{Error, ErrorKind};
use crate::interrupt;
use pyo3::exceptions::{PyException, PyMemoryError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyDict;

impl ErrorKind {
    /// The word under which `neurenix.errors` knows the kind.
    const fn word(self) -> &'static str {
        match self {
            ErrorKind::InvalidArgument => "invalid_argument",
            ErrorKind::Shape => "shape",
            ErrorKind::Type => "type",
            ErrorKind::Unsupported => "unsupported",
            ErrorKind::Format => "format",
            ErrorKind::Io => "io",
            ErrorKind::Memory => "memory",
            ErrorKind::Device => "device",
            ErrorKind::Plugin => "plugin",
            ErrorKind::Interrupted => "error",
            ErrorKind::Internal => "internal",
        }
    }
}

impl From<Error> for PyErr {
    fn from(error: Error) -> Self {
        calls::attached(|py| {
            let cause = error.cause::<PyErr>().map(|cause| cause.clone_ref(py));
            match cause {
                Some(cause) if error.kind() == ErrorKind::Interrupted => cause,
                cause => {
                    let raised = exception(py, &error).map_or_else(|e| e, PyErr::from_value);
                    if cause.is_some() {
                        raised.set_cause(py, cause);
                    }
                    raised
                }
            }
        })
    }
}

/// What another library or a plugin raised, or one of our own errors on its way back. What is no `Exception`, as
/// `KeyboardInterrupt`, ends the work that it was called from, and is raised there as it is.
impl From<PyErr> for Error {
    fn from(error: PyErr) -> Self {
        calls::attached(|py| {
            if let Ok(Some(ours)) = ours(error.value(py)) {
                return match error.cause(py) {
                    Some(cause) => ours.caused_by(cause),
                    None => ours,
                };
            }
            let text = error.value(py).to_string();
            if !error.is_instance_of::<PyException>(py) {
                let ended = Error::interrupted(text).caused_by(error);
                if let Some(scope) = interrupt::current() {
                    scope.end(ended.clone());
                }
                return ended;
            }
            let kind = match error.is_instance_of::<PyMemoryError>(py) {
                true => ErrorKind::Memory,
                false => ErrorKind::InvalidArgument,
            };
            Error::new(kind, text).caused_by(error)
        })
    }
}

/// The error that an exception of ours stands for.
fn ours(value: &Bound<'_, PyAny>) -> PyResult<Option<Error>> {
    if !value.is_instance(&value.py().import("neurenix.errors")?.getattr("Error")?)? {
        return Ok(None);
    }
    let text = |name: &str| value.getattr(name)?.extract::<Option<String>>();
    let kind = text("kind")?.and_then(|word| ErrorKind::ALL.into_iter().find(|kind| kind.word() == word));
    let mut error = Error::new(
        kind.unwrap_or(ErrorKind::InvalidArgument),
        text("message")?.unwrap_or_default(),
    );
    if let Some(layer) = text("layer")? {
        error = error.layer(layer);
    }
    if let Some(tensor) = text("tensor")? {
        error = error.tensor(tensor);
    }
    if let Some(expected) = text("expected")? {
        error = error.expected(expected);
    }
    if let Some(got) = text("got")? {
        error = error.got(got);
    }
    if let Some(hint) = text("hint")? {
        error = error.hint(hint);
    }
    Ok(Some(error))
}

fn exception<'py>(py: Python<'py>, error: &Error) -> PyResult<Bound<'py, PyAny>> {
    static MAKE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let parts = PyDict::new(py);
    for (name, text) in error.parts() {
        parts.set_item(name, text)?;
    }
    let make = MAKE.import(py, "neurenix.errors", "from_native")?;
    calls::call(make, (error.kind().word(), error.message(), parts))
}
