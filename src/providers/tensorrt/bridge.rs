//! The raw bridge to `cpp/tensorrt`: no checks, no lifetimes. Everything else goes through `handle.rs`.
//!
//! TensorRT's enums cross as their names: their numbers differ between its versions.
use super::collector::{Collector, reallocate, tell_shape};
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
        /// What they are called when they are replaced; empty for none.
        name: String,
        dtype: String,
        address: usize,
        count: usize,
    }

    /// A layer of TensorRT; an input of -1 is left out.
    struct LayerSpec {
        kind: String,
        name: String,
        /// The layers of the source model that it stands for.
        metadata: String,
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
        /// On which other GPUs the plan is to run: "AMPERE_PLUS".
        compatibility: String,
        profiles: Vec<ProfileSpec>,
        timing_cache: Vec<u8>,
    }

    /// An input or output of a plan, with its shapes in each profile.
    struct IoInfo {
        name: String,
        dtype: String,
        shape: Vec<i64>,
        is_input: bool,
        /// Whether TensorRT reads or writes it in the processor's memory.
        on_host: bool,
        /// Whether its values tell shapes.
        is_shape: bool,
        /// How its elements lie, in TensorRT's words; empty if one after another.
        layout: String,
        profiles: Vec<ShapeRange>,
        /// The same of its values; for inputs that tell shapes.
        values: Vec<ShapeRange>,
    }

    /// How long a layer took.
    struct LayerTime {
        layer: String,
        milliseconds: f32,
    }

    extern "Rust" {
        type Collector;
        fn reallocate(collector: &mut Collector, current: usize, bytes: u64, alignment: u64, stream: usize) -> usize;
        fn tell_shape(collector: &mut Collector, dims: &[i64]);

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
        fn add_loop(self: Pin<&mut Session>, name: &str) -> Result<u32>;
        fn add_conditional(self: Pin<&mut Session>, name: &str) -> Result<u32>;
        fn set_next(self: Pin<&mut Session>, recurrence: u32, next: u32) -> Result<()>;
        fn mark_output(self: Pin<&mut Session>, tensor: u32, name: &str) -> Result<()>;
        fn tensor(self: &Session, tensor: u32) -> Result<TensorInfo>;
        fn has_flag(self: &Session, name: &str) -> Result<bool>;
        fn build(self: Pin<&mut Session>, spec: &BuildSpec) -> Result<Vec<u8>>;
        fn timing_cache(self: &Session) -> &[u8];

        fn engine(self: &Library, plan: &[u8], sink: Box<Sink>) -> Result<UniquePtr<Engine>>;

        type Engine;
        fn tensors(self: &Engine) -> Result<Vec<IoInfo>>;
        fn profiles(self: &Engine) -> i32;
        fn device_memory(self: &Engine, profile: i32) -> Result<i64>;
        fn layers(self: &Engine) -> Result<String>;
        fn streamable_weights(self: &Engine) -> Result<i64>;
        /// -1 keeps all of them on the GPU.
        fn set_weight_budget(self: &Engine, bytes: i64) -> Result<()>;
        fn weight_names(self: &Engine) -> Result<Vec<String>>;
        /// Gives the names of those that are still missing.
        /// # Safety
        /// The weights must live until the call is over.
        unsafe fn refit(self: &Engine, weights: &[WeightsSpec]) -> Result<Vec<String>>;
        fn context(self: &Engine) -> Result<UniquePtr<Context>>;

        type Context;
        fn set_profile(self: Pin<&mut Context>, profile: i32, stream: usize) -> Result<()>;
        fn set_shape(self: Pin<&mut Context>, tensor: &str, dims: &[i64]) -> Result<()>;
        fn shape(self: &Context, tensor: &str) -> Result<Vec<i64>>;
        fn infer(self: Pin<&mut Context>) -> Result<Vec<String>>;
        fn memory(self: Pin<&mut Context>) -> Result<i64>;
        fn max_bytes(self: &Context, output: &str) -> i64;
        fn capturable(self: &Context, stream: usize) -> bool;
        fn collect(self: Pin<&mut Context>, output: &str, collector: Box<Collector>) -> Result<()>;
        fn profile_layers(self: Pin<&mut Context>, wanted: bool);
        fn times(self: Pin<&mut Context>) -> Result<Vec<LayerTime>>;
        /// # Safety
        /// The memory must be the GPU's, and live until all that was enqueued is over.
        unsafe fn set_memory(self: Pin<&mut Context>, address: usize, bytes: usize) -> Result<()>;
        /// # Safety
        /// As above, and large enough.
        unsafe fn set_address(self: Pin<&mut Context>, tensor: &str, address: usize) -> Result<()>;
        /// # Safety
        /// The stream must be alive, and what the addresses name.
        unsafe fn enqueue(self: Pin<&mut Context>, stream: usize) -> Result<()>;
    }
}

// SAFETY: a library is immutable, and opening sessions is what its thread-safe entry point does.
unsafe impl Send for ffi::Library {}
// SAFETY: as above.
unsafe impl Sync for ffi::Library {}
// SAFETY: TensorRT's builder objects belong to no thread; exclusive borrows keep calls one after another.
unsafe impl Send for ffi::Session {}
// SAFETY: what changes in an engine is changed behind its own lock.
unsafe impl Send for ffi::Engine {}
// SAFETY: as above.
unsafe impl Sync for ffi::Engine {}
// SAFETY: a context belongs to no thread; exclusive borrows keep calls one after another.
unsafe impl Send for ffi::Context {}
