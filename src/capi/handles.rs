//! What handles stand for. A handle is a number that is given once: one that was closed, or that never was, is refused.

use super::context::Context;
use super::engine::OpenEngine;
use crate::error::{Error, Result};
use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, PoisonError, RwLock};

/// What a handle can stand for.
#[derive(Clone)]
pub enum Object {
    /// An engine.
    Engine(Arc<OpenEngine>),
    /// A context.
    Context(Arc<Context>),
}

impl Object {
    fn name(&self) -> &'static str {
        match self {
            Object::Engine(_) => OpenEngine::NAME,
            Object::Context(_) => Context::NAME,
        }
    }
}

/// Something that handles stand for.
pub trait Handled: Sized {
    /// What errors call it.
    const NAME: &str;
    /// As an object.
    fn object(self: Arc<Self>) -> Object;
    /// An object that is one.
    fn of(object: &Object) -> Option<Arc<Self>>;
}

impl Handled for OpenEngine {
    const NAME: &str = "an engine";
    fn object(self: Arc<Self>) -> Object {
        Object::Engine(self)
    }
    fn of(object: &Object) -> Option<Arc<Self>> {
        match object {
            Object::Engine(engine) => Some(engine.clone()),
            Object::Context(_) => None,
        }
    }
}

impl Handled for Context {
    const NAME: &str = "a context";
    fn object(self: Arc<Self>) -> Object {
        Object::Context(self)
    }
    fn of(object: &Object) -> Option<Arc<Self>> {
        match object {
            Object::Context(context) => Some(context.clone()),
            Object::Engine(_) => None,
        }
    }
}

/// Every change is one insertion or removal, so a panic elsewhere leaves it whole.
static OBJECTS: LazyLock<RwLock<HashMap<usize, Object>>> = LazyLock::new(RwLock::default);
/// Odd numbers, which no object of C's has as its address.
static NEXT: AtomicUsize = AtomicUsize::new(1);

/// A handle for an object.
pub fn open<T: Handled>(object: T) -> *mut c_void {
    let number = NEXT.fetch_add(2, Ordering::Relaxed);
    let mut objects = OBJECTS.write().unwrap_or_else(PoisonError::into_inner);
    objects.insert(number, Arc::new(object).object());
    std::ptr::without_provenance_mut(number)
}

/// What a handle stands for.
///
/// # Errors
/// If that is nothing, or something else.
pub fn find<T: Handled>(handle: *mut c_void) -> Result<Arc<T>> {
    let objects = OBJECTS.read().unwrap_or_else(PoisonError::into_inner);
    let found = objects.get(&handle.addr());
    found
        .and_then(T::of)
        .ok_or_else(|| refused(handle, T::NAME, found.map(Object::name)))
}

/// As [`find`]; the handle stands for nothing any more.
///
/// # Errors
/// As [`find`].
pub fn close<T: Handled>(handle: *mut c_void) -> Result<Arc<T>> {
    let mut objects = OBJECTS.write().unwrap_or_else(PoisonError::into_inner);
    let found = objects.get(&handle.addr());
    let object = found
        .and_then(T::of)
        .ok_or_else(|| refused(handle, T::NAME, found.map(Object::name)))?;
    objects.remove(&handle.addr());
    Ok(object)
}

fn refused(handle: *mut c_void, wanted: &str, found: Option<&str>) -> Error {
    let error = Error::invalid(format!("the handle is not {wanted}")).expected(format!("{wanted} that is open"));
    match found {
        _ if handle.is_null() => error.got("NULL"),
        Some(other) => error.got(other),
        None => error
            .got(format!("{:#x}", handle.addr()))
            .hint("it was closed before, or something wrote over it"),
    }
}
