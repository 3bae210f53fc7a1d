//! NVIDIA's libraries, opened at run time: a machine without them only lacks this provider.
//!
//! Each function is looked up once, and a status crosses as a number: a library newer than this code may give one that
//! no enum here knows.

pub mod cublaslt;
pub mod cudnn;
pub mod driver;
pub mod nvrtc;
pub mod places;

use crate::error::{Error, Result};
use crate::knobs;
use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use std::error::Error as _;

/// Declares the functions of a library as a struct of pointers, which `load` finds by their names.
macro_rules! library {
    ($(#[$doc:meta])* $name:ident from $files:expr; $(fn $function:ident($($argument:ty),* $(,)?) -> $result:ty;)*) => {
        $(#[$doc])*
        #[allow(non_snake_case, missing_docs)]
        pub struct $name {
            $(pub $function: unsafe extern "C" fn($($argument),*) -> $result,)*
            /// What the functions belong to.
            _library: libloading::os::unix::Library,
        }

        impl $name {
            /// Opens the library.
            ///
            /// # Errors
            /// If there is none, or it lacks a function.
            pub fn load() -> crate::error::Result<Self> {
                let library = $crate::providers::cuda::library::open($files)?;
                Ok(Self {
                    $($function: $crate::providers::cuda::library::symbol(
                        &library,
                        concat!(stringify!($function), "\0"),
                    )?,)*
                    _library: library,
                })
            }
        }
    };
}
pub(crate) use library;

/// Opens the first of these files that is there: one that the process has open already (PyTorch brings its own, and two
/// copies in one process do not get along), then those in `NEURENIX_CUDA_LIBRARIES`, those in packages of PyPI, the system's.
///
/// # Errors
/// If none is there, or none can be opened; says where it looked, and what is wrong with those that are there.
pub(crate) fn open(files: &[&str]) -> Result<Library> {
    /// glibc's flag to open only what is open.
    const RTLD_NOLOAD: i32 = 4;
    // SAFETY: NVIDIA's libraries do nothing but set themselves up when they are opened.
    let opened = |name: &str, flags| unsafe { Library::open(Some(name), flags | RTLD_NOW | RTLD_LOCAL) };
    if let Some(open) = files.iter().find_map(|name| opened(name, RTLD_NOLOAD).ok()) {
        return Ok(open);
    }
    let mut broken = vec![];
    for name in places::candidates(files)? {
        match opened(&name, 0) {
            Ok(library) => return Ok(library),
            // The system's linker says of each name that there is no such file.
            Err(error) if name.contains('/') => {
                broken.push(error.source().map_or(error.to_string(), ToString::to_string));
            }
            Err(_) => {}
        }
    }
    let error = Error::device(format!("none of {} found", files.join(", "))).hint(format!(
        "looked in {}; install NVIDIA's driver, NVRTC, cuBLASLt and cuDNN, or name their folders in {}",
        places::describe(),
        knobs::CUDA_LIBRARIES.name
    ));
    Err(if broken.is_empty() {
        error
    } else {
        error.got(broken.join("; "))
    })
}

/// The address of a function, as a function pointer of type `F`. `name` ends with a zero.
///
/// # Errors
/// If the library lacks it.
pub(crate) fn symbol<F: Copy>(library: &Library, name: &str) -> Result<F> {
    // SAFETY: the types in the declarations are those of NVIDIA's headers.
    let found = unsafe { library.get::<F>(name.as_bytes()) };
    found.map(|function| *function).map_err(|_| {
        Error::device(format!(
            "the library lacks {}: it is too old",
            name.trim_end_matches('\0')
        ))
        .hint("install a newer one")
    })
}
