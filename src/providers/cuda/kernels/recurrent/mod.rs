//! LSTM, GRU and RNN: one matrix product for the input of all steps, then a launch or two for each step.

mod source;

use super::launch::{DeviceCheck, fields};
use super::matmul::Bare;
use super::{Answer, Gpu};
use crate::error::{Error, Result};
use crate::network::ops::recurrent::{Extents, Kind, Spec};
use crate::plan::layout::Layout;
use crate::plan::{Call, Form, Instance, Kernel, Launcher, Prepared, Request};
use crate::providers::common::Why;
use crate::providers::common::scope::{Scope, uniform_forms};
use crate::providers::cuda::compile::{EntryPoint, compiled};
use crate::providers::cuda::device::{Arguments, Flag, Grid};
use std::sync::Arc;

/// Inputs of the op, by place.
const X: usize = 0;
const W: usize = 1;
const R: usize = 2;
const INPUTS: usize = 8;
/// Warps of a block of a step, each for one number of the state, and threads of the other kernels.
const WARPS: usize = 4;
const THREADS: u32 = 128;
/// Sequences that a warp works on at once, at most.
const MOST_ROWS: usize = 8;
/// What parts of the workspace are aligned to.
const ALIGNMENT: usize = 256;

/// LSTM, GRU and RNN.
pub fn offer(scope: &Scope, gpu: &Arc<Gpu>) -> Answer {
    let Some(kind) = Kind::of(scope.op()) else {
        return Ok(vec![]);
    };
    let spec = Spec::read(kind, &scope.layer().attrs).map_err(|e| Why::new(e.message()))?;
    let there: Vec<usize> = (0..INPUTS).filter(|&index| scope.input(index).is_some()).collect();
    let kernel = Cells {
        name: scope.op(),
        slots: std::array::from_fn(|index| there.iter().position(|&input| input == index)),
        outputs: scope.layer().outputs.len(),
        spec,
        tf32: gpu.rounds_to_tf32(scope),
        gpu: gpu.clone(),
    };
    Ok(vec![scope.alone(kernel, &there)])
}

struct Cells {
    name: &'static str,
    spec: Spec,
    /// Whether the product for the input of all steps may round what it multiplies.
    tf32: bool,
    outputs: usize,
    /// Which input of the kernel each input of the op is.
    slots: [Option<usize>; INPUTS],
    gpu: Arc<Gpu>,
}

impl Kernel for Cells {
    fn name(&self) -> String {
        self.name.into()
    }

    fn identity(&self) -> String {
        format!("{:?} {:?} tf32 {}", self.spec, self.slots, self.tf32)
    }

    fn forms(&self) -> Vec<Form> {
        uniform_forms(&[Layout::Plain], self.slots.iter().flatten().count(), self.outputs)
    }

    fn prepare(&self, request: &Request) -> Result<Prepared> {
        Stepping::new(self, request).map(Stepping::prepared)
    }
}

/// Bytes of the parts of the workspace, in the order of `Layer` of `recurrent.cu`.
fn parts(spec: &Spec, at: &Extents, size: usize) -> [usize; 5] {
    let states = at.directions * at.batch * at.hidden;
    let only = |condition: bool, count: usize| if condition { count } else { 0 };
    let resets = source::resets(spec);
    [
        at.steps * spec.kind.gates() * states,
        2 * states,
        only(spec.kind == Kind::Lstm, states),
        only(resets, states),
        only(resets, states),
    ]
    .map(|count| (count * size).next_multiple_of(ALIGNMENT))
}

struct Stepping {
    /// The product with the input, if there are steps.
    product: Option<Bare>,
    slots: [Option<usize>; INPUTS],
    parts: [usize; 5],
    steps: usize,
    extents: Vec<i32>,
    begin: EntryPoint,
    reset: Option<EntryPoint>,
    step: EntryPoint,
    end: EntryPoint,
    /// The grids of a step, and of what comes before and after all.
    grids: [Grid; 2],
    device_check: DeviceCheck,
}

impl Stepping {
    fn new(kernel: &Cells, request: &Request) -> Result<Self> {
        let Cells { spec, gpu, slots, .. } = kernel;
        let shape = |index: usize| slots[index].map_or(&[0, 0, 0][..], |slot| &request.inputs[slot].shape);
        let at = Extents::new(spec, shape(X), shape(R));
        let dtype = request.outputs[0].dtype;
        let wide = source::wide(dtype);
        let rows = at.batch.next_power_of_two().min(MOST_ROWS);
        let blocks = [at.hidden.div_ceil(WARPS), at.directions, at.batch.div_ceil(rows)];
        let states = at.directions * at.batch * at.hidden;
        // The grid's own bounds; rows of the output and of the product are counted in 32 bits.
        let counted = [at.steps * at.batch * at.directions, states, blocks[2] * 32_768];
        fields(counted.into_iter().map(|count| count as i64))?;
        let product = |_| {
            let (lines, columns) = (at.steps * at.batch, at.directions * spec.kind.gates() * at.hidden);
            Bare::new(gpu, [dtype, wide], kernel.tf32, [lines, at.input], [columns, at.input])
        };
        let text = source::source(spec, dtype, rows);
        let function = |name: &str| gpu.compiler.entry(&text, name, 0);
        Ok(Self {
            product: (at.steps > 0).then_some(()).map(product).transpose()?,
            slots: *slots,
            parts: parts(spec, &at, wide.size()),
            steps: at.steps,
            extents: extents(spec, &at)?,
            begin: function("layer_begin"),
            reset: source::resets(spec).then(|| function("layer_reset")),
            step: function("layer_step"),
            end: function("layer_end"),
            grids: [
                Grid {
                    blocks: blocks.map(|count| count as u32),
                    threads: WARPS as u32 * 32,
                },
                // Lengths are looked at too, even of sequences without a state.
                Grid::over(states.max(at.batch), THREADS)?,
            ],
            device_check: device_check(gpu.device.flag()?, at.steps),
        })
    }

    /// The addresses of `Layer` of `recurrent.cu`.
    fn layer(&self, call: &Call) -> Vec<*const u8> {
        let output = |index: usize| call.outputs.get(index).map_or(std::ptr::null(), |p| p.cast_const());
        let mut layer: Vec<_> = (0..3).map(output).collect();
        let given = |slot: &Option<usize>| slot.map_or(std::ptr::null(), |slot| call.inputs[slot]);
        layer.extend(self.slots[R..].iter().map(given));
        let mut at = 0;
        for &bytes in &self.parts {
            let part = call.workspace.wrapping_add(at).cast_const();
            layer.push(if bytes > 0 { part } else { std::ptr::null() });
            at += bytes;
        }
        layer
    }

    fn prepared(self) -> Prepared {
        let on = self.product.as_ref().map_or("nothing", Bare::name);
        let how = format!("{} steps behind one product, on {on}", self.steps);
        let workspace = self.parts.iter().sum::<usize>() + self.product.as_ref().map_or(0, Bare::workspace);
        let mut entries = vec![self.begin.clone(), self.step.clone(), self.end.clone()];
        entries.extend(self.reset.clone());
        entries.extend(self.product.iter().flat_map(Bare::entries));
        compiled(entries, Instance::new(how, self).with_workspace(workspace))
    }

    fn put(&self, function: &EntryPoint, grid: Grid, count: usize, call: &Call) -> Result<()> {
        let words = self.layer(call).into_iter().flat_map(|address| {
            let bits = address as u64;
            [bits as u32 as i32, (bits >> 32) as i32]
        });
        let mut arguments = Arguments::default();
        arguments
            .fields(&words.collect::<Vec<_>>())
            .fields(&self.extents)
            .number(count as i64)
            .address(self.device_check.flag.address());
        // SAFETY: these are the parameters of every entry point, for operands that the planner vouches for.
        unsafe { function.launch(grid, &arguments, call.stream) }
    }
}

/// `Extents` of `recurrent.cu`.
fn extents(spec: &Spec, at: &Extents) -> Result<Vec<i32>> {
    let reverse = |direction: usize| spec.reverse.get(direction).copied().unwrap_or(false);
    let sizes = [at.steps, at.batch, at.hidden, at.directions].map(|size| size as i64);
    let flags = [spec.batch_first, reverse(0), reverse(1)].map(i64::from);
    fields(sizes.into_iter().chain(flags))
}

fn device_check(flag: Flag, steps: usize) -> DeviceCheck {
    let meaning = move |length: i64| {
        Error::shape("a sequence length is out of range")
            .expected(format!("0..={steps}"))
            .got(length.to_string())
    };
    DeviceCheck {
        flag,
        meaning: Box::new(meaning),
    }
}

impl Launcher for Stepping {
    fn launch(&mut self, call: &Call) -> Result<()> {
        let scratch = call.workspace.wrapping_add(self.parts.iter().sum());
        let [x, w] = [X, W].map(|index| self.slots[index].map_or(std::ptr::null(), |slot| call.inputs[slot]));
        if let Some(product) = &mut self.product {
            // SAFETY: the planner gives addresses that hold the operands, and as much workspace as was asked for.
            unsafe { product.run([x, w], call.workspace, scratch, call.stream)? };
        }
        let [steps, around] = self.grids;
        self.put(&self.begin, around, 0, call)?;
        for count in 0..self.steps {
            if let Some(reset) = &self.reset {
                self.put(reset, steps, count, call)?;
            }
            self.put(&self.step, steps, count, call)?;
        }
        self.put(&self.end, around, self.steps, call)
    }

    fn finished(&mut self) -> Result<()> {
        self.device_check.check()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::attr::{Attr, attrs, complete};
    use crate::network::dtype::DType;
    use crate::network::ops;

    fn spec(op: &str, given: &[(&str, &str)]) -> Spec {
        let def = ops::find(op).unwrap();
        let mut all = attrs([]);
        for (name, value) in given {
            all.insert((*name).into(), Attr::Text((*value).into()));
        }
        Spec::read(Kind::of(op).unwrap(), &complete(def.attrs, all).unwrap()).unwrap()
    }

    #[test]
    fn only_what_a_layer_needs_has_memory() {
        let spec = spec("LSTM", &[]);
        let at = Extents::new(&spec, &[5, 3, 6], &[1, 36, 9]);
        assert_eq!(parts(&spec, &at, 4), [2304, 256, 256, 0, 0]);
        let gru = super::tests::spec("GRU", &[]);
        assert_eq!(parts(&gru, &at, 4), [1792, 256, 0, 256, 256]);
    }

    #[test]
    fn each_direction_has_its_functions() {
        let both = [("direction", "bidirectional"), ("activations", "Relu,Elu")];
        let text = source::source(&spec("RNN", &both), DType::Float16, 4);
        assert!(
            text.contains("if (N == 0) return direction == 0 ? f_relu(x) : f_elu(x, (W)1e0);"),
            "{text}"
        );
        assert!(text.contains("typedef float16 T;\ntypedef float W;"));
        assert!(!text.contains("void layer_reset"));
        let gru = source::source(&spec("GRU", &[]), DType::Float64, 1);
        assert!(gru.contains("void layer_reset") && gru.contains("l.reset, 3, 2"));
    }
}
