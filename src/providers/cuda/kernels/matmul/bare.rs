//! A product with nothing behind it, as other kernels use one.

use super::library::{Calls, Wanted};
use super::own::{self, Written};
use super::problem::Problem;
use crate::error::Result;
use crate::network::dtype::DType;
use crate::plan::{Call, Launcher};
use crate::providers::cuda::compile::EntryPoint;
use crate::providers::cuda::kernels::Gpu;
use crate::providers::cuda::kernels::launch::Launches;
use crate::providers::cuda::kernels::pointwise::code::element;
use crate::providers::cuda::library::cublaslt::Epilogue;
use std::ffi::c_void;
use std::sync::Arc;

/// A product of two matrices.
pub struct Bare(Way);

enum Way {
    Library(Box<Calls>),
    Plain(Launches),
}

impl Bare {
    /// The product of matrices of these shapes and element type, the right one transposed, as numbers of `result`; operands
    /// of float32 may be rounded to tf32 where that is said.
    ///
    /// # Errors
    /// If it is too large for one kernel.
    pub fn new(
        gpu: &Arc<Gpu>,
        [dtype, result]: [DType; 2],
        tf32: bool,
        left: [usize; 2],
        right: [usize; 2],
    ) -> Result<Self> {
        let problem = Problem::new([false, true], &left, &right);
        let wanted = Wanted {
            dtype,
            tf32,
            result,
            scale: 1.0,
            epilogue: Epilogue::default(),
            adds: false,
        };
        // Without the library, or where it has no algorithm, there is the kernel below.
        if problem.k > 0
            && let Ok(calls) = Calls::new(gpu, &problem, wanted, 0)
        {
            return Ok(Self(Way::Library(Box::new(calls))));
        }
        let [from, to] = [dtype, result].map(|dtype| element(dtype).unwrap_or("float"));
        let text = format!(
            "typedef {from} T0;\ntypedef {to} Y0;\nstruct Tail {{\n    \
             __device__ __forceinline__ Y0 one(const Wide<T0>::type sum, uint64, int32) const {{ return (Y0)sum; }}\n}};\n"
        );
        let written = Written {
            text,
            operands: 0,
            others: 0,
            unused: 0,
            products: 1,
            held: false,
        };
        Ok(Self(Way::Plain(own::plain(gpu, &problem, &written)?)))
    }

    /// What it is, for reports.
    pub fn name(&self) -> &'static str {
        match &self.0 {
            Way::Library(calls) => calls.name(),
            Way::Plain(_) => "plain arithmetic",
        }
    }

    /// Bytes of scratch memory that it needs.
    pub fn workspace(&self) -> usize {
        match &self.0 {
            Way::Library(calls) => calls.workspace(),
            Way::Plain(launch) => launch.workspace,
        }
    }

    /// What is to be compiled.
    pub fn entries(&self) -> Vec<EntryPoint> {
        match &self.0 {
            Way::Library(_) => vec![],
            Way::Plain(launch) => launch.entries(),
        }
    }

    /// Puts it into a stream.
    ///
    /// # Safety
    /// The addresses must hold both operands, the result and the scratch memory until the stream has run it.
    ///
    /// # Errors
    /// If the device refuses.
    pub unsafe fn run(
        &mut self,
        operands: [*const u8; 2],
        result: *mut u8,
        workspace: *mut u8,
        stream: *mut c_void,
    ) -> Result<()> {
        match &mut self.0 {
            Way::Library(calls) => {
                let [left, right] = operands.map(<*const u8>::cast_mut);
                let none = std::ptr::null_mut();
                // SAFETY: the caller's promise.
                unsafe { calls.run([left, right, none, none, result, workspace], stream) }
            }
            Way::Plain(launch) => launch.launch(&Call {
                inputs: &operands,
                outputs: &[result],
                workspace,
                stream,
            }),
        }
    }
}
