//! Where Python looks for packages: some bring NVIDIA's libraries.

use std::path::PathBuf;
use std::sync::{PoisonError, RwLock};

static PATHS: RwLock<Vec<PathBuf>> = RwLock::new(vec![]);

/// Tells where packages may lie that bring libraries (`nvidia-cudnn-cu13` and the like). Those are looked at when a library is
/// opened.
pub fn look_in(paths: Vec<PathBuf>) {
    *PATHS.write().unwrap_or_else(PoisonError::into_inner) = paths;
}

/// What [`look_in`] was told.
pub fn paths() -> Vec<PathBuf> {
    PATHS.read().unwrap_or_else(PoisonError::into_inner).clone()
}

/// What all of NVIDIA's packages lie in.
pub const NVIDIA: &str = "nvidia";

/// The folders of libraries in NVIDIA's packages: `nvidia/cudnn/lib`, `nvidia/cu13/lib`, `nvidia/cuda_nvrtc/lib`, ...
pub fn nvidia() -> Vec<PathBuf> {
    let inside = |path: &PathBuf| {
        let entries = std::fs::read_dir(path.join(NVIDIA)).into_iter().flatten().flatten();
        let mut folders: Vec<_> = entries.map(|entry| entry.path().join("lib")).collect();
        folders.sort();
        folders
    };
    paths().iter().flat_map(inside).collect()
}
