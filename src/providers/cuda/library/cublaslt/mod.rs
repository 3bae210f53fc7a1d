//! cuBLASLt, NVIDIA's matrix products (cuBLAS Library User Guide, "Using the cuBLASLt API").

mod plan;

pub use plan::{CHOICES, Plan};

use super::driver::Handle;
use super::library;
use crate::error::{Error, Result};
use crate::network::dtype::DType;
use std::collections::HashMap;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::{Arc, Mutex, OnceLock};

library! {
    /// The library.
    CublasLt from &["libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"];
    fn cublasLtGetVersion() -> usize;
    fn cublasLtGetStatusString(c_int) -> *const c_char;
    fn cublasLtCreate(*mut Handle) -> c_int;
    fn cublasLtMatmulDescCreate(*mut Handle, c_int, c_int) -> c_int;
    fn cublasLtMatmulDescSetAttribute(Handle, c_int, *const c_void, usize) -> c_int;
    fn cublasLtMatmulDescDestroy(Handle) -> c_int;
    fn cublasLtMatrixLayoutCreate(*mut Handle, c_int, u64, u64, i64) -> c_int;
    fn cublasLtMatrixLayoutSetAttribute(Handle, c_int, *const c_void, usize) -> c_int;
    fn cublasLtMatrixLayoutDestroy(Handle) -> c_int;
    fn cublasLtMatmulPreferenceCreate(*mut Handle) -> c_int;
    fn cublasLtMatmulPreferenceSetAttribute(Handle, c_int, *const c_void, usize) -> c_int;
    fn cublasLtMatmulPreferenceDestroy(Handle) -> c_int;
    fn cublasLtMatmulAlgoGetHeuristic(
        Handle, Handle, Handle, Handle, Handle, Handle, Handle, c_int, *mut Choice, *mut c_int,
    ) -> c_int;
    fn cublasLtMatmul(
        Handle, Handle, *const c_void, *const c_void, Handle, *const c_void, Handle, *const c_void, *const c_void,
        Handle, *mut c_void, Handle, *const Algorithm, *mut c_void, usize, Handle,
    ) -> c_int;
}

/// `cublasLtMatmulAlgo_t`: opaque, and moved as it is.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Algorithm([u64; 8]);

/// `cublasLtMatmulHeuristicResult_t`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Choice {
    /// The algorithm.
    pub algorithm: Algorithm,
    /// Bytes of scratch memory that it needs.
    pub workspace: usize,
    status: c_int,
    waves: f32,
    reserved: [c_int; 4],
}

/// The numbers of the headers that we use.
mod number {
    pub const COMPUTE_32F: i32 = 68;
    pub const COMPUTE_64F: i32 = 70;
    pub const COMPUTE_32F_FAST_TF32: i32 = 77;
    pub const TRANSA: i32 = 3;
    pub const TRANSB: i32 = 4;
    pub const EPILOGUE: i32 = 7;
    pub const BIAS_POINTER: i32 = 8;
    pub const BATCH_COUNT: i32 = 5;
    pub const BATCH_STRIDE: i32 = 6;
    pub const MAX_WORKSPACE: i32 = 1;
    pub const MIN_ALIGNMENTS: [i32; 4] = [5, 6, 7, 8];
    pub const OP_T: i32 = 1;
}

/// What is done to a product before it is stored (`cublasLtEpilogue_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Epilogue {
    /// A number for each column is added.
    pub bias: bool,
    /// A function of each number.
    pub activation: Option<Activation>,
}

/// A function that an epilogue knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Activation {
    /// Relu.
    Relu,
    /// Gelu, approximated by tanh.
    GeluTanh,
}

impl Epilogue {
    fn number(self) -> i32 {
        let activation = match self.activation {
            None => 0,
            Some(Activation::Relu) => 2,
            Some(Activation::GeluTanh) => 32,
        };
        match activation + if self.bias { 4 } else { 0 } {
            0 => 1,
            other => other,
        }
    }
}

fn data_type(dtype: DType) -> Result<i32> {
    Ok(match dtype {
        DType::Float32 => 0,
        DType::Float64 => 1,
        DType::Float16 => 2,
        DType::BFloat16 => 14,
        other => return Err(Error::unsupported(format!("cuBLASLt does not multiply {other}"))),
    })
}

/// The library with a handle on the current GPU.
pub struct Blas {
    library: &'static CublasLt,
    handle: Handle,
    /// What it answered, by product: asking takes longer than a small product.
    asked: Mutex<HashMap<Product, Arc<[Choice]>>>,
}

// SAFETY: a cuBLASLt handle may be used from any number of threads (User Guide, "Thread Safety").
unsafe impl Send for Blas {}
// SAFETY: as above.
unsafe impl Sync for Blas {}

/// The library, opened once.
///
/// # Errors
/// If there is none.
pub fn cublaslt() -> Result<&'static CublasLt> {
    static LIBRARY: OnceLock<Result<CublasLt>> = OnceLock::new();
    LIBRARY.get_or_init(CublasLt::load).as_ref().map_err(Clone::clone)
}

impl CublasLt {
    /// 10000 x major + 100 x minor + patch.
    pub fn version(&self) -> usize {
        // SAFETY: it only tells a number.
        unsafe { (self.cublasLtGetVersion)() }
    }
}

/// `CUBLAS_STATUS_ALLOC_FAILED`.
const ALLOC_FAILED: c_int = 3;

fn check(library: &CublasLt, call: &str, status: c_int) -> Result<()> {
    if status == 0 {
        return Ok(());
    }
    // SAFETY: the library gives a text for every number.
    let text = unsafe { (library.cublasLtGetStatusString)(status) };
    let text = if text.is_null() {
        format!("status {status}")
    } else {
        // SAFETY: the text ends with a zero, and lives as long as the library.
        unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
    };
    let message = format!("cuBLASLt {} failed: {text} in {call}", library.version());
    Err(match status {
        ALLOC_FAILED => Error::memory(message),
        _ => Error::device(message),
    })
}

/// The operands of a product of row-major matrices, `batches` at a time.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Product {
    /// The element type of both operands.
    pub dtype: DType,
    /// Whether operands of float32 may be rounded to tf32.
    pub tf32: bool,
    /// That of the result, of the bias and of what is added.
    pub result: DType,
    /// Rows of the result.
    pub m: usize,
    /// Columns of the result.
    pub n: usize,
    /// Terms of each sum.
    pub k: usize,
    /// Whether the left and the right operand lie transposed.
    pub transposed: [bool; 2],
    /// How many products there are.
    pub batches: usize,
    /// Elements from one left operand to the next, from one right one, from one result.
    pub strides: [usize; 3],
    /// What is done to the result.
    pub epilogue: Epilogue,
    /// Whether a third matrix is added.
    pub adds: bool,
    /// What all addresses are multiples of, in bytes.
    pub alignment: u32,
}

impl Product {
    /// Whether operands are rounded to tf32. Those of one row or column are not: it takes as long as the matrix takes to be read, and
    /// what classifiers and detectors end with would make half of a network's error.
    fn rounds(&self) -> bool {
        self.tf32 && self.m.min(self.n) > 1
    }
}

impl Blas {
    /// A handle on the current GPU.
    ///
    /// # Errors
    /// If there is no library, or it fails.
    pub fn new() -> Result<Self> {
        let library = cublaslt()?;
        let mut handle = std::ptr::null_mut();
        // SAFETY: the handle is written; it lives as long as the process, as the GPU's context does.
        check(library, "cublasLtCreate", unsafe {
            (library.cublasLtCreate)(&mut handle)
        })?;
        Ok(Self {
            library,
            handle,
            asked: Mutex::default(),
        })
    }

    fn check(&self, call: &str, status: c_int) -> Result<()> {
        check(self.library, call, status)
    }
}
