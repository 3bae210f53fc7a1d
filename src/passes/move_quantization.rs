//! Moves Quantize layers up and Dequantize layers down past what only moves or picks elements, so that 8 bits are what it moves.
//! Every rule keeps each bit of each result.

use super::build::Build;
use super::eight_bits::{moved, moves, picks};
use super::matching::{given_by, input, only_given_by};
use super::{Found, Pass, Settings, rewrite_with, rule_if, rule_if_some};
use crate::error::Result;
use crate::network::ops::cast;
use crate::network::patch::Patch;
use crate::network::quantization::Scheme;
use crate::network::{Layer, LayerId, Network, TensorId};

/// See [`Pass::doc`].
pub static PASS: Pass = Pass {
    name: "move_quantization",
    doc: "with Settings::quantized: Quantize(Dequantize(x)) by the same numbers => x; Dequantize -> what moves or picks elements, MaxPool => \
          that -> Dequantize; Concat of Dequantize by the same numbers => Concat -> Dequantize; what moves elements, MaxPool, Concat -> \
          Quantize => Quantize -> that, past a Cast that the precision brought; Quantize layers of one tensor by the same numbers => one",
    apply,
};

fn apply(network: &mut Network, settings: &Settings) -> Result<usize> {
    if !settings.quantized {
        return Ok(0);
    }
    rewrite_with(network, |network, id| Ok(rule(network, id)?.map(Patch::finish)))
}

fn rule(network: &Network, id: LayerId) -> Found<'_> {
    let layer = &network[id];
    match layer.op.name {
        "QuantizeLinear" => match up(network, layer)? {
            None => merged(network, layer),
            found => Ok(found),
        },
        "Concat" => joined(network, layer),
        _ if moves(layer) || picks(layer) => down(network, layer),
        _ => Ok(None),
    }
}

/// A Quantize or Dequantize layer like this one on another tensor.
fn again(patch: &mut Patch, network: &Network, layer: &Layer, x: TensorId) -> Result<TensorId> {
    let mut inputs = vec![Some(x)];
    for &given in &layer.inputs[1..] {
        let single = given
            .and_then(|tensor| network[tensor].constant())
            .filter(|array| !array.shape().is_empty());
        inputs.push(
            match single.and_then(|array| array.uniform().map(|value| (array.dtype(), value))) {
                Some((dtype, value)) => Some(patch.scalar(dtype, value)),
                None => given,
            },
        );
    }
    Ok(patch.add_named("", layer.op, layer.attrs.clone(), &inputs)?[0])
}

/// Dequantize -> layer => layer -> Dequantize.
fn down<'n>(network: &'n Network, layer: &Layer) -> Found<'n> {
    rule_if_some!(x = input(layer, 0));
    rule_if_some!(inner = given_by(network, x, "DequantizeLinear"));
    rule_if_some!(scheme = Scheme::of(network, inner));
    rule_if!(scheme.is_int() || layer.op.moves());
    let mut patch = Patch::new(network);
    let mut inputs = layer.inputs.clone();
    inputs[0] = inner.inputs[0];
    let moved = patch.add_named("", layer.op, layer.attrs.clone(), &inputs)?[0];
    let new = again(&mut patch, network, inner, moved)?;
    patch.shunt(layer.outputs[0], new)?;
    Ok(Some(patch))
}

/// Concat of Dequantize by the same numbers => Concat -> Dequantize.
fn joined<'n>(network: &'n Network, layer: &Layer) -> Found<'n> {
    let inner = |x: &Option<TensorId>| given_by(network, (*x)?, "DequantizeLinear");
    rule_if_some!(all = layer.inputs.iter().map(inner).collect::<Option<Vec<_>>>());
    rule_if_some!(&first = all.first());
    rule_if_some!(scheme = Scheme::of(network, first));
    rule_if!(all.iter().all(|other| Scheme::of(network, other) == Some(scheme)));
    let mut patch = Patch::new(network);
    let inputs: Vec<_> = all.iter().map(|inner| inner.inputs[0]).collect();
    let moved = patch.add_named("", layer.op, layer.attrs.clone(), &inputs)?[0];
    let new = again(&mut patch, network, first, moved)?;
    patch.shunt(layer.outputs[0], new)?;
    Ok(Some(patch))
}

/// The Quantize layers by the same numbers as this one that quantize a tensor.
fn alike<'n>(network: &'n Network, layer: &Layer, x: TensorId) -> impl Iterator<Item = &'n Layer> {
    let (op, attrs, scheme) = (layer.op, layer.attrs.clone(), Scheme::of(network, layer));
    let users = network[x].users.iter().map(|&user| &network[user]);
    let quantizing = users.filter(move |user| user.op == op && user.inputs[0] == Some(x));
    quantizing.filter(move |user| user.attrs == attrs && Scheme::of(network, user) == scheme)
}

/// Quantize layers of one tensor by the same numbers => one of them.
fn merged<'n>(network: &'n Network, layer: &Layer) -> Found<'n> {
    rule_if_some!(x = input(layer, 0));
    rule_if!(Scheme::of(network, layer).is_some());
    let mut others = alike(network, layer, x)
        .filter(|other| other.outputs != layer.outputs)
        .peekable();
    rule_if!(others.peek().is_some());
    let mut patch = Patch::new(network);
    for other in others {
        patch.shunt(other.outputs[0], layer.outputs[0])?;
    }
    Ok(Some(patch))
}

/// Layer -> Quantize => Quantize -> layer, past a Cast between them that the precision brought; of Dequantize by the same numbers
/// nothing is left.
fn up<'n>(network: &'n Network, layer: &Layer) -> Found<'n> {
    rule_if_some!(x = input(layer, 0));
    rule_if_some!(scheme = Scheme::of(network, layer));
    let cast = only_given_by(network, x, "Cast").filter(|cast| !cast::rounds(&cast.attrs));
    let wide = network[x].ty.dtype;
    let readers: Vec<&Layer> = alike(network, layer, x).collect();
    let x = cast.and_then(|cast| input(cast, 0)).unwrap_or(x);
    rule_if_some!((producer, inner) = network.producer(x));
    let mut patch = Patch::new(network);
    if inner.op.name == "DequantizeLinear" {
        rule_if!(Scheme::of(network, inner) == Some(scheme));
        rule_if_some!(source = inner.inputs[0]);
        patch.shunt(layer.outputs[0], source)?;
        return Ok(Some(patch));
    }
    let alone = network.sole_user(x).is_some() || readers.len() == network[x].users.len() && !network.is_output(x);
    rule_if!(alone && moves(inner));
    rule_if!(!is_of_attention(network, inner));
    rule_if!(scheme.is_int() || inner.op.moves());
    let mut inputs = inner.inputs.clone();
    for slot in &mut inputs[..moved(inner).len()] {
        rule_if_some!(source = *slot);
        let source = patch.placed_cast(source, wide)?;
        *slot = Some(again(&mut patch, network, layer, source)?);
    }
    let new = patch.add_named("", inner.op, inner.attrs.clone(), &inputs)?[0];
    patch.absorb(producer);
    for reader in readers {
        patch.shunt(reader.outputs[0], new)?;
    }
    Ok(Some(patch))
}

/// Whether a layer moves what Attention gives, which writes its result where that leaves it.
fn is_of_attention<'n>(network: &'n Network, mut layer: &'n Layer) -> bool {
    while matches!(layer.op.name, "Transpose" | "Reshape") {
        let Some((_, above)) = layer.inputs[0].and_then(|x| network.producer(x)) else {
            return false;
        };
        layer = above;
    }
    layer.op.name == "Attention"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::array::Array;
    use crate::network::attr::{Attr, attrs};
    use crate::network::dtype::DType;
    use crate::passes::testing::Graph;

    fn settings() -> Settings {
        Settings {
            quantized: true,
            ..Settings::default()
        }
    }

    fn quantize(g: &mut Graph, x: TensorId, scale: f64, zero: f64) -> TensorId {
        let scale = g.scalar(scale);
        let zero = g.network.add_constant("z", Array::scalar(DType::UInt8, zero));
        g.op_with(
            "QuantizeLinear",
            attrs([("to", Attr::Type(DType::UInt8))]),
            &[x, scale, zero],
        )
    }

    fn dequantize(g: &mut Graph, x: TensorId, scale: f64, zero: f64) -> TensorId {
        let scale = g.scalar(scale);
        let zero = g.network.add_constant("z", Array::scalar(DType::UInt8, zero));
        g.op("DequantizeLinear", &[x, scale, zero])
    }

    #[test]
    fn eight_bits_run_through_pooling_and_moves() {
        let mut g = Graph::new();
        let x = g.input("x", "n 4 6 6");
        let q = quantize(&mut g, x, 0.01, 128.0);
        let y = dequantize(&mut g, q, 0.01, 128.0);
        let y = g.op_with("MaxPool", attrs([("kernel_shape", Attr::Ints(vec![2, 2]))]), &[y]);
        let y = g.op_with("Transpose", attrs([("perm", Attr::Ints(vec![0, 2, 3, 1]))]), &[y]);
        let q = quantize(&mut g, y, 0.01, 128.0);
        let y = dequantize(&mut g, q, 0.01, 128.0);
        g.output(y);
        let before = g.network.clone();
        (PASS.apply)(&mut g.network, &settings()).unwrap();
        g.network.verify().unwrap();
        let names: Vec<_> = g
            .network
            .order()
            .unwrap()
            .iter()
            .map(|&id| g.network[id].op.name)
            .collect();
        assert_eq!(names, ["QuantizeLinear", "MaxPool", "Transpose", "DequantizeLinear"]);
        crate::passes::testing::assert_same_within(&before, &g.network, 0.0);
    }

    #[test]
    fn parts_of_a_concat_are_quantized_before() {
        for scales in [[0.01, 0.01], [0.01, 0.02]] {
            let mut g = Graph::new();
            let (x, y) = (g.input("x", "n 4"), g.input("y", "n 5"));
            let a = quantize(&mut g, x, scales[0], 10.0);
            let a = dequantize(&mut g, a, scales[0], 10.0);
            let b = quantize(&mut g, y, scales[1], 10.0);
            let b = dequantize(&mut g, b, scales[1], 10.0);
            let joined = g.op_with("Concat", attrs([("axis", Attr::Int(1))]), &[a, b]);
            let q = quantize(&mut g, joined, 0.01, 10.0);
            g.output(q);
            let before = g.network.clone();
            (PASS.apply)(&mut g.network, &settings()).unwrap();
            let count = g
                .network
                .layers()
                .filter(|(_, l)| l.op.name == "DequantizeLinear")
                .count();
            assert_eq!(count, (scales[0] != scales[1]) as usize);
            crate::passes::testing::assert_same_within(&before, &g.network, 0.0);
        }
    }

    #[test]
    fn eight_bits_run_through_nearest_neighbours_and_no_interpolation() {
        for (mode, first) in [("nearest", "QuantizeLinear"), ("linear", "Resize")] {
            let mut g = Graph::new();
            let x = g.input("x", "n 4 6 6");
            let scales = Array::from_f64(DType::Float32, vec![4], &[1.0, 1.0, 2.0, 2.0]).unwrap();
            let scales = g.network.add_constant("scales", scales);
            let op = crate::network::ops::find("Resize").unwrap();
            let mode = attrs([("mode", Attr::Text(mode.into()))]);
            let inputs = [Some(x), None, Some(scales)];
            let y = g.network.add_layer("", op, mode, &inputs).unwrap()[0];
            let q = quantize(&mut g, y, 0.01, 128.0);
            g.output(q);
            let before = g.network.clone();
            (PASS.apply)(&mut g.network, &settings()).unwrap();
            let order = g.network.order().unwrap();
            assert_eq!(g.network[order[0]].op.name, first);
            crate::passes::testing::assert_same_within(&before, &g.network, 0.0);
        }
    }

    #[test]
    fn who_reads_a_tensor_as_a_scale_does_not_quantize_it() {
        let mut g = Graph::new();
        let (x, y) = (g.scalar(0.5), g.input("y", ""));
        let first = quantize(&mut g, x, 0.5, 3.0);
        let zero = g.network.add_constant("z", Array::scalar(DType::UInt8, 3.0));
        let to = attrs([("to", Attr::Type(DType::UInt8))]);
        let second = g.op_with("QuantizeLinear", to, &[y, x, zero]);
        g.output(first);
        g.output(second);
        assert_eq!((PASS.apply)(&mut g.network, &settings()).unwrap(), 0);
    }

    /// As in spatial pyramids: what is pooled again and again, and all of it side by side.
    #[test]
    fn pools_of_pools_that_are_joined_are_quantized_before_the_first() {
        let mut g = Graph::new();
        let x = g.input("x", "n 4 6 6");
        let mut all = vec![g.op("Relu", &[x])];
        for _ in 0..3 {
            let window = [
                ("kernel_shape", Attr::Ints(vec![3, 3])),
                ("pads", Attr::Ints(vec![1; 4])),
            ];
            all.push(g.op_with("MaxPool", attrs(window), &[*all.last().unwrap()]));
        }
        let joined = g.op_with("Concat", attrs([("axis", Attr::Int(1))]), &all);
        let q = quantize(&mut g, joined, 0.01, 0.0);
        g.output(q);
        let before = g.network.clone();
        (PASS.apply)(&mut g.network, &settings()).unwrap();
        g.network.verify().unwrap();
        let order = g.network.order().unwrap();
        let names: Vec<_> = order.iter().map(|&id| g.network[id].op.name).collect();
        assert_eq!(
            names,
            ["Relu", "QuantizeLinear", "MaxPool", "MaxPool", "MaxPool", "Concat"]
        );
        crate::passes::testing::assert_same_within(&before, &g.network, 0.0);
    }

    /// Its kernel writes the result where the Reshape behind it leaves it.
    #[test]
    fn what_moves_the_result_of_attention_stays_behind_it() {
        let mut g = Graph::new();
        let [q, k, v] = ["q", "k", "v"].map(|name| g.input(name, "n 4 8 16"));
        let y = g.op("Attention", &[q, k, v]);
        let y = g.op_with("Transpose", attrs([("perm", Attr::Ints(vec![0, 2, 1, 3]))]), &[y]);
        let shape = g
            .network
            .add_constant("shape", Array::from_i64(DType::Int64, vec![3], &[0, 8, 64]).unwrap());
        let y = g.op("Reshape", &[y, shape]);
        let y = quantize(&mut g, y, 0.01, 10.0);
        g.output(y);
        assert_eq!((PASS.apply)(&mut g.network, &settings()).unwrap(), 0);
    }

    /// The whole table would be written as float32 in each call.
    #[test]
    fn rows_of_a_table_are_dequantized_behind_the_choice() {
        let mut g = Graph::new();
        let rows = g.input_of("rows", DType::Int64, "n 3");
        let array = Array::from_f64(DType::UInt8, vec![5, 4], &[7.0; 20]).unwrap();
        let table = g.network.add_constant("table", array);
        let table = dequantize(&mut g, table, 0.5, 3.0);
        let y = g.op("Gather", &[table, rows]);
        g.output(y);
        g.becomes_by(
            &[&PASS],
            &settings(),
            "%Gather: uint8[n, 3, 4] = Gather(uint8[5, 4](...), %rows) {axis=0}
             %Gather~1: float32[n, 3, 4] = DequantizeLinear(%Gather, float32[](0.5), uint8[](3))",
        );
    }
}
