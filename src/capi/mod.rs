//! The C API: what `cpp/include/neurenix/neurenix.h` declares. It stands in the library that is built without Python.
//!
//! This folder is the edge to C, and the only one of the crate that reads and writes what C's side points to. `arguments` has
//! the ways in which that is done; `handles` knows what is alive, so that a handle is looked up and never followed.

mod arguments;
mod context;
mod context_functions;
mod describe;
mod dtypes;
mod engine;
mod engine_functions;
mod handles;
mod library_functions;
mod log;
mod open;
mod status;

/// The version of the header, which grows when something is added to it.
const ABI_VERSION: u32 = 1;
/// An array in the processor's memory.
const HOST: i32 = -1;
