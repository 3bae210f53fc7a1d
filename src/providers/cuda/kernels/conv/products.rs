//! Convolutions that are matrix products of pixels and weights, on cuBLASLt: kernels of one element, and kernels that see
//! no pixel twice, which are laid out as rows first.

use super::super::Gpu;
use super::super::launch::fields;
use super::super::pointwise::code::element;
use super::super::spare::Spare;
use super::direct::{AXES, Direct, Finish, WIDEST, pack, sides};
use crate::error::{Error, ErrorKind, Result};
use crate::network::dtype::DType;
use crate::plan::{Call, Instance, Launcher, Prepared};
use crate::providers::cuda::compile::{EntryPoint, compiled};
use crate::providers::cuda::device::{Arguments, Grid};
use crate::providers::cuda::library::cublaslt::{self, Epilogue, Plan, Product};
use crate::providers::cuda::library::cudnn::{Activation, Convolution};
use std::sync::Arc;

/// So many of cuBLASLt's algorithms are timed.
pub const ALGORITHMS: u32 = 4;
/// What lies in the workspace begins at multiples of this.
const ALIGNMENT: usize = 256;
/// What cuBLASLt was told of all addresses.
const EVEN: usize = 16;

/// Whether an epilogue does what follows.
pub fn follows(activation: Option<Activation>) -> bool {
    matches!(activation, None | Some(Activation::Relu(0.0)))
}

fn unfit(what: &str, c: &Convolution) -> Error {
    Error::unsupported(what).got(format!("{c:?}"))
}

/// What the library says when it is asked for algorithms: a device that is lost is found so by whatever runs in its place.
fn refused(error: Error) -> Error {
    match error.kind() {
        ErrorKind::Device => Error::unsupported(error.message()),
        _ => error,
    }
}

/// A convolution as a product.
pub struct Multiplied {
    gpu: Arc<Gpu>,
    plan: Plan,
    patches: Option<Patches>,
    /// What is done behind it.
    finish: Option<Finish>,
    convolution: Convolution,
    spare: Spare,
}

impl Multiplied {
    /// The convolution in the `number`th algorithm.
    ///
    /// # Errors
    /// If it is none, lies in slices, or there is no algorithm.
    pub fn new(gpu: &Arc<Gpu>, c: &Convolution, plain: bool, number: usize) -> Result<Self> {
        let one = c.w.sizes[2..].iter().all(|&k| k == 1) && c.strides.iter().all(|&s| s == 1);
        let patches = (!one).then(|| Patches::new(gpu, c, plain)).transpose()?;
        let weights = c.w.strides[0] == c.w.sizes[1..].iter().product::<i64>();
        let dense = weights && c.y.step() == c.y.sizes[1] && (plain || c.x.step() == c.x.sizes[1]);
        if !dense || c.begin.iter().chain(&c.end).any(|&p| p != 0) || c.groups() != 1 {
            return Err(unfit("a convolution is no product of matrices as they lie", c));
        }
        let [m, n] = [c.y.pixels() as usize, c.y.sizes[1] as usize];
        let k = c.w.sizes[1..].iter().product::<i64>() as usize;
        let product = Product {
            dtype: c.dtype,
            tf32: c.tf32,
            result: c.dtype,
            m,
            n,
            k,
            // Weights are a row for each result.
            transposed: [false, true],
            batches: 1,
            strides: [m * k, k * n, m * n],
            epilogue: Epilogue {
                bias: c.bias,
                activation: c.activation.map(|_| cublaslt::Activation::Relu),
            },
            adds: c.residual.is_some() && !c.after.residual,
            alignment: EVEN as u32,
        };
        Ok(Self {
            gpu: gpu.clone(),
            plan: gpu.blas()?.plan(product, number).map_err(refused)?,
            patches,
            finish: finish(gpu, c)?,
            spare: Direct::spare(gpu, c, c.dtype),
            convolution: c.clone(),
        })
    }

    /// It as a kernel at concrete shapes.
    pub fn prepared(self) -> Prepared {
        let patches = self.patches.as_ref().map_or("", |_| "patches as rows, then ");
        let finish = self.finish.as_ref().map_or("", |_| ", then one pack a thread");
        let how = format!("{patches}{}{finish}", self.plan.name());
        let workspace = match self.aside() + self.patches.as_ref().map_or(0, |patches| patches.bytes) {
            0 => self.plan.workspace(),
            behind => self.place_aside() + behind,
        };
        let entries = self.patches.as_ref().map(|patches| patches.function.clone());
        // As with cuDNN's convolutions: what is added may be read too soon.
        compiled(
            entries,
            Instance::new(how, self).with_workspace(workspace).with_wait_inputs(2),
        )
    }

    /// Where a product that has no place in the result lies in the workspace, behind what cuBLASLt needs.
    fn place_aside(&self) -> usize {
        self.plan.workspace().next_multiple_of(ALIGNMENT)
    }

    /// Bytes of such a product: a residual that is added behind it may lie where the result will.
    fn aside(&self) -> usize {
        let c = &self.convolution;
        let bytes = c.y.sizes.iter().product::<i64>() as usize * c.dtype.size();
        if c.after.residual {
            bytes.next_multiple_of(ALIGNMENT)
        } else {
            0
        }
    }

    /// Where the rows lie behind that.
    fn rows(&self) -> usize {
        self.place_aside() + self.aside()
    }
}

impl Launcher for Multiplied {
    fn launch(&mut self, call: &Call) -> Result<()> {
        let operands = call.inputs.iter().copied().chain([call.outputs[0].cast_const()]);
        if !operands.into_iter().all(|address| address.addr().is_multiple_of(EVEN)) {
            return self.spare.launch(call);
        }
        let [bias, residual, scale, shift] = sides(&self.convolution, call);
        let (added, last) = match self.convolution.after.residual {
            true => (std::ptr::null(), residual),
            false => (residual, std::ptr::null()),
        };
        let result = match self.aside() {
            0 => call.outputs[0],
            _ => call.workspace.wrapping_add(self.place_aside()),
        };
        let rows = call.workspace.wrapping_add(self.rows());
        let left = match &self.patches {
            None => call.inputs[0].cast_mut(),
            Some(patches) => {
                patches.run(rows, call)?;
                rows
            }
        };
        let addresses = [
            left,
            call.inputs[1].cast_mut(),
            bias.cast_mut(),
            added.cast_mut(),
            result,
            call.workspace,
        ];
        // SAFETY: the planner gives addresses that hold the operands of the request.
        unsafe { self.gpu.blas()?.run(&mut self.plan, addresses, 1.0, call.stream)? };
        let Some(finish) = &self.finish else { return Ok(()) };
        finish.run(result, [std::ptr::null(), last, scale, shift], call)
    }
}

/// What follows the activation, for which cuBLASLt has no epilogue.
fn finish(gpu: &Gpu, c: &Convolution) -> Result<Option<Finish>> {
    if c.after.is_nothing() {
        return Ok(None);
    }
    let behind = Convolution {
        bias: false,
        activation: None,
        residual: c.residual.clone().filter(|_| c.after.residual),
        ..c.clone()
    };
    Finish::new(gpu, &behind, c.y.sizes[1]).map(Some)
}

/// The kernel of `patches.cu`: what each place of the result sees, as a row.
struct Patches {
    function: EntryPoint,
    shape: Vec<i32>,
    grid: Grid,
    bytes: usize,
}

const SOURCE: &str = include_str!("../../../../../kernels/patches.cu");
const THREADS: u32 = 256;

impl Patches {
    fn new(gpu: &Gpu, c: &Convolution, plain: bool) -> Result<Self> {
        let apart = c.w.sizes[2..]
            .iter()
            .zip(&c.strides)
            .all(|(kernel, stride)| kernel <= stride);
        if !apart || c.dilations.iter().any(|&d| d != 1) {
            return Err(unfit("a convolution sees places twice", c));
        }
        let words = Words::new(c, plain);
        let (ty, pack) = (element(bits(c.dtype)).unwrap_or("uint16"), words.pack);
        let source = format!(
            "{SOURCE}\nextern \"C\" __global__ void as_rows({ty}* rows, const {ty}* x, const Shape shape) {{\n    \
             patches<{ty}, {pack}>(rows, x, shape);\n}}\n"
        );
        let elements = c.y.pixels() * c.w.sizes[1..].iter().product::<i64>();
        Ok(Self {
            function: gpu.compiler.entry(&source, "as_rows", 0),
            shape: fields(words.words)?,
            grid: Grid::over(elements as usize / pack, THREADS)?,
            bytes: elements as usize * c.dtype.size(),
        })
    }

    fn run(&self, rows: *mut u8, call: &Call) -> Result<()> {
        let mut arguments = Arguments::default();
        arguments.address(rows.cast_const()).address(call.inputs[0]);
        arguments.fields(&self.shape);
        // SAFETY: these are the parameters that the source declares; the workspace has room for the rows.
        unsafe { self.function.launch(self.grid, &arguments, call.stream) }
    }
}

/// Elements that are only moved, as integers of their size.
fn bits(dtype: DType) -> DType {
    match dtype.size() {
        2 => DType::UInt16,
        4 => DType::UInt32,
        _ => DType::UInt64,
    }
}

/// `Shape` of `patches.cu`, and the elements of a pack in it.
struct Words {
    words: Vec<i64>,
    pack: usize,
}

impl Words {
    fn new(c: &Convolution, plain: bool) -> Self {
        let missing = AXES + 2 - c.x.sizes.len();
        let pad = |list: &[i64], filler: i64| [vec![filler; missing].as_slice(), list].concat();
        let (kernel, step, channels) = (pad(&c.w.sizes[2..], 1), pad(&c.strides, 1), c.w.sizes[1]);
        // Behind one another lie the last axis of the kernel, and the channels where they are innermost.
        let (run, apart) = if plain {
            (kernel[2], channels)
        } else {
            (kernel[2] * channels, 1)
        };
        let strides = [&c.x.strides[..2], &pad(&c.x.strides[2..], 0)].concat();
        let places = strides.iter().enumerate().filter(|(axis, _)| plain || *axis != 1);
        let even: Vec<i64> = places
            .map(|(axis, &stride)| if axis == 4 { stride * step[2] } else { stride })
            .chain([run])
            .collect();
        let pack = pack(WIDEST / c.dtype.size(), &even);
        let packs = run / pack as i64;
        let items = c.y.pixels() * apart * kernel[0] * kernel[1] * packs;
        let mut words = vec![items, packs, apart, kernel[0], kernel[1]];
        words.extend(pad(&c.y.sizes[2..], 1));
        words.extend(step);
        words.extend(strides);
        Self { words, pack }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::providers::cuda::library::cudnn::{After, Tensor};

    #[test]
    fn patches_are_moved_in_packs_that_all_rows_are_multiples_of() {
        let mut c = Convolution {
            dtype: DType::Float16,
            tf32: false,
            transposed: false,
            x: Tensor::dense(vec![2, 3, 224, 224]),
            w: Tensor::dense(vec![768, 3, 16, 16]),
            y: Tensor::dense(vec![2, 768, 14, 14]),
            strides: vec![16, 16],
            dilations: vec![1, 1],
            begin: vec![0, 0],
            end: vec![0, 0],
            bias: true,
            residual: None,
            activation: None,
            after: After::default(),
        };
        let last = Words::new(&c, false);
        assert_eq!(
            (last.pack, &last.words[..5]),
            (8, [2 * 196 * 16 * 6, 6, 1, 1, 16].as_slice())
        );
        assert_eq!(last.words[5..], [1, 14, 14, 1, 16, 16, 224 * 224 * 3, 1, 0, 672, 3]);
        c.x.strides = vec![224 * 224 * 3, 224 * 224, 224, 1];
        let plain = Words::new(&c, true);
        assert_eq!(
            (plain.pack, &plain.words[..5]),
            (8, [2 * 196 * 48 * 2, 2, 3, 1, 16].as_slice())
        );
    }
}
