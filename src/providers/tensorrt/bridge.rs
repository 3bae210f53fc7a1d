//! The raw bridge to `cpp/tensorrt`: no checks, no lifetimes. Everything else goes through `handle.rs`.
//!
//! TensorRT's enums cross as their names: their numbers differ between its versions.
use super::sink::{Sink, say, step};

#[cxx::bridge(namespace = "neurenix::tensorrt")]
pub(super) mod ffi {
    /// One named property of a layer.
    struct Property {
        name: String,
        words: Vec<String>,
        ints: Vec<i64>,
        floats: Vec<f32>,
    }

    /// Numbers that TensorRT reads where they are.
    struct WeightsSpec {
        dtype: String,
        address: usize,
        count: usize,
    }

    /// A layer of TensorRT; an input of -1 is left out.
    struct LayerSpec {
        kind: String,
        name: String,
        inputs: Vec<i64>,
        properties: Vec<Property>,
        weights: Vec<WeightsSpec>,
    }

    /// A tensor as TensorRT sees it; -1 is an extent that comes with a call.
    struct TensorInfo {
        name: String,
        dtype: String,
        shape: Vec<i64>,
    }

    /// The shapes of one input in a profile.
    struct ShapeRange {
        name: String,
        min: Vec<i64>,
        opt: Vec<i64>,
        max: Vec<i64>,
    }

    /// A profile.
    struct ProfileSpec {
        shapes: Vec<ShapeRange>,
    }

    /// How a plan is built.
    struct BuildSpec {
        workspace: usize,
        optimization_level: i32,
        flags: Vec<String>,
        cleared: Vec<String>,
        capabilities: Vec<String>,
        profiles: Vec<ProfileSpec>,
        timing_cache: Vec<u8>,
    }

    extern "Rust" {
        type Sink;
        fn say(sink: &Sink, severity: &str, text: &str);
        fn step(sink: &Sink, phase: &str, done: i32, steps: i32) -> bool;
    }

    unsafe extern "C++" {
        include!("tensorrt/bridge.h");

        type Library;
        fn flavour_names() -> Vec<String>;
        fn open_library(name: &str, opened: bool) -> Result<UniquePtr<Library>>;
        fn path(self: &Library) -> String;
        fn version(self: &Library) -> i32;
        fn rtx(self: &Library) -> bool;
        fn flavour(self: &Library) -> &str;
        fn session(self: &Library, sink: Box<Sink>) -> Result<UniquePtr<Session>>;

        type Session;
        fn add_input(self: Pin<&mut Session>, name: &str, dtype: &str, dims: &[i64]) -> Result<u32>;
        /// # Safety
        /// The weights must live, unchanged, until the session is dropped.
        unsafe fn add_layer(self: Pin<&mut Session>, spec: &LayerSpec) -> Result<Vec<u32>>;
        fn mark_output(self: Pin<&mut Session>, tensor: u32, name: &str) -> Result<()>;
        fn tensor(self: &Session, tensor: u32) -> Result<TensorInfo>;
        fn has_flag(self: &Session, name: &str) -> Result<bool>;
        fn build(self: Pin<&mut Session>, spec: &BuildSpec) -> Result<Vec<u8>>;
    }
}

// SAFETY: a library is immutable, and opening sessions is what its thread-safe entry point does.
unsafe impl Send for ffi::Library {}
// SAFETY: as above.
unsafe impl Sync for ffi::Library {}
// SAFETY: TensorRT's builder objects belong to no thread; exclusive borrows keep calls one after another.
unsafe impl Send for ffi::Session {}
