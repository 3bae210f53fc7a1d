//! Where NVIDIA's libraries lie: in the folders that the user names, in packages of PyPI, and where the system looks.

use crate::error::Result;
use crate::knobs;
use std::path::{Path, PathBuf};
use std::sync::{PoisonError, RwLock};

/// Where Python looks for packages.
static PATHS: RwLock<Vec<PathBuf>> = RwLock::new(vec![]);

/// Tells where packages may lie that bring libraries (`nvidia-cudnn-cu13` and the like). Those are looked at when a library is
/// opened.
pub fn look_in(paths: Vec<PathBuf>) {
    *PATHS.write().unwrap_or_else(PoisonError::into_inner) = paths;
}

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
    let packages = packages();
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
    let paths = PATHS.read().unwrap_or_else(PoisonError::into_inner);
    let packages = paths.iter().filter(|path| path.join(NVIDIA).is_dir());
    let packages = packages.map(|path| format!("{}/{NVIDIA}/*/lib", path.display()));
    let all = named.into_iter().chain(packages).chain(["the system's folders".into()]);
    all.collect::<Vec<_>>().join(", ")
}

/// What all of NVIDIA's packages lie in.
const NVIDIA: &str = "nvidia";

/// The folders of libraries in packages: `nvidia/cudnn/lib`, `nvidia/cu13/lib`, `nvidia/cuda_nvrtc/lib`, ...
fn packages() -> Vec<PathBuf> {
    let paths = PATHS.read().unwrap_or_else(PoisonError::into_inner);
    let inside = |path: &PathBuf| {
        let entries = std::fs::read_dir(path.join(NVIDIA)).into_iter().flatten().flatten();
        let mut folders: Vec<_> = entries.map(|entry| entry.path().join("lib")).collect();
        folders.sort();
        folders
    };
    paths.iter().flat_map(inside).collect()
}
