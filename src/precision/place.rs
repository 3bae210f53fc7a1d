//! Writes Quantize and Dequantize layers around products.

use super::guard;
use super::per_token;
use super::points::{Point, Role, channel_axis, integers, points};
use super::shared::{self, Extent};
use crate::error::{Error, Result};
use crate::network::array::Array;
use crate::network::attr::{Attr, Attrs, attrs};
use crate::network::dtype::DType;
use crate::network::ops;
use crate::network::patch::{Change, Patch};
use crate::network::{LayerId, Network, TensorId};
use crate::passes::{Settings, fold_constants};
use std::collections::{BTreeMap, HashMap, HashSet};

/// By the name of a tensor, the greatest magnitude that its 8 bits hold.
pub type Ranges = BTreeMap<String, f32>;

/// What has 8 bits, and how.
#[derive(Debug, Clone, Copy)]
pub struct Dtypes {
    /// The dtype of weights: int8 or float8_e4m3fn.
    pub weights: DType,
    /// Whether tensors have no zero points and biases stay floats, which is all that TensorRT takes.
    pub symmetric: bool,
}

impl Dtypes {
    /// The scale, zero point and dtype of a tensor.
    fn scheme(self, extent: Extent) -> (f64, i64, DType) {
        match self.weights {
            DType::Int8 if !self.symmetric => integers(extent.most, extent.least),
            symmetric => (extent.most / most(symmetric), 0, symmetric),
        }
    }
}

/// Where a tensor has only zeros, any scale will do.
const LEAST_RANGE: f32 = 1e-12;

/// The greatest number of a dtype of weights, whose least is no nearer to 0 in symmetric quantization.
fn most(dtype: DType) -> f64 {
    match dtype {
        DType::Float8E4M3FN => 448.0,
        _ => 127.0,
    }
}

/// Quantizes the weights of products to a dtype of 8 bits, symmetric, a scale for each channel; and, with `ranges`, the tensors that
/// [`points`] finds: one scale each, which what is joined shares ([`shared`]), symmetric as int8, or as uint8 where they reach less far
/// below zero; for float8_e4m3fn as that, and what products read alone: three digits are too few for sums that are handed on from layer
/// to layer. Symmetric ones are all int8, and leave biases. Residuals that 8 bits would round by too much stay in floats ([`guard`]), and
/// so do layers that `keep` names.
///
/// The network is one that the passes in front of those that lower the precision have left. Scales of weights are computed by layers
/// that fold, so that other weights get others. Matrix products that `per_token` names find a scale for each token at each call, and
/// need no range.
///
/// # Errors
/// If a tensor has no range, or one that is not finite; if weights can't have the dtype.
pub fn place(
    network: &mut Network,
    ranges: Option<&Ranges>,
    dtypes: Dtypes,
    keep: &HashSet<String>,
    per_token: &HashSet<String>,
) -> Result<()> {
    let weights = dtypes.weights;
    if !matches!(weights, DType::Int8 | DType::Float8E4M3FN) {
        return Err(Error::unsupported("weights can't be quantized so")
            .expected("int8 or float8_e4m3fn")
            .got(weights.name()));
    }
    let others = keep.union(per_token).cloned().collect();
    let decided = decided(network, ranges, dtypes, &others)?;
    let mut quantized: HashMap<(LayerId, usize), (TensorId, f64)> = HashMap::new();
    let mut readers: Vec<LayerId> = vec![];
    for (point, extent) in decided.points.iter().zip(decided.extents) {
        for &(id, at) in &point.readers {
            if at == 0 && channel_axis(network, &network[id]).is_some() && !readers.contains(&id) {
                readers.push(id);
            }
        }
        let Some(extent) = extent.filter(|_| !point.readers.is_empty()) else {
            continue;
        };
        let (scale, zero, dtype) = dtypes.scheme(extent);
        let scale = f64::from((scale as f32).max(LEAST_RANGE));
        let tensor = around(
            network,
            point.tensor,
            &point.name,
            scale,
            Array::from_i64(dtype, vec![], &[zero])?,
        )?;
        for &(id, at) in &point.readers {
            quantized.insert((id, at), (tensor, scale));
            if !readers.contains(&id) {
                readers.push(id);
            }
        }
    }
    for id in readers {
        let change = rewritten(network, id, dtypes, &quantized)?;
        change.apply(network);
    }
    per_token::place(network, per_token, keep)?;
    (fold_constants::PASS.apply)(network, &Settings::default())?;
    network.verify()
}

/// What gets 8 bits.
struct Decided {
    points: Vec<Point>,
    /// What the 8 bits of each point hold; none where it stays in floats.
    extents: Vec<Option<Extent>>,
    /// The sums whose residual stays in floats.
    in_floats: Vec<LayerId>,
}

fn decided(network: &Network, ranges: Option<&Ranges>, dtypes: Dtypes, keep: &HashSet<String>) -> Result<Decided> {
    let mut points = points(network, keep)?;
    points.retain(|point| point.role != Role::Branch);
    if dtypes.weights == DType::Float8E4M3FN {
        let reads = |&(id, at): &(LayerId, usize)| at == 0 && channel_axis(network, &network[id]).is_some();
        points.iter_mut().for_each(|point| point.readers.retain(reads));
        points.retain(|point| !point.readers.is_empty());
    }
    let extents = extents(network, &points, ranges, dtypes)?;
    let mut in_floats = vec![];
    if let Some(ranges) = ranges.filter(|_| dtypes.weights == DType::Int8) {
        let step = |extent| dtypes.scheme(extent).0;
        in_floats = guard::residuals_in_floats(network, &points, &extents, ranges, step)?;
        guard::without(&mut points, &in_floats);
    }
    Ok(Decided {
        points,
        extents,
        in_floats,
    })
}

/// Of the residuals that [`place`] could give 8 bits, the sums of those that stay in floats ([`guard`]), by name.
///
/// # Errors
/// As [`place`].
pub fn residuals_in_floats(
    network: &Network,
    ranges: &Ranges,
    dtypes: Dtypes,
    keep: &HashSet<String>,
) -> Result<Vec<String>> {
    let found = decided(network, Some(ranges), dtypes, keep)?.in_floats;
    Ok(found.into_iter().map(|id| network[id].name.clone()).collect())
}

/// What the 8 bits of each point hold; none where it stays in floats.
fn extents(
    network: &Network,
    points: &[Point],
    ranges: Option<&Ranges>,
    dtypes: Dtypes,
) -> Result<Vec<Option<Extent>>> {
    let Some(ranges) = ranges else {
        return Ok(vec![None; points.len()]);
    };
    let own = |point: &Point| {
        let range = ranges.get(&point.name).copied();
        if range.is_none() && !point.role.is_needed() {
            return Ok(None);
        }
        let usable = range.filter(|range| range.is_finite() && *range >= 0.0);
        let range = usable.ok_or_else(|| {
            Error::invalid("the calibration has no range for a tensor")
                .tensor(&point.name)
                .expected(format!("one for each of {} tensors of this network", points.len()))
                .got(format!("{} ranges", ranges.len()))
                .hint("calibrate this network again: the cache is that of another one")
        })?;
        Ok(Some(Extent {
            most: f64::from(range),
            least: point.least,
        }))
    };
    let own: Vec<_> = points.iter().map(own).collect::<Result<_>>()?;
    Ok(match dtypes.weights {
        DType::Int8 => shared::extents(network, points, &own, |extent| dtypes.scheme(extent).0),
        // Steps of floats follow their numbers.
        _ => own,
    })
}

/// Quantize -> Dequantize behind a tensor.
fn around(network: &mut Network, x: TensorId, name: &str, scale: f64, zero: Array) -> Result<TensorId> {
    let dtype = zero.dtype();
    let scale = network.add_constant(&format!("{name}.scale"), Array::scalar(DType::Float32, scale));
    let zero = network.add_constant(&format!("{name}.zero_point"), zero);
    let to = attrs([("to", Attr::Type(dtype))]);
    let inputs = [Some(x), Some(scale), Some(zero)];
    let (quantize, dequantize) = (ops::find("QuantizeLinear")?, ops::find("DequantizeLinear")?);
    let q = network.add_layer(&format!("{name}.quantize"), quantize, to, &inputs)?[0];
    let inputs = [Some(q), Some(scale), Some(zero)];
    Ok(network.add_layer(&format!("{name}.dequantize"), dequantize, Attrs::new(), &inputs)?[0])
}

/// The layer with quantized inputs.
fn rewritten(
    network: &Network,
    id: LayerId,
    dtypes: Dtypes,
    quantized: &HashMap<(LayerId, usize), (TensorId, f64)>,
) -> Result<Change> {
    let layer = &network[id];
    let mut patch = Patch::new(network);
    let mut inputs = layer.inputs.clone();
    for (at, input) in inputs.iter_mut().enumerate() {
        if let Some((tensor, _)) = quantized.get(&(id, at)) {
            *input = Some(*tensor);
        }
    }
    if let Some(axis) = channel_axis(network, layer) {
        let float = |bias: &TensorId| {
            network[*bias]
                .constant()
                .is_some_and(|array| array.dtype() == DType::Float32)
        };
        let bias = inputs.get(2).copied().flatten().filter(float);
        // Beside floats of 8 bits biases stay as they are.
        let whole = layer.op.name == "Conv" && dtypes.weights == DType::Int8 && !dtypes.symmetric;
        let bias = bias.filter(|_| whole).zip(quantized.get(&(id, 0)));
        let bias = bias.map(|(bias, (_, x))| (bias, *x));
        let (weights, scale) = in_8_bits(&mut patch, &layer.name, inputs[1], axis, dtypes.weights, bias)?;
        inputs[1] = Some(weights);
        if let Some((bias, x)) = bias {
            inputs[2] = Some(in_32_bits(&mut patch, &layer.name, bias, scale, x)?);
        }
    }
    let new = patch.add_named("", layer.op, layer.attrs.clone(), &inputs)?;
    for (&old, new) in layer.outputs.iter().zip(new) {
        patch.shunt(old, new)?;
    }
    Ok(patch.finish())
}

/// One layer of a patch, under the name of what it is for.
fn add(patch: &mut Patch, name: &str, op: &str, attrs: Attrs, inputs: &[TensorId]) -> Result<TensorId> {
    let inputs: Vec<_> = inputs.iter().copied().map(Some).collect();
    Ok(patch.add_named(name, ops::find(op)?, attrs, &inputs)?[0])
}

/// The greatest float32 that is an int32.
const MOST_IN_32_BITS: f64 = 2_147_483_520.0;

/// Weights in a dtype with a scale for each channel, dequantized; and the scale. It is so great that 32 bits hold the bias in the scale
/// of the products, which is given with that of the input: of a channel with next to no weights the bias is what counts.
pub(super) fn in_8_bits(
    patch: &mut Patch,
    name: &str,
    weights: Option<TensorId>,
    axis: usize,
    dtype: DType,
    bias: Option<(TensorId, f64)>,
) -> Result<(TensorId, TensorId)> {
    let weights = weights.ok_or_else(|| Error::internal("a product without weights"))?;
    let name = format!("{name}.weight");
    let others = (0..patch.ty(weights).rank())
        .filter(|&other| other != axis)
        .map(|other| other as i64);
    let over = attrs([("axes", Attr::Ints(others.collect())), ("keepdims", Attr::Int(1))]);
    let most = patch.scalar(DType::Float32, most(dtype));
    let least = patch.scalar(DType::Float32, f64::from(LEAST_RANGE));
    let magnitude = add(patch, &name, "Abs", Attrs::new(), &[weights])?;
    let greatest = add(patch, &name, "ReduceMax", over, &[magnitude])?;
    let scale = add(patch, &name, "Div", Attrs::new(), &[greatest, most])?;
    let mut scale = add(patch, &format!("{name}.scale"), "Max", Attrs::new(), &[scale, least])?;
    if let Some((bias, x)) = bias {
        let least = least_for(patch, &name, bias, x, axis, weights)?;
        scale = add(patch, &format!("{name}.scale"), "Max", Attrs::new(), &[scale, least])?;
    }
    let zero = patch.scalar(dtype, 0.0);
    let to = attrs([("to", Attr::Type(dtype))]);
    let q = add(
        patch,
        &format!("{name}.quantize"),
        "QuantizeLinear",
        to,
        &[weights, scale, zero],
    )?;
    let dequantized = add(
        patch,
        &format!("{name}.dequantize"),
        "DequantizeLinear",
        Attrs::new(),
        &[q, scale, zero],
    )?;
    Ok((dequantized, scale))
}

/// The least scale of weights with which 32 bits hold a bias, along the axis of their channels.
fn least_for(
    patch: &mut Patch,
    name: &str,
    bias: TensorId,
    x: f64,
    axis: usize,
    weights: TensorId,
) -> Result<TensorId> {
    let mut along = vec![1; patch.ty(weights).rank()];
    along[axis] = -1;
    let along = patch.constant(Array::ints(&along));
    let most = patch.scalar(DType::Float32, x * MOST_IN_32_BITS);
    let magnitude = add(patch, name, "Abs", Attrs::new(), &[bias])?;
    let least = add(patch, name, "Div", Attrs::new(), &[magnitude, most])?;
    add(patch, name, "Reshape", Attrs::new(), &[least, along])
}

/// A bias as int32 in the scale of the products, dequantized.
fn in_32_bits(patch: &mut Patch, name: &str, bias: TensorId, weights: TensorId, x: f64) -> Result<TensorId> {
    let name = format!("{name}.bias");
    let x = patch.scalar(DType::Float32, x);
    let scale = add(patch, &name, "Mul", Attrs::new(), &[weights, x])?;
    let shape = patch.constant(Array::ints(&[-1]));
    let scale = add(
        patch,
        &format!("{name}.scale"),
        "Reshape",
        Attrs::new(),
        &[scale, shape],
    )?;
    let quotient = add(patch, &name, "Div", Attrs::new(), &[bias, scale])?;
    let whole = add(patch, &name, "Round", Attrs::new(), &[quotient])?;
    let most = patch.scalar(DType::Float32, MOST_IN_32_BITS);
    let least = patch.scalar(DType::Float32, -MOST_IN_32_BITS);
    let held = add(patch, &name, "Clip", Attrs::new(), &[whole, least, most])?;
    let to = attrs([("to", Attr::Type(DType::Int32))]);
    let q = add(patch, &format!("{name}.quantize"), "Cast", to, &[held])?;
    add(
        patch,
        &format!("{name}.dequantize"),
        "DequantizeLinear",
        Attrs::new(),
        &[q, scale],
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::Source;
    use crate::passes::testing::{Graph, assert_same_within};

    fn asymmetric(weights: DType) -> Dtypes {
        Dtypes {
            weights,
            symmetric: false,
        }
    }

    fn placed(network: &mut Network, ranges: Option<&Ranges>, weights: DType) -> Result<()> {
        place(network, ranges, asymmetric(weights), &HashSet::new(), &HashSet::new())
    }

    /// Of inputs that are about 1, and of what they become.
    fn ranges(network: &Network) -> Ranges {
        let found = points(network, &HashSet::new()).unwrap();
        let most = |least| if least == Some(0.0) { 40.0 } else { 2.0 };
        found.into_iter().map(|p| (p.name, most(p.least))).collect()
    }

    fn graph() -> (Graph, Network) {
        let mut g = Graph::new();
        let x = g.input("x", "n 4 6 6");
        let (v, b, w) = (g.weights(&[8, 4, 3, 3]), g.weights(&[8]), g.weights(&[8, 5]));
        let y = g.op("Conv", &[x, v, b]);
        let y = g.op("Relu", &[y]);
        let y = g.op_with("Transpose", attrs([("perm", Attr::Ints(vec![0, 2, 3, 1]))]), &[y]);
        let y = g.op("MatMul", &[y, w]);
        g.output(y);
        let before = g.network.clone();
        (g, before)
    }

    #[test]
    fn products_get_8_bits_and_give_about_the_same() {
        let (mut g, before) = graph();
        let ranges = ranges(&g.network);
        assert_eq!(ranges.len(), 2);
        placed(&mut g.network, Some(&ranges), DType::Int8).unwrap();
        let dtypes = |op: &str| -> Vec<DType> {
            let layers = g.network.layers().filter(|(_, layer)| layer.op.name == op);
            layers
                .map(|(_, layer)| g.network[layer.inputs[0].unwrap()].ty.dtype)
                .collect()
        };
        let mut of = dtypes("DequantizeLinear");
        of.sort();
        assert_eq!(of, [DType::Int8, DType::Int8, DType::Int8, DType::UInt8, DType::Int32]);
        assert_eq!(dtypes("QuantizeLinear").len(), 2);
        assert_same_within(&before, &g.network, 0.05);
    }

    #[test]
    fn symmetric_ones_are_int8_and_leave_biases() {
        let (mut g, before) = graph();
        let ranges = ranges(&g.network);
        let dtypes = Dtypes {
            weights: DType::Int8,
            symmetric: true,
        };
        place(&mut g.network, Some(&ranges), dtypes, &HashSet::new(), &HashSet::new()).unwrap();
        let stored = g
            .network
            .layers()
            .filter(|(_, layer)| layer.op.name == "DequantizeLinear");
        let stored: Vec<DType> = stored.map(|(_, l)| g.network[l.inputs[0].unwrap()].ty.dtype).collect();
        assert_eq!(stored, [DType::Int8; 4]);
        assert_same_within(&before, &g.network, 0.05);
    }

    #[test]
    fn weights_alone_keep_how_they_were_made() {
        for (dtype, within) in [(DType::Int8, 0.02), (DType::Float8E4M3FN, 0.1)] {
            let (mut g, before) = graph();
            place(
                &mut g.network,
                None,
                asymmetric(dtype),
                &HashSet::new(),
                &HashSet::new(),
            )
            .unwrap();
            assert!(g.network.layers().all(|(_, layer)| layer.op.name != "QuantizeLinear"));
            assert_same_within(&before, &g.network, within);
            let conv = g.network.layers().find(|(_, layer)| layer.op.name == "Conv").unwrap().1;
            let (_, dequantize) = g.network.producer(conv.inputs[1].unwrap()).unwrap();
            let stored = &g.network[dequantize.inputs[0].unwrap()];
            assert_eq!(stored.ty.dtype, dtype);
            let Source::Constant(stored) = &stored.source else {
                panic!("not folded")
            };
            assert!(stored.recipe.is_some());
        }
    }

    #[test]
    fn dtypes_that_weights_can_not_have_are_refused() {
        let (mut g, _) = graph();
        let refused = placed(&mut g.network, None, DType::Int16);
        assert!(refused.unwrap_err().to_string().contains("float8_e4m3fn"));
    }

    #[test]
    fn floats_of_8_bits_are_what_products_read_alone() {
        let mut g = Graph::new();
        let x = g.input("x", "n 4 6 6");
        let (v, w, b) = (g.weights(&[4, 4, 1, 1]), g.weights(&[4, 4, 1, 1]), g.weights(&[4]));
        let y = g.op("Conv", &[x, v, b]);
        let y = g.op("Relu", &[y]);
        let y = g.op("Conv", &[y, w]);
        let y = g.op("Add", &[y, x]);
        g.output(y);
        let before = g.network.clone();
        let found = points(&g.network, &HashSet::new()).unwrap();
        let ranges: Ranges = found.iter().map(|p| (p.name.clone(), 40.0)).collect();
        placed(&mut g.network, Some(&ranges), DType::Float8E4M3FN).unwrap();
        let quantized = |op: &str, at: usize| -> Vec<DType> {
            let layers = g.network.layers().filter(|(_, layer)| layer.op.name == op);
            let tensors = layers.map(|(_, layer)| [layer.inputs[0].unwrap(), layer.outputs[0]][at]);
            tensors.map(|tensor| g.network[tensor].ty.dtype).collect()
        };
        assert_eq!(quantized("QuantizeLinear", 1), [DType::Float8E4M3FN; 2]);
        assert_eq!(quantized("DequantizeLinear", 0), [DType::Float8E4M3FN; 4]);
        assert_same_within(&before, &g.network, 0.15);
    }

    #[test]
    fn a_cache_of_another_network_is_refused() {
        let (mut g, _) = graph();
        let refused = placed(&mut g.network, Some(&Ranges::new()), DType::Int8);
        assert!(refused.unwrap_err().to_string().contains("another"));
    }
}
