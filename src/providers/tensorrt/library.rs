//! NVIDIA's library: where it is looked for, and the one that was found.
//!
//! Its version is compared with the headers of this build before any of its objects is touched: a library of another shape
//! would crash.

use super::bridge::ffi;
use crate::error::{Error, Result};
use crate::knobs;
use crate::providers::common::packages;
use cxx::UniquePtr;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// What the libraries are called, the preferred one first.
pub const NAMES: [&str; 4] = [
    "libnvinfer.so.11",
    "libnvinfer.so.10",
    "libnvinfer.so.8",
    "libtensorrt_rtx.so.1",
];
/// The packages of PyPI that bring them, by the names of their folders.
const PACKAGES: [&str; 2] = ["tensorrt_libs", "tensorrt_rtx_libs"];
/// What pip is asked for to bring TensorRT, as in the extras of pyproject.toml.
pub const TENSORRT: &str = "tensorrt-cu13>=11.4";
/// What pip is asked for to bring TensorRT-RTX.
pub const TENSORRT_RTX: &str = "tensorrt-rtx-cu13-libs>=1.7";

/// An open TensorRT library.
pub struct Library {
    raw: UniquePtr<ffi::Library>,
    /// What was asked of it once, and its refusal.
    answers: Mutex<BTreeMap<&'static str, Option<String>>>,
}

/// One place that was looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attempt {
    /// A file, or a name for the system to find.
    pub place: String,
    /// What was wrong with it.
    pub reason: String,
}

/// What a search came to: the library or none, and every place before it.
pub type Search = (Option<Arc<Library>>, Vec<Attempt>);

impl Library {
    fn of(raw: UniquePtr<ffi::Library>) -> Self {
        Self {
            raw,
            answers: Mutex::default(),
        }
    }

    /// Opens a file, or a name that the system finds.
    ///
    /// # Errors
    /// If that is no TensorRT of a version that this build has headers of.
    pub fn open(place: &str) -> Result<Self> {
        let open = ffi::open_library(place, false).map_err(|e| Error::device(e.what()).got(place))?;
        Ok(Self::of(open))
    }

    /// The library of this process, looked for once more as long as there is none.
    ///
    /// # Errors
    /// If there is none that this build can drive; names every place that was looked at.
    pub fn find() -> Result<Arc<Self>> {
        let (found, tried) = Self::search()?;
        found.ok_or_else(|| {
            let lines: Vec<_> = tried.iter().map(|a| format!("{}: {}", a.place, a.reason)).collect();
            let headers = ffi::flavour_names().join(", ");
            Error::device(match headers.as_str() {
                "" => format!(
                    "this build has no TensorRT layer ({})",
                    env!("NEURENIX_TENSORRT_MISSING")
                ),
                _ => "no TensorRT library that Neurenix can drive".into(),
            })
            .expected(format!("a library for the headers {headers}"))
            .got(lines.join("\n       "))
            .hint(format!(
                "pip install \"{TENSORRT}\", or pip install \"{TENSORRT_RTX}\", or name the file in {}",
                knobs::TENSORRT_LIB.name
            ))
        })
    }

    /// The library of this process, if there is one, and the places that were looked at before it.
    ///
    /// # Errors
    /// If a knob can't be read.
    pub fn search() -> Result<Search> {
        static FOUND: Mutex<Option<Search>> = Mutex::new(None);
        let mut kept = FOUND.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((library @ Some(_), tried)) = &*kept {
            return Ok((library.clone(), tried.clone()));
        }
        let (found, tried) = search_in(candidate_files()?);
        let found = (found.map(Arc::new), tried);
        *kept = Some(found.clone());
        Ok(found)
    }

    /// The file that it lies in.
    pub fn path(&self) -> String {
        self.raw.path()
    }

    /// Its version, as one writes it: 11.4.0, or 1.7.1 of TensorRT-RTX.
    pub fn version(&self) -> String {
        let number = self.raw.version();
        let (major, rest) = match number {
            ..10_000 => (number / 1000, number % 1000),
            _ => (number / 10_000, number % 10_000),
        };
        format!("{major}.{}.{}", rest / 100, rest % 100)
    }

    /// Whether it is TensorRT-RTX.
    pub fn is_rtx(&self) -> bool {
        self.raw.rtx()
    }

    /// What a question comes to, asked once.
    pub fn remember(&self, question: &'static str, ask: impl FnOnce() -> Option<String>) -> Option<String> {
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        answers.entry(question).or_insert_with(ask).clone()
    }

    /// Whether networks of it take plugins of the third generation.
    pub fn takes_plugins(&self) -> bool {
        !self.is_rtx() && self.raw.version() >= 10_000
    }

    /// The headers that describe it: `rtx_1_7`.
    pub fn flavour(&self) -> &str {
        self.raw.flavour()
    }

    pub(super) fn raw(&self) -> &ffi::Library {
        &self.raw
    }
}

/// A file that may be the library; `opened`: only if it is open in this process already.
#[derive(Debug, PartialEq)]
struct LibraryFile {
    name: String,
    opened: bool,
}

impl LibraryFile {
    fn new(name: impl Into<String>, opened: bool) -> Self {
        let name = name.into();
        Self { name, opened }
    }
}

fn search_in(files: Vec<LibraryFile>) -> (Option<Library>, Vec<Attempt>) {
    let mut tried = vec![];
    for LibraryFile { name, opened } in files {
        match ffi::open_library(&name, opened) {
            Ok(library) => return (Some(Library::of(library)), tried),
            Err(e) => tried.push(Attempt {
                place: name,
                reason: e.what().into(),
            }),
        }
    }
    (None, tried)
}

/// All files in the order in which they are tried. If the user names one, it is the only one.
fn candidate_files() -> Result<Vec<LibraryFile>> {
    if let Some(named) = knobs::TENSORRT_LIB.get()? {
        let folder = Path::new(&named);
        return Ok(match folder.is_dir() {
            true => files_in(folder).collect(),
            false => vec![LibraryFile::new(named, false)],
        });
    }
    let opened = NAMES.iter().map(|name| LibraryFile::new(*name, true));
    let roots = packages::paths();
    let brought = roots.iter().flat_map(|root| PACKAGES.map(|package| root.join(package)));
    let folders: Vec<PathBuf> = brought.chain(packages::nvidia()).collect();
    let there = folders.iter().flat_map(|folder| files_in(folder));
    let there = there.filter(|file| Path::new(&file.name).exists());
    let system = NAMES.iter().map(|name| LibraryFile::new(*name, false));
    Ok(opened.chain(there).chain(system).collect())
}

fn files_in(folder: &Path) -> impl Iterator<Item = LibraryFile> {
    NAMES
        .map(|name| LibraryFile::new(folder.join(name).to_string_lossy(), false))
        .into_iter()
}

/// The headers that this build was compiled with: `enterprise_11_4`, `rtx_1_7`.
pub fn flavours() -> Vec<String> {
    ffi::flavour_names()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hints_install_what_the_extras_install() {
        let extras = include_str!("../../../pyproject.toml");
        for requirement in [TENSORRT, TENSORRT_RTX] {
            assert!(extras.contains(&format!("[\"{requirement}\"]")), "{requirement}");
        }
    }

    #[test]
    fn what_is_no_library_is_told_place_by_place() {
        let missing = LibraryFile::new("/nowhere/libnvinfer.so.11", false);
        let other = LibraryFile::new("libc.so.6", false);
        let (found, tried) = search_in(vec![LibraryFile::new(NAMES[0], true), missing, other]);
        assert!(found.is_none());
        let reasons: Vec<_> = tried.iter().map(|attempt| attempt.reason.as_str()).collect();
        assert_eq!(reasons[0], "not open in this process");
        assert!(reasons[1].contains("/nowhere/libnvinfer.so.11"), "{}", reasons[1]);
        assert!(reasons[2].contains("getInferLibVersion"), "{}", reasons[2]);
    }

    #[test]
    fn this_build_has_headers_of_both_families() {
        let names = flavours();
        let both = ["enterprise_", "rtx_"].map(|family| names.iter().any(|name| name.starts_with(family)));
        assert_eq!(both, [true; 2], "{names:?}; {}", env!("NEURENIX_TENSORRT_MISSING"));
    }
}
