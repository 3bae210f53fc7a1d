//! Attention without a matrix of all scores, on tensor cores where the dtype and the sizes allow it; and LinearAttention.
//!
//! Queries, keys and values are read where the layers before left them, and the result is written where those behind
//! want it: Transposes, Reshapes, Splits and Slices around attention become strides.

mod around;
mod code;
mod concrete;
mod linear;
mod pipeline;
mod share;
mod tile;

use super::launch::fields;
use super::quantize_behind::QuantizeBehind;
use super::{Answer, Gpu};
use crate::error::Result;
use crate::network::attr::Read;
use crate::network::dtype::DType;
use crate::plan::layout::Layout;
use crate::plan::{Candidate, Form, Kernel, Prepared, Request, Tactic};
use crate::providers::common::scope::Scope;
use crate::providers::common::strided_view::StridedView;
use around::{Around, Arrangement};
use code::Mask;
use concrete::{Concrete, OperandView};
use std::sync::Arc;

/// The tactic of a way to cut the work, by its rank among those that look best; so many are timed.
const CUT: &str = "cut";
const TACTICS: u32 = 5;

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
        arrangements: around.arrangements,
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
    /// How what it reads may lie, the plain one first.
    arrangements: Vec<Arrangement>,
    y: StridedView,
    /// How the result is quantized.
    params: [i64; 4],
    /// Whether its dtype may go to tensor cores.
    tiled: bool,
    gpu: Arc<Gpu>,
}

impl Kernel for Attention {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn identity(&self) -> String {
        let strides = |view: &StridedView| view.strides.iter().map(ToString::to_string).collect::<Vec<_>>();
        let operands = |found: &Arrangement| found.operands.iter().map(|(_, view)| strides(view)).collect::<Vec<_>>();
        let operands: Vec<_> = self.arrangements.iter().map(operands).collect();
        format!("{} {:?} {operands:?} {:?}", self.name, self.rule, strides(&self.y))
    }

    fn forms(&self) -> Vec<Form> {
        let tactics = if self.tiled { TACTICS } else { 1 };
        let form = |number: u32, found: &Arrangement| Form {
            tactic: Tactic::new(CUT, number),
            inputs: found.layouts.clone(),
            outputs: vec![Layout::Plain],
        };
        (0..tactics)
            .flat_map(|number| self.arrangements.iter().map(move |found| form(number, found)))
            .collect()
    }

    fn prepare(&self, request: &Request) -> Result<Prepared> {
        let laid_so = |found: &&Arrangement| found.layouts == request.form.inputs;
        // Forms have no other layouts.
        let found = self.arrangements.iter().find(laid_so).unwrap_or(&self.arrangements[0]);
        let views = found.operands.iter().map(|operand| OperandView::of(operand, request));
        let views = views.collect::<Result<Vec<_>>>()?;
        let concrete = Concrete {
            gpu: self.gpu.clone(),
            rule: self.rule,
            y: share::settled(self.y.at(request.binding)?),
            dtype: request.inputs[views[0].input].dtype,
            given: request.outputs[0].dtype,
            mask: views
                .get(3)
                .map_or(Mask::None, |mask| match request.inputs[mask.input].dtype {
                    DType::Bool => Mask::Truths,
                    _ => Mask::Numbers,
                }),
            views,
            params: fields(self.params)?,
        };
        let ways = concrete.ways();
        let number = (request.form.tactic.number() as usize).min(ways.len() - 1);
        concrete.prepared(ways[number])
    }
}
