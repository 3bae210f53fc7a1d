//! NVIDIA's libraries, opened at run time: a machine without them only lacks this provider.
//!
//! Each function is looked up once, and a status crosses as a number: a library newer than this code may give one that
//! no enum here knows.

pub mod cublaslt;
pub mod cudnn;
pub mod driver;
pub mod nvrtc;

use crate::error::{Error, Result};
use crate::knobs;
use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

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
/// copies in one process do not get along), then those in `NEURENIX_CUDA_LIBRARIES`, then the system's.
///
/// # Errors
/// If none is there.
pub(crate) fn open(files: &[&str]) -> Result<Library> {
    /// glibc's flag to open only what is open.
    const RTLD_NOLOAD: i32 = 4;
    let folders = knobs::CUDA_LIBRARIES.get()?;
    let inside = folders
        .iter()
        .flat_map(|folder| files.iter().map(move |file| format!("{folder}/{file}")));
    let names: Vec<String> = inside.chain(files.iter().map(|file| file.to_string())).collect();
    // SAFETY: NVIDIA's libraries do nothing but set themselves up when they are opened.
    let opened = |name: &str, flags| unsafe { Library::open(Some(name), flags | RTLD_NOW | RTLD_LOCAL) }.ok();
    let there = files.iter().find_map(|name| opened(name, RTLD_NOLOAD));
    there
        .or_else(|| names.iter().find_map(|name| opened(name, 0)))
        .ok_or_else(|| {
            Error::device(format!("none of {} found", files.join(", "))).hint(
                "install NVIDIA's driver, NVRTC, cuBLASLt and cuDNN; NEURENIX_CUDA_LIBRARIES may name their folders",
            )
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
