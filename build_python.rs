//! The Python that the extension module is built for.

use std::{
    env,
    ffi::{OsStr, OsString},
    process::Command,
};

/// Asks whether a Python is a free-threaded build.
const ASK: &str = "import sysconfig; print(sysconfig.get_config_var('Py_GIL_DISABLED') or 0)";

/// The Python that builds us: maturin's, the caller's, or the first on the path.
pub fn interpreter() -> OsString {
    let named = ["PYTHON_SYS_EXECUTABLE", "PYO3_PYTHON"].iter().find_map(env::var_os);
    named.unwrap_or_else(|| "python3".into())
}

/// Why no extension module can be built for this Python; a Python that does not run is found out elsewhere.
pub fn refusal(python: &OsStr) -> Option<String> {
    let output = Command::new(python).args(["-c", ASK]).output().ok()?;
    (output.status.success() && output.stdout.trim_ascii() == b"1").then(|| {
        format!(
            "Neurenix can't be built for a free-threaded build of Python: its native module needs the GIL.\n  \
             got: {}\n  \
             way out: build and install it with the usual Python, for example python3.13 instead of python3.13t",
            python.display()
        )
    })
}
