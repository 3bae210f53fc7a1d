//! Kernels from source: compiled for the GPU at hand, kept in the user's cache directory, loaded once per process.

use super::device::{Device, Function, HOPPER, Module};
use super::library::nvrtc::nvrtc;
use crate::error::Result;
use crate::network::plugin::Source;
use crate::providers::common::kept::{Kept, Key};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What every kernel may use.
const TYPES: &str = include_str!("../../../kernels/types.cuh");

/// Where machine code is kept.
const CUBINS: Kept = Kept {
    folder: "cubins",
    limit: 1 << 30,
};

/// What each kernel of a source begins with, and what it calls first if it may be started ahead.
const ENTRY: &str = "extern \"C\" __global__";
const WAITS: &str = "after_previous();";

/// Whether each entry point of a source waits for the kernel in front of it, so that they may be launched as its dependents: in
/// its own body, or in a function that it calls, of which there is one for each entry without.
fn each_entry_waits(source: &str) -> bool {
    let waits = |text: &str| text.matches(WAITS).count();
    let mut parts = source.split(ENTRY);
    let called = parts.next().map_or(0, waits);
    let entries: Vec<usize> = parts.map(waits).collect();
    let without = entries.iter().filter(|&&waits| waits == 0).count();
    !entries.is_empty() && entries.iter().all(|&waits| waits <= 1) && called == without
}

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
        let waits = self.device.capability >= HOPPER && each_entry_waits(&source);
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
        let key = Key::default().add(version).add(options.join(" ")).add(source).text();
        let slot = lock(&self.loaded).entry(key.clone()).or_default().clone();
        // Held while it compiles: who wants the same module waits for it, and does not compile it too. Others go on:
        // NVRTC and the driver take calls from several threads at once.
        let mut slot = lock(&slot);
        if let Some(module) = &*slot {
            return Ok(module.clone());
        }
        let code = match CUBINS.read(&key).ok().flatten() {
            Some(code) => code,
            None => {
                let code = nvrtc()?.compile(source, &options)?;
                // Without a cache the next process compiles again, and that is all.
                let _ = CUBINS.write(&key, &code);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_entry_that_does_not_wait_is_enough_to_launch_none_early() {
        let entry = |name: &str, body: &str| format!("{ENTRY} void {name}() {{ {body} }}\n");
        let (waits, does_not) = (entry("a", WAITS), entry("b", "x();"));
        let called = format!("__device__ void x() {{ {WAITS} }}\n");
        assert!(each_entry_waits(&format!("{TYPES}{waits}{waits}")));
        assert!(each_entry_waits(&format!("{TYPES}{called}{does_not}")));
        assert!(!each_entry_waits(&format!("{TYPES}{waits}{does_not}")));
        let twice = entry("c", &format!("{WAITS} {WAITS}"));
        assert!(!each_entry_waits(&format!("{TYPES}{twice}{does_not}")));
        assert!(!each_entry_waits(TYPES));
    }
}
