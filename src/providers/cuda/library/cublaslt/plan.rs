//! A product that is ready to run: descriptors, and the algorithm.

use super::{Blas, Choice, Product, data_type, number};
use crate::error::{Error, Result};
use crate::network::dtype::DType;
use crate::providers::cuda::library::driver::Handle;
use std::ffi::{c_int, c_void};
use std::sync::{Arc, PoisonError};

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

/// Scratch memory that an algorithm may ask for: room for the parts of split sums. Those of a result that gives every
/// processor something to do gain nothing from it.
fn most_workspace(product: &Product) -> usize {
    /// Enough for what is no part of a result, and for many parts of a small one.
    const ANY: usize = 4 << 20;
    /// A larger result is never split.
    const SPLIT: usize = 2 << 20;
    /// So many parts.
    const PARTS: usize = 2;
    let elements = product.batches * product.m * product.n;
    match elements {
        ..SPLIT => ANY.max(PARTS * elements * size_of::<f32>()),
        _ => ANY,
    }
}

/// The algorithms that are looked at for one product: those that split the sums of small ones stand far down the list.
pub const CHOICES: usize = 16;

impl Blas {
    /// A matrix as cuBLASLt sees it: column by column, so that a row-major one is its transpose.
    fn matrix(&self, dtype: DType, batches: usize, [rows, columns, stride]: [usize; 3]) -> Result<Owned> {
        let library = self.library;
        let mut handle = std::ptr::null_mut();
        let ty = data_type(dtype)?;
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
            let (batches, stride) = (batches as i32, stride as i64);
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
            DType::Float32 if product.rounds() => (number::COMPUTE_32F_FAST_TF32, data_type(DType::Float32)?),
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
        let (dtype, batches, strides) = (product.dtype, product.batches, product.strides);
        let (rows, columns) = turn(product.m, product.k, product.transposed[0]);
        let left = self.matrix(dtype, batches, [rows, columns, strides[0]])?;
        let (rows, columns) = turn(product.k, product.n, product.transposed[1]);
        let right = self.matrix(dtype, batches, [rows, columns, strides[1]])?;
        let result = self.matrix(product.result, batches, [product.m, product.n, strides[2]])?;
        let operation = self.operation(&product)?;
        let choices = self.choices(&product, [&operation, &left, &right, &result])?;
        let choice = *choices
            .get(number.min(choices.len().saturating_sub(1)))
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

    /// The algorithms that the library thinks best for a product, the best first; asked once a process.
    fn choices(&self, product: &Product, descriptors: [&Owned; 4]) -> Result<Arc<[Choice]>> {
        // Held while it asks: who wants the same product waits for the answer.
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = asked.get(product) {
            return Ok(known.clone());
        }
        let preference = self.preference(product.alignment, most_workspace(product))?;
        let (mut choices, mut count) = ([Choice::default(); CHOICES], 0);
        let [operation, left, right, result] = descriptors.map(|owned| owned.handle);
        // SAFETY: all descriptors are alive, and there is room for so many choices.
        let status = unsafe {
            (self.library.cublasLtMatmulAlgoGetHeuristic)(
                self.handle,
                operation,
                right,
                left,
                result,
                result,
                preference.handle,
                CHOICES as c_int,
                choices.as_mut_ptr(),
                &mut count,
            )
        };
        self.check("cublasLtMatmulAlgoGetHeuristic", status)?;
        let found = &choices[..(count.max(0) as usize).min(CHOICES)];
        let found: Arc<[Choice]> = found.iter().filter(|choice| choice.status == 0).copied().collect();
        asked.insert(product.clone(), found.clone());
        Ok(found)
    }

    fn preference(&self, alignment: u32, most: usize) -> Result<Owned> {
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
                    set(handle, which, (&raw const alignment).cast(), size_of::<u32>()),
                )?;
            }
            Ok(owned)
        }
    }

    /// Puts a product into a stream. `addresses` are those of the left and the right operand, of the bias, of what is
    /// added (null where there is none), and of the result; and of the scratch memory. The product is
    /// multiplied by `scale` before anything else.
    ///
    /// # Safety
    /// Each address must hold its operand until the stream has run the product.
    ///
    /// # Errors
    /// If the library refuses.
    pub unsafe fn run(&self, plan: &mut Plan, addresses: [*mut u8; 6], scale: f64, stream: Handle) -> Result<()> {
        let [left, right, bias, added, result, workspace] = addresses;
        let library = self.library;
        let operation = plan.operation.handle;
        let narrow = ([scale as f32], [if plan.product.adds { 1f32 } else { 0.0 }]);
        let wide = ([scale], [f64::from(narrow.1[0])]);
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

    /// What it is, for reports.
    pub fn name(&self) -> &'static str {
        if self.product.rounds() {
            "cuBLASLt in tf32"
        } else {
            "cuBLASLt"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::providers::cuda::library::cublaslt::Epilogue;

    fn product(m: usize, n: usize) -> Product {
        Product {
            dtype: DType::Float32,
            tf32: true,
            result: DType::Float32,
            m,
            n,
            k: 64,
            transposed: [false; 2],
            batches: 1,
            strides: [0; 3],
            epilogue: Epilogue::default(),
            adds: false,
            alignment: 16,
        }
    }

    #[test]
    fn a_vector_is_not_rounded() {
        assert!(product(2, 64).rounds());
        assert!(!product(1, 64).rounds() && !product(64, 1).rounds());
    }

    #[test]
    fn only_sums_that_are_split_have_room() {
        let room = |m: usize, n: usize| most_workspace(&product(m, n));
        assert_eq!((room(128, 768), room(4096, 3072)), (4 << 20, 4 << 20));
        assert_eq!(room(1024, 1024), 8 << 20);
    }
}
