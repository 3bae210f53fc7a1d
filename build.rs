//! Compiles every C++ file under `cpp/` and every cxx bridge under `src/`, links oneDNN, and numbers the CUDA kernels.
//!
//! The headers for plugins are carried in `python/neurenix/_include`.
//!
//! oneDNN comes from `$ONEDNN_ROOT`, or else from the PyPI packages `onednn-devel-cpu-gomp` and `onednn-cpu-gomp`
//! of the Python that builds us (pip's and uv's isolated environments included). Its shared library and the compiler's
//! OpenMP, which it wants, are carried in `python/neurenix/_lib`, beside the extension module, and found there through an
//! rpath relative to that module.

#[path = "build_python.rs"]
mod python;
#[path = "build_tensorrt.rs"]
mod tensorrt;

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

const LIBRARY: &str = "libdnnl.so.3";
const OPENMP: &str = "libgomp.so.1";
/// Where it is set nothing is linked, so that C++ is not compiled: clippy looks at Rust alone.
const LINT: &str = "NEURENIX_LINT";
/// What the library of the C API is called; its number changes when a function goes or changes, which none should.
const C_LIBRARY: &str = "libneurenix.so.1";

/// Asks Python's own record of installed files, which sees through isolated build environments.
const ASK_PYTHON: &str = r#"
import importlib.metadata as metadata
for package, wanted in (("onednn-devel-cpu-gomp", "include/dnnl.hpp"), ("onednn-cpu-gomp", "/libdnnl.so.3")):
    for file in metadata.files(package) or ():
        if str(file).endswith(wanted):
            print(file.locate().resolve())
            break
"#;

const NOT_FOUND: &str = "\
oneDNN was not found.
  looked: $ONEDNN_ROOT/include/dnnl.hpp and $ONEDNN_ROOT/lib{,64}/libdnnl.so.3, then the PyPI packages below in the
          Python named by $PYTHON_SYS_EXECUTABLE, $PYO3_PYTHON, or `python3`
  way out: python3 -m pip install onednn-devel-cpu-gomp==2023.2.0 onednn-cpu-gomp==2023.2.0
           or set ONEDNN_ROOT to an installation of oneDNN 3.x built with OpenMP";

struct OneDnn {
    include: PathBuf,
    library: PathBuf,
}

impl OneDnn {
    fn find() -> Result<Self, String> {
        let tried = match env::var_os("ONEDNN_ROOT") {
            Some(root) => Self::in_root(Path::new(&root)).ok_or_else(|| format!("ONEDNN_ROOT is {root:?}")),
            None => Self::in_python(),
        };
        tried.map_err(|why| format!("{NOT_FOUND}\n  here: {why}"))
    }

    fn in_root(root: &Path) -> Option<Self> {
        let include = root.join("include");
        let library = ["lib", "lib64"]
            .iter()
            .map(|lib| root.join(lib).join(LIBRARY))
            .find(|path| path.exists())?;
        include.join("dnnl.hpp").exists().then_some(Self { include, library })
    }

    fn in_python() -> Result<Self, String> {
        let python = python::interpreter();
        let output = Command::new(&python).args(["-c", ASK_PYTHON]).output();
        let output = output.map_err(|error| format!("{python:?} does not run: {error}"))?;
        let text = String::from_utf8_lossy(&output.stdout);
        let mut lines = text.lines().map(PathBuf::from);
        match (lines.next(), lines.next()) {
            (Some(header), Some(library)) if output.status.success() => Ok(Self {
                include: header.parent().unwrap_or(Path::new("/")).to_path_buf(),
                library,
            }),
            _ => {
                let stderr = String::from_utf8_lossy(&output.stderr);
                Err(format!(
                    "{python:?} has no such packages. {}",
                    stderr.lines().last().unwrap_or_default()
                ))
            }
        }
    }

    /// Carries the library beside the extension module, and in OUT_DIR, which Cargo puts on the library path of
    /// `cargo test` and `cargo run`.
    fn link(&self) -> std::io::Result<()> {
        let carried = carried();
        fs::create_dir_all(&carried)?;
        copy_if_newer(&self.library, &carried.join(LIBRARY))?;
        let search = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default()).join("lib");
        fs::create_dir_all(&search)?;
        copy_if_newer(&self.library, &search.join(LIBRARY))?;
        println!("cargo:rerun-if-changed={}", carried.join(LIBRARY).display());
        println!("cargo:rustc-link-search=native={}", search.display());
        println!("cargo:rustc-link-lib=dylib:+verbatim={LIBRARY}");
        println!("cargo:rustc-link-lib=dylib=gomp");
        // Two of our libraries in one process, of Python and of C, stay apart.
        println!("cargo:rustc-link-arg-cdylib=-Wl,-Bsymbolic");
        match env::var_os("CARGO_FEATURE_PYTHON") {
            Some(_) => println!("cargo:rustc-link-arg-cdylib=-Wl,-rpath,$ORIGIN/_lib"),
            // The C API lies in _lib itself. Its threads outlive a dlclose.
            None => println!("cargo:rustc-link-arg-cdylib=-Wl,-rpath,$ORIGIN,-soname,{C_LIBRARY},-z,nodelete"),
        }
        Ok(())
    }
}

fn carried() -> PathBuf {
    root().join("python/neurenix/_lib")
}

/// Carries the compiler's OpenMP, which a machine without a compiler may lack. Where the compiler does not say where it
/// is, that of the system is used.
fn carry_openmp(compiler: &cc::Tool) -> std::io::Result<()> {
    let asked = compiler
        .to_command()
        .arg(format!("-print-file-name={OPENMP}"))
        .output()?;
    let found = PathBuf::from(String::from_utf8_lossy(&asked.stdout).trim());
    if found.is_absolute() {
        copy_if_newer(&found, &carried().join(OPENMP))?;
        println!("cargo:rerun-if-changed={}", carried().join(OPENMP).display());
    }
    Ok(())
}

/// Carries the headers for plugins in C++ beside the Python modules.
fn carry_headers() -> std::io::Result<()> {
    let carried = root().join("python/neurenix/_include/neurenix");
    fs::create_dir_all(&carried)?;
    for header in files(Path::new("cpp/include/neurenix"), |_| true) {
        copy_if_newer(&header, &carried.join(header.file_name().unwrap_or_default()))?;
    }
    Ok(())
}

fn root() -> PathBuf {
    PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default())
}

/// Replaces `to` by a rename, because a running process may have the old file mapped. It keeps its time: Cargo takes what is younger
/// than the start of this script for a change, and would run it again in the next build.
fn copy_if_newer(from: &Path, to: &Path) -> std::io::Result<()> {
    let stamp = |path: &Path| fs::metadata(path).map(|meta| (meta.len(), meta.modified().ok()));
    if let (Ok((length, Some(new))), Ok((carried, Some(old)))) = (stamp(from), stamp(to))
        && length == carried
        && new <= old
    {
        return Ok(());
    }
    let part = to.with_extension(format!("{}.part", std::process::id()));
    fs::copy(from, &part)?;
    if let Ok((_, Some(time))) = stamp(from) {
        fs::File::options().write(true).open(&part)?.set_modified(time)?;
    }
    fs::rename(part, to)
}

/// In an optimised build with debug information, C++ gets what backtraces show, as Rust does, and no more.
fn line_tables(build: &mut cc::Build) {
    let is = |variable: &str, value: &str| env::var(variable).is_ok_and(|found| found == value);
    if is("PROFILE", "release") && !is("DEBUG", "false") {
        build.debug(false).flag("-g1");
    }
}

/// All files below `folder` for which `wanted` holds, in a stable order.
fn files(folder: &Path, wanted: fn(&Path) -> bool) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if wanted(&path) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// A number that changes with the sources of the CUDA kernels: times that were measured with others say nothing (64-bit FNV-1a).
fn digest_kernels() -> u64 {
    println!("cargo:rerun-if-changed=kernels");
    let sources = files(Path::new("kernels"), |_| true);
    let texts = sources.iter().flat_map(|path| fs::read(path).unwrap_or_default());
    texts.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    })
}

fn main() {
    println!("cargo:rustc-env=NEURENIX_KERNELS={:016x}", digest_kernels());
    for variable in ["ONEDNN_ROOT", "PYTHON_SYS_EXECUTABLE", "PYO3_PYTHON", "PYTHONPATH"] {
        println!("cargo:rerun-if-env-changed={variable}");
    }
    for folder in ["cpp/cpu", "cpp/include", "cpp/tensorrt"] {
        println!("cargo:rerun-if-changed={folder}");
    }
    if env::var_os("CARGO_FEATURE_PYTHON").is_some()
        && let Some(why) = python::refusal(&python::interpreter())
    {
        panic!("\n\n{why}\n");
    }
    println!("cargo:rerun-if-env-changed={LINT}");
    let headers = tensorrt::headers();
    if env::var_os(LINT).is_none() {
        compile_and_link(&headers);
    }
}

fn compile_and_link(headers: &[tensorrt::Headers]) {
    let onednn = OneDnn::find().unwrap_or_else(|text| panic!("\n\n{text}\n"));
    let bridges = files(Path::new("src"), |path| path.ends_with("bridge.rs"));
    // What is compiled for each version of TensorRT's headers is no part of the rest, nor is Triton's backend.
    let sources = files(Path::new("cpp"), |path| {
        let apart = ["cpp/tensorrt/flavour", "cpp/triton"];
        path.extension().is_some_and(|extension| extension == "cc")
            && !apart.iter().any(|other| path.starts_with(other))
    });
    for bridge in &bridges {
        println!("cargo:rerun-if-changed={}", bridge.display());
    }
    let mut build = cxx_build::bridges(&bridges);
    let flavours = tensorrt::compile(headers);
    build
        .files(&sources)
        .objects(&flavours.objects)
        .define("NEURENIX_FLAVOURS", &*flavours.list)
        .include("cpp")
        .include(&onednn.include)
        .std("c++17")
        .opt_level(3)
        .flag("-fopenmp")
        .flag("-fvisibility=hidden")
        .flag_if_supported("-Wno-deprecated-declarations");
    line_tables(&mut build);
    build.compile("neurenix_cpp");
    onednn
        .link()
        .unwrap_or_else(|error| panic!("\n\ncannot carry {}: {error}\n", onednn.library.display()));
    carry_openmp(&build.get_compiler()).unwrap_or_else(|error| panic!("\n\ncannot carry {OPENMP}: {error}\n"));
    carry_headers().unwrap_or_else(|error| panic!("\n\ncannot carry the headers for plugins: {error}\n"));
}
