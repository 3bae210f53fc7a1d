//! How engines are opened: on which providers, with which options.

use super::arguments::{Versioned, optional, text};
use super::engine::OpenEngine;
use super::log::{Level, tell};
use crate::engine::Saved;
use crate::engine::config::BuilderConfig;
use crate::error::{Error, Result};
use crate::knobs;
use crate::plan::Provider;
use crate::providers::{self, cuda};
use std::ffi::c_char;
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// `nrx_options`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct RawOptions {
    struct_size: usize,
    threads: u32,
    device: u32,
    providers: *const c_char,
    timing_cache: *const c_char,
}

// SAFETY: `repr(C)`, the size first, and zeros are numbers and null pointers.
unsafe impl Versioned for RawOptions {
    const NAME: &str = "nrx_options";
}

/// The options of an opening.
#[derive(Default)]
pub struct Options {
    threads: Option<usize>,
    device: u32,
    providers: Option<Vec<String>>,
    /// `None`: the one in the cache directory; an empty path: none.
    timing_cache: Option<PathBuf>,
}

/// More threads are a mistake.
const MOST_THREADS: u32 = 1 << 12;

impl Options {
    /// Reads what C's side gives; null stands for the defaults.
    ///
    /// # Safety
    /// The address is null or that of a structure as large as it says, whose texts are null or end with NUL.
    ///
    /// # Errors
    /// If something in it makes no sense.
    pub unsafe fn read(address: *const RawOptions) -> Result<Self> {
        if address.is_null() {
            return Ok(Self::default());
        }
        // SAFETY: as the caller says.
        let raw = unsafe { super::arguments::read(address) }?;
        if raw.threads > MOST_THREADS {
            return Err(Error::invalid("the option `threads` makes no sense")
                .expected(format!("0 to {MOST_THREADS}"))
                .got(raw.threads.to_string()));
        }
        let given = |address: *const c_char, name| match address.is_null() {
            true => Ok(None),
            // SAFETY: as the caller says.
            false => unsafe { text(address, name) }.map(Some),
        };
        let words = given(raw.providers, "providers")?.map(|words| {
            let words = words.split(',').map(str::trim).filter(|word| !word.is_empty());
            words.map(String::from).collect::<Vec<_>>()
        });
        if words.as_ref().is_some_and(Vec::is_empty) {
            return Err(Error::invalid("the option `providers` names none")
                .expected("tensorrt, cuda, cpu, with commas between")
                .hint("NULL stands for all that can run here"));
        }
        // SAFETY: as the caller says.
        let cache = unsafe { optional(raw.timing_cache) };
        Ok(Self {
            threads: (raw.threads > 0).then_some(raw.threads as usize),
            device: raw.device,
            providers: words,
            timing_cache: cache.map(|path| PathBuf::from(path.to_string_lossy().as_ref())),
        })
    }

    /// Plans a file that was read, on the providers that can run here.
    ///
    /// # Errors
    /// If none can, or as [`Saved::plan`].
    pub fn open(self, saved: Saved) -> Result<OpenEngine> {
        let chosen = self.choose()?;
        let file = saved.config();
        let config = BuilderConfig {
            threads: self.threads.unwrap_or(file.threads),
            timing_cache: self.timing_cache()?,
            strict: chosen.alone,
            ..file
        };
        let engine = saved.plan(config, &chosen.providers)?;
        for note in &engine.notes {
            tell(Level::Warning, note);
        }
        Ok(OpenEngine::new(engine, &chosen.notes))
    }

    fn timing_cache(&self) -> Result<Option<PathBuf>> {
        if let Some(path) = &self.timing_cache {
            return Ok(Some(path.clone()).filter(|path| !path.as_os_str().is_empty()));
        }
        let made = |folder: &PathBuf| {
            let folder: &Path = folder;
            DirBuilder::new().recursive(true).mode(0o700).create(folder).is_ok()
        };
        // In a home that can't be written to, times are measured anew.
        let folder = knobs::cache_dir()?.filter(made);
        Ok(folder.map(|folder| folder.join("timing.cache")))
    }

    fn choose(&self) -> Result<Chosen> {
        let wanted = match &self.providers {
            Some(words) => words.clone(),
            None => knobs::PROVIDERS.get()?,
        };
        let (mut found, mut refused): (Vec<Arc<dyn Provider>>, Vec<String>) = (vec![], vec![]);
        for name in &wanted {
            match providers::find(name, self.device) {
                Ok(provider) => found.push(provider),
                Err(error) => refused.push(format!("not on {name}: {}", error.message())),
            }
        }
        let Some(first) = found.first().map(|provider| provider.name()) else {
            return Err(Error::device("no provider can run here")
                .expected(wanted.join(", "))
                .got(refused.join("; "))
                .hint("allow the cpu provider, which runs everywhere"));
        };
        let mut notes = vec![];
        if !refused.is_empty() {
            let note = format!("running on {first}; {}", refused.join(", "));
            let asked = self.providers.is_some() && wanted.first().is_some_and(|name| name != first);
            let lost = asked || (first == "cpu" && has_gpu());
            tell(if lost { Level::Warning } else { Level::Info }, &note);
            notes.push(note);
        }
        // Arrays come and go in the processor's memory: its provider is there even where it may run no layer.
        let alone = !wanted.iter().any(|name| name == "cpu");
        if alone {
            found.push(providers::find("cpu", self.device)?);
        }
        Ok(Chosen {
            providers: found,
            notes,
            alone,
        })
    }
}

/// What an engine runs on.
struct Chosen {
    providers: Vec<Arc<dyn Provider>>,
    /// What could not be had.
    notes: Vec<String>,
    /// Whether the processor may run no layer.
    alone: bool,
}

/// Whether this machine has a GPU of NVIDIA's, be it one that nothing here can use.
fn has_gpu() -> bool {
    cuda::device::count().is_ok_and(|count| count > 0) || Path::new("/dev/nvidiactl").exists()
}
