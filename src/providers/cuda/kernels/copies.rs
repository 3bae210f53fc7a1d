//! Ops that move elements along strides: Transpose, Expand, and reorders from one layout to another.

use super::parts::ordered;
use super::strided::{Operands, Strided, copy_source};
use super::{Answer, Gpu, turns};
use crate::error::Result;
use crate::network::dtype::DType;
use crate::network::ops::transpose;
use crate::plan::layout::Layout;
use crate::plan::{Alias, Form, Kernel, Prepared, Request, Tactic};
use crate::providers::common::Why;
use crate::providers::common::operand_strides::{axes, space, strides};
use crate::providers::common::scope::{Scope, uniform_forms};
use std::sync::Arc;

/// Transpose and Expand.
pub fn offer(scope: &Scope, gpu: &Arc<Gpu>) -> Answer {
    let rule = match scope.op() {
        "Transpose" => {
            let perm = transpose::permutation(&scope.layer().attrs, scope.output_type(0).rank());
            Rule::Transpose(perm.map_err(|e| Why::new(e.message()))?)
        }
        "Expand" => Rule::Expand,
        _ => return Ok(vec![]),
    };
    let rank = scope.output_type(0).rank();
    let keeps_rank = scope.input_type(0).is_some_and(|x| x.rank() == rank);
    let layouts = [Layout::Plain, Layout::ChannelsLast].into_iter();
    let kernel = Copies {
        name: scope.op(),
        rule,
        layouts: layouts
            .filter(|l| *l == Layout::Plain || keeps_rank && l.fits(rank))
            .collect(),
        gpu: gpu.clone(),
    };
    Ok(vec![scope.alone(kernel, &[0])])
}

/// Where an element of the result comes from.
enum Rule {
    /// Along axis i of the result lies this axis of the input.
    Transpose(Vec<usize>),
    /// The input is broadcast.
    Expand,
}

struct Copies {
    name: &'static str,
    rule: Rule,
    layouts: Vec<Layout>,
    gpu: Arc<Gpu>,
}

impl Kernel for Copies {
    fn name(&self) -> String {
        self.name.into()
    }

    fn identity(&self) -> String {
        match &self.rule {
            Rule::Transpose(perm) => format!("Transpose {perm:?}"),
            Rule::Expand => "Expand".into(),
        }
    }

    /// A Transpose may undo the order of a layout: then it is one run of bytes.
    fn forms(&self) -> Vec<Form> {
        let Rule::Transpose(_) = self.rule else {
            return uniform_forms(&self.layouts, 1, 1);
        };
        let form = |&from: &Layout, &to: &Layout| Form {
            tactic: Tactic::ONLY,
            inputs: vec![from],
            outputs: vec![to],
        };
        let pairs = self
            .layouts
            .iter()
            .map(|from| self.layouts.iter().map(move |to| form(from, to)));
        pairs.flatten().collect()
    }

    fn alias(&self, form: &Form) -> Alias {
        match &self.rule {
            Rule::Transpose(perm) => Alias::of_transpose(perm, form),
            Rule::Expand => Alias::None,
        }
    }

    fn takes_slices(&self, _form: &Form) -> (bool, bool) {
        (true, true)
    }

    fn prepare(&self, request: &Request) -> Result<Prepared> {
        let (from, to) = (&request.inputs[0], &request.outputs[0]);
        let read = match &self.rule {
            Rule::Transpose(perm) => {
                let own = axes(from).strides;
                let along: Vec<usize> = perm.iter().map(|&axis| own[axis]).collect();
                ordered(&along, to.layout)
            }
            Rule::Expand => strides(from, &to.shape, to.layout)?,
        };
        let written = ordered(&axes(to).strides, to.layout);
        copy_instance(&self.gpu, to.dtype, ordered(&to.shape, to.layout), written, read)
    }
}

/// A copy of elements, along the strides of the result and of the input.
///
/// # Errors
/// If it walks too many axes.
pub fn copy_instance(gpu: &Gpu, dtype: DType, sizes: Vec<usize>, to: Vec<usize>, from: Vec<usize>) -> Result<Prepared> {
    if let Some(launch) = turns::launch(gpu, dtype, &sizes, &to, &from)? {
        return Ok(launch.into());
    }
    let (source, bits) = copy_source(dtype);
    let operands = Operands::new(sizes, vec![to, from], vec![bits; 2], 1)?;
    Ok(Strided::new(gpu, &source, operands).prepared())
}

/// A tensor brought from one layout to another.
pub struct Reorder {
    /// The layout that it comes in.
    pub from: Layout,
    /// The layout that it is wanted in.
    pub to: Layout,
    /// Whether its memory is the same in both.
    pub bitcast: bool,
    /// The GPU.
    pub gpu: Arc<Gpu>,
}

impl Kernel for Reorder {
    fn name(&self) -> String {
        format!("reorder {} -> {}", self.from, self.to)
    }

    fn identity(&self) -> String {
        self.name()
    }

    fn forms(&self) -> Vec<Form> {
        vec![Form {
            tactic: Tactic::ONLY,
            inputs: vec![self.from],
            outputs: vec![self.to],
        }]
    }

    fn alias(&self, _form: &Form) -> Alias {
        if self.bitcast { Alias::Reshape } else { Alias::None }
    }

    fn takes_slices(&self, _form: &Form) -> (bool, bool) {
        (true, true)
    }

    fn prepare(&self, request: &Request) -> Result<Prepared> {
        let (from, to) = (&request.inputs[0], &request.outputs[0]);
        let along = |operand| strides(operand, &to.shape, self.to);
        copy_instance(&self.gpu, to.dtype, space(&to.shape, self.to), along(to)?, along(from)?)
    }
}
