//! Weights of few bits that are written out into the workspace of a call, and products with them by cuBLASLt.

use super::{NBits, SOURCE};
use crate::device::Memory;
use crate::error::Result;
use crate::plan::layout::{Layout, Operand};
use crate::plan::{Call, Instance, Launcher, Prepared, Request};
use crate::providers::cuda::compile::{EntryPoint, compiled_then};
use crate::providers::cuda::device::memory::DeviceMemory;
use crate::providers::cuda::device::{Arguments, Grid};
use crate::providers::cuda::kernels::matmul::library::{Calls, Multiplying, Wanted};
use crate::providers::cuda::kernels::matmul::problem::Problem;
use crate::providers::cuda::kernels::pointwise::code::element;
use crate::providers::cuda::library::cublaslt;
use std::ffi::c_void;
use std::sync::Arc;

/// What operands in a workspace lie at multiples of.
const EVEN: usize = 256;
/// Warps of a block.
const WARPS: usize = 8;

impl NBits {
    /// The `number`th of cuBLASLt's algorithms on weights that are written out in front of it.
    ///
    /// # Errors
    /// If there is none, or a tensor is too large for one kernel.
    pub fn written_out(&self, request: &Request, rows: usize, number: usize) -> Result<Prepared> {
        let (writing, bits) = (self.writing(rows)?, self.weights.geometry.bits);
        let product = self.product(request, rows, number)?;
        Ok(compiled_then([writing.function.clone()], move || {
            let product = product.finish()?;
            let how = format!("{bits} bits written out, {}", product.implementation);
            let workspace = writing.bytes + product.workspace;
            Ok(Instance::new(how, WrittenOut { writing, product }).with_workspace(workspace))
        }))
    }

    fn writing(&self, rows: usize) -> Result<Writing> {
        let warps = self.weights.tiles() * self.weights.pieces();
        Ok(Writing {
            function: self.gpu.compiler.entry(&self.source_of_weights(), "write_out", 0),
            grid: Grid::over(warps * 32, (WARPS * 32) as u32)?,
            numbers: self.numbers(rows)?,
            weights: self.weights.on(&self.gpu.device)?,
            bytes: self.operand().bytes().next_multiple_of(EVEN),
        })
    }

    /// The weights as an operand of a product.
    fn operand(&self) -> Operand {
        let geometry = self.weights.geometry;
        Operand::dense(self.dtype, vec![geometry.n, geometry.k], Layout::Plain)
    }

    /// The product of rows with a matrix of weights that lies behind the left operand.
    fn product(&self, request: &Request, rows: usize, number: usize) -> Result<Prepared> {
        let w = self.operand();
        let problem = Problem::new([false, true], &[rows, self.weights.geometry.k], &w.shape);
        let wanted = Wanted {
            dtype: self.dtype,
            tf32: self.tf32,
            result: self.dtype,
            scale: self.steps.scale,
            epilogue: cublaslt::Epilogue {
                bias: self.steps.bias.is_some(),
                activation: self.steps.activation,
            },
            adds: self.steps.residual.is_some(),
        };
        let calls = Calls::new(&self.gpu, &problem, wanted, number)?;
        let mut inputs = request.inputs.to_vec();
        inputs.insert(1, w);
        let request = Request {
            inputs: &inputs,
            ..*request
        };
        let pass = self.steps.pass.as_ref().map(|pass| (pass, self.inputs.passed.clone()));
        Multiplying::new(&self.gpu, &request, calls, self.inputs.slots, pass).map(Multiplying::prepared)
    }

    fn source_of_weights(&self) -> String {
        let ty = element(self.dtype).unwrap_or("float");
        format!(
            "{SOURCE}extern \"C\" __global__ void __launch_bounds__({}) write_out({ty}* w, const uint8* weights, const NBits s) {{\n    \
             after_previous();\n    write_weights<{}>(w, weights, s);\n}}\n",
            WARPS * 32,
            self.coding(),
        )
    }
}

/// How weights are written out.
struct Writing {
    function: EntryPoint,
    grid: Grid,
    numbers: Vec<i32>,
    weights: Arc<DeviceMemory>,
    /// Of all of them.
    bytes: usize,
}

impl Writing {
    /// Puts it into a stream.
    fn launch(&self, to: *mut u8, stream: *mut c_void) -> Result<()> {
        let mut arguments = Arguments::default();
        arguments.address(to);
        arguments
            .address(self.weights.address().cast_const())
            .fields(&self.numbers);
        // SAFETY: these are the parameters that the source declares; whoever calls it has room for all weights.
        unsafe { self.function.launch(self.grid, &arguments, stream) }
    }
}

/// Weights lie at the beginning of the workspace.
struct WrittenOut {
    writing: Writing,
    product: Instance,
}

impl Launcher for WrittenOut {
    fn launch(&mut self, call: &Call) -> Result<()> {
        self.writing.launch(call.workspace, call.stream)?;
        let mut inputs = call.inputs.to_vec();
        inputs.insert(1, call.workspace.cast_const());
        self.product.launch(&Call {
            inputs: &inputs,
            outputs: call.outputs,
            workspace: call.workspace.wrapping_add(self.writing.bytes),
            stream: call.stream,
        })
    }
}
