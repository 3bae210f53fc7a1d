//! How rules look at the network: short questions about tensors and the layers that give them.

use crate::network::array::Array;
use crate::network::dim::Dim;
use crate::network::dtype::DType;
use crate::network::op::TensorType;
use crate::network::{Layer, LayerId, Network, TensorId, ops};

/// An input of a layer, if it is there.
pub fn input(layer: &Layer, index: usize) -> Option<TensorId> {
    layer.inputs.get(index).copied().flatten()
}

/// The type of a layer's first output.
pub fn output_type(network: &Network, id: LayerId) -> &TensorType {
    &network[network[id].outputs[0]].ty
}

/// The layer that gives a tensor, when it is of this op.
pub fn given_by<'n>(network: &'n Network, tensor: TensorId, op: &str) -> Option<&'n Layer> {
    network
        .producer(tensor)
        .map(|(_, layer)| layer)
        .filter(|layer| layer.op.name == op)
}

/// As [`given_by`], and the tensor is read just once and is no result: its layer may vanish.
pub fn only_given_by<'n>(network: &'n Network, tensor: TensorId, op: &str) -> Option<&'n Layer> {
    network.sole_user(tensor)?;
    given_by(network, tensor, op)
}

/// Layers in a row, the last one first, each with the place of the input that comes from the one before.
pub type Chain<'n> = Vec<(&'n Layer, usize)>;

/// The layers above a tensor up to one of an op, and that one: `through` says which input of a layer leads on. None where something
/// between is read by others.
pub fn chain_up_to<'n>(
    network: &'n Network,
    mut x: TensorId,
    op: &str,
    through: impl Fn(&Network, &Layer) -> Option<usize>,
) -> Option<(Chain<'n>, &'n Layer)> {
    let mut chain = vec![];
    loop {
        network.sole_user(x)?;
        let (_, layer) = network.producer(x)?;
        if layer.op.name == op {
            return Some((chain, layer));
        }
        let main = through(network, layer)?;
        chain.push((layer, main));
        x = input(layer, main)?;
    }
}

/// Whether the tensor is a constant.
pub fn is_constant(network: &Network, tensor: TensorId) -> bool {
    network[tensor].constant().is_some()
}

/// The one value of a constant whose elements are all equal.
pub fn uniform(network: &Network, tensor: TensorId) -> Option<f64> {
    network[tensor].constant()?.uniform()
}

/// The two inputs of a layer, in either order.
pub fn either_order(layer: &Layer) -> Vec<(TensorId, TensorId)> {
    match (input(layer, 0), input(layer, 1)) {
        (Some(a), Some(b)) => vec![(a, b), (b, a)],
        _ => vec![],
    }
}

/// Whether a constant may become a bias, which is added in another order: adding and taking off one so large that it rounds
/// what it is added to, to integers or further, is a way to round.
pub fn is_bias(network: &Network, constant: TensorId) -> bool {
    let array = network[constant].constant();
    array.is_some_and(|array| are_offsets(array.dtype(), array.f64s()))
}

/// Whether numbers of this dtype may become a bias.
pub fn are_offsets(dtype: DType, mut numbers: impl Iterator<Item = f64>) -> bool {
    let least = 2f64.powi(dtype.significant_bits() as i32 - 2);
    numbers.all(|number| number.abs() < least)
}

/// Whether weights that are multiplied or divided (`op`) by a constant stay within the range of their dtype, the greatest of
/// them with all their digits.
pub fn scales_within_range(network: &Network, weights: TensorId, op: &str, constant: TensorId) -> bool {
    let Some((weights, factors)) = network[weights].constant().zip(network[constant].constant()) else {
        return false;
    };
    match op {
        // What is divided by infinity vanishes.
        "Div" => factors.f64s().all(f64::is_finite) && factors_within_range(weights, factors.f64s().map(f64::recip)),
        _ => factors_within_range(weights, factors.f64s()),
    }
}

/// Whether weights that are multiplied by each of these factors stay within the range of their dtype.
pub fn factors_within_range(weights: &Array, mut factors: impl Iterator<Item = f64>) -> bool {
    let greatest = weights.f64s().fold(0.0, |greatest: f64, w| greatest.max(w.abs()));
    let (least, most) = weights.dtype().normal_range();
    let fits = |factor: f64| match greatest * factor.abs() {
        0.0 => greatest == 0.0 || factor == 0.0,
        scaled => (2.0 * least..=most).contains(&scaled),
    };
    weights.f64s().all(f64::is_finite) && factors.all(fits)
}

/// A layer that multiplies by one number: `x * c`, `c * x` or `x / c`. Gives x and the factor.
pub fn scaled(network: &Network, layer: &Layer) -> Option<(TensorId, f64)> {
    match layer.op.name {
        "Mul" => either_order(layer)
            .into_iter()
            .find_map(|(x, c)| Some((x, uniform(network, c)?)).filter(|_| !is_constant(network, x))),
        "Div" => Some((input(layer, 0)?, 1.0 / uniform(network, input(layer, 1)?)?)),
        _ => None,
    }
}

/// A layer that adds one number: `x + c`, `c + x` or `x - c`. Gives x and the number.
pub fn shifted(network: &Network, layer: &Layer) -> Option<(TensorId, f64)> {
    match layer.op.name {
        "Add" => either_order(layer)
            .into_iter()
            .find_map(|(x, c)| Some((x, uniform(network, c)?)).filter(|_| !is_constant(network, x))),
        "Sub" => Some((input(layer, 0)?, -uniform(network, input(layer, 1)?)?)),
        _ => None,
    }
}

/// A tensor as `factor` times a product of others, through layers that only this product reads.
pub struct Product {
    /// What is multiplied.
    pub terms: Vec<TensorId>,
    /// The number in front.
    pub factor: f64,
}

/// The product that a layer computes, seen through at most a few Mul and Div by a number.
pub fn product(network: &Network, layer: &Layer) -> Product {
    let mut product = Product {
        terms: vec![],
        factor: 1.0,
    };
    if is_product(network, layer) {
        flatten(network, layer, &mut product, 4);
    } else {
        product.terms.extend(layer.outputs.first());
    }
    product
}

fn flatten(network: &Network, layer: &Layer, product: &mut Product, depth: usize) {
    let mut visit = |tensor: TensorId| {
        let inner = network.sole_user(tensor).and_then(|_| network.producer(tensor));
        match inner {
            Some((_, inner)) if depth > 0 && is_product(network, inner) => flatten(network, inner, product, depth - 1),
            _ => product.terms.push(tensor),
        }
    };
    match scaled(network, layer) {
        Some((x, factor)) => {
            visit(x);
            product.factor *= factor;
        }
        None => layer.inputs.iter().flatten().for_each(|&t| visit(t)),
    }
}

fn is_product(network: &Network, layer: &Layer) -> bool {
    layer.op.name == "Mul" || scaled(network, layer).is_some()
}

/// Whether a number in the model is `want`, as rounded as the product of a few numbers of its dtype is.
pub fn near(value: f64, want: f64, dtype: DType) -> bool {
    (value - want).abs() <= 2.0 * dtype.rounding() * want.abs()
}

/// The bounds of a Relu or a Clip with constant bounds, neither of them NaN.
pub fn clip_bounds(network: &Network, layer: &Layer) -> Option<(f64, f64)> {
    let given = |t| uniform(network, t).filter(|bound| !bound.is_nan());
    let bound = |index, open| input(layer, index).map_or(Some(open), given);
    match layer.op.name {
        "Relu" => Some((0.0, f64::INFINITY)),
        "Clip" => Some((bound(1, f64::NEG_INFINITY)?, bound(2, f64::INFINITY)?)),
        _ => None,
    }
}

/// The permutation of a Transpose, complete.
pub fn permutation(network: &Network, layer: &Layer) -> Option<Vec<usize>> {
    if layer.op.name != "Transpose" {
        return None;
    }
    let rank = network[input(layer, 0)?].ty.rank();
    ops::transpose::permutation(&layer.attrs, rank).ok()
}

/// Whether a layer works element by element on all its inputs, so that it can be done in another order of elements.
pub fn is_pointwise(layer: &Layer) -> bool {
    layer.op.pointwise.is_some() || layer.op.name == "Cast"
}

/// The axes of which a Slice takes parts.
pub fn sliced_axes(network: &Network, layer: &Layer) -> Option<Vec<usize>> {
    let ty = &network[input(layer, 0)?].ty;
    let Some(axes) = input(layer, 3) else {
        let count = network[input(layer, 1)?].ty.shape.first()?.as_const()?;
        return Some((0..count as usize).collect());
    };
    let axes = network[axes].ty.value.as_ref()?.iter();
    axes.map(|axis| ty.axis(axis.as_const()?).ok()).collect()
}

/// Whether a permutation of the axes of a shape keeps the order of all elements.
pub fn moves_only_ones(shape: &[Dim], perm: &[usize]) -> bool {
    let moved: Vec<_> = perm.iter().filter(|&&axis| !shape[axis].is(1)).collect();
    moved.is_sorted()
}

/// The permutation that takes another one back.
pub fn inverse(perm: &[usize]) -> Vec<usize> {
    let mut inverse = vec![0; perm.len()];
    perm.iter().enumerate().for_each(|(to, &from)| inverse[from] = to);
    inverse
}

/// A shape with ones in front, up to a rank.
pub fn padded(shape: &[Dim], rank: usize) -> Vec<Dim> {
    let ones = rank.saturating_sub(shape.len());
    std::iter::repeat_n(Dim::from(1i64), ones)
        .chain(shape.iter().cloned())
        .collect()
}
