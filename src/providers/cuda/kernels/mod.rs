//! The kernels of the CUDA provider: one family per file, listed in order of preference.

mod attention;
mod boxes;
mod conv;
mod copies;
mod deform_conv;
mod gpu_as_device;
mod histogram;
mod indexed;
mod launch;
mod matmul;
mod n_bits;
mod packs;
mod parts;
mod places;
pub mod plugin;
mod pointwise;
mod pool;
mod quantize_behind;
mod quantized;
mod recurrent;
mod reshape;
mod resize;
mod rows;
mod sampled;
mod singles;
mod spare;
mod squeeze_excitation;
mod strided;
mod tail;
pub mod transfer;
mod turns;
mod warm_up;
mod words;

pub use copies::Reorder;

use super::compile::Compiler;
use super::device::Device;
use super::library::cublaslt::{Blas, cublaslt};
use super::library::cudnn::{Dnn, cudnn};
use super::library::nvrtc::nvrtc;
use crate::error::Error;
use crate::network::dtype::DType;
use crate::network::ops::tf32;
use crate::plan::Candidate;
use crate::providers::common::scope::Scope;
use crate::providers::common::{self, Answer, Offers, Why};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// The first generation whose tensor cores read tf32, and integers of 8 bits in steps of 32.
const AMPERE: (i32, i32) = (8, 0);
/// The first GPUs whose tensor cores multiply float8_e4m3fn.
const ADA: (i32, i32) = (8, 9);

/// What kernels need of the GPU that they run on.
pub struct Gpu {
    /// The GPU.
    pub device: Arc<Device>,
    /// Its compiler.
    pub compiler: Arc<Compiler>,
    blas: Opened<Blas>,
    dnn: Opened<Dnn>,
    warm: OnceLock<()>,
}

/// A library that is opened when it is needed.
struct Opened<T> {
    found: OnceLock<T>,
    opening: Mutex<()>,
}

impl<T> Default for Opened<T> {
    fn default() -> Self {
        Self {
            found: OnceLock::new(),
            opening: Mutex::default(),
        }
    }
}

impl Gpu {
    /// A GPU for kernels.
    pub fn new(device: Arc<Device>) -> Self {
        let compiler = Arc::new(Compiler::new(device.clone()));
        Self {
            device,
            compiler,
            blas: Opened::default(),
            dnn: Opened::default(),
            warm: OnceLock::new(),
        }
    }

    /// Lets libraries set up what they set up once.
    pub fn warm_up(&self) {
        self.warm.get_or_init(|| warm_up::warm_up(self));
    }

    /// Whether its tensor cores read tf32.
    pub fn has_tf32(&self) -> bool {
        self.device.capability >= AMPERE
    }

    /// Whether its tensor cores multiply integers of 8 bits in steps of 32.
    pub fn has_int8(&self) -> bool {
        self.device.capability >= AMPERE
    }

    /// Whether it has kernels for weights that stay in few bits.
    pub fn has_packed_weights(&self) -> bool {
        self.device.capability >= AMPERE
    }

    /// Whether its tensor cores multiply float8_e4m3fn.
    pub fn has_fp8(&self) -> bool {
        self.device.capability >= ADA
    }

    /// Whether a layer may round what it multiplies to tf32 here.
    pub fn rounds_to_tf32(&self, scope: &Scope) -> bool {
        self.has_tf32() && tf32::is_allowed(scope.layer()) && scope.output_type(0).dtype == DType::Float32
    }

    /// cuBLASLt on this GPU, opened when it is first asked for.
    ///
    /// # Errors
    /// If there is no such library, or it lacks memory.
    pub fn blas(&self) -> Result<&Blas, Error> {
        self.opened(&self.blas, Blas::new)
    }

    /// cuDNN on this GPU, opened when it is first asked for.
    ///
    /// # Errors
    /// If there is no such library, or it lacks memory.
    pub fn dnn(&self) -> Result<&Dnn, Error> {
        self.opened(&self.dnn, Dnn::new)
    }

    /// A failure is not kept: memory that was short may be there the next time.
    fn opened<'a, T>(&self, kept: &'a Opened<T>, open: fn() -> Result<T, Error>) -> Result<&'a T, Error> {
        if let Some(open) = kept.found.get() {
            return Ok(open);
        }
        // Who comes while another thread opens it waits for that one's.
        let _alone = kept.opening.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(open) = kept.found.get() {
            return Ok(open);
        }
        let _entered = self.device.enter()?;
        let opened = open()?;
        Ok(kept.found.get_or_init(|| opened))
    }

    /// The versions of NVIDIA's libraries that were found.
    pub fn libraries(&self) -> BTreeMap<String, String> {
        let nvrtc = nvrtc().ok().map(|nvrtc| ("nvrtc", nvrtc.version()));
        let blas = cublaslt().ok().map(|blas| ("cublaslt", blas.version().to_string()));
        let dnn = cudnn().ok().map(|dnn| ("cudnn", dnn.version().to_string()));
        let found = [nvrtc, blas, dnn].into_iter().flatten();
        found.map(|(name, version)| (name.to_string(), version)).collect()
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
    family("quantized", quantized::offer),
    family("conv", conv::offer),
    family("matmul", matmul::offer),
    family("n_bits", n_bits::offer),
    family("attention", attention::offer),
    family("recurrent", recurrent::offer),
    family("pool", pool::offer),
    family("rows", rows::offer),
    family("squeeze_excitation", squeeze_excitation::offer),
    family("histogram", histogram::offer),
    family("pointwise", pointwise::offer),
    family("reshape", reshape::offer),
    family("copies", copies::offer),
    family("parts", parts::offer),
    family("boxes", boxes::offer),
    family("resize", resize::offer),
    family("sampled", sampled::offer),
    family("deform_conv", deform_conv::offer),
    family("places", places::offer),
    family("indexed", indexed::offer),
    family("plugin", plugin::offer),
];

/// See [`crate::plan::Provider::unplanned`].
pub fn unplanned(scope: &Scope, gpu: &Arc<Gpu>) -> Vec<Candidate> {
    matmul::rows::offer(scope, gpu)
}

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
