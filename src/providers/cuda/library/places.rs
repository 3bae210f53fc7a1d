//! Where NVIDIA's libraries lie: in the folders that the user names, in packages of PyPI, and where the system looks.

use crate::error::Result;
use crate::knobs;
use crate::providers::common::packages::{self, NVIDIA};
use std::path::Path;

/// What can be opened, the best one first: files by their full paths, so that a library finds those that came with it, then
/// names for the system to find.
///
/// # Errors
/// If a knob can't be read.
pub fn candidates(files: &[&str]) -> Result<Vec<String>> {
    let named = knobs::CUDA_LIBRARIES.get()?;
    let named = named
        .iter()
        .flat_map(|folder| files.iter().map(|file| Path::new(folder).join(file)));
    let packages = packages::nvidia();
    // The newest of all packages comes first.
    let brought = files
        .iter()
        .flat_map(|file| packages.iter().map(move |folder| folder.join(file)));
    let there = named.chain(brought).filter(|path| path.exists());
    let there = there.filter_map(|path| path.into_os_string().into_string().ok());
    Ok(there.chain(files.iter().map(|file| file.to_string())).collect())
}

/// For messages: everywhere that [`candidates`] looks.
pub fn describe() -> String {
    let named = knobs::CUDA_LIBRARIES.get().unwrap_or_default();
    let paths = packages::paths();
    let packages = paths.iter().filter(|path| path.join(NVIDIA).is_dir());
    let packages = packages.map(|path| format!("{}/{NVIDIA}/*/lib", path.display()));
    let all = named.into_iter().chain(packages).chain(["the system's folders".into()]);
    all.collect::<Vec<_>>().join(", ")
}
