//! Runs that are written to where indices say, alone or combined with what is there.

use super::plain;
use super::run_offsets::RunOffsets;
use crate::error::Result;
use crate::network::dtype::DType;
use crate::plan::{Call, Form, Instance, Kernel, Launcher, Prepared, Request};
use crate::providers::common::indexed::Rule;
use crate::providers::cpu::kernels::Why;
use crate::providers::cpu::kernels::reduce::fold::{Fold, Number};
use crate::providers::cpu::simd::convert;

/// How an update meets what is there; none: it replaces it.
///
/// # Errors
/// If numbers of this dtype can't be combined here.
pub fn fold(reduction: &str, dtype: DType) -> std::result::Result<Option<Fold>, Why> {
    let fold = match reduction {
        "add" => Fold::Sum,
        "mul" => Fold::Prod,
        "max" => Fold::Max,
        "min" => Fold::Min,
        _ => return Ok(None),
    };
    match dtype {
        DType::Float64 => Err(Why::new("float64 is combined in float32 here")),
        DType::UInt64 if matches!(fold, Fold::Max | Fold::Min) => {
            Err(Why::new("numbers of uint64 are compared as if they were int64"))
        }
        _ => Ok(Some(fold)),
    }
}

/// ScatterElements or ScatterND.
pub struct Scatter {
    pub name: &'static str,
    pub rule: Rule,
    pub fold: Option<Fold>,
}

impl Kernel for Scatter {
    fn name(&self) -> String {
        self.name.into()
    }

    fn identity(&self) -> String {
        format!("{} {:?} {:?}", self.name, self.rule, self.fold)
    }

    fn forms(&self) -> Vec<Form> {
        plain(3)
    }

    fn in_place(&self) -> Vec<(usize, usize)> {
        vec![(0, 0)]
    }

    fn prepare(&self, request: &Request) -> Result<Prepared> {
        let (x, indices) = (&request.inputs[0], &request.inputs[1]);
        let launcher = Scattering {
            runs: RunOffsets::new(self.rule, x, indices),
            dtype: x.dtype,
            bytes: x.bytes(),
            fold: self.fold,
        };
        let workspace = launcher.runs.workspace();
        Ok(Instance::new("indexed updates", launcher)
            .with_workspace(workspace)
            .into())
    }
}

struct Scattering {
    runs: RunOffsets,
    dtype: DType,
    bytes: usize,
    fold: Option<Fold>,
}

impl Launcher for Scattering {
    fn launch(&mut self, call: &Call) -> Result<()> {
        let (x, updates, target) = (call.inputs[0], call.inputs[2], call.outputs[0]);
        // SAFETY: the planner gives addresses that hold the operands of the request; the starts are those of runs.
        unsafe {
            let starts = self.runs.resolve(call.inputs[1], call.workspace)?;
            if x != target {
                std::ptr::copy_nonoverlapping(x, target, self.bytes);
            }
            let (run, size) = (self.runs.run, self.dtype.size());
            // One after another: where two updates meet, the later one counts.
            for (i, start) in starts.iter().enumerate() {
                let (from, to) = (updates.add(i * run * size), target.add(start * size));
                match self.fold {
                    None => std::ptr::copy_nonoverlapping(from, to, run * size),
                    Some(fold) => combine(fold, self.dtype, from, to, run),
                }
            }
        }
        Ok(())
    }
}

/// Folds `n` updates into as many elements.
///
/// # Safety
/// The updates must be readable, the elements readable and writable.
unsafe fn combine(fold: Fold, dtype: DType, from: *const u8, to: *mut u8, n: usize) {
    for i in 0..n {
        // SAFETY: the caller's promise.
        unsafe {
            let (from, to) = (from.add(i * dtype.size()), to.add(i * dtype.size()));
            if dtype.is_float() {
                let (mut a, mut b) = (0f32, 0f32);
                convert::to_f32(dtype, to, &mut a, 1);
                convert::to_f32(dtype, from, &mut b, 1);
                f64::store(&[(a as f64).join(fold, b as f64)], dtype, to);
            } else {
                let (mut a, mut b) = (0i64, 0i64);
                convert::to_i64(dtype, to, &mut a, 1);
                convert::to_i64(dtype, from, &mut b, 1);
                i64::store(&[a.join(fold, b)], dtype, to);
            }
        }
    }
}
