//! Where the parts of the scratch memory lie.

use super::instance::Products;
use crate::network::ops::recurrent::{Extents, Kind, Spec};

/// Offsets in the workspace, in bytes, of f32 numbers (but for the products' own scratch).
#[derive(Debug, Default, Clone)]
pub struct Memory {
    /// The product with the input: a row for each of its rows, with all gates of all directions.
    pub input: usize,
    /// By direction, the product with the state: a row for each sequence.
    pub gates: usize,
    /// GRU: the reset state, and the product with it; by direction, as the states.
    pub reset: usize,
    pub fresh: usize,
    pub h: usize,
    pub c: usize,
    /// Both biases added, and those that must wait until the state is reset.
    pub bias: usize,
    pub late: usize,
    pub peepholes: usize,
    /// Operands of another dtype, widened.
    pub x: usize,
    pub w: usize,
    pub r: usize,
    /// Of the products.
    pub scratch: usize,
    pub total: usize,
}

/// Extents with what depends on the op.
#[derive(Debug, Clone, Copy)]
pub struct Sizes {
    pub at: Extents,
    /// Gates times hidden: a row of weights for each.
    pub rows: usize,
    /// The part of the rows that meets the state before it is reset.
    pub plain: usize,
}

impl Memory {
    /// Lays out the workspace; `wide` says which of x, W, R need a widened copy.
    pub fn new(spec: &Spec, sizes: &Sizes, wide: [bool; 3], products: &Products) -> Self {
        let at = &sizes.at;
        let mut total = 0;
        let mut take = |elements: usize| {
            let start = total;
            total += (elements * 4).next_multiple_of(64);
            start
        };
        let states = at.directions * at.batch * at.hidden;
        let gru = spec.kind == Kind::Gru;
        let all = at.directions * sizes.rows;
        let when = |yes: bool, elements: usize| if yes { elements } else { 0 };
        let mut memory = Self {
            input: take(at.steps * at.batch * all),
            gates: take(at.directions * at.batch * sizes.plain),
            reset: take(when(gru, states)),
            fresh: take(when(gru, states)),
            h: take(states),
            c: take(states),
            bias: take(all),
            late: take(at.directions * at.hidden),
            peepholes: take(at.directions * 3 * at.hidden),
            x: take(when(wide[0], at.steps * at.batch * at.input)),
            w: take(when(wide[1], all * at.input)),
            r: take(when(wide[2], all * at.hidden)),
            scratch: 0,
            total: 0,
        };
        memory.scratch = total;
        memory.total = total + products.workspace;
        memory
    }
}
