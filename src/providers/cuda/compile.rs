//! Kernels from source: compiled for the GPU at hand, kept in the user's cache directory, loaded once per process.

use super::device::{Device, Function, HOPPER, Module};
use super::library::nvrtc::nvrtc;
use crate::error::Result;
use crate::knobs;
use crate::network::plugin::Source;
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::fs;
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What every kernel may use.
const TYPES: &str = include_str!("../../../kernels/types.cuh");

/// What each kernel of a source begins with, and what it calls first if it may be started ahead.
const ENTRY: &str = "extern \"C\" __global__";
const WAITS: &str = "after_previous();";

/// The modules of a GPU that are loaded, by the digest of what they were compiled from.
pub struct Compiler {
    device: Arc<Device>,
    loaded: Mutex<HashMap<String, Slot>>,
}

/// A module; nothing if nobody compiled it yet, or that failed.
type Slot = Arc<Mutex<Option<Arc<Module>>>>;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic elsewhere leaves each of them whole.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Compiler {
    /// A compiler for a GPU.
    pub fn new(device: Arc<Device>) -> Self {
        Self {
            device,
            loaded: Mutex::default(),
        }
    }

    /// A kernel out of a source, which may use so many bytes of shared memory that the launch asks for.
    ///
    /// # Errors
    /// If it does not compile, or the GPU refuses it.
    pub fn function(&self, source: &str, name: &str, shared_bytes: usize) -> Result<Function> {
        let source = format!("{TYPES}\n{source}");
        let waits = self.device.capability >= HOPPER && source.matches(ENTRY).count() == source.matches(WAITS).count();
        self.module(&source, self.options(), waits)?
            .function(name, shared_bytes)
    }

    /// A kernel out of a source that is not ours: it sees nothing of ours, and is started when what is before it is done.
    ///
    /// # Errors
    /// As [`Compiler::function`].
    pub fn brought(&self, source: &Source) -> Result<Function> {
        let mut options = self.options();
        options.extend(source.include_paths.iter().map(|path| format!("--include-path={path}")));
        self.module(&source.code, options, false)?
            .function(&source.entry, source.shared_bytes)
    }

    fn module(&self, source: &str, options: Vec<String>, waits: bool) -> Result<Arc<Module>> {
        let version = nvrtc()?.version();
        let key = digest(&[&version, &options.join(" "), source]);
        let slot = lock(&self.loaded).entry(key.clone()).or_default().clone();
        // Held while it compiles: who wants the same module waits for it, and does not compile it too. Others go on:
        // NVRTC and the driver take calls from several threads at once.
        let mut slot = lock(&slot);
        if let Some(module) = &*slot {
            return Ok(module.clone());
        }
        let code = match read(&key) {
            Some(code) => code,
            None => {
                let code = nvrtc()?.compile(source, &options)?;
                // Without a cache the next process compiles again, and that is all.
                let _ = write(&key, &code);
                code
            }
        };
        let module = Arc::new(self.device.load(&code, waits)?);
        *slot = Some(module.clone());
        Ok(module)
    }

    fn options(&self) -> Vec<String> {
        let (major, minor) = self.device.capability;
        // From Hopper on, code for just this GPU may use what later ones lack.
        let own = if major >= 9 { "a" } else { "" };
        vec![
            format!("--gpu-architecture=sm_{major}{minor}{own}"),
            "--std=c++17".into(),
            "--extra-device-vectorization".into(),
        ]
    }
}

fn digest(parts: &[&str]) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part.as_bytes());
    }
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Where machine code is kept; only its owner may write there, since it is run. `None` where nothing is to be kept.
fn folder() -> Option<PathBuf> {
    let folder = knobs::cache_dir().ok()??.join("cubins");
    fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder).ok()?;
    Some(folder)
}

/// Code that was kept under a key; its own digest stands in front, so that a torn file is no code.
fn read(key: &str) -> Option<Vec<u8>> {
    let bytes = fs::read(folder()?.join(key)).ok()?;
    let (sum, code) = bytes.split_at_checked(32)?;
    (Sha256::digest(code).as_slice() == sum).then(|| code.to_vec())
}

fn write(key: &str, code: &[u8]) -> std::io::Result<()> {
    let Some(folder) = folder() else { return Ok(()) };
    // Renamed into place: another process sees all of it or nothing.
    let part = folder.join(format!("{key}.{}", std::process::id()));
    let mut file = fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&part)?;
    file.write_all(&Sha256::digest(code))?;
    file.write_all(code)?;
    fs::rename(part, folder.join(key))
}
