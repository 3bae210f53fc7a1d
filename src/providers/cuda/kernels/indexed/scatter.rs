//! Runs that are written to where indices say, alone or combined with what is there.

use super::{INDICES, Runs, THREADS, device_check, index_type};
use crate::error::Result;
use crate::network::dtype::DType;
use crate::plan::layout::Layout;
use crate::plan::{Call, Form, Instance, Kernel, Launcher, Prepared, Request};
use crate::providers::common::indexed::Rule;
use crate::providers::common::scope::uniform_forms;
use crate::providers::cuda::compile::{EntryPoint, compiled};
use crate::providers::cuda::device::{Arguments, Grid};
use crate::providers::cuda::kernels::Gpu;
use crate::providers::cuda::kernels::launch::{DeviceCheck, fields};
use crate::providers::cuda::kernels::pointwise::code::element;
use crate::providers::cuda::kernels::words::{bits, divisor, pack};
use std::sync::Arc;

const SOURCE: &str = include_str!("../../../../../kernels/scatter.cu");
/// Keys that a block sorts, at most and at least.
const CHUNKS: [usize; 2] = [2048, 64];
/// Bytes of a key.
const KEY: usize = 8;

/// The rule of `scatter.cu` for a reduction; none: the last update stays.
pub fn fold(reduction: &str) -> Option<&'static str> {
    match reduction {
        "add" => Some("Add"),
        "mul" => Some("Mul"),
        "max" => Some("Max"),
        "min" => Some("Min"),
        _ => None,
    }
}

/// ScatterElements or ScatterND.
pub struct Scatter {
    pub name: &'static str,
    pub rule: Rule,
    pub fold: Option<&'static str>,
    pub gpu: Arc<Gpu>,
}

impl Kernel for Scatter {
    fn name(&self) -> String {
        self.name.into()
    }

    fn identity(&self) -> String {
        format!("{} {:?} {:?}", self.name, self.rule, self.fold)
    }

    fn forms(&self) -> Vec<Form> {
        uniform_forms(&[Layout::Plain], 3, 1)
    }

    fn in_place(&self) -> Vec<(usize, usize)> {
        vec![(0, 0)]
    }

    fn prepare(&self, request: &Request) -> Result<Prepared> {
        let (x, indices) = (&request.inputs[0], &request.inputs[1]);
        let runs = Runs::new(self.rule, x, indices);
        let count = if runs.length == 0 { 0 } else { runs.count() };
        let taken = pack(x.dtype.size(), [runs.length]);
        let packs = runs.length / taken;
        let chunk = count.next_power_of_two().clamp(CHUNKS[1], CHUNKS[0]);
        let source = self.source(x.dtype, indices.dtype, &runs, taken);
        let function = |name| self.gpu.compiler.entry(&source, name, 0);
        let head = [count as i64, chunk as i64];
        let [sort, merge, finish] = ["sort", "merge", "finish"].map(function);
        let entries = [&sort, &merge, &finish].map(EntryPoint::clone);
        let launcher = Scattering {
            sort,
            merge,
            finish,
            updates: fields([&head, runs.words(runs.length.max(1)).as_slice()].concat())?,
            sorted: fields([&head[..1], &divisor(packs)].concat())?,
            finishing: Grid::over(count * packs, THREADS)?,
            device_check: device_check(&self.gpu, runs.extents())?,
            count,
            chunk,
            bytes: x.bytes(),
            gpu: self.gpu.clone(),
        };
        let how = format!("{count} updates, sorted by their places");
        let workspace = 2 * launcher.keys();
        Ok(compiled(
            entries,
            Instance::new(how, launcher).with_workspace(workspace),
        ))
    }
}

impl Scatter {
    /// The three kernels, in packs of so many elements.
    fn source(&self, dtype: DType, indices: DType, runs: &Runs, pack: usize) -> String {
        let (axes, numbers) = (runs.sizes.len(), runs.numbers.len());
        let index = index_type(indices);
        let (ty, call) = match self.fold {
            None => (bits(dtype), "replace<".into()),
            Some(fold) => (element(dtype).unwrap_or("float"), format!("combine<{fold}, ")),
        };
        format!(
            "{INDICES}{SOURCE}
extern \"C\" __global__ void sort(Key* keys, const {index}* indices, const Updates<{axes}, {numbers}> updates, int64* flag) {{
    sort_chunks(keys, indices, updates, flag);
}}
extern \"C\" __global__ void __launch_bounds__({THREADS}) merge(Key* to, const Key* from, uint32 count, uint32 width) {{
    merge_parts(to, from, count, width);
}}
extern \"C\" __global__ void __launch_bounds__({THREADS}) finish({ty}* y, const {ty}* updates, const Key* keys, const Sorted s) {{
    {call}{ty}, {pack}>(y, updates, keys, s);
}}
"
        )
    }
}

struct Scattering {
    sort: EntryPoint,
    merge: EntryPoint,
    finish: EntryPoint,
    /// `Updates` and `Sorted` of `scatter.cu`.
    updates: Vec<i32>,
    sorted: Vec<i32>,
    finishing: Grid,
    device_check: DeviceCheck,
    /// Updates, and how many of them a block sorts.
    count: usize,
    chunk: usize,
    /// Of the result.
    bytes: usize,
    gpu: Arc<Gpu>,
}

impl Scattering {
    /// Bytes of all keys.
    fn keys(&self) -> usize {
        self.count * KEY
    }

    /// Sorts the updates by their places; gives where they lie.
    fn sorted(&self, call: &Call) -> Result<*const u8> {
        let [mut here, mut there] = [call.workspace, call.workspace.wrapping_add(self.keys())];
        let mut arguments = Arguments::default();
        arguments.address(here).address(call.inputs[1]).fields(&self.updates);
        arguments.address(self.device_check.flag.address());
        let chunks = Grid {
            blocks: [self.count.div_ceil(self.chunk) as u32, 1, 1],
            threads: (self.chunk / 2) as u32,
        };
        // SAFETY: these are the parameters that the source declares; the planner vouches for the operands, and the
        // workspace holds the keys twice.
        unsafe { self.sort.launch(chunks, &arguments, call.stream)? };
        let mut width = self.chunk;
        while width < self.count {
            let mut arguments = Arguments::default();
            arguments.address(there).address(here);
            arguments.number(self.count as i64).number(width as i64);
            // SAFETY: as above.
            unsafe {
                self.merge
                    .launch(Grid::over(self.count, THREADS)?, &arguments, call.stream)?
            };
            std::mem::swap(&mut here, &mut there);
            width *= 2;
        }
        Ok(here)
    }
}

impl Launcher for Scattering {
    fn launch(&mut self, call: &Call) -> Result<()> {
        let (x, y) = (call.inputs[0], call.outputs[0]);
        if x != y {
            // SAFETY: the planner vouches for both addresses.
            unsafe { self.gpu.device.copy(y as u64, x as u64, self.bytes, call.stream)? };
        }
        if self.count == 0 {
            return Ok(());
        }
        let keys = self.sorted(call)?;
        let mut arguments = Arguments::default();
        arguments
            .address(y)
            .address(call.inputs[2])
            .address(keys)
            .fields(&self.sorted);
        // SAFETY: as for sorting.
        unsafe { self.finish.launch(self.finishing, &arguments, call.stream) }
    }

    fn finished(&mut self) -> Result<()> {
        self.device_check.check()
    }
}
