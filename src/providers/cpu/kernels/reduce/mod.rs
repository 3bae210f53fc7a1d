//! Reductions over any axes, from any layout.

pub mod fold;
mod grid;
mod instance;
mod of_8_bits;
#[cfg(test)]
mod tests;
pub mod wide;

use super::scope::Scope;
use super::{Answer, Why};
use crate::error::Result;
use crate::network::attr::Read;
use crate::network::dtype::DType;
use crate::network::ops::reduce;
use crate::network::quantization::Scheme;
use crate::plan::layout::Layout;
use crate::plan::{Form, Kernel, Prepared, Request, Tactic};
use fold::Fold;

/// What is done with the folded number.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Finish {
    Nothing,
    /// Divided by the number of elements.
    Mean,
    /// The mean of what integers of 8 bits stand for.
    DequantizedMean(Scheme),
    /// That, quantized.
    RequantizedMean(Scheme, Scheme),
    Sqrt,
    Log,
}

/// Reductions that one pass over the elements gives.
pub fn offer(scope: &Scope) -> Answer {
    let (fold, finish) = match scope.op() {
        "ReduceSum" => (Fold::Sum, Finish::Nothing),
        "ReduceMean" => (Fold::Sum, Finish::Mean),
        "ReduceL1" => (Fold::Abs, Finish::Nothing),
        "ReduceL2" => (Fold::Square, Finish::Sqrt),
        "ReduceSumSquare" => (Fold::Square, Finish::Nothing),
        "ReduceLogSum" => (Fold::Sum, Finish::Log),
        "ReduceMax" => (Fold::Max, Finish::Nothing),
        "ReduceMin" => (Fold::Min, Finish::Nothing),
        "ReduceProd" => (Fold::Prod, Finish::Nothing),
        _ => return Ok(vec![]),
    };
    let Some(ty) = scope.input_type(0) else {
        return Ok(vec![]);
    };
    let wraps = matches!(fold, Fold::Sum | Fold::Square | Fold::Prod) && finish == Finish::Nothing;
    if ty.dtype == DType::UInt64 && !wraps {
        return Err(Why::new("numbers of uint64 are folded as if they were int64"));
    }
    if ty.dtype.is_int() && finish == Finish::Sqrt {
        return Err(Why::new("roots of integers are taken in float64"));
    }
    let attrs = &scope.layer().attrs;
    let Ok(axes) = reduce::axes(attrs, ty) else {
        return Ok(vec![]);
    };
    let kernel = Reduce {
        name: scope.op().into(),
        fold,
        finish,
        axes,
        keeps: attrs.flag("keepdims"),
        rank: ty.rank(),
    };
    let mut found = of_8_bits::offer(scope, &kernel);
    found.push(scope.alone(kernel, &[0]));
    Ok(found)
}

#[derive(Clone)]
struct Reduce {
    name: String,
    fold: Fold,
    finish: Finish,
    axes: Vec<usize>,
    keeps: bool,
    rank: usize,
}

impl Reduce {
    fn in_floats(&self, dtype: DType) -> bool {
        let scaled = matches!(self.finish, Finish::DequantizedMean(_) | Finish::RequantizedMean(..));
        scaled || dtype.is_float()
    }
}

impl Kernel for Reduce {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn identity(&self) -> String {
        format!("{} {:?} keepdims {}", self.name, self.axes, self.keeps)
    }

    fn forms(&self) -> Vec<Form> {
        let form = |from, to| Form {
            tactic: Tactic::ONLY,
            inputs: vec![from],
            outputs: vec![to],
        };
        let same_rank = self.keeps || self.axes.is_empty();
        let mut forms = vec![];
        for layout in Layout::ALL.into_iter().filter(|l| l.fits(self.rank)) {
            forms.push(form(layout, Layout::Plain));
            if layout != Layout::Plain && same_rank {
                forms.push(form(layout, layout));
            }
        }
        forms
    }

    fn takes_slices(&self, _form: &Form) -> (bool, bool) {
        (true, true)
    }

    fn prepare(&self, request: &Request) -> Result<Prepared> {
        let (from, to) = (&request.inputs[0], &request.outputs[0]);
        let (kept, reduced) = grid::split(from, to, &self.axes, self.keeps);
        let count = self.axes.iter().map(|&a| from.shape[a]).product();
        let what = instance::What {
            dtypes: [from.dtype, to.dtype],
            fold: self.fold,
            finish: self.finish,
            count,
        };
        Ok(if self.in_floats(from.dtype) {
            instance::reducing::<f64>(what, kept, reduced, to, request.threads)
        } else {
            instance::reducing::<i64>(what, kept, reduced, to, request.threads)
        })
    }
}
