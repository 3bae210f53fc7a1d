//! LinearAttention: token after token, with the states in registers.

use super::code::doubles;
use crate::error::{Error, Result};
use crate::network::attr::Read;
use crate::network::dtype::DType;
use crate::network::ops::attention;
use crate::network::ops::linear_attention::{Extents, Rule, heads, rule};
use crate::plan::Request;
use crate::plan::layout::Layout;
use crate::providers::common::Why;
use crate::providers::common::scope::{Scope, uniform_forms};
use crate::providers::cuda::device::Grid;
use crate::providers::cuda::kernels::launch::{Launches, fields, sourced};
use crate::providers::cuda::kernels::pointwise::code::element;
use crate::providers::cuda::kernels::{Answer, Gpu};
use std::sync::Arc;

const SOURCE: &str = include_str!("../../../../../kernels/linear_attention.cu");
/// Inputs of the op, with their names in the source.
const INPUTS: [&str; 6] = ["q", "k", "v", "past", "decay", "beta"];
const PAST: usize = 3;
const DECAY: usize = 4;
const BETA: usize = 5;
/// Threads of a block.
const THREADS: usize = 128;
const WARP: usize = 32;
/// The most rows of a state that a lane keeps in registers.
const MOST_ROWS: usize = 32;

/// LinearAttention, with or without a past.
pub fn offer(scope: &Scope, gpu: &Arc<Gpu>) -> Answer {
    let attrs = &scope.layer().attrs;
    let refused = |e: Error| Why::new(e.message());
    let [heads, _] = heads(attrs).map_err(refused)?;
    let given: Vec<usize> = (0..INPUTS.len()).filter(|&i| scope.input(i).is_some()).collect();
    let linear = Linear {
        rule: rule(attrs).map_err(refused)?,
        heads: heads as usize,
        scale: attrs.float("scale"),
        slots: std::array::from_fn(|i| given.iter().position(|&input| input == i)),
    };
    let size = scope.output_type(1).shape[2].as_const();
    if size.is_some_and(|size| size as usize > WARP * MOST_ROWS) {
        return Err(Why::new(format!("keys of more than {} numbers", WARP * MOST_ROWS)));
    }
    let identity = format!("{:?} {} {} {:?}", linear.rule, linear.heads, linear.scale, linear.slots);
    let forms = uniform_forms(&[Layout::Plain], given.len(), 2);
    let past = linear.slots[PAST];
    let make = move |gpu: &Gpu, request: &Request| linear.launch(gpu, request);
    let mut kernel = sourced("LinearAttention", identity, forms, gpu, make);
    // A warp has read its columns of the past before it writes them.
    kernel.in_place = past.map(|past| (past, 1)).into_iter().collect();
    Ok(vec![scope.alone(kernel, &given)])
}

struct Linear {
    rule: Rule,
    /// Heads of the queries.
    heads: usize,
    /// As the layer gives it.
    scale: f64,
    /// Which input of the kernel each input of the op is.
    slots: [Option<usize>; 6],
}

/// Rows of a state that a lane keeps, and columns that a warp works on.
fn tile(size: usize) -> Result<[usize; 2]> {
    let rows = size.div_ceil(WARP).max(1).next_power_of_two();
    if rows > MOST_ROWS {
        return Err(Error::unsupported("the keys of LinearAttention are too long")
            .expected(format!("up to {} numbers", WARP * MOST_ROWS))
            .got(size.to_string()));
    }
    Ok([rows, (MOST_ROWS / rows).min(4)])
}

impl Linear {
    fn launch(&self, gpu: &Gpu, request: &Request) -> Result<Launches> {
        let (y, state) = (&request.outputs[0], &request.outputs[1]);
        let last = |i: usize| self.slots[i].map_or(0, |slot| request.inputs[slot].shape[2]);
        let extents = Extents::new(self.heads, y.shape[1], &state.shape, [last(DECAY), last(BETA)]);
        let tile = tile(extents.size)?;
        let function = gpu
            .compiler
            .entry(&self.source(y.dtype, state.dtype, tile), "linear", 0);
        let parts = extents.v_size.div_ceil(tile[1]);
        let grid = Grid::over(state.shape[0] * extents.shared * parts * WARP, THREADS as u32)?;
        let words = self.words(&extents, state.shape[0])?;
        Ok(Launches::one(
            function,
            grid,
            words,
            "a warp for some columns of a state",
        ))
    }

    /// `Linear` of `linear_attention.cu`.
    fn words(&self, x: &Extents, batch: usize) -> Result<Vec<i32>> {
        // Without numbers in a key the results are 0, whatever they are multiplied by.
        let scale = attention::scale(self.scale, x.size.max(1) as i64);
        let numbers = [
            batch * x.shared,
            x.shared,
            x.heads / x.shared,
            x.tokens,
            x.size,
            x.v_size,
            x.decays / x.shared,
            x.betas,
        ];
        let mut words = doubles(&[scale]);
        words.extend(fields(numbers.map(|number| number as i64))?);
        Ok(words)
    }

    fn source(&self, dtype: DType, state: DType, [rows, columns]: [usize; 2]) -> String {
        let [ty, kept] = [dtype, state].map(|dtype| element(dtype).unwrap_or("float"));
        let wide = if [dtype, state].contains(&DType::Float64) {
            "double"
        } else {
            "float"
        };
        let type_of = |input: usize| if input == PAST { kept } else { ty };
        let there = (0..INPUTS.len()).filter(|&i| self.slots[i].is_some());
        let parameters: String = there
            .map(|i| format!("const {}* {}, ", type_of(i), INPUTS[i]))
            .collect();
        let argument = |i: usize| match self.slots[i] {
            Some(_) => INPUTS[i].into(),
            None => format!("(const {}*)0", type_of(i)),
        };
        let arguments: Vec<String> = (0..INPUTS.len()).map(argument).collect();
        let Rule { gated, delta } = self.rule;
        format!(
            "{SOURCE}\nextern \"C\" __global__ void __launch_bounds__({THREADS}) linear({ty}* y, {kept}* last, \
             {parameters}const Linear s) {{\n    \
             linear_attention<{ty}, {kept}, {wide}, {rows}, {columns}, {gated}, {delta}>(y, last, {}, s);\n}}\n",
            arguments.join(", ")
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lane_keeps_what_it_has_registers_for() {
        let sizes = [0, 1, 32, 64, 100, 256, 512, 1024];
        let tiles = sizes.map(|size| tile(size).unwrap());
        assert_eq!(
            tiles,
            [[1, 4], [1, 4], [1, 4], [2, 4], [4, 4], [8, 4], [16, 2], [32, 1]]
        );
        assert!(tile(1025).is_err());
    }

    #[test]
    fn inputs_that_are_not_there_are_null() {
        let linear = Linear {
            rule: Rule {
                gated: false,
                delta: true,
            },
            heads: 4,
            scale: 1.0,
            slots: [Some(0), Some(1), Some(2), None, None, Some(3)],
        };
        let source = linear.source(DType::Float16, DType::Float32, [2, 4]);
        assert!(source.contains("const float16* v, const float16* beta, const Linear s)"));
        assert!(source.contains("linear_attention<float16, float, float, 2, 4, false, true>"));
        assert!(source.contains("v, (const float*)0, (const float16*)0, beta, s);"));
        let extents = Extents::new(4, 5, &[3, 2, 64, 9], [0, 2]);
        assert_eq!(linear.words(&extents, 3).unwrap()[2..], [6, 2, 2, 5, 64, 9, 0, 2]);
    }
}
