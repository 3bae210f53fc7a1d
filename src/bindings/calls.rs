//! How calls cross: from Python into work of ours, and from there into functions of Python's.

use crate::error::{Error, Result, guarded};
use crate::interrupt::Scope;
use crate::shutdown;
use pyo3::BoundObject;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple};
use std::hint;
use std::mem;
use std::thread;
use std::time::Duration;

/// Runs `work` without the GIL; the end of the process waits for it.
///
/// # Errors
/// Those of the work.
pub fn released<T: Send>(py: Python<'_>, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    py.detach(|| shutdown::call(|| guarded(work)))
}

/// As [`released`], for work that may take long: where it polls, handlers of signals run, and what they raise ends it.
///
/// # Errors
/// Those of the work, and what ended it.
pub fn interruptible<T: Send>(py: Python<'_>, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    within(py, &scope(), work)
}

/// As [`interruptible`], with a scope that others may end, too.
///
/// # Errors
/// As [`interruptible`].
pub fn within<T: Send>(py: Python<'_>, scope: &Scope, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    released(py, || scope.run(work))
}

/// Soon enough for somebody at a keyboard. To ask may wait for the GIL.
const SIGNALS: Duration = Duration::from_millis(20);
/// Soon enough for the end of the process; nothing is waited for, but many threads may.
const END: Duration = Duration::from_millis(100);

/// Work that signals and the end of the process end. Python runs the handlers of signals on its main thread alone.
pub fn scope() -> Scope {
    // SAFETY: both take nothing and can't fail.
    match unsafe { libc::gettid() == libc::getpid() } {
        true => Scope::new(SIGNALS, || {
            shutdown::poll()?;
            Python::attach(|py| py.check_signals()).map_err(Error::from)
        }),
        false => Scope::new(END, shutdown::poll),
    }
}

/// Work on the interpreter's objects, on whatever thread. Where the interpreter ends meanwhile, the thread stops in there for
/// good.
pub fn attached<T>(work: impl for<'py> FnOnce(Python<'py>) -> T) -> T {
    Python::attach(|py| staying(|| work(py)))
}

/// Work out of which no stack is taken down.
fn staying<T>(work: impl FnOnce() -> T) -> T {
    let stay = Stay;
    let done = work();
    mem::forget(stay);
    done
}

/// Calls a function of Python's. Where the interpreter ends meanwhile, the thread stops in there for good.
///
/// # Errors
/// What it raises.
pub fn call<'py>(
    function: &Bound<'py, PyAny>,
    arguments: impl IntoPyObject<'py, Target = PyTuple>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = function.py();
    let arguments = arguments.into_pyobject(py).map_err(Into::into)?.into_bound();
    // SAFETY: both are alive; null stands for no keywords.
    let result = staying(|| unsafe { object_call()(function.as_ptr(), arguments.as_ptr(), std::ptr::null_mut()) });
    // SAFETY: the result is ours, or null where an exception is set.
    unsafe { Bound::from_owned_ptr_or_err(py, result) }
}

/// Calls a method of an object of Python's, as [`call`].
///
/// # Errors
/// What it raises.
pub fn call_method<'py>(
    object: &Bound<'py, PyAny>,
    name: impl IntoPyObject<'py, Target = PyString>,
    arguments: impl IntoPyObject<'py, Target = PyTuple>,
) -> PyResult<Bound<'py, PyAny>> {
    call(&object.getattr(name)?, arguments)
}

/// The signature of `PyObject_Call`, which may unwind: an interpreter before 3.14 that ends takes down the stack of each other thread
/// that asks for the GIL, and frames of Rust's would end the process.
type Call =
    unsafe extern "C-unwind" fn(*mut ffi::PyObject, *mut ffi::PyObject, *mut ffi::PyObject) -> *mut ffi::PyObject;

/// `PyObject_Call`. PyO3 declares it as one that never unwinds, and a declaration holds for the whole of a unit of code: only behind a
/// pointer that the compiler can't see through does its caller keep a landing pad.
fn object_call() -> Call {
    let declared: unsafe extern "C" fn(
        *mut ffi::PyObject,
        *mut ffi::PyObject,
        *mut ffi::PyObject,
    ) -> *mut ffi::PyObject = ffi::PyObject_Call;
    // SAFETY: the same function; that it may unwind takes nothing for granted.
    hint::black_box(unsafe { mem::transmute::<*const (), Call>(declared as *const ()) })
}

/// Where a stack that is taken down stops.
struct Stay;

impl Drop for Stay {
    fn drop(&mut self) {
        // A panic is caught further out, and becomes an error.
        while !thread::panicking() {
            thread::sleep(Duration::from_secs(3600));
        }
    }
}
