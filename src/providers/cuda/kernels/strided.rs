//! A function of one element, over operands at any strides: the shell around generated code, copies included.

use super::Gpu;
use super::pointwise::code::element;
use crate::error::{Error, Result};
use crate::network::dtype::DType;
use crate::plan::layout::Layout;
use crate::plan::{Call, Instance, Launcher, Prepared, Request};
use crate::providers::common::operand_strides::{coalesce, space, strides};
use crate::providers::cuda::compile::{EntryPoint, compiled};
use crate::providers::cuda::device::{Arguments, Grid};
use std::fmt::Write;

/// Axes that a kernel walks; evenly spaced ones are joined beforehand.
const MOST_AXES: usize = 6;
/// Bytes that a thread reads of each operand at once, at most.
const WIDEST: usize = 16;
/// Threads of a block.
const THREADS: u32 = 256;

/// The extents of the result, and where each operand lies along them.
pub struct Operands {
    sizes: Vec<usize>,
    /// Those of the outputs, then those of the inputs; each as many as there are sizes.
    strides: Vec<Vec<usize>>,
    dtypes: Vec<DType>,
    outputs: usize,
}

impl Operands {
    /// Those of a request whose operands broadcast to output 0.
    ///
    /// # Errors
    /// If one does not.
    pub fn of(request: &Request) -> Result<Self> {
        let output = &request.outputs[0];
        let layout: Layout = request.form.outputs[0];
        let all = || request.outputs.iter().chain(request.inputs);
        let strides = all()
            .map(|operand| strides(operand, &output.shape, layout))
            .collect::<Result<Vec<_>>>()?;
        let dtypes = all().map(|operand| operand.dtype).collect();
        Self::new(space(&output.shape, layout), strides, dtypes, request.outputs.len())
    }

    /// Operands with these strides, in elements: outputs first.
    ///
    /// # Errors
    /// If they walk too many axes, or more elements than 32 bits count.
    pub fn new(sizes: Vec<usize>, strides: Vec<Vec<usize>>, dtypes: Vec<DType>, outputs: usize) -> Result<Self> {
        let seen: Vec<&[usize]> = strides.iter().map(Vec::as_slice).collect();
        let (sizes, strides) = coalesce(&sizes, &seen);
        let elements: usize = sizes.iter().product();
        if sizes.len() > MOST_AXES || elements > u32::MAX as usize / 2 {
            return Err(
                Error::unsupported("the operands are too many elements, or too scattered, for one kernel")
                    .expected(format!("{MOST_AXES} axes of at most {} elements", u32::MAX / 2))
                    .got(format!("{sizes:?}")),
            );
        }
        Ok(Self {
            sizes,
            strides,
            dtypes,
            outputs,
        })
    }

    /// How many elements a thread may take at once: all operands lie evenly in packs of so many.
    fn pack(&self) -> usize {
        let widest = self.dtypes.iter().map(|dtype| dtype.size()).max().unwrap_or(1);
        let last = self.sizes.len() - 1;
        let even = |pack: usize| {
            let fits = |strides: &Vec<usize>, output: bool| {
                let (inner, outer) = (strides[last], &strides[..last]);
                (inner == 1 || (inner == 0 && !output)) && (inner == 0 || outer.iter().all(|s| s.is_multiple_of(pack)))
            };
            self.sizes[last].is_multiple_of(pack)
                && self
                    .strides
                    .iter()
                    .enumerate()
                    .all(|(i, strides)| fits(strides, i < self.outputs))
        };
        let packs = [16, 8, 4, 2].into_iter().filter(|pack| pack * widest <= WIDEST);
        packs.into_iter().find(|&pack| even(pack)).unwrap_or(1)
    }
}

/// The kernel for some operands: in packs where they are aligned, one element at a time where not.
pub struct Strided {
    operands: Operands,
    pack: usize,
    packed: EntryPoint,
    single: EntryPoint,
}

impl Strided {
    /// The shell around a source that declares `element` and the types of its operands.
    pub fn new(gpu: &Gpu, source: &str, operands: Operands) -> Self {
        let pack = operands.pack();
        let axes = if operands.sizes.len() == 1 { 1 } else { MOST_AXES };
        let entry = |pack: usize| {
            let text = shell(
                source,
                operands.outputs,
                operands.dtypes.len() - operands.outputs,
                pack,
                axes,
            );
            gpu.compiler.entry(&text, "strided", 0)
        };
        Self {
            packed: entry(pack),
            single: entry(1),
            pack,
            operands,
        }
    }

    /// What is to be compiled.
    pub fn entries(&self) -> [EntryPoint; 2] {
        [&self.packed, &self.single].map(EntryPoint::clone)
    }

    /// It as a kernel at concrete shapes.
    pub fn prepared(self) -> Prepared {
        let how = format!("generated, {} at a time", self.pack);
        compiled(self.entries(), Instance::new(how, self))
    }

    /// The launch for packs of so many elements.
    fn arguments(&self, pack: usize, call: &Call) -> (Grid, Arguments) {
        let Operands { sizes, strides, .. } = &self.operands;
        let mut sizes = sizes.clone();
        let last = sizes.len() - 1;
        sizes[last] /= pack;
        let items: usize = sizes.iter().product();
        let axes = if sizes.len() == 1 { 1 } else { MOST_AXES };
        let mut arguments = Arguments::of(call);
        arguments.number(items as i64);
        let lead = axes - sizes.len();
        (0..axes).for_each(|axis| _ = arguments.number(axis.checked_sub(lead).map_or(1, |a| sizes[a]) as i64));
        for strides in strides {
            let stride = |axis: usize| {
                if axis == last {
                    strides[axis] * pack
                } else {
                    strides[axis]
                }
            };
            (0..axes).for_each(|axis| _ = arguments.number(axis.checked_sub(lead).map_or(0, stride) as i64));
        }
        let blocks = (items as u32).div_ceil(THREADS);
        (
            Grid {
                blocks: [blocks, 1, 1],
                threads: THREADS,
            },
            arguments,
        )
    }
}

impl Launcher for Strided {
    fn launch(&mut self, call: &Call) -> Result<()> {
        let addresses = call
            .outputs
            .iter()
            .map(|p| p.cast_const())
            .chain(call.inputs.iter().copied());
        let aligned = |(address, dtype): (*const u8, &DType)| address.addr().is_multiple_of(self.pack * dtype.size());
        let even = addresses.zip(&self.operands.dtypes).all(aligned);
        let (pack, function) = if even {
            (self.pack, &self.packed)
        } else {
            (1, &self.single)
        };
        let (grid, arguments) = self.arguments(pack, call);
        // SAFETY: the arguments are those that `shell` declares, for operands that the planner vouches for.
        unsafe { function.launch(grid, &arguments, call.stream) }
    }
}

/// A source that gives on input 0 as it is, for elements of so many bytes.
pub fn copy_source(dtype: DType) -> (String, DType) {
    let bits = match dtype.size() {
        1 => DType::UInt8,
        2 => DType::UInt16,
        4 => DType::UInt32,
        _ => DType::UInt64,
    };
    let ty = element(bits).unwrap_or("uint8");
    let text = format!(
        "typedef {ty} Y0;\ntypedef {ty} X0;\n\
         __device__ __forceinline__ void element({ty}& y0, const {ty} x0) {{ y0 = x0; }}\n"
    );
    (text, bits)
}

/// The kernel around `element`: finds where the operands lie, reads, computes and writes a pack.
fn shell(source: &str, outputs: usize, inputs: usize, pack: usize, axes: usize) -> String {
    let names: Vec<String> = (0..outputs)
        .map(|i| format!("y{i}"))
        .chain((0..inputs).map(|i| format!("x{i}")))
        .collect();
    let mut parameters: Vec<String> = (0..outputs).map(|i| format!("Y{i}* __restrict__ y{i}")).collect();
    parameters.extend((0..inputs).map(|i| format!("const X{i}* __restrict__ x{i}")));
    parameters.push("const uint32 items".into());
    parameters.extend((0..axes).map(|a| format!("const uint32 size{a}")));
    for name in &names {
        parameters.extend((0..axes).map(|a| format!("const uint32 {name}s{a}")));
    }
    let mut text = format!("{source}extern \"C\" __global__ void __launch_bounds__({THREADS}) strided(");
    text += &parameters.join(", ");
    text += ") {\n    uint32 rest = blockIdx.x * blockDim.x + threadIdx.x;\n    if (rest >= items) return;\n";
    for axis in (0..axes).rev() {
        let at = if axis == 0 {
            "rest".to_string()
        } else {
            format!("rest % size{axis}")
        };
        _ = writeln!(text, "    const uint32 at{axis} = {at};");
        if axis > 0 {
            _ = writeln!(text, "    rest /= size{axis};");
        }
    }
    for name in &names {
        let terms: Vec<_> = (0..axes).map(|a| format!("(uint64)at{a} * {name}s{a}")).collect();
        _ = writeln!(text, "    {name} += {};", terms.join(" + "));
    }
    let inner = axes - 1;
    for i in 0..inputs {
        _ = writeln!(text, "    Pack<X{i}, {pack}> p{i};");
        _ = writeln!(text, "    if (x{i}s{inner}) p{i} = *(const Pack<X{i}, {pack}>*)x{i};");
        _ = writeln!(text, "    else for (int k = 0; k < {pack}; k++) p{i}.item[k] = *x{i};");
    }
    (0..outputs).for_each(|i| _ = writeln!(text, "    Pack<Y{i}, {pack}> q{i};"));
    _ = writeln!(text, "    #pragma unroll\n    for (int k = 0; k < {pack}; k++) {{");
    (0..outputs).for_each(|i| _ = writeln!(text, "        Wide<Y{i}>::type r{i};"));
    let results = (0..outputs).map(|i| format!("r{i}"));
    let given = (0..inputs).map(|i| format!("widen(p{i}.item[k])"));
    _ = writeln!(
        text,
        "        element({});",
        results.chain(given).collect::<Vec<_>>().join(", ")
    );
    (0..outputs).for_each(|i| _ = writeln!(text, "        q{i}.item[k] = Narrow<Y{i}>::from(r{i});"));
    text += "    }\n";
    (0..outputs).for_each(|i| _ = writeln!(text, "    *(Pack<Y{i}, {pack}>*)y{i} = q{i};"));
    text + "}\n"
}
