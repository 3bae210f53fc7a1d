//! Default dims: the sizes to optimise for where the caller gives none.

use crate::error::Result;
use crate::network::dim::{Binding, Dim, Range};
use crate::network::op::TensorType;
use crate::network::{Network, TensorId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The role of a size, by the layers that read it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    /// Height or width of an image.
    Image,
    /// An extent of a volume or a film.
    Volume,
    /// Samples of one or two channels, as of sound.
    Signal,
    /// Tokens, frames, boxes: whatever stands in a row.
    Sequence,
}

impl Role {
    /// Its default dims, in the order in which they are tried until one fits the network.
    fn sizes(self) -> &'static [i64] {
        match self {
            Self::Image => &[224, 256, 320, 384, 512, 640, 299, 192, 128, 64, 32],
            Self::Volume => &[64, 96, 128, 32, 16],
            Self::Signal => &[16_000, 4_000, 1_024],
            Self::Sequence => &[128, 64, 32, 16],
        }
    }
}

/// Defaults that make a larger tensor are not taken.
const MOST_ELEMENTS: i64 = 1 << 27;

/// Gives default dims to the sizes of inputs that the caller left open, by their roles; a batch stays 1. Returns a note that
/// lists them, if there are any.
///
/// # Errors
/// If the network has a cycle.
pub fn assign(network: &mut Network) -> Result<Option<String>> {
    let roles = roles(network)?;
    let before = network.symbols.clone();
    let attempts = roles.values().map(|role| role.sizes().len()).max().unwrap_or(0);
    for attempt in 0..attempts {
        for (name, role) in &roles {
            let sizes = role.sizes();
            network.symbols.entry(name.clone()).or_default().opt = sizes[attempt.min(sizes.len() - 1)];
        }
        agree(network);
        if fits(network) {
            return Ok(Some(note(network, roles.keys())));
        }
        network.symbols = before.clone();
    }
    choose(network);
    Ok((!roles.is_empty()).then(|| note(network, roles.keys())))
}

/// The sizes of inputs that the caller left open, with the role that the first layer with spatial axes gives each.
fn roles(network: &Network) -> Result<BTreeMap<Arc<str>, Role>> {
    let mut open: BTreeSet<Arc<str>> = network
        .inputs()
        .iter()
        .flat_map(|&input| network[input].ty.shape.iter().flat_map(Dim::symbols))
        .filter(|name| network.symbols.get(name).is_some_and(is_unsaid))
        .collect();
    let mut roles = BTreeMap::new();
    for id in network.order()? {
        let layer = &network[id];
        let input = layer.inputs.first().copied().flatten().filter(|_| layer.op.spatial);
        let Some((shape, role)) = input.and_then(|input| spatial_role(&network[input].ty.shape)) else {
            continue;
        };
        for name in shape.iter().flat_map(Dim::symbols).filter(|name| open.remove(name)) {
            roles.insert(name, role);
        }
    }
    let batch = |input: &TensorId| network[*input].ty.shape.first().map(Dim::symbols);
    for name in network.inputs().iter().filter_map(batch).flatten() {
        open.remove(&name);
    }
    roles.extend(open.into_iter().map(|name| (name, Role::Sequence)));
    Ok(roles)
}

/// The places in a shape, and what their extents are.
fn spatial_role(shape: &[Dim]) -> Option<(&[Dim], Role)> {
    /// More channels than a sound has are features.
    const SOUND: i64 = 2;
    let places = shape.get(2..)?;
    let role = match places.len() {
        1 if shape[1].as_const().is_some_and(|channels| channels <= SOUND) => Role::Signal,
        1 => Role::Sequence,
        2 => Role::Image,
        3 => Role::Volume,
        _ => return None,
    };
    Some((places, role))
}

/// Whether the network runs at its sizes to optimise for, in tensors of a reasonable size.
fn fits(network: &Network) -> bool {
    let opt = opt(network);
    let sound = |ty: &TensorType| {
        let extents = ty.shape.iter().map(|dim| dim.eval(&opt));
        let elements = extents.map(|extent| extent.unwrap_or(1)).try_fold(1i64, |all, extent| {
            all.checked_mul(extent)
                .filter(|&all| extent > 0 && all <= MOST_ELEMENTS)
        });
        elements.is_some()
    };
    let dynamic = |ty: &&TensorType| ty.concrete().is_none();
    let mut types = network.tensors().map(|(_, tensor)| &tensor.ty).filter(dynamic);
    network.check_guards(&opt).is_ok() && types.all(sound)
}

/// The note for the user.
fn note<'a>(network: &Network, names: impl Iterator<Item = &'a Arc<str>>) -> String {
    let opt = opt(network);
    let names: Vec<&str> = names.map(|name| &**name).collect();
    let dynamic = |input: &&TensorId| network[**input].ty.concrete().is_none();
    let line = |input: &TensorId| {
        let tensor = &network[*input];
        let dims = tensor
            .ty
            .shape
            .iter()
            .map(|dim| dim.eval(&opt).unwrap_or(1).to_string());
        let dims: Vec<String> = dims.collect();
        let comma = if dims.len() == 1 { "," } else { "" };
        format!("{:?}: ({}{comma})", tensor.name, dims.join(", "))
    };
    let lines: Vec<String> = network.inputs().iter().filter(dynamic).map(line).collect();
    format!(
        "{ASSUMED} {}: other sizes run in kernels that were chosen for these; say yours: input_shapes={{{}}}",
        names.join(", "),
        lines.join(", ")
    )
}

/// The start of that note. It belongs to one build, and is not saved.
pub const ASSUMED: &str = "default sizes were taken for";

/// The sizes that are tried, in order, while tensors would be empty.
const GUESSES: [i64; 4] = [16, 64, 256, 1024];

/// The default dim of a size that depends on data.
pub const COUNTED: i64 = 64;

/// The range of a size that depends on data, with its default dim.
pub fn counted() -> Range {
    Range {
        opt: COUNTED,
        ..Range::default()
    }
}

/// Chooses default dims for symbols without a range: values that the guards allow, raised from 1 until no tensor is empty, since
/// an empty result can't be timed.
pub fn choose(network: &mut Network) {
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

/// Sets symbols without a range to values that the guards allow.
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
            let operands = guard.right.operands();
            let sides = match operands.len() {
                1 => {
                    guard.check(&opt).err()?;
                    vec![(&guard.left, &guard.right), (&guard.right, &guard.left)]
                }
                // Equal is what is likely, though it may be 1.
                _ => operands.iter().map(|dim| (dim, &guard.right)).collect(),
            };
            sides.into_iter().find_map(|(one, other)| {
                let size = other.eval(&opt).ok().filter(|&size| size > 0)?;
                let name = free(one)?;
                (opt.get(&name) != Some(&size)).then_some((name, size))
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

/// Whether nobody said anything of a size.
fn is_unsaid(range: &Range) -> bool {
    *range == Range::default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::array::Array;
    use crate::network::attr::{Attr, attrs};
    use crate::network::dtype::DType;
    use crate::network::ops;
    use crate::passes::testing::Graph;

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
        choose(&mut network);
        let opt: Vec<_> = ["n", "h", "w"].iter().map(|name| network.symbols[*name].opt).collect();
        assert_eq!(opt, [1, 64, 16]);
    }

    fn opt_of(network: &Network, names: &[&str]) -> Vec<i64> {
        names.iter().map(|&name| network.symbols[name].opt).collect()
    }

    /// A network with one convolution over the named places of its input, turned to have its channels second.
    fn convolution(dims: &[&str], turned: bool) -> Network {
        let mut g = Graph::new();
        let mut x = g.input("x", &dims.join(" "));
        let rank = dims.len() as i64;
        if turned {
            let perm = [0, rank - 1].into_iter().chain(1..rank - 1).collect();
            x = g.op_with("Transpose", attrs([("perm", Attr::Ints(perm))]), &[x]);
        }
        let channels = g.network[x].ty.shape[1].as_const().unwrap() as usize;
        let mut weights = vec![4, channels];
        weights.resize(dims.len(), 3);
        let w = g.weights(&weights);
        let y = g.op("Conv", &[x, w]);
        g.output(y);
        unsaid(g)
    }

    /// A network of whose sizes nobody said anything.
    fn unsaid(mut g: Graph) -> Network {
        let ranges = g.network.symbols.values_mut();
        ranges.for_each(|range| *range = Range::default());
        g.network
    }

    #[test]
    fn sizes_are_taken_by_what_they_are_for() {
        for (dims, turned, sizes) in [
            (&["n", "3", "h", "w"][..], false, &[1, 224, 224][..]),
            (&["n", "h", "w", "3"], true, &[1, 224, 224]),
            (&["n", "1", "d", "h", "w"], false, &[1, 64, 64, 64]),
            (&["n", "1", "s"], false, &[1, 16_000]),
            (&["n", "80", "s"], false, &[1, 128]),
        ] {
            let mut network = convolution(dims, turned);
            let names: Vec<&str> = dims.iter().copied().filter(|dim| dim.parse::<i64>().is_err()).collect();
            assert!(assign(&mut network).unwrap().is_some());
            assert_eq!(opt_of(&network, &names), sizes, "{dims:?}");
        }
    }

    #[test]
    fn rows_without_places_are_sequences_and_a_batch_stays_one() {
        let mut g = Graph::new();
        let (ids, mask) = (g.input("ids", "batch length"), g.input("mask", "batch length"));
        let y = g.op("Mul", &[ids, mask]);
        g.output(y);
        let mut network = unsaid(g);
        let note = assign(&mut network).unwrap().unwrap();
        assert_eq!(opt_of(&network, &["batch", "length"]), [1, 128]);
        assert!(
            note.ends_with(r#"input_shapes={"ids": (1, 128), "mask": (1, 128)}"#),
            "{note}"
        );
        let mut batch = Graph::new();
        let x = batch.input("x", "batch 8");
        batch.output(x);
        assert_eq!(assign(&mut unsaid(batch)).unwrap(), None);
    }

    #[test]
    fn what_somebody_said_or_the_network_wants_holds() {
        let mut said = convolution(&["n", "3", "h", "w"], false);
        let range = Range {
            min: 1,
            opt: 48,
            max: 64,
        };
        said.set_range("h", range).unwrap();
        assign(&mut said).unwrap();
        assert_eq!(opt_of(&said, &["h", "w"]), [48, 224]);
        let mut g = Graph::new();
        let x = g.input("x", "n 3 h h");
        let (w, table) = (g.weights(&[4, 3, 16, 16]), g.weights(&[4, 24, 24]));
        let y = g.op_with("Conv", attrs([("strides", Attr::Ints(vec![16, 16]))]), &[x, w]);
        let y = g.op("Add", &[y, table]);
        g.output(y);
        let mut network = unsaid(g);
        assign(&mut network).unwrap();
        assert_eq!(opt_of(&network, &["h"]), [384]);
    }
}
