//! Which tensors are quantized: what products read, what is added to the result of one, and what is averaged behind one.

use super::least::least;
use crate::network::dtype::DType;
use crate::network::ops::reduce;
use crate::network::{Layer, LayerId, Network, TensorId};
use std::collections::{BTreeMap, HashSet};

/// A tensor to be quantized.
#[derive(Debug, Clone)]
pub struct Point {
    /// The tensor.
    pub tensor: TensorId,
    /// Its name in calibration caches: that of the layer that gives it, or of the input.
    pub name: String,
    /// The least number that it can have, whatever the inputs are, where that is known: 8 bits reach no further.
    pub least: Option<f64>,
    /// The layers that read it in 8 bits, each with the number of its input.
    pub readers: Vec<(LayerId, usize)>,
    /// What it is looked at for.
    pub role: Role,
}

/// What a range is for. A calibration cache that others wrote may lack those of means and branches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Products read the tensor.
    Operand,
    /// It is added to the result of a product, and products may read it too.
    Residual,
    /// Means alone read it: without a range it stays in floats.
    Mean,
    /// A convolution gives it, and it is added to a residual: beside its range it is seen what 8 bits of the residual cost
    /// ([`guard`](super::guard)). It gets none itself. Residuals of matrix products have 8 bits anyway.
    Branch,
}

impl Role {
    /// Whether 8 bits can't do without its range.
    pub fn is_needed(self) -> bool {
        matches!(self, Self::Operand | Self::Residual)
    }

    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Operand => "operand",
            Self::Residual => "residual",
            Self::Mean => "mean",
            Self::Branch => "branch",
        }
    }
}

/// A part of what 8 bits would reach as integers with a sign: tensors that reach less far below zero get a zero point. It makes their
/// steps a quarter smaller, or more.
const PART_BELOW: f64 = 0.5;

/// The scale, zero point and dtype of integers that hold numbers up to this magnitude: symmetric int8, or uint8 where next to nothing
/// is below zero; `least` is the least number, where it is known.
pub fn integers(most: f64, least: Option<f64>) -> (f64, i64, DType) {
    match least {
        Some(least) if -least <= PART_BELOW * most => {
            let scale = (most - least) / 255.0;
            (scale, (-least / scale).round() as i64, DType::UInt8)
        }
        _ => (most / 127.0, 0, DType::Int8),
    }
}

/// A product whose weights are constants, and so may have 8 bits; the axis of the weights that counts its channels.
pub(super) fn channel_axis(network: &Network, layer: &Layer) -> Option<usize> {
    let weights = layer.inputs.get(1).copied().flatten()?;
    let array = network[weights].constant()?;
    let flag = |name: &str| matches!(layer.attrs.get(name), Some(crate::network::attr::Attr::Int(1)));
    let axis = match layer.op.name {
        "Conv" => 0,
        "ConvTranspose" => 1,
        "MatMul" if array.shape().len() == 2 => 1 - flag("transB") as usize,
        _ => return None,
    };
    (array.dtype() == DType::Float32 && !array.is_empty() && array.shape().len() > axis).then_some(axis)
}

/// The tensors to quantize, in an order of execution, but for those that `keep` names: layers that stay in floating point.
///
/// # Errors
/// If the network has a cycle.
pub fn points(network: &Network, keep: &HashSet<String>) -> crate::error::Result<Vec<Point>> {
    let order = network.order()?;
    let place: BTreeMap<LayerId, usize> = order.iter().enumerate().map(|(at, &id)| (id, at)).collect();
    let mut found: BTreeMap<TensorId, Vec<(LayerId, usize)>> = BTreeMap::new();
    let mut products = HashSet::new();
    for &id in &order {
        let layer = &network[id];
        if is_kept(layer, keep) {
            continue;
        }
        let Some(x) = layer.inputs.first().copied().flatten() else {
            continue;
        };
        let floats = network[x].ty.dtype == DType::Float32 && network[x].constant().is_none();
        if floats && channel_axis(network, layer).is_some() {
            products.insert(id);
            found.entry(x).or_default().push((id, 0));
        }
    }
    let mut branches = vec![];
    for &id in &order {
        if let Some((tensor, at)) = residual(network, id, &products, &place) {
            found.entry(tensor).or_default().push((id, at));
            let conv =
                |&tensor: &TensorId| product_behind(network, tensor, &products).is_some_and(|id| is_conv(network, id));
            let branch = branch(network, id, at).filter(conv);
            branches.extend(branch.map(|tensor| (tensor, vec![], Role::Branch)));
        }
    }
    let points = found.into_iter().map(|(tensor, readers)| {
        let added = readers.iter().any(|&(id, _)| network[id].op.name == "Add");
        let role = if added { Role::Residual } else { Role::Operand };
        (tensor, readers, role)
    });
    let means = order.iter().filter(|id| !is_kept(&network[**id], keep));
    let means = means.filter_map(|&id| Some((averaged(network, &network[id], &products)?, vec![(id, 0)], Role::Mean)));
    let point = |(tensor, readers, role): (TensorId, Vec<(LayerId, usize)>, Role)| Point {
        tensor,
        name: name(network, tensor),
        least: least(network, tensor),
        readers,
        role,
    };
    let mut points: Vec<Point> = points.chain(means).chain(branches).map(point).collect();
    let first = |point: &Point| network.producer(point.tensor).map(|(id, _)| place[&id]);
    points.sort_by_key(|point| (first(point), point.tensor.0));
    Ok(points)
}

pub(super) fn is_kept(layer: &Layer, keep: &HashSet<String>) -> bool {
    keep.contains(&layer.name) || layer.sources.iter().any(|source| keep.contains(source))
}

/// What a layer takes the mean of over all places of each channel, if it comes from a convolution, nobody else reads it, and a product
/// reads the mean: a quarter of the bytes is written and read, and what is rounded away is less than what that product's 8 bits lose.
fn averaged(network: &Network, layer: &Layer, products: &HashSet<LayerId>) -> Option<TensorId> {
    let x = layer.inputs.first().copied().flatten()?;
    let ty = &network[x].ty;
    let over_places = match layer.op.name {
        "GlobalAveragePool" => true,
        "ReduceMean" => reduce::axes(&layer.attrs, ty).is_ok_and(|axes| axes.iter().copied().eq(2..ty.rank())),
        _ => false,
    };
    let fits = over_places && ty.rank() >= 3 && is_multiplied(network, layer.outputs[0], products);
    (fits && is_behind_conv(network, x, products)).then_some(x)
}

/// Whether one of these products alone reads a tensor, perhaps behind what moves its elements.
fn is_multiplied(network: &Network, mut tensor: TensorId, products: &HashSet<LayerId>) -> bool {
    while let Some(reader) = network.sole_user(tensor) {
        let layer = &network[reader];
        if layer.inputs.first() != Some(&Some(tensor)) {
            return false;
        }
        if products.contains(&reader) {
            return true;
        }
        if !layer.op.moves() || layer.outputs.len() != 1 {
            return false;
        }
        tensor = layer.outputs[0];
    }
    false
}

/// What may stand between a product and what is quantized of its result, beside sums: of ops like Exp the small numbers count as well,
/// which one scale for all rounds to 0.
const ACTIVATIONS: [&str; 8] = ["Clip", "Elu", "Gelu", "HardSwish", "LeakyRelu", "Mish", "Relu", "Silu"];

/// Whether a tensor is the result of a convolution among these products, perhaps through such layers, and each tensor on the way has one
/// reader and as many elements.
fn is_behind_conv(network: &Network, x: TensorId, products: &HashSet<LayerId>) -> bool {
    let shape = &network[x].ty.shape;
    let mut open = vec![x];
    while let Some(tensor) = open.pop() {
        let ty = &network[tensor].ty;
        let alike = ty.dtype == DType::Float32 && ty.shape == *shape && network.sole_user(tensor).is_some();
        let Some((id, layer)) = network.producer(tensor).filter(|_| alike) else {
            continue;
        };
        if products.contains(&id) && is_conv(network, id) {
            return true;
        }
        if layer.op.name == "Add" || ACTIVATIONS.contains(&layer.op.name) {
            open.extend(layer.inputs.iter().copied().flatten());
        }
    }
    false
}

fn is_conv(network: &Network, id: LayerId) -> bool {
    matches!(network[id].op.name, "Conv" | "ConvTranspose")
}

/// The product whose result a tensor is, perhaps behind an activation, if nobody else reads what is on the way.
fn product_behind(network: &Network, mut tensor: TensorId, products: &HashSet<LayerId>) -> Option<LayerId> {
    loop {
        network.sole_user(tensor)?;
        let (id, layer) = network.producer(tensor)?;
        if products.contains(&id) {
            return Some(id);
        }
        let activation = ACTIVATIONS.contains(&layer.op.name);
        tensor = layer.inputs[0].filter(|_| activation)?;
    }
}

/// The operand of an Add that is no result of the product before it: with 8 bits, that product reads a quarter of its bytes.
fn residual(
    network: &Network,
    id: LayerId,
    products: &HashSet<LayerId>,
    place: &BTreeMap<LayerId, usize>,
) -> Option<(TensorId, usize)> {
    let layer = &network[id];
    let &[Some(a), Some(b)] = layer.inputs.as_slice() else {
        return None;
    };
    let (left, right) = (&network[a], &network[b]);
    let alike = layer.op.name == "Add"
        && a != b
        && left.ty.shape == right.ty.shape
        && left.ty.rank() >= 3
        && left.ty.dtype == DType::Float32
        && [left, right].iter().all(|t| t.constant().is_none());
    if !alike {
        return None;
    }
    let product = |tensor: TensorId| place.get(&product_behind(network, tensor, products)?);
    match (product(a), product(b)) {
        (None, None) => None,
        (first, second) if first > second => Some((b, 1)),
        _ => Some((a, 0)),
    }
}

/// What a sum adds to its operand of this number.
pub(super) fn branch(network: &Network, sum: LayerId, at: usize) -> Option<TensorId> {
    network[sum].inputs.get(1 - at).copied().flatten()
}

/// The name of a tensor in calibration caches.
pub(super) fn name(network: &Network, tensor: TensorId) -> String {
    let name = &network[tensor].name;
    name.strip_suffix(":out").unwrap_or(name).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::attr::{Attr, attrs};
    use crate::passes::testing::Graph;

    #[test]
    fn products_and_residuals_are_quantized_and_other_sums_are_not() {
        let mut g = Graph::new();
        let x = g.input("x", "n 4 6 6");
        let (v, w) = (g.weights(&[4, 4, 1, 1]), g.weights(&[4, 4, 1, 1]));
        let a = g.op("Relu", &[x]);
        let b = g.op("Conv", &[a, v]);
        let c = g.op("Relu", &[b]);
        let d = g.op("Conv", &[c, w]);
        let sum = g.op("Add", &[d, a]);
        let other = g.op("Add", &[sum, x]);
        g.output(other);
        let found = points(&g.network, &HashSet::new()).unwrap();
        let told: Vec<_> = found.iter().map(|p| (p.tensor, p.least, p.readers.len())).collect();
        assert_eq!(told, [(a, Some(0.0), 2), (c, Some(0.0), 1), (d, None, 0)]);
        let roles: Vec<_> = found.iter().map(|p| p.role).collect();
        assert_eq!(roles, [Role::Residual, Role::Operand, Role::Branch]);
        let first = g.network.producer(b).unwrap().1.name.clone();
        let found = points(&g.network, &HashSet::from([first])).unwrap();
        assert_eq!(found.iter().map(|p| p.tensor).collect::<Vec<_>>(), [a, c, d]);
        assert_eq!(found[0].readers.len(), 1);
    }

    #[test]
    fn what_is_added_behind_an_activation_is_quantized_too() {
        for (op, counts) in [("Silu", [2, 0].as_slice()), ("Exp", &[1])] {
            let mut g = Graph::new();
            let x = g.input("x", "n 4 6 6");
            let w = g.weights(&[4, 4, 1, 1]);
            let left = g.op("Silu", &[x]);
            let y = g.op("Conv", &[left, w]);
            let y = g.op(op, &[y]);
            let sum = g.op("Add", &[left, y]);
            g.output(sum);
            let found = points(&g.network, &HashSet::new()).unwrap();
            assert_eq!(found.iter().map(|p| p.readers.len()).collect::<Vec<_>>(), counts);
        }
    }

    /// The mean of what stands in front of it, and a product of that; says whether what it reads is quantized.
    fn is_averaged_in_8_bits(
        made: impl Fn(&mut Graph, TensorId, TensorId) -> TensorId,
        axes: &[i64],
        product: bool,
    ) -> bool {
        let mut g = Graph::new();
        let x = g.input("x", "n 4 6 6");
        let w = g.weights(&[4, 4, 1, 1]);
        let y = g.op("Conv", &[x, w]);
        let y = made(&mut g, y, x);
        let over = attrs([("axes", Attr::Ints(axes.to_vec())), ("keepdims", Attr::Int(1))]);
        let mut mean = g.op_with("ReduceMean", over, &[y]);
        if product {
            let channels = if axes.contains(&1) { 1 } else { 4 };
            let of_mean = g.weights(&[4, channels, 1, 1]);
            mean = g.op("Conv", &[mean, of_mean]);
        }
        g.output(mean);
        let found = points(&g.network, &HashSet::new()).unwrap();
        let optional: Vec<TensorId> = found
            .iter()
            .filter(|p| p.role == Role::Mean)
            .map(|p| p.tensor)
            .collect();
        assert!(optional.is_empty() || optional == [y]);
        !optional.is_empty()
    }

    #[test]
    fn means_of_convolutions_are_quantized_where_products_read_them() {
        let relu = |g: &mut Graph, y, _| g.op("Relu", &[y]);
        let residual = |g: &mut Graph, y, x| {
            let sum = g.op("Add", &[y, x]);
            g.op("Silu", &[sum])
        };
        assert!(is_averaged_in_8_bits(relu, &[2, 3], true));
        assert!(is_averaged_in_8_bits(residual, &[-1, -2], true));
        assert!(!is_averaged_in_8_bits(relu, &[2, 3], false));
        for axes in [[1].as_slice(), &[2], &[0, 2, 3]] {
            assert!(!is_averaged_in_8_bits(relu, axes, true));
        }
        assert!(!is_averaged_in_8_bits(|g, y, _| g.op("Exp", &[y]), &[2, 3], true));
        assert!(!is_averaged_in_8_bits(|_, _, x| x, &[2, 3], true));
        let read_twice = |g: &mut Graph, y, _| {
            g.output(y);
            y
        };
        assert!(!is_averaged_in_8_bits(read_twice, &[2, 3], true));
    }

    #[test]
    fn what_reaches_less_far_below_zero_has_a_zero_point() {
        let mut g = Graph::new();
        let x = g.input("x", "n 4 6 6");
        let w = g.weights(&[4, 4, 1, 1]);
        let pooled = g.op("Relu", &[x]);
        let pooled = g.op_with("MaxPool", attrs([("kernel_shape", Attr::Ints(vec![2, 2]))]), &[pooled]);
        let y = g.op("Conv", &[pooled, w]);
        let z = g.op("Silu", &[y]);
        let y = g.op("Conv", &[z, w]);
        let y = g.op("Conv", &[y, w]);
        g.output(y);
        let found = points(&g.network, &HashSet::new()).unwrap();
        let told = |most: f64| -> Vec<_> { found.iter().map(|p| integers(most, p.least)).collect() };
        let plain = (2.55 / 127.0, 0, DType::Int8);
        let steps = (2.55 + 0.2785) / 255.0;
        assert_eq!(
            told(2.55),
            [(2.55 / 255.0, 0, DType::UInt8), (steps, 25, DType::UInt8), plain]
        );
        assert_eq!(told(0.5)[1].2, DType::Int8);
    }
}
