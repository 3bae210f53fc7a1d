//! Finds TensorRT's headers and compiles `cpp/tensorrt/flavour` once for each version of them.
//!
//! The source package of the crate `trtx-sys` carries the headers of TensorRT and of TensorRT-RTX; it is a dependency that
//! no target has, so that Cargo fetches it and never compiles it. `$TENSORRT_ROOT` names installations of other versions,
//! with colons between.

use super::{files, line_tables, root};
use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

/// The folders of that package that are compiled for.
const DEFAULT: [&str; 2] = ["TRT-Enterprise-11.4", "TRT-RTX-1.7"];

/// All that the headers ask of CUDA's: the names of two handles.
const CUDA_STUB: &str = "#pragma once\n\
    typedef struct CUstream_st* cudaStream_t;\n\
    typedef struct CUevent_st* cudaEvent_t;\n";

/// What was compiled for all versions.
pub struct Flavours {
    pub objects: Vec<PathBuf>,
    /// As `cpp/tensorrt/flavours.cc` wants it: `FLAVOUR(enterprise_11_4) FLAVOUR(rtx_1_7)`.
    pub list: String,
}

/// The versions whose headers are there; tells the crate which are missing.
pub fn headers() -> Vec<Headers> {
    let (found, missing) = Headers::find();
    if let Some(why) = &missing {
        println!("cargo:warning=TensorRT: {why}");
    }
    let missing = missing.unwrap_or_default().replace('\n', " ");
    println!("cargo:rustc-env=NEURENIX_TENSORRT_MISSING={missing}");
    found
}

/// Compiles the layer for each version.
pub fn compile(found: &[Headers]) -> Flavours {
    // Where cxx_build puts the header of the bridge.
    let include = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default()).join("cxxbridge/include");
    Flavours {
        objects: found.iter().flat_map(|headers| headers.compile(&include)).collect(),
        list: found
            .iter()
            .map(|headers| format!("FLAVOUR({}) ", headers.name))
            .collect(),
    }
}

/// One version of the headers.
pub struct Headers {
    /// As a C++ name: `enterprise_11_4`.
    name: String,
    folder: PathBuf,
}

impl Headers {
    /// The headers in a folder, named by the numbers in their `NvInferVersion.h`.
    fn open(folder: &Path) -> Option<Self> {
        let text = fs::read_to_string(folder.join("NvInferVersion.h")).ok()?;
        let number = |name: &str| {
            let mut lines = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
            lines.find_map(|words| match words[..] {
                ["#define", defined, value, ..] if defined == name => value.parse::<u32>().ok(),
                _ => None,
            })
        };
        let version = |major: &str, minor: &str| Some((number(major)?, number(minor)?));
        let rtx = version("TRT_MAJOR_RTX", "TRT_MINOR_RTX").map(|found| ("rtx", found));
        let (kind, (major, minor)) = rtx.or_else(|| {
            let newer = version("TRT_MAJOR_ENTERPRISE", "TRT_MINOR_ENTERPRISE");
            Some((
                "enterprise",
                newer.or_else(|| version("NV_TENSORRT_MAJOR", "NV_TENSORRT_MINOR"))?,
            ))
        })?;
        Some(Self {
            name: format!("{kind}_{major}_{minor}"),
            folder: folder.to_path_buf(),
        })
    }

    /// Every version there is, those of `$TENSORRT_ROOT` first; and why some are missing.
    fn find() -> (Vec<Self>, Option<String>) {
        println!("cargo:rerun-if-env-changed=TENSORRT_ROOT");
        println!("cargo:rerun-if-changed=Cargo.lock");
        let mut missing = vec![];
        let mut found: Vec<Self> = vec![];
        let mut add = |headers: Self| {
            if found.iter().all(|known| known.name != headers.name) {
                found.push(headers);
            }
        };
        let named = env::var_os("TENSORRT_ROOT").unwrap_or_default();
        for root in env::split_paths(&named).filter(|path| !path.as_os_str().is_empty()) {
            let folders = [
                root.join("include"),
                root.join("include/x86_64-linux-gnu"),
                root.clone(),
            ];
            match folders.iter().find_map(|folder| Self::open(folder)) {
                Some(headers) => add(headers),
                None => missing.push(format!("TENSORRT_ROOT: no NvInferVersion.h in {}", root.display())),
            }
        }
        match package() {
            Ok(package) => {
                let folders = DEFAULT.iter().map(|name| package.join("TensorRT-Headers").join(name));
                folders.filter_map(|folder| Self::open(&folder)).for_each(&mut add);
            }
            Err(why) => missing.push(why),
        }
        (found, (!missing.is_empty()).then(|| missing.join("; ")))
    }

    /// Compiles the sources for these headers, under names of their own.
    fn compile(&self, include: &Path) -> Vec<PathBuf> {
        let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default()).join(&self.name);
        let stub = out.join("stub");
        fs::create_dir_all(&stub).unwrap_or_else(|error| panic!("cannot make {}: {error}", stub.display()));
        let header = stub.join("cuda_runtime_api.h");
        fs::write(&header, CUDA_STUB).unwrap_or_else(|error| panic!("cannot write {}: {error}", header.display()));
        let mut build = cc::Build::new();
        build
            .cpp(true)
            .files(sources())
            .include("cpp")
            .include(include)
            // Their comments and deprecations are not ours to mend.
            .flag("-isystem")
            .flag(&self.folder)
            .flag("-isystem")
            .flag(&stub)
            .define("nvinfer1", &*format!("nvinfer1_{}", self.name))
            .define("NEURENIX_FLAVOUR", &*self.name)
            .out_dir(&out)
            .std("c++17")
            .opt_level(2)
            .flag("-fvisibility=hidden")
            .flag_if_supported("-Wno-deprecated-declarations");
        line_tables(&mut build);
        build.compile_intermediates()
    }
}

/// What is compiled once for each version.
fn sources() -> Vec<PathBuf> {
    files(Path::new("cpp/tensorrt/flavour"), |path| {
        path.extension().is_some_and(|e| e == "cc")
    })
}

/// The folder of the crate that carries the headers. Offline first: what is fetched already is asked of nobody.
fn package() -> Result<PathBuf, String> {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let ask = |arguments: &[&str]| -> Result<String, String> {
        let mut command = Command::new(&cargo);
        command
            .args(["metadata", "--format-version=1", "--locked"])
            .args(arguments);
        let output = command.current_dir(root()).output();
        let output = output.map_err(|error| format!("{cargo:?} does not run: {error}"))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            return Err(format!("cargo metadata: {}", said.lines().next().unwrap_or_default()));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let metadata = ask(&["--offline"]).or_else(|_| ask(&[]))?;
    // One path of a JSON text: the manifest of the one package of this name.
    let manifest = metadata
        .split("\"manifest_path\":\"")
        .skip(1)
        .filter_map(|rest| rest.split('"').next());
    let mut manifest = manifest.filter(|path| path.contains("/trtx-sys-"));
    let manifest = manifest.next().ok_or("cargo metadata does not list trtx-sys")?;
    let folder = Path::new(manifest).parent().ok_or("trtx-sys has no folder")?;
    Ok(folder.to_path_buf())
}
