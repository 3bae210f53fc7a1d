//! Sizes to optimise for where nobody says any.

use crate::network::Network;
use crate::network::dim::{Binding, Dim, Range};
use std::collections::BTreeSet;
use std::sync::Arc;

/// What a size is taken to be in turn, as long as tensors would be empty.
const GUESSES: [i64; 4] = [16, 64, 256, 1024];

/// What a size that depends on data is taken to be at first.
pub const COUNTED: i64 = 64;

/// The range of such a size.
pub fn counted() -> Range {
    Range {
        opt: COUNTED,
        ..Range::default()
    }
}

/// Gives sizes of which nothing is known such as go together, and raises them, 1 at first, until no tensor is empty: a
/// convolution over an image of one element has no result that could be timed.
pub fn settle(network: &mut Network) {
    agree(network);
    for guess in GUESSES {
        let small = too_small(network);
        if small.is_empty() {
            return;
        }
        for name in small {
            network.symbols.entry(name).or_default().opt = guess;
        }
    }
}

/// Gives sizes of which nothing is known the values that the network's guards want.
fn agree(network: &mut Network) {
    /// Each mends one guard; models have no more that data could break.
    const ROUNDS: usize = 64;
    for _ in 0..ROUNDS {
        let opt = opt(network);
        let free = |dim: &Dim| {
            let name = dim.as_symbol()?;
            network.symbols.get(name).is_some_and(is_free).then(|| name.clone())
        };
        let mended = network.guards.iter().find_map(|guard| {
            guard.check(&opt).err()?;
            [(&guard.left, &guard.right), (&guard.right, &guard.left)]
                .into_iter()
                .find_map(|(one, other)| {
                    let size = other.eval(&opt).ok().filter(|&size| size > 0)?;
                    Some((free(one)?, size))
                })
        });
        let Some((name, size)) = mended else { return };
        network.symbols.entry(name).or_default().opt = size;
    }
}

fn opt(network: &Network) -> Binding {
    network
        .symbols
        .iter()
        .map(|(name, range)| (name.clone(), range.opt))
        .collect()
}

/// The symbols without a range in dimensions that would be less than 1.
fn too_small(network: &Network) -> BTreeSet<Arc<str>> {
    let opt = opt(network);
    let empty = |dim: &&Dim| dim.as_const().is_none() && dim.eval(&opt).is_ok_and(|size| size < 1);
    let dims = network.tensors().flat_map(|(_, tensor)| &tensor.ty.shape);
    let mut found: BTreeSet<_> = dims.filter(empty).flat_map(Dim::symbols).collect();
    found.retain(|name| network.symbols.get(name).is_some_and(is_free));
    found
}

fn is_free(range: &Range) -> bool {
    let Range { min, max, .. } = Range::default();
    (range.min, range.max) == (min, max)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::array::Array;
    use crate::network::attr::attrs;
    use crate::network::dtype::DType;
    use crate::network::ops;

    #[test]
    fn sizes_grow_until_a_convolution_has_a_result() {
        let mut network = Network::new("");
        let shape = ["n", "1", "h", "w"].map(|d| d.parse().unwrap()).to_vec();
        let mut x = network.add_input("x", DType::Float32, shape).unwrap();
        for extent in [7, 20] {
            let weight = Array::from_f64(DType::Float32, vec![1, 1, extent, 3], &vec![0.0; 3 * extent]).unwrap();
            let weight = network.add_constant("w", weight);
            let inputs = [Some(x), Some(weight)];
            x = network.add_layer("conv", &ops::conv::DEF, attrs([]), &inputs).unwrap()[0];
        }
        settle(&mut network);
        let opt: Vec<_> = ["n", "h", "w"].iter().map(|name| network.symbols[*name].opt).collect();
        assert_eq!(opt, [1, 64, 16]);
    }
}
