//! The kernels of the CUDA provider: one family per file, listed in order of preference.

mod conv;
mod copies;
mod launch;
mod matmul;
mod pointwise;
mod pool;
mod recurrent;
mod reshape;
mod rows;
mod strided;
mod tail;
pub mod transfer;

pub use copies::Reorder;

use super::compile::Compiler;
use super::device::Device;
use super::library::cublaslt::Blas;
use super::library::cudnn::Dnn;
use crate::error::Error;
use crate::plan::Candidate;
use crate::providers::common::scope::Scope;
use crate::providers::common::{self, Answer, Offers, Why};
use std::sync::{Arc, OnceLock};

/// What kernels need of the GPU that they run on.
pub struct Gpu {
    /// The GPU.
    pub device: Arc<Device>,
    /// Its compiler.
    pub compiler: Compiler,
    blas: OnceLock<Result<Blas, Error>>,
    dnn: OnceLock<Result<Dnn, Error>>,
}

impl Gpu {
    /// A GPU for kernels.
    pub fn new(device: Arc<Device>) -> Self {
        let compiler = Compiler::new(device.clone());
        Self {
            device,
            compiler,
            blas: OnceLock::new(),
            dnn: OnceLock::new(),
        }
    }

    /// cuBLASLt on this GPU, opened when it is first asked for.
    ///
    /// # Errors
    /// If there is no such library.
    pub fn blas(&self) -> Result<&Blas, Error> {
        let open = || {
            let _entered = self.device.enter()?;
            Blas::new()
        };
        self.blas.get_or_init(open).as_ref().map_err(Clone::clone)
    }

    /// cuDNN on this GPU, opened when it is first asked for.
    ///
    /// # Errors
    /// If there is no such library.
    pub fn dnn(&self) -> Result<&Dnn, Error> {
        let open = || {
            let _entered = self.device.enter()?;
            Dnn::new()
        };
        self.dnn.get_or_init(open).as_ref().map_err(Clone::clone)
    }
}

/// A family of kernels.
struct Family {
    /// Its name in reports.
    name: &'static str,
    /// What it can do with a layer.
    offer: fn(&Scope, &Arc<Gpu>) -> Answer,
}

const fn family(name: &'static str, offer: fn(&Scope, &Arc<Gpu>) -> Answer) -> Family {
    Family { name, offer }
}

/// Every family, the preferred ones first.
static FAMILIES: &[Family] = &[
    family("conv", conv::offer),
    family("matmul", matmul::offer),
    family("recurrent", recurrent::offer),
    family("pool", pool::offer),
    family("rows", rows::offer),
    family("pointwise", pointwise::offer),
    family("reshape", reshape::offer),
    family("copies", copies::offer),
];

/// Everything that the families offer for a layer; the last one runs it alone.
///
/// # Errors
/// If no family runs it.
pub fn candidates(scope: &Scope, gpu: &Arc<Gpu>) -> Result<Vec<Candidate>, Why> {
    let answers = FAMILIES.iter().map(|family| (family.name, (family.offer)(scope, gpu)));
    let Offers {
        mut found,
        alone,
        refused,
    } = common::ask(scope, answers)?;
    match alone {
        Some(candidate) => found.push(candidate),
        None if refused.is_empty() => return Err(Why::new(format!("no CUDA kernel runs {}", scope.op()))),
        None => return Err(Why::new(refused.join("; "))),
    }
    Ok(found)
}
