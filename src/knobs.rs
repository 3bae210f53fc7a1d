//! Knobs: every environment variable that Neurenix reads, typed and documented. `neurenix info --knobs` lists them.

use crate::error::{Error, Result};
use std::path::PathBuf;

/// One environment variable.
pub struct Knob<T> {
    /// Its name.
    pub name: &'static str,
    /// What it is when it is not set, as one would write it.
    pub default: &'static str,
    /// What it does, and what may be written.
    pub doc: &'static str,
    parse: fn(&str) -> Option<T>,
}

impl<T> Knob<T> {
    const fn new(name: &'static str, default: &'static str, parse: fn(&str) -> Option<T>, doc: &'static str) -> Self {
        Self {
            name,
            default,
            doc,
            parse,
        }
    }

    /// The value now; the default where it is not set or empty.
    ///
    /// # Errors
    /// If what is written there can't be read.
    pub fn get(&self) -> Result<T> {
        let text = std::env::var(self.name).unwrap_or_default();
        self.read(if text.trim().is_empty() { self.default } else { &text })
    }

    fn read(&self, text: &str) -> Result<T> {
        (self.parse)(text.trim()).ok_or_else(|| {
            Error::invalid(format!("{} can't be read", self.name))
                .expected(self.doc)
                .got(text)
        })
    }
}

/// What is told about a knob of any type.
pub trait Describe: Sync {
    /// Name, default, doc.
    fn describe(&self) -> [&'static str; 3];
    /// What is written in the environment, and whether it can be read.
    ///
    /// # Errors
    /// As [`Knob::get`].
    fn current(&self) -> Result<Option<String>>;
}

impl<T> Describe for Knob<T> {
    fn describe(&self) -> [&'static str; 3] {
        [self.name, self.default, self.doc]
    }

    fn current(&self) -> Result<Option<String>> {
        self.get()?;
        Ok(std::env::var(self.name).ok().filter(|text| !text.trim().is_empty()))
    }
}

/// Where a network is printed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DumpPoint {
    /// Before the pass, or after it.
    pub before: bool,
    /// The pass; `*` is each one.
    pub pass: String,
    /// The file that the text is appended to; `None` is stderr.
    pub path: Option<String>,
}

/// On which side of a buffer the page lies that no access may reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Placement {
    Behind,
    Before,
}

/// How much is said on stderr.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs)]
pub enum LogLevel {
    Off,
    Error,
    Warning,
    Info,
    Debug,
}

/// `NEURENIX_DUMP`.
pub static DUMP: Knob<Vec<DumpPoint>> = Knob::new(
    "NEURENIX_DUMP",
    "",
    dump_points,
    "prints the network around passes: after:PASS or before:PASS, PASS may be *, =FILE behind it appends to a file \
     instead of stderr; several with commas",
);
/// `NEURENIX_VERIFY`.
pub static VERIFY: Knob<bool> = Knob::new(
    "NEURENIX_VERIFY",
    "0",
    flag,
    "1 checks the network after every pass, and the memory of every small program, as debug builds always do",
);
/// `NEURENIX_DISABLE`.
pub static DISABLED: Knob<Vec<String>> = Knob::new(
    "NEURENIX_DISABLE",
    "",
    |text| if text.is_empty() { Some(vec![]) } else { words(text) },
    "for measuring what they bring, what builds and calls do without: names of passes, fusion (kernels of several layers), \
     arena (the same memory for tensors that are not needed at once), graphs (launches that a device repeats), with commas \
     between; engines and timings are not cached then",
);
/// What [`DISABLED`] may name besides passes.
pub const FEATURES: [&str; 3] = ["fusion", "arena", "graphs"];
/// `NEURENIX_THREADS`.
pub static THREADS: Knob<Option<usize>> = Knob::new(
    "NEURENIX_THREADS",
    "auto",
    |text| match text {
        "auto" => Some(None),
        text => text.parse().ok().filter(|&n| n > 0).map(Some),
    },
    "CPU threads of this process: a number above 0, or auto (OMP_NUM_THREADS, then the cgroup's share of the cores)",
);
/// `NEURENIX_PROVIDERS`.
pub static PROVIDERS: Knob<Vec<String>> = Knob::new(
    "NEURENIX_PROVIDERS",
    "tensorrt,cuda,cpu",
    words,
    "the providers that may be used, preferred one first, with commas between",
);
/// `NEURENIX_CACHE`.
pub static CACHE: Knob<bool> = Knob::new(
    "NEURENIX_CACHE",
    "1",
    flag,
    "0 neither reads nor writes engines and timings in the cache directory",
);
/// `NEURENIX_CACHE_DIR`.
pub static CACHE_DIR: Knob<Option<String>> = Knob::new(
    "NEURENIX_CACHE_DIR",
    "",
    |text| Some(Some(text.to_string()).filter(|t| !t.is_empty())),
    "the cache directory; without it $XDG_CACHE_HOME/neurenix or ~/.cache/neurenix",
);
/// `NEURENIX_CUDA_LIBRARIES`.
pub static CUDA_LIBRARIES: Knob<Vec<String>> = Knob::new(
    "NEURENIX_CUDA_LIBRARIES",
    "",
    |text| {
        Some(
            text.split(':')
                .filter(|folder| !folder.is_empty())
                .map(str::to_string)
                .collect(),
        )
    },
    "folders with NVIDIA's libraries (NVRTC, cuBLASLt, cuDNN), with colons between; they come before those of packages and \
     the system's",
);
/// `NEURENIX_TENSORRT_LIB`.
pub static TENSORRT_LIB: Knob<Option<String>> = Knob::new(
    "NEURENIX_TENSORRT_LIB",
    "",
    |text| Some(Some(text.to_string()).filter(|t| !t.is_empty())),
    "NVIDIA's TensorRT library (libnvinfer.so.* or libtensorrt_rtx.so.*), a file or the folder that holds it; without it, \
     what the process has open, packages and the system's folders are looked through",
);
/// `NEURENIX_LOG`.
pub static LOG: Knob<LogLevel> = Knob::new(
    "NEURENIX_LOG",
    "warning",
    |text| {
        Some(match text.to_lowercase().as_str() {
            "off" => LogLevel::Off,
            "error" => LogLevel::Error,
            "warning" => LogLevel::Warning,
            "info" => LogLevel::Info,
            "debug" => LogLevel::Debug,
            _ => return None,
        })
    },
    "how much is said through Python's logger \"neurenix\", on stderr where the program sets up no logging: off, error, \
     warning, info or debug",
);

/// `NEURENIX_GUARD_PAGES`.
pub static GUARD_PAGES: Knob<Option<Placement>> = Knob::new(
    "NEURENIX_GUARD_PAGES",
    "off",
    |text| {
        Some(match text {
            "off" => None,
            "behind" => Some(Placement::Behind),
            "before" => Some(Placement::Before),
            _ => return None,
        })
    },
    "for finding accesses outside of buffers: behind or before puts a page that nobody may touch on that side of every \
     buffer of the processor, copies of the caller's arrays among them; slow, and takes much memory; off",
);

/// Every knob.
pub static KNOBS: &[&dyn Describe] = &[
    &DUMP,
    &VERIFY,
    &DISABLED,
    &THREADS,
    &PROVIDERS,
    &CACHE,
    &CACHE_DIR,
    &CUDA_LIBRARIES,
    &TENSORRT_LIB,
    &LOG,
    &GUARD_PAGES,
];

/// Whether [`DISABLED`] names something.
///
/// # Errors
/// If the knob can't be read.
pub fn is_disabled(name: &str) -> Result<bool> {
    Ok(DISABLED.get()?.iter().any(|disabled| disabled == name))
}

/// Where caches are kept; `None` where they are switched off.
///
/// # Errors
/// If a knob can't be read.
pub fn cache_dir() -> Result<Option<PathBuf>> {
    if !CACHE.get()? || !DISABLED.get()?.is_empty() {
        return Ok(None);
    }
    if let Some(path) = CACHE_DIR.get()? {
        return Ok(Some(path.into()));
    }
    let set = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    let base = set("XDG_CACHE_HOME").or_else(|| Some(set("HOME")?.join(".cache")));
    Ok(base.map(|path| path.join("neurenix")))
}

fn flag(text: &str) -> Option<bool> {
    match text {
        "1" | "true" | "on" | "yes" => Some(true),
        "0" | "false" | "off" | "no" => Some(false),
        _ => None,
    }
}

fn words(text: &str) -> Option<Vec<String>> {
    let words = text.split(',').map(|word| word.trim().to_string());
    let words: Vec<_> = words.filter(|word| !word.is_empty()).collect();
    (!words.is_empty()).then_some(words)
}

fn dump_points(text: &str) -> Option<Vec<DumpPoint>> {
    let point = |word: &str| {
        let (place, path) = word.split_once('=').map_or((word, None), |(p, f)| (p, Some(f.into())));
        let (when, pass) = place.split_once(':')?;
        let before = match when {
            "before" => true,
            "after" => false,
            _ => return None,
        };
        let pass = Some(pass.to_string()).filter(|p| !p.is_empty())?;
        Some(DumpPoint { before, pass, path })
    };
    let words = text.split(',').map(str::trim).filter(|word| !word.is_empty());
    words.map(point).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_default_can_be_read_and_names_are_unique() {
        let mut names: Vec<_> = KNOBS.iter().map(|k| k.describe()[0]).collect();
        assert!(names.iter().all(|n| n.starts_with("NEURENIX_")));
        names.sort();
        names.dedup();
        assert_eq!(names.len(), KNOBS.len());
        DUMP.read(DUMP.default).unwrap();
        VERIFY.read(VERIFY.default).unwrap();
        DISABLED.read(DISABLED.default).unwrap();
        THREADS.read(THREADS.default).unwrap();
        PROVIDERS.read(PROVIDERS.default).unwrap();
        CACHE.read(CACHE.default).unwrap();
        CACHE_DIR.read(CACHE_DIR.default).unwrap();
        LOG.read(LOG.default).unwrap();
        GUARD_PAGES.read(GUARD_PAGES.default).unwrap();
    }

    #[test]
    fn dump_points_name_pass_and_file() {
        let points = DUMP.read("after:simplify, before:*=/tmp/x").unwrap();
        let names: Vec<_> = points
            .iter()
            .map(|p| (p.before, p.pass.as_str(), p.path.as_deref()))
            .collect();
        assert_eq!(names, [(false, "simplify", None), (true, "*", Some("/tmp/x"))]);
    }

    #[test]
    fn what_makes_no_sense_is_refused_by_name() {
        let e = THREADS.read("0").unwrap_err().to_string();
        assert!(e.contains("NEURENIX_THREADS") && e.contains("got: 0"), "{e}");
        assert!(DUMP.read("simplify").is_err() && VERIFY.read("maybe").is_err());
    }
}
