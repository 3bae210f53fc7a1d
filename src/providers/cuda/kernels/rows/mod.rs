//! Rows of numbers that threads work on together: softmax, normalizations, reductions, running sums, the best elements.

mod group_norm;
mod hardmax;
mod l2_norm;
mod lrn;
mod norm;
mod of_8_bits;
pub mod per_token;
mod reduce;
mod scan;
mod softmax;
mod team;
mod top_k;
mod walk;

use super::{Answer, Gpu};
use crate::error::{Error, Result};
use crate::plan::layout::{Layout, Operand};
use crate::providers::common::operand_strides::space;
use crate::providers::common::scope::Scope;
use std::sync::Arc;

/// What every source here begins with.
const ROWS: &str = include_str!("../../../../../kernels/rows.cu");

/// What the kernels here run of a layer.
pub fn offer(scope: &Scope, gpu: &Arc<Gpu>) -> Answer {
    let offers = [
        norm::offer,
        group_norm::offer,
        lrn::offer,
        softmax::offer,
        hardmax::offer,
        reduce::offer,
        scan::offer,
        top_k::offer,
        per_token::offer,
    ];
    for family in offers {
        let found = family(scope, gpu)?;
        if !found.is_empty() {
            return Ok(found);
        }
    }
    Ok(vec![])
}

/// A tensor around one of its axes, in the order of memory: `outer` times `length` numbers, each `inner` elements from the
/// one before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Around {
    outer: usize,
    length: usize,
    inner: usize,
}

impl Around {
    fn of(operand: &Operand, axis: usize) -> Result<Self> {
        let channels_last = operand.layout == Layout::ChannelsLast;
        let at = match axis {
            1 if channels_last => operand.shape.len() - 1,
            axis if channels_last && axis > 1 => axis - 1,
            axis => axis,
        };
        let space = space(&operand.shape, operand.layout);
        let around = Self {
            outer: space[..at].iter().product(),
            length: space[at],
            inner: space[at + 1..].iter().product(),
        };
        if operand.elements() > i32::MAX as usize {
            return Err(Error::unsupported("the tensors are too large for one kernel")
                .expected(format!("up to {} elements", i32::MAX))
                .got(operand.describe()));
        }
        Ok(around)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::dtype::DType;

    #[test]
    fn an_axis_lies_as_the_layout_has_it() {
        let around = |layout, axis| {
            let operand = Operand::dense(DType::Float16, vec![2, 3, 5, 7], layout);
            let Around { outer, length, inner } = Around::of(&operand, axis).unwrap();
            (outer, length, inner)
        };
        assert_eq!(around(Layout::Plain, 1), (2, 3, 35));
        assert_eq!(around(Layout::ChannelsLast, 1), (70, 3, 1));
        assert_eq!(around(Layout::ChannelsLast, 2), (2, 5, 21));
        assert_eq!(around(Layout::ChannelsLast, 0), (1, 2, 105));
    }
}
