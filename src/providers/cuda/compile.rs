//! Kernels from source: compiled for the GPU at hand, kept in the user's cache directory, loaded once per process.

use super::device::{Arguments, Device, Function, Grid, HOPPER, Module};
use super::library::driver::Handle;
use super::library::nvrtc::nvrtc;
use crate::error::Result;
use crate::network::plugin::Source;
use crate::plan::{BuildJob, Instance, Prepared};
use crate::providers::common::kept::{Kept, Key};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

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
pub fn each_entry_waits(source: &str) -> bool {
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
    /// The entry points that somebody holds, by the digest, the name, and the bytes of shared memory.
    entries: Mutex<HashMap<(String, String, usize), Weak<Entry>>>,
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
            entries: Mutex::default(),
        }
    }

    /// An entry point of a source, which may use so many bytes of shared memory that the launch asks for.
    pub fn entry(self: &Arc<Self>, source: &str, name: &str, shared_bytes: usize) -> EntryPoint {
        let source = format!("{TYPES}\n{source}");
        let waits = self.device.capability >= HOPPER && each_entry_waits(&source);
        self.entry_of(source, self.options(), waits, (name, shared_bytes))
    }

    /// That of a source that is not ours: it sees nothing of ours, and is started when what is before it is done.
    pub fn brought(self: &Arc<Self>, source: &Source) -> EntryPoint {
        let mut options = self.options();
        options.extend(source.include_paths.iter().map(|path| format!("--include-path={path}")));
        self.entry_of(
            source.code.clone(),
            options,
            false,
            (&source.entry, source.shared_bytes),
        )
    }

    fn entry_of(
        self: &Arc<Self>,
        source: String,
        options: Vec<String>,
        waits: bool,
        (name, shared_bytes): (&str, usize),
    ) -> EntryPoint {
        // Without the library nothing compiles, and the key is of no use.
        let version = nvrtc().map_or(String::new(), |nvrtc| nvrtc.version().to_string());
        let key = Key::default().add(version).add(options.join(" ")).add(&source).text();
        let mut entries = lock(&self.entries);
        let held = entries.entry((key.clone(), name.into(), shared_bytes)).or_default();
        if let Some(entry) = held.upgrade() {
            return EntryPoint(entry);
        }
        let entry = Arc::new(Entry {
            compiler: self.clone(),
            key,
            source: Mutex::new(source),
            options,
            waits,
            name: name.into(),
            shared_bytes,
            function: OnceLock::new(),
        });
        *held = Arc::downgrade(&entry);
        EntryPoint(entry)
    }

    fn module(&self, key: &str, source: &str, options: &[String], waits: bool) -> Result<Arc<Module>> {
        let slot = lock(&self.loaded).entry(key.into()).or_default().clone();
        // Held while it compiles: who wants the same module waits for it, and does not compile it too. Others go on:
        // NVRTC and the driver take calls from several threads at once.
        let mut slot = lock(&slot);
        if let Some(module) = &*slot {
            return Ok(module.clone());
        }
        let code = match CUBINS.read(key).ok().flatten() {
            Some(code) => code,
            None => {
                let code = nvrtc()?.compile(source, options)?;
                // Without a cache the next process compiles again, and that is all.
                let _ = CUBINS.write(key, &code);
                code
            }
        };
        let module = Arc::new(self.device.load(&code, waits)?);
        *slot = Some(module.clone());
        Ok(module)
    }

    fn is_loaded(&self, key: &str) -> bool {
        let slot = lock(&self.loaded).get(key).cloned();
        // One that is locked is being compiled.
        slot.is_some_and(|slot| slot.try_lock().is_ok_and(|module| module.is_some()))
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

/// A kernel of a source, which is compiled by a job, or when it is first needed.
#[derive(Clone)]
pub struct EntryPoint(Arc<Entry>);

struct Entry {
    compiler: Arc<Compiler>,
    /// The digest of what it is compiled from.
    key: String,
    /// Let go of when it is compiled.
    source: Mutex<String>,
    options: Vec<String>,
    waits: bool,
    name: String,
    shared_bytes: usize,
    function: OnceLock<Function>,
}

impl EntryPoint {
    /// The GPU that it runs on.
    pub fn device(&self) -> &Device {
        &self.0.compiler.device
    }

    /// The kernel, compiled if it is not yet.
    ///
    /// # Errors
    /// If it does not compile, or the GPU refuses it.
    pub fn compile(&self) -> Result<&Function> {
        let Entry {
            compiler,
            key,
            source,
            options,
            waits,
            name,
            shared_bytes,
            function,
        } = &*self.0;
        if let Some(compiled) = function.get() {
            return Ok(compiled);
        }
        let mut source = lock(source);
        if let Some(compiled) = function.get() {
            return Ok(compiled);
        }
        let compiled = compiler
            .module(key, &source, options, *waits)?
            .function(name, *shared_bytes)?;
        *source = String::new();
        Ok(function.get_or_init(|| compiled))
    }

    /// What compiles it, unless that was done in this process.
    fn job(&self) -> Option<BuildJob> {
        let entry = self.clone();
        // What went wrong is found again by who needs it.
        let job = move || _ = entry.compile();
        (!self.0.compiler.is_loaded(&self.0.key)).then(|| BuildJob::compilation(self.0.key.clone(), job))
    }

    /// As [`Function::launch`].
    ///
    /// # Safety
    /// As there.
    ///
    /// # Errors
    /// As there, and those of the compiler.
    pub unsafe fn launch(&self, grid: Grid, arguments: &Arguments, stream: Handle) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.compile()?.launch(grid, arguments, stream) }
    }
}

/// An instance that launches these kernels, which are compiled before.
pub fn compiled(entries: impl IntoIterator<Item = EntryPoint>, instance: Instance) -> Prepared {
    compiled_then(entries, || Ok(instance))
}

/// What `make` makes when these kernels are compiled.
pub fn compiled_then(
    entries: impl IntoIterator<Item = EntryPoint>,
    make: impl FnOnce() -> Result<Instance> + Send + 'static,
) -> Prepared {
    let entries: Vec<EntryPoint> = entries.into_iter().collect();
    let jobs = entries.iter().filter_map(EntryPoint::job).collect();
    Prepared::deferred(jobs, move || {
        entries.iter().try_for_each(|entry| entry.compile().map(|_| ()))?;
        make()
    })
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
