//! What the build script says of the Python that it builds for, on Pythons that are scripts.

#[path = "../build_python.rs"]
mod python;

use std::{env, fs, os::unix::fs::PermissionsExt, path::PathBuf};

/// A program that answers whatever it is asked.
fn stand_in(name: &str, script: &str) -> PathBuf {
    let path = env::temp_dir().join(format!("{name}-{}", std::process::id()));
    fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

/// One test: a script that another thread's child has inherited open can't be run.
#[test]
fn a_free_threaded_build_is_refused_by_name_and_no_other() {
    let path = stand_in("python3.13t", "echo 1");
    let why = python::refusal(path.as_os_str()).unwrap();
    assert!(
        why.contains("free-threaded") && why.contains("python3.13t") && why.contains("way out"),
        "{why}"
    );
    fs::remove_file(path).unwrap();

    for (name, script) in [("python3.13", "echo 0"), ("broken", "echo 1; exit 1")] {
        let path = stand_in(name, script);
        assert_eq!(python::refusal(path.as_os_str()), None, "{name}");
        fs::remove_file(path).unwrap();
    }
    assert_eq!(python::refusal("/nowhere/python".as_ref()), None);
    assert_eq!(python::refusal(&python::interpreter()), None);
}
