//! The arrows between folders: the model flows down the list, and a folder uses only those above it.

use std::fs;
use std::path::{Path, PathBuf};

/// From the top; `providers` of one kind do not know each other, and `bindings` and `capi` are used by nobody.
const ORDER: [&str; 16] = [
    "error",
    "interrupt",
    "shutdown",
    "nearest",
    "knobs",
    "replace",
    "threads",
    "network",
    "passes",
    "precision",
    "device",
    "plan",
    "providers",
    "runtime",
    "engine",
    "context",
];

/// What a folder does not use although it stands above it.
const FORBIDDEN: [(&str, &str); 7] = [
    ("device", "passes"),
    ("plan", "passes"),
    ("providers", "passes"),
    ("runtime", "passes"),
    ("runtime", "providers"),
    ("engine", "providers"),
    ("context", "providers"),
];

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|e| e == "rs") {
            found.push(path);
        }
    }
}

/// Folder of a file below src, and every folder that it names with `crate::`.
fn uses(file: &Path, root: &Path) -> (String, Vec<String>) {
    let relative = file.strip_prefix(root).unwrap();
    let first = relative.components().next().unwrap().as_os_str().to_string_lossy();
    let text = fs::read_to_string(file).unwrap();
    let name = |rest: &str| rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
    let used = text.split("crate::").skip(1).map(name).collect();
    (first.trim_end_matches(".rs").to_string(), used)
}

#[test]
fn folders_use_only_those_above_them() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = vec![];
    sources(&root, &mut files);
    let rank = |name: &str| ORDER.iter().position(|n| *n == name);
    let mut wrong = vec![];
    for file in &files {
        let (folder, used) = uses(file, &root);
        for other in used.iter().filter(|other| **other != folder) {
            let down = matches!((rank(&folder), rank(other)), (Some(from), Some(to)) if to > from);
            let forbidden = FORBIDDEN.contains(&(folder.as_str(), other.as_str()));
            let edge = ["bindings", "capi"].contains(&other.as_str());
            if down || forbidden || edge {
                wrong.push(format!("{} uses {other}", file.display()));
            }
        }
    }
    assert!(files.len() > 30 && wrong.is_empty(), "{wrong:#?}");
}

/// Types whose values change behind a shared reference.
const STATE: [&str; 6] = ["Mutex", "RwLock", "OnceLock", "RefCell", "Cell<", "Atomic"];

#[test]
fn a_plan_has_no_state_of_a_run() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/plan");
    let mut files = vec![];
    sources(&root, &mut files);
    // The timing cache is shared by builds, and runs know nothing of it.
    files.retain(|file| !file.ends_with("timing.rs"));
    let holds = |file: &PathBuf| {
        let text = fs::read_to_string(file).unwrap();
        let found = STATE.iter().find(|name| text.contains(**name));
        found.map(|name| format!("{}: {name}", file.display()))
    };
    let wrong: Vec<_> = files.iter().filter_map(holds).collect();
    assert!(files.len() > 10 && wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn files_are_short() {
    let mut files = vec![];
    sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut files);
    for file in files {
        let lines = std::fs::read_to_string(&file).unwrap().lines().count();
        assert!(lines <= 500, "{} has {lines} lines", file.display());
    }
}
