//! cuDNN's backend API: graphs of operations that one plan runs (cuDNN Backend API Reference).

use super::driver::Handle;
use super::library;
use crate::error::{Error, Result};
use crate::network::dtype::DType;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::{Mutex, OnceLock, PoisonError};

library! {
    /// The library.
    Cudnn from &["libcudnn.so.9"];
    fn cudnnGetVersion() -> usize;
    fn cudnnGetErrorString(c_int) -> *const c_char;
    fn cudnnCreate(*mut Handle) -> c_int;
    fn cudnnSetStream(Handle, Handle) -> c_int;
    fn cudnnBackendCreateDescriptor(c_int, *mut Handle) -> c_int;
    fn cudnnBackendDestroyDescriptor(Handle) -> c_int;
    fn cudnnBackendSetAttribute(Handle, c_int, c_int, i64, *const c_void) -> c_int;
    fn cudnnBackendGetAttribute(Handle, c_int, c_int, i64, *mut i64, *mut c_void) -> c_int;
    fn cudnnBackendFinalize(Handle) -> c_int;
    fn cudnnBackendExecute(Handle, Handle, Handle) -> c_int;
}

/// The library, opened once.
///
/// # Errors
/// If there is none.
pub fn cudnn() -> Result<&'static Cudnn> {
    static LIBRARY: OnceLock<Result<Cudnn>> = OnceLock::new();
    LIBRARY.get_or_init(Cudnn::load).as_ref().map_err(Clone::clone)
}

impl Cudnn {
    /// 10000 x major + 100 x minor + patch.
    pub fn version(&self) -> usize {
        // SAFETY: it only tells a number.
        unsafe { (self.cudnnGetVersion)() }
    }

    fn check(&self, call: &str, status: c_int) -> Result<()> {
        if status == 0 {
            return Ok(());
        }
        // SAFETY: the library gives a text for every number.
        let text = unsafe { CStr::from_ptr((self.cudnnGetErrorString)(status)) };
        let message = format!("cuDNN {} failed: {} in {call}", self.version(), text.to_string_lossy());
        Err(match status {
            HOST_ALLOCATION_FAILED | DEVICE_ALLOCATION_FAILED => Error::memory(message),
            _ => Error::device(message),
        })
    }
}

/// `cudnnBackendDescriptorType_t`.
mod kind {
    pub const POINTWISE: i32 = 0;
    pub const CONVOLUTION: i32 = 1;
    pub const ENGINE_HEURISTIC: i32 = 4;
    pub const ENGINE_CONFIG: i32 = 3;
    pub const PLAN: i32 = 5;
    pub const CONVOLUTION_FORWARD: i32 = 10;
    pub const OPERATION_POINTWISE: i32 = 13;
    pub const GRAPH: i32 = 15;
    pub const VARIANT_PACK: i32 = 16;
    pub const TENSOR: i32 = 17;
    pub const ENGINE: i32 = 2;
}

/// `cudnnBackendAttributeType_t`.
mod ty {
    pub const HANDLE: i32 = 0;
    pub const DATA_TYPE: i32 = 1;
    pub const BOOLEAN: i32 = 2;
    pub const INT64: i32 = 3;
    pub const FLOAT: i32 = 4;
    pub const DOUBLE: i32 = 5;
    pub const POINTER: i32 = 6;
    pub const CONVOLUTION_MODE: i32 = 7;
    pub const HEURISTIC_MODE: i32 = 8;
    pub const NUMERICAL_NOTE: i32 = 11;
    pub const POINTWISE_MODE: i32 = 14;
    pub const DESCRIPTOR: i32 = 15;
}

/// `cudnnBackendAttributeName_t`.
mod name {
    pub const POINTWISE_MODE: i32 = 0;
    pub const POINTWISE_PRECISION: i32 = 1;
    pub const POINTWISE_RELU_SLOPE: i32 = 5;
    pub const CONVOLUTION_PRECISION: i32 = 100;
    pub const CONVOLUTION_MODE: i32 = 101;
    pub const CONVOLUTION_DILATIONS: i32 = 102;
    pub const CONVOLUTION_STRIDES: i32 = 103;
    pub const CONVOLUTION_END: i32 = 104;
    pub const CONVOLUTION_BEGIN: i32 = 105;
    pub const CONVOLUTION_AXES: i32 = 106;
    pub const HEURISTIC_MODE: i32 = 200;
    pub const HEURISTIC_GRAPH: i32 = 201;
    pub const HEURISTIC_RESULTS: i32 = 202;
    pub const CONFIG_ENGINE: i32 = 300;
    pub const PLAN_HANDLE: i32 = 400;
    pub const PLAN_CONFIG: i32 = 401;
    pub const PLAN_WORKSPACE: i32 = 402;
    pub const FORWARD_ALPHA: i32 = 700;
    pub const FORWARD_BETA: i32 = 701;
    pub const FORWARD_CONVOLUTION: i32 = 702;
    pub const FORWARD_W: i32 = 703;
    pub const FORWARD_X: i32 = 704;
    pub const FORWARD_Y: i32 = 705;
    pub const OPERATION_POINTWISE: i32 = 750;
    pub const OPERATION_X: i32 = 751;
    pub const OPERATION_B: i32 = 752;
    pub const OPERATION_Y: i32 = 753;
    pub const GRAPH_HANDLE: i32 = 800;
    pub const GRAPH_OPERATIONS: i32 = 801;
    pub const TENSOR_ALIGNMENT: i32 = 900;
    pub const TENSOR_TYPE: i32 = 901;
    pub const TENSOR_DIMENSIONS: i32 = 902;
    pub const TENSOR_STRIDES: i32 = 903;
    pub const TENSOR_ID: i32 = 906;
    pub const TENSOR_VIRTUAL: i32 = 907;
    pub const PACK_IDS: i32 = 1000;
    pub const PACK_POINTERS: i32 = 1001;
    pub const PACK_WORKSPACE: i32 = 1003;
    pub const ENGINE_NOTES: i32 = 1303;
}

/// `CUDNN_NUMERICAL_NOTE_TENSOR_CORE`: float32 operands are rounded to tf32 there.
const NOTE_TENSOR_CORE: i32 = 0;
/// `CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED`.
const HOST_ALLOCATION_FAILED: c_int = 4003;
/// `CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED`.
const DEVICE_ALLOCATION_FAILED: c_int = 4004;
/// `CUDNN_HEUR_MODE_A` and `CUDNN_HEUR_MODE_FALLBACK`.
const HEURISTICS: [i32; 2] = [3, 2];
/// What addresses are aligned to.
const ALIGNMENT: i64 = 16;

fn data_type(dtype: DType) -> Result<i32> {
    Ok(match dtype {
        DType::Float32 => 0,
        DType::Float64 => 1,
        DType::Float16 => 2,
        DType::BFloat16 => 9,
        other => return Err(Error::unsupported(format!("cuDNN does not convolve {other}"))),
    })
}

/// A handle on the current GPU; one call at a time uses it.
pub struct Dnn {
    library: &'static Cudnn,
    handle: Mutex<Raw>,
}

struct Raw(Handle);

// SAFETY: a handle may be used from any thread, one at a time: a mutex is around it.
unsafe impl Send for Raw {}

/// A descriptor.
struct Descriptor {
    library: &'static Cudnn,
    handle: Handle,
}

// SAFETY: a finalized descriptor is only read; before, one thread owns it.
unsafe impl Send for Descriptor {}

impl Drop for Descriptor {
    fn drop(&mut self) {
        // SAFETY: it was created, and is not used any more.
        unsafe { (self.library.cudnnBackendDestroyDescriptor)(self.handle) };
    }
}

impl Descriptor {
    fn new(library: &'static Cudnn, kind: i32) -> Result<Self> {
        let mut handle = std::ptr::null_mut();
        // SAFETY: the handle is written.
        let status = unsafe { (library.cudnnBackendCreateDescriptor)(kind, &mut handle) };
        library.check("cudnnBackendCreateDescriptor", status)?;
        Ok(Self { library, handle })
    }

    /// Sets an attribute to some values, whose type must be the one that is named.
    fn set<T>(&self, name: i32, ty: i32, values: &[T]) -> Result<&Self> {
        // SAFETY: the values are of the type that the reference says for the attribute.
        let status = unsafe {
            let set = self.library.cudnnBackendSetAttribute;
            set(self.handle, name, ty, values.len() as i64, values.as_ptr().cast())
        };
        self.library.check("cudnnBackendSetAttribute", status)?;
        Ok(self)
    }

    fn link(&self, name: i32, others: &[&Descriptor]) -> Result<&Self> {
        let handles: Vec<Handle> = others.iter().map(|other| other.handle).collect();
        self.set(name, ty::DESCRIPTOR, &handles)
    }

    fn finish(self) -> Result<Self> {
        // SAFETY: the descriptor is alive.
        let status = unsafe { (self.library.cudnnBackendFinalize)(self.handle) };
        self.library.check("cudnnBackendFinalize", status)?;
        Ok(self)
    }

    /// Up to so many values of an attribute, over those that are given.
    fn get<T>(&self, name: i32, ty: i32, values: &mut [T]) -> Result<usize> {
        let mut count = 0;
        // SAFETY: there is room for so many values of the type that the reference says.
        let status = unsafe {
            let get = self.library.cudnnBackendGetAttribute;
            get(
                self.handle,
                name,
                ty,
                values.len() as i64,
                &mut count,
                values.as_mut_ptr().cast(),
            )
        };
        self.library.check("cudnnBackendGetAttribute", status)?;
        Ok(count.max(0) as usize)
    }
}

/// A tensor of a convolution: extents and strides of batch, channels, and spatial axes.
#[derive(Debug, Clone)]
pub struct Tensor {
    /// The extents.
    pub sizes: Vec<i64>,
    /// Elements from one place to the next along each axis.
    pub strides: Vec<i64>,
}

/// A function behind a convolution.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Activation {
    /// max(x, 0), or `slope` times x below 0.
    Relu(f32),
    /// 1 / (1 + exp(-x)).
    Sigmoid,
    /// x / (1 + exp(-x)).
    Silu,
    /// tanh(x).
    Tanh,
    /// Gelu, by erf.
    Gelu,
}

/// A convolution with what follows it.
#[derive(Debug, Clone)]
pub struct Convolution {
    /// The element type of all tensors.
    pub dtype: DType,
    /// The input.
    pub x: Tensor,
    /// The weights: [outputs, inputs of a group, kernel...].
    pub w: Tensor,
    /// The result.
    pub y: Tensor,
    /// Strides along the spatial axes.
    pub strides: Vec<i64>,
    /// Dilations along them.
    pub dilations: Vec<i64>,
    /// Padding before.
    pub begin: Vec<i64>,
    /// Padding behind.
    pub end: Vec<i64>,
    /// Whether a number for each channel is added.
    pub bias: bool,
    /// Whether a tensor of the result's shape is added.
    pub residual: bool,
    /// What is done in the end.
    pub activation: Option<Activation>,
}

impl Convolution {
    /// The same with one more spatial axis, of extent 1, in front of the others: cuDNN wants two.
    pub fn widen(&mut self) {
        for tensor in [&mut self.x, &mut self.w, &mut self.y] {
            let all: i64 = tensor.sizes[1..].iter().product();
            tensor.sizes.insert(2, 1);
            tensor.strides.insert(2, all);
        }
        for (list, value) in [
            (&mut self.strides, 1),
            (&mut self.dilations, 1),
            (&mut self.begin, 0),
            (&mut self.end, 0),
        ] {
            list.insert(0, value);
        }
    }
}

/// The numbers by which a plan knows its tensors.
mod id {
    pub const X: i64 = 1;
    pub const W: i64 = 2;
    pub const Y: i64 = 3;
    pub const BIAS: i64 = 4;
    pub const RESIDUAL: i64 = 5;
    pub const FIRST_VIRTUAL: i64 = 100;
}

/// A convolution that is ready to run.
pub struct Plan {
    plan: Descriptor,
    ids: Vec<i64>,
    workspace: usize,
}

impl Plan {
    /// Bytes of scratch memory that it needs.
    pub fn workspace(&self) -> usize {
        self.workspace
    }
}

impl Dnn {
    /// A handle on the current GPU.
    ///
    /// # Errors
    /// If there is no library, or it fails.
    pub fn new() -> Result<Self> {
        let library = cudnn()?;
        let mut handle = std::ptr::null_mut();
        // SAFETY: the handle is written; it lives as long as the process, as the GPU's context does.
        library.check("cudnnCreate", unsafe { (library.cudnnCreate)(&mut handle) })?;
        Ok(Self {
            library,
            handle: Mutex::new(Raw(handle)),
        })
    }

    /// The plan for a convolution in the `number`th of the engines that the library proposes, among those that can be had.
    ///
    /// # Errors
    /// If there are not so many.
    pub fn plan(&self, convolution: &Convolution, number: usize) -> Result<Plan> {
        let guard = self.handle.lock().unwrap_or_else(PoisonError::into_inner);
        let handle = guard.0;
        let graph = Drawing {
            library: self.library,
            convolution,
            next: id::FIRST_VIRTUAL,
            kept: vec![],
        }
        .draw(handle)?;
        let strict = convolution.dtype == DType::Float32;
        let mut seen = 0;
        for mode in HEURISTICS {
            for config in self.configurations(&graph.graph, mode)? {
                if strict && self.uses_tensor_cores(&config)? {
                    continue;
                }
                // An engine may find that it can't do it after all.
                let Ok(plan) = self.built(handle, &config) else {
                    continue;
                };
                if seen == number {
                    let mut workspace = [0i64];
                    plan.get(name::PLAN_WORKSPACE, ty::INT64, &mut workspace)?;
                    return Ok(Plan {
                        plan,
                        ids: graph.ids,
                        workspace: workspace[0].max(0) as usize,
                    });
                }
                seen += 1;
            }
        }
        Err(Error::unsupported("cuDNN has no further engine for a convolution")
            .expected(format!("engine {number}"))
            .got(format!("{seen} engines for {convolution:?}")))
    }

    fn built(&self, handle: Handle, config: &Descriptor) -> Result<Descriptor> {
        let plan = Descriptor::new(self.library, kind::PLAN)?;
        plan.set(name::PLAN_HANDLE, ty::HANDLE, &[handle])?
            .link(name::PLAN_CONFIG, &[config])?;
        plan.finish()
    }

    fn configurations(&self, graph: &Descriptor, mode: i32) -> Result<Vec<Descriptor>> {
        const MOST: usize = 16;
        let heuristic = Descriptor::new(self.library, kind::ENGINE_HEURISTIC)?;
        heuristic
            .link(name::HEURISTIC_GRAPH, &[graph])?
            .set(name::HEURISTIC_MODE, ty::HEURISTIC_MODE, &[mode])?;
        // A mode may know nothing of a graph.
        let Ok(heuristic) = heuristic.finish() else {
            return Ok(vec![]);
        };
        let room = (0..MOST).map(|_| Descriptor::new(self.library, kind::ENGINE_CONFIG));
        let mut room = room.collect::<Result<Vec<_>>>()?;
        let mut handles: Vec<Handle> = room.iter().map(|config| config.handle).collect();
        let count = heuristic.get(name::HEURISTIC_RESULTS, ty::DESCRIPTOR, &mut handles)?;
        room.truncate(count);
        Ok(room)
    }

    fn uses_tensor_cores(&self, config: &Descriptor) -> Result<bool> {
        let engine = Descriptor::new(self.library, kind::ENGINE)?;
        config.get(name::CONFIG_ENGINE, ty::DESCRIPTOR, &mut [engine.handle])?;
        let mut notes = [-1i32; 16];
        let count = engine.get(name::ENGINE_NOTES, ty::NUMERICAL_NOTE, &mut notes)?;
        Ok(notes[..count.min(notes.len())].contains(&NOTE_TENSOR_CORE))
    }

    /// Puts a convolution into a stream. The addresses are those of input, weights, bias and residual (where they are),
    /// result, and scratch memory.
    ///
    /// # Safety
    /// Each address must hold its tensor until the stream has run the convolution.
    ///
    /// # Errors
    /// If the library refuses.
    pub unsafe fn run(&self, plan: &Plan, addresses: &[*mut u8], workspace: *mut u8, stream: Handle) -> Result<()> {
        let pack = Descriptor::new(self.library, kind::VARIANT_PACK)?;
        pack.set(name::PACK_IDS, ty::INT64, &plan.ids)?
            .set(name::PACK_POINTERS, ty::POINTER, addresses)?
            .set(name::PACK_WORKSPACE, ty::POINTER, &[workspace])?;
        let pack = pack.finish()?;
        let guard = self.handle.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: the caller vouches for the addresses; the handle is locked.
        unsafe {
            self.library
                .check("cudnnSetStream", (self.library.cudnnSetStream)(guard.0, stream))?;
            let status = (self.library.cudnnBackendExecute)(guard.0, plan.plan.handle, pack.handle);
            self.library.check("cudnnBackendExecute", status)
        }
    }
}

/// A graph in the making.
struct Drawing<'a> {
    library: &'static Cudnn,
    convolution: &'a Convolution,
    next: i64,
    /// The graph refers to its tensors and operations: they live as long.
    kept: Vec<Descriptor>,
}

struct Drawn {
    graph: Descriptor,
    ids: Vec<i64>,
    _kept: Vec<Descriptor>,
}

impl Drawing<'_> {
    fn tensor(&self, tensor: &Tensor, id: i64, dtype: DType, inside: bool) -> Result<Descriptor> {
        let descriptor = Descriptor::new(self.library, kind::TENSOR)?;
        descriptor
            .set(name::TENSOR_TYPE, ty::DATA_TYPE, &[data_type(dtype)?])?
            .set(name::TENSOR_DIMENSIONS, ty::INT64, &tensor.sizes)?
            .set(name::TENSOR_STRIDES, ty::INT64, &tensor.strides)?
            .set(name::TENSOR_ID, ty::INT64, &[id])?
            .set(name::TENSOR_ALIGNMENT, ty::INT64, &[ALIGNMENT])?
            .set(name::TENSOR_VIRTUAL, ty::BOOLEAN, &[inside])?;
        descriptor.finish()
    }

    /// The type that is computed in: float32, or float64.
    fn wide(&self) -> DType {
        match self.convolution.dtype {
            DType::Float64 => DType::Float64,
            _ => DType::Float32,
        }
    }

    /// The tensor that the operation before the last `left` ones gives: the result, or one that stays inside.
    fn output(&mut self, left: usize) -> Result<Descriptor> {
        let c = self.convolution;
        if left == 0 {
            return self.tensor(&c.y, id::Y, c.dtype, false);
        }
        self.next += 1;
        self.tensor(&c.y, self.next, self.wide(), true)
    }

    fn draw(mut self, handle: Handle) -> Result<Drawn> {
        let c = self.convolution;
        let mut left = usize::from(c.bias) + usize::from(c.residual) + usize::from(c.activation.is_some());
        let mut ids = vec![id::X, id::W];
        let mut operations = vec![];
        let x = self.tensor(&c.x, id::X, c.dtype, false)?;
        let w = self.tensor(&c.w, id::W, c.dtype, false)?;
        let mut y = self.output(left)?;
        operations.push(self.forward(&x, &w, &y)?);
        self.kept.extend([x, w]);
        if c.bias {
            left -= 1;
            let mut sizes = vec![1; c.y.sizes.len()];
            sizes[1] = c.y.sizes[1];
            let mut strides = vec![1; sizes.len()];
            strides[0] = sizes[1];
            strides[2..].fill(sizes[1]);
            let bias = self.tensor(&Tensor { sizes, strides }, id::BIAS, c.dtype, false)?;
            y = self.step(Step::Add(bias), y, left, &mut operations)?;
            ids.push(id::BIAS);
        }
        if c.residual {
            left -= 1;
            let other = self.tensor(&c.y, id::RESIDUAL, c.dtype, false)?;
            y = self.step(Step::Add(other), y, left, &mut operations)?;
            ids.push(id::RESIDUAL);
        }
        if let Some(activation) = c.activation {
            y = self.step(Step::Activation(activation), y, 0, &mut operations)?;
        }
        self.kept.push(y);
        ids.push(id::Y);
        let graph = Descriptor::new(self.library, kind::GRAPH)?;
        let all: Vec<&Descriptor> = operations.iter().collect();
        graph
            .set(name::GRAPH_HANDLE, ty::HANDLE, &[handle])?
            .link(name::GRAPH_OPERATIONS, &all)?;
        let graph = graph.finish()?;
        self.kept.extend(operations);
        Ok(Drawn {
            graph,
            ids,
            _kept: self.kept,
        })
    }

    fn forward(&mut self, x: &Descriptor, w: &Descriptor, y: &Descriptor) -> Result<Descriptor> {
        let c = self.convolution;
        let descriptor = Descriptor::new(self.library, kind::CONVOLUTION)?;
        descriptor
            .set(name::CONVOLUTION_PRECISION, ty::DATA_TYPE, &[data_type(self.wide())?])?
            // A cross-correlation: the kernel is not turned around.
            .set(name::CONVOLUTION_MODE, ty::CONVOLUTION_MODE, &[1i32])?
            .set(name::CONVOLUTION_AXES, ty::INT64, &[c.strides.len() as i64])?
            .set(name::CONVOLUTION_STRIDES, ty::INT64, &c.strides)?
            .set(name::CONVOLUTION_DILATIONS, ty::INT64, &c.dilations)?
            .set(name::CONVOLUTION_BEGIN, ty::INT64, &c.begin)?
            .set(name::CONVOLUTION_END, ty::INT64, &c.end)?;
        let convolution = descriptor.finish()?;
        let operation = Descriptor::new(self.library, kind::CONVOLUTION_FORWARD)?;
        operation
            .link(name::FORWARD_CONVOLUTION, &[&convolution])?
            .link(name::FORWARD_X, &[x])?
            .link(name::FORWARD_W, &[w])?
            .link(name::FORWARD_Y, &[y])?;
        match self.wide() {
            DType::Float64 => {
                operation
                    .set(name::FORWARD_ALPHA, ty::DOUBLE, &[1f64])?
                    .set(name::FORWARD_BETA, ty::DOUBLE, &[0f64])?
            }
            _ => operation
                .set(name::FORWARD_ALPHA, ty::FLOAT, &[1f32])?
                .set(name::FORWARD_BETA, ty::FLOAT, &[0f32])?,
        };
        self.kept.push(convolution);
        operation.finish()
    }

    /// Adds an operation on what the last one gave, behind which `left` follow; gives its output.
    fn step(&mut self, step: Step, x: Descriptor, left: usize, operations: &mut Vec<Descriptor>) -> Result<Descriptor> {
        let y = self.output(left)?;
        let pointwise = Descriptor::new(self.library, kind::POINTWISE)?;
        let (mode, slope) = step.mode();
        pointwise.set(name::POINTWISE_MODE, ty::POINTWISE_MODE, &[mode])?.set(
            name::POINTWISE_PRECISION,
            ty::DATA_TYPE,
            &[data_type(self.wide())?],
        )?;
        if let Some(slope) = slope {
            pointwise.set(name::POINTWISE_RELU_SLOPE, ty::DOUBLE, &[f64::from(slope)])?;
        }
        let pointwise = pointwise.finish()?;
        let operation = Descriptor::new(self.library, kind::OPERATION_POINTWISE)?;
        operation
            .link(name::OPERATION_POINTWISE, &[&pointwise])?
            .link(name::OPERATION_X, &[&x])?
            .link(name::OPERATION_Y, &[&y])?;
        self.kept.extend([pointwise, x]);
        if let Step::Add(other) = step {
            operation.link(name::OPERATION_B, &[&other])?;
            self.kept.push(other);
        }
        operations.push(operation.finish()?);
        Ok(y)
    }
}

enum Step {
    Add(Descriptor),
    Activation(Activation),
}

impl Step {
    /// `cudnnPointwiseMode_t`, and the slope of a Relu.
    fn mode(&self) -> (i32, Option<f32>) {
        match self {
            Step::Add(_) => (0, None),
            Step::Activation(Activation::Relu(slope)) => (100, Some(*slope).filter(|slope| *slope != 0.0)),
            Step::Activation(Activation::Tanh) => (101, None),
            Step::Activation(Activation::Sigmoid) => (102, None),
            Step::Activation(Activation::Gelu) => (104, None),
            Step::Activation(Activation::Silu) => (106, None),
        }
    }
}
