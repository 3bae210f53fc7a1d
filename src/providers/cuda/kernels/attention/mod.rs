//! Attention without a matrix of all scores, on tensor cores where the dtype and the sizes allow it; and LinearAttention.
//!
//! Queries, keys and values are read where the layers before left them, and the result is written where those behind
//! want it: Transposes, Reshapes, Splits and Slices around attention become strides.

mod around;
mod code;
mod linear;
mod share;
mod tile;

use super::launch::fields;
use super::quantize_behind::QuantizeBehind;
use super::{Answer, Gpu};
use crate::error::Result;
use crate::network::attr::Read;
use crate::network::dtype::DType;
use crate::network::ops::attention;
use crate::plan::layout::Layout;
use crate::plan::{Call, Candidate, Form, Instance, Kernel, Launcher, Prepared, Request, Tactic};
use crate::providers::common::scope::{Scope, uniform_forms};
use crate::providers::common::strided_view::{ConcreteView, StridedView};
use crate::providers::cuda::compile::{EntryPoint, compiled};
use crate::providers::cuda::device::{Arguments, Grid};
use around::Around;
use code::{Code, Mask};
use share::{Operands, Way};
use std::sync::Arc;

/// The tactic of a way to cut the work, by its rank among those that look best; so many are timed.
const CUT: &str = "cut";
const TACTICS: u32 = 4;

/// Attention with the layers around it that only move elements, and alone; LinearAttention.
pub fn offer(scope: &Scope, gpu: &Arc<Gpu>) -> Answer {
    match scope.op() {
        "Attention" => {
            let found = around::all(scope).into_iter();
            Ok(found.map(|around| candidate(scope, gpu, around)).collect())
        }
        "LinearAttention" => linear::offer(scope, gpu),
        _ => Ok(vec![]),
    }
}

fn candidate(scope: &Scope, gpu: &Arc<Gpu>, around: Around) -> Candidate {
    let attrs = &scope.layer().attrs;
    let kernel = Attention {
        name: around.name,
        rule: Rule {
            scale: attrs.float("scale"),
            softcap: attrs.float("softcap"),
            causal: attrs.flag("is_causal"),
            blind: if attrs.flag("nan_if_blind") { f32::NAN } else { 0.0 },
        },
        inputs: around.inputs.len(),
        operands: around.operands,
        y: around.y,
        params: QuantizeBehind::params(around.quantize.as_ref()),
        tiled: scope.input_type(0).is_some_and(|ty| ty.dtype.size() == 2),
        gpu: gpu.clone(),
    };
    Candidate {
        kernel: Arc::new(kernel),
        layers: around.layers,
        inputs: around.inputs,
        outputs: vec![around.output],
    }
}

/// What all heads have in common.
#[derive(Debug, Clone, Copy)]
struct Rule {
    /// What scores are multiplied by, as the layer gives it.
    scale: f64,
    /// Where scores are capped; 0 for nowhere.
    softcap: f64,
    /// Whether a query sees no key behind its own place.
    causal: bool,
    /// What a query gives that sees no key.
    blind: f32,
}

struct Attention {
    name: String,
    rule: Rule,
    /// How many tensors it reads.
    inputs: usize,
    /// Queries, keys, values and perhaps a mask: which input holds them, and how.
    operands: Vec<(usize, StridedView)>,
    y: StridedView,
    /// How the result is quantized.
    params: [i64; 4],
    /// Whether its dtype may go to tensor cores.
    tiled: bool,
    gpu: Arc<Gpu>,
}

/// A view of an input at concrete shapes: the number of the input, the offset in bytes, and the strides.
struct OperandView {
    input: usize,
    offset: usize,
    strided: ConcreteView,
}

impl OperandView {
    fn of((input, view): &(usize, StridedView), request: &Request) -> Result<Self> {
        let strided = share::settled(view.at(request.binding)?);
        Ok(Self {
            input: *input,
            offset: strided.offset * request.inputs[*input].dtype.size(),
            strided,
        })
    }

    fn address(&self, call: &Call) -> *const u8 {
        call.inputs[self.input].wrapping_add(self.offset)
    }
}

impl Kernel for Attention {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn identity(&self) -> String {
        let strides = |view: &StridedView| view.strides.iter().map(ToString::to_string).collect::<Vec<_>>();
        let operands: Vec<_> = self.operands.iter().map(|(_, view)| strides(view)).collect();
        format!("{} {:?} {operands:?} {:?}", self.name, self.rule, strides(&self.y))
    }

    fn forms(&self) -> Vec<Form> {
        let form = uniform_forms(&[Layout::Plain], self.inputs, 1);
        let tactics = if self.tiled { TACTICS } else { 1 };
        let cut = |(number, form): (u32, &Form)| Form {
            tactic: Tactic::new(CUT, number),
            ..form.clone()
        };
        (0..tactics)
            .flat_map(|number| form.iter().map(move |form| cut((number, form))))
            .collect()
    }

    fn prepare(&self, request: &Request) -> Result<Prepared> {
        let views = self.operands.iter().map(|operand| OperandView::of(operand, request));
        let views = views.collect::<Result<Vec<_>>>()?;
        let y = share::settled(self.y.at(request.binding)?);
        let (dtype, given) = (request.inputs[views[0].input].dtype, request.outputs[0].dtype);
        let operands = Operands {
            q: &views[0].strided,
            k: &views[1].strided,
            v: &views[2].strided,
            mask: views.get(3).map(|view| &view.strided),
            y: &y,
        };
        let device = &self.gpu.device;
        let (causal, multiprocessors) = (self.rule.causal, device.multiprocessors as usize);
        let scale = attention::scale(self.rule.scale, operands.sizes()[0] as i64);
        let mut ways = Way::all(dtype, operands.sizes(), device.capability, device.shared_bytes);
        ways.retain(|way| scale >= 0.0 || !way.is_grouped());
        let number = (request.form.tactic.number() as usize).min(ways.len() - 1);
        let way = operands.ranked(ways, causal, multiprocessors)[number];
        let code = Code {
            way,
            dtype,
            given,
            causal,
            mask: views
                .get(3)
                .map_or(Mask::None, |mask| match request.inputs[mask.input].dtype {
                    DType::Bool => Mask::Truths,
                    _ => Mask::Numbers,
                }),
            capped: self.rule.softcap != 0.0,
        };
        let source = code.source();
        let share = operands.share(way, causal, multiprocessors);
        let shared_bytes = match way {
            Way::Tiles(tile) => tile.shared_bytes(share.steps(tile)),
            Way::Plain { .. } => 0,
        };
        let function = self.gpu.compiler.entry(&source, "attending", shared_bytes);
        let join = if share.splits > 1 {
            let grid = Grid::over(share.rows * 32, code::JOINING)?;
            Some((self.gpu.compiler.entry(&source, "combining", 0), grid))
        } else {
            None
        };
        let mut words = code::doubles(&[scale, self.rule.softcap]);
        words.push(self.rule.blind.to_bits() as i32);
        words.extend(fields(operands.words(&share))?);
        let entries: Vec<EntryPoint> = join
            .iter()
            .map(|(entry, _)| entry.clone())
            .chain([function.clone()])
            .collect();
        let (how, workspace) = (share.describe(way), share.workspace(operands.sizes()[1], dtype));
        let launcher = Attending {
            function,
            grid: Grid::over(share.blocks * share.threads, share.threads as u32)?,
            join,
            even: operands.even(way),
            y_offset: y.offset * given.size(),
            params: fields(self.params)?,
            views,
            words,
        };
        Ok(compiled(
            entries,
            Instance::new(how, launcher).with_workspace(workspace),
        ))
    }
}

struct Attending {
    function: EntryPoint,
    grid: Grid,
    /// What joins the parts of the keys.
    join: Option<(EntryPoint, Grid)>,
    /// Queries, keys, values and perhaps a mask.
    views: Vec<OperandView>,
    y_offset: usize,
    /// `Attend` of `attention.cu`, less the last two fields.
    words: Vec<i32>,
    /// The last one.
    params: Vec<i32>,
    /// Whether 16 bytes of a row can be moved at once, where the addresses allow it.
    even: bool,
}

impl Launcher for Attending {
    fn launch(&mut self, call: &Call) -> Result<()> {
        let y = call.outputs[0].cast_const().wrapping_add(self.y_offset);
        let addresses: Vec<*const u8> = self.views.iter().map(|view| view.address(call)).collect();
        let mut moved = addresses[..3].iter().chain([&y]);
        let even = self.even && moved.all(|address| address.addr().is_multiple_of(share::PACK_BYTES));
        let mut words = self.words.clone();
        words.push(even.into());
        words.extend(&self.params);
        let mut arguments = Arguments::default();
        arguments.address(y);
        addresses[..3].iter().for_each(|&at| _ = arguments.address(at));
        arguments.address(addresses.get(3).copied().unwrap_or(std::ptr::null()));
        arguments.address(call.workspace).fields(&words);
        // SAFETY: these are the parameters that `code` declares, for operands that the planner vouches for.
        unsafe { self.function.launch(self.grid, &arguments, call.stream)? };
        let Some((function, grid)) = &self.join else {
            return Ok(());
        };
        let mut arguments = Arguments::default();
        arguments.address(y).address(call.workspace).fields(&words);
        // SAFETY: as above.
        unsafe { function.launch(*grid, &arguments, call.stream) }
    }
}
