//! cuBLASLt, NVIDIA's matrix products (cuBLAS Library User Guide, "Using the cuBLASLt API").

use super::driver::Handle;
use super::library;
use crate::error::{Error, Result};
use crate::network::dtype::DType;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::OnceLock;

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
    pub const TRANSA: i32 = 3;
    pub const TRANSB: i32 = 4;
    pub const EPILOGUE: i32 = 7;
    pub const BIAS_POINTER: i32 = 8;
    pub const BATCH_COUNT: i32 = 5;
    pub const BATCH_STRIDE: i32 = 6;
    pub const MAX_WORKSPACE: i32 = 1;
    pub const MIN_ALIGNMENTS: [i32; 4] = [5, 6, 7, 8];
    pub const OP_T: i32 = 1;
    pub const ALLOC_FAILED: i32 = 3;
}

/// What is done to a product before it is stored (`cublasLtEpilogue_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Epilogue {
    /// A number for each column is added.
    pub bias: bool,
    /// A function of each number.
    pub activation: Option<Activation>,
}

/// A function that an epilogue knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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
        number::ALLOC_FAILED => Error::memory(message),
        _ => Error::device(message),
    })
}

/// The operands of a product of row-major matrices, `batches` at a time.
#[derive(Debug, Clone)]
pub struct Product {
    /// The element type of all operands.
    pub dtype: DType,
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
}

/// A descriptor that is destroyed in the end.
struct Owned {
    handle: Handle,
    destroy: unsafe extern "C" fn(Handle) -> c_int,
}

impl Drop for Owned {
    fn drop(&mut self) {
        // SAFETY: it was created, and is not used any more.
        unsafe { (self.destroy)(self.handle) };
    }
}

/// A product that is ready to run.
pub struct Plan {
    operation: Owned,
    left: Owned,
    right: Owned,
    result: Owned,
    choice: Choice,
    product: Product,
}

// SAFETY: the descriptors belong to the plan, and one thread at a time uses it.
unsafe impl Send for Plan {}

/// Scratch memory that an algorithm may ask for.
const MOST_WORKSPACE: usize = 32 << 20;
/// What operands are aligned to.
static ALIGNMENT: u32 = 16;
/// The algorithms that are looked at for one product.
pub const CHOICES: usize = 8;

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
        Ok(Self { library, handle })
    }

    fn check(&self, call: &str, status: c_int) -> Result<()> {
        check(self.library, call, status)
    }

    /// A matrix as cuBLASLt sees it: column by column, so that a row-major one is its transpose.
    fn matrix(&self, product: &Product, rows: usize, columns: usize, stride: usize) -> Result<Owned> {
        let library = self.library;
        let mut handle = std::ptr::null_mut();
        let ty = data_type(product.dtype)?;
        // SAFETY: the handle is written, and each attribute has the type that the guide says.
        unsafe {
            let made =
                (library.cublasLtMatrixLayoutCreate)(&mut handle, ty, columns as u64, rows as u64, columns as i64);
            self.check("cublasLtMatrixLayoutCreate", made)?;
            let owned = Owned {
                handle,
                destroy: library.cublasLtMatrixLayoutDestroy,
            };
            let set = library.cublasLtMatrixLayoutSetAttribute;
            let (batches, stride) = (product.batches as i32, stride as i64);
            let call = "cublasLtMatrixLayoutSetAttribute";
            self.check(
                call,
                set(
                    handle,
                    number::BATCH_COUNT,
                    (&raw const batches).cast(),
                    size_of::<i32>(),
                ),
            )?;
            self.check(
                call,
                set(
                    handle,
                    number::BATCH_STRIDE,
                    (&raw const stride).cast(),
                    size_of::<i64>(),
                ),
            )?;
            Ok(owned)
        }
    }

    fn operation(&self, product: &Product) -> Result<Owned> {
        let library = self.library;
        let (compute, scale) = match product.dtype {
            DType::Float64 => (number::COMPUTE_64F, data_type(DType::Float64)?),
            _ => (number::COMPUTE_32F, data_type(DType::Float32)?),
        };
        let mut handle = std::ptr::null_mut();
        // SAFETY: the handle is written, and each attribute has the type that the guide says.
        unsafe {
            self.check(
                "cublasLtMatmulDescCreate",
                (library.cublasLtMatmulDescCreate)(&mut handle, compute, scale),
            )?;
            let owned = Owned {
                handle,
                destroy: library.cublasLtMatmulDescDestroy,
            };
            let set = |which: i32, value: i32| {
                let set = library.cublasLtMatmulDescSetAttribute;
                let status = set(handle, which, (&raw const value).cast(), size_of::<i32>());
                self.check("cublasLtMatmulDescSetAttribute", status)
            };
            // Its first operand is our right one: the transpose of a product is that of the operands, exchanged.
            let [left, right] = product.transposed;
            for (which, transposed) in [(number::TRANSA, right), (number::TRANSB, left)] {
                if transposed {
                    set(which, number::OP_T)?;
                }
            }
            set(number::EPILOGUE, product.epilogue.number())?;
            Ok(owned)
        }
    }

    /// The product in the `number`th of the algorithms that the library thinks best, or the last of them.
    ///
    /// # Errors
    /// If it has none.
    pub fn plan(&self, product: Product, number: usize) -> Result<Plan> {
        let turn = |rows, columns, transposed| if transposed { (columns, rows) } else { (rows, columns) };
        let (rows, columns) = turn(product.m, product.k, product.transposed[0]);
        let left = self.matrix(&product, rows, columns, product.strides[0])?;
        let (rows, columns) = turn(product.k, product.n, product.transposed[1]);
        let right = self.matrix(&product, rows, columns, product.strides[1])?;
        let result = self.matrix(&product, product.m, product.n, product.strides[2])?;
        let operation = self.operation(&product)?;
        let preference = self.preference()?;
        let (mut choices, mut count) = ([Choice::default(); CHOICES], 0);
        let all = [
            operation.handle,
            right.handle,
            left.handle,
            result.handle,
            result.handle,
            preference.handle,
        ];
        // SAFETY: all descriptors are alive, and there is room for so many choices.
        let status = unsafe {
            let [operation, a, b, c, d, preference] = all;
            let ask = self.library.cublasLtMatmulAlgoGetHeuristic;
            let room = CHOICES as c_int;
            ask(
                self.handle,
                operation,
                a,
                b,
                c,
                d,
                preference,
                room,
                choices.as_mut_ptr(),
                &mut count,
            )
        };
        self.check("cublasLtMatmulAlgoGetHeuristic", status)?;
        let found = &choices[..(count.max(0) as usize).min(CHOICES)];
        let choice = *found
            .get(number.min(found.len().saturating_sub(1)))
            .ok_or_else(|| Error::unsupported("cuBLASLt has no algorithm for a product").got(format!("{product:?}")))?;
        Ok(Plan {
            operation,
            left,
            right,
            result,
            choice,
            product,
        })
    }

    fn preference(&self) -> Result<Owned> {
        let library = self.library;
        let mut handle = std::ptr::null_mut();
        // SAFETY: the handle is written, and each attribute has the type that the guide says.
        unsafe {
            self.check(
                "cublasLtMatmulPreferenceCreate",
                (library.cublasLtMatmulPreferenceCreate)(&mut handle),
            )?;
            let owned = Owned {
                handle,
                destroy: library.cublasLtMatmulPreferenceDestroy,
            };
            let set = library.cublasLtMatmulPreferenceSetAttribute;
            let call = "cublasLtMatmulPreferenceSetAttribute";
            let most = MOST_WORKSPACE;
            self.check(
                call,
                set(
                    handle,
                    number::MAX_WORKSPACE,
                    (&raw const most).cast(),
                    size_of::<usize>(),
                ),
            )?;
            for which in number::MIN_ALIGNMENTS {
                self.check(
                    call,
                    set(handle, which, (&raw const ALIGNMENT).cast(), size_of::<u32>()),
                )?;
            }
            Ok(owned)
        }
    }

    /// Puts a product into a stream. `addresses` are those of the left and the right operand, of the bias, of what is
    /// added (null where there is none), and of the result; and of the scratch memory.
    ///
    /// # Safety
    /// Each address must hold its operand until the stream has run the product.
    ///
    /// # Errors
    /// If the library refuses.
    pub unsafe fn run(&self, plan: &mut Plan, addresses: [*mut u8; 6], stream: Handle) -> Result<()> {
        let [left, right, bias, added, result, workspace] = addresses;
        let library = self.library;
        let operation = plan.operation.handle;
        let narrow = ([1f32], [if plan.product.adds { 1f32 } else { 0.0 }]);
        let wide = ([1f64], [f64::from(narrow.1[0])]);
        let (alpha, beta): (*const c_void, *const c_void) = match plan.product.dtype {
            DType::Float64 => (wide.0.as_ptr().cast(), wide.1.as_ptr().cast()),
            _ => (narrow.0.as_ptr().cast(), narrow.1.as_ptr().cast()),
        };
        let added = if plan.product.adds { added } else { result };
        // SAFETY: the caller vouches for the addresses; alpha and beta are read before the call returns.
        unsafe {
            if plan.product.epilogue.bias {
                let set = library.cublasLtMatmulDescSetAttribute;
                let status = set(
                    operation,
                    number::BIAS_POINTER,
                    (&raw const bias).cast(),
                    size_of::<*mut u8>(),
                );
                self.check("cublasLtMatmulDescSetAttribute", status)?;
            }
            let status = (library.cublasLtMatmul)(
                self.handle,
                operation,
                alpha,
                right.cast(),
                plan.right.handle,
                left.cast(),
                plan.left.handle,
                beta,
                added.cast(),
                plan.result.handle,
                result.cast(),
                plan.result.handle,
                &plan.choice.algorithm,
                workspace.cast(),
                plan.choice.workspace,
                stream,
            );
            self.check("cublasLtMatmul", status)
        }
    }
}

impl Plan {
    /// Bytes of scratch memory that it needs.
    pub fn workspace(&self) -> usize {
        self.choice.workspace
    }
}
