//! Attention with what stands around it: which tensors it reads and gives, and how.

use crate::network::dim::Dim;
use crate::network::{LayerId, Network, TensorId};
use crate::plan::layout::Layout;
use crate::providers::common::scope::Scope;
use crate::providers::common::strided_view::{
    FoldedView, StridedView, movement_producers, through_consumers, through_producers,
};
use crate::providers::cuda::kernels::quantize_behind::QuantizeBehind;
use std::collections::HashSet;

/// Layers that run as one attention.
pub struct Around {
    /// For reports: `Transpose+Attention`.
    pub name: String,
    /// All of them.
    pub layers: Vec<LayerId>,
    /// The tensors that are read.
    pub inputs: Vec<TensorId>,
    /// How the inputs may lie, all of them plain first.
    pub arrangements: Vec<Arrangement>,
    /// The tensor that is given.
    pub output: TensorId,
    /// How the result lies in it.
    pub y: StridedView,
    /// The Quantize layer that gives it.
    pub quantize: Option<QuantizeBehind>,
}

/// One way for the inputs to lie in memory.
#[derive(Debug, Clone)]
pub struct Arrangement {
    /// The layout of each input.
    pub layouts: Vec<Layout>,
    /// Queries, keys, values and perhaps a mask: which input holds them, and how.
    pub operands: Vec<(usize, StridedView)>,
}

impl Around {
    /// It with the Quantize layer behind it, which alone reads what it gives.
    fn quantized(&self, network: &Network) -> Option<Self> {
        let quantize = QuantizeBehind::of(network, self.output).filter(|quantize| !quantize.kept)?;
        let names = quantize.layers.iter().map(|&layer| network[layer].op.name);
        Some(Self {
            name: std::iter::once(self.name.as_str())
                .chain(names)
                .collect::<Vec<_>>()
                .join("+"),
            layers: self.layers.iter().chain(&quantize.layers).copied().collect(),
            output: quantize.output,
            inputs: self.inputs.clone(),
            arrangements: self.arrangements.clone(),
            y: self.y.clone(),
            quantize: Some(quantize),
        })
    }
}

/// The layer with as many others as only move elements, and alone.
pub fn all(scope: &Scope) -> Vec<Around> {
    let network = scope.network;
    let given: Vec<TensorId> = (0..4).filter_map(|i| scope.input(i)).collect();
    let through = |layers: &HashSet<LayerId>| -> Vec<FoldedView> {
        given
            .iter()
            .map(|&tensor| through_producers(network, tensor, layers))
            .collect()
    };
    let result = scope.layer().outputs[0];
    let behind_it = through_consumers(network, result);
    let mut found = vec![];
    let before = before(scope, movement_producers(network, scope.layer, &given), through);
    if !before.is_empty() || !behind_it.layers.is_empty() {
        found.extend(around(scope, &through(&before), &behind_it));
    }
    let itself = FoldedView {
        root: result,
        view: StridedView::plain(&network[result].ty.shape),
        layers: vec![],
    };
    found.extend(around(scope, &through(&HashSet::new()), &itself));
    let quantized: Vec<_> = found.iter().filter_map(|around| around.quantized(network)).collect();
    quantized.into_iter().chain(found).collect()
}

/// Those of the layers that are strides; what is left of a chain must not be cut in two.
fn before(
    scope: &Scope,
    mut layers: HashSet<LayerId>,
    through: impl Fn(&HashSet<LayerId>) -> Vec<FoldedView>,
) -> HashSet<LayerId> {
    loop {
        let views = through(&layers);
        let used: HashSet<LayerId> = views.iter().flat_map(|folded| folded.layers.iter().copied()).collect();
        if used == layers {
            return layers;
        }
        layers = private(scope.network, scope.layer, used);
    }
}

/// Those of the layers whose results only they and the reader read.
fn private(network: &Network, reader: LayerId, mut layers: HashSet<LayerId>) -> HashSet<LayerId> {
    loop {
        let inside = |user: &LayerId| *user == reader || layers.contains(user);
        let read_inside = |id: &LayerId| {
            network[*id]
                .outputs
                .iter()
                .all(|&t| network[t].users.iter().all(inside))
        };
        let kept: HashSet<LayerId> = layers.iter().copied().filter(read_inside).collect();
        if kept.len() == layers.len() {
            return kept;
        }
        layers = kept;
    }
}

fn around(scope: &Scope, views: &[FoldedView], y: &FoldedView) -> Option<Around> {
    let network = scope.network;
    let mut inputs: Vec<TensorId> = vec![];
    let mut layers: Vec<LayerId> = vec![];
    let mut places = vec![];
    for folded in views {
        if !inputs.contains(&folded.root) {
            inputs.push(folded.root);
        }
        places.push(inputs.iter().position(|&tensor| tensor == folded.root)?);
        for layer in &folded.layers {
            if !layers.contains(layer) {
                layers.push(*layer);
            }
        }
    }
    layers.reverse();
    layers.push(scope.layer);
    layers.extend(&y.layers);
    let names: Vec<&str> = layers.iter().map(|&layer| network[layer].op.name).collect();
    let arrangements = arrangements(scope, views, &places, inputs.len())?;
    Some(Around {
        name: names.join("+"),
        layers,
        inputs,
        arrangements,
        output: y.root,
        y: y.view.clone(),
        quantize: None,
    })
}

/// All inputs plain; and those channels last whose heads' elements lie side by side then alone, as in what a convolution
/// or pooling gives: read plain, each element of a head is an access of its own.
fn arrangements(scope: &Scope, views: &[FoldedView], places: &[usize], inputs: usize) -> Option<Vec<Arrangement>> {
    let of = |layouts: Vec<Layout>| -> Option<Arrangement> {
        let operand = |(index, folded): (usize, &FoldedView)| {
            let (place, rank) = (places[index], scope.input_type(0)?.rank());
            let view = folded.where_root_is(scope.network, scope.input(index)?, layouts[place])?;
            Some((place, of_rank(view, rank)))
        };
        let operands = views.iter().enumerate().map(operand).collect::<Option<_>>()?;
        Some(Arrangement { layouts, operands })
    };
    let side_by_side = |found: &Arrangement, input: usize| {
        let mut own = found.operands.iter().filter(|(place, _)| *place == input);
        own.all(|(_, view)| view.strides.last().is_some_and(|stride| stride.is(1)))
    };
    let plain = of(vec![Layout::Plain; inputs])?;
    let mut layouts = plain.layouts.clone();
    for input in 0..inputs {
        let mut turned = plain.layouts.clone();
        turned[input] = Layout::ChannelsLast;
        if !side_by_side(&plain, input) && of(turned).is_some_and(|found| side_by_side(&found, input)) {
            layouts[input] = Layout::ChannelsLast;
        }
    }
    let other = Some(layouts).filter(|layouts| *layouts != plain.layouts);
    Some(std::iter::once(plain).chain(other.and_then(of)).collect())
}

/// With dimensions of 1 in front: a mask may have fewer than the scores.
fn of_rank(mut view: StridedView, rank: usize) -> StridedView {
    let lead = rank.saturating_sub(view.shape.len());
    view.shape.splice(0..0, vec![1i64.into(); lead]);
    view.strides.splice(0..0, vec![Dim::default(); lead]);
    view
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::array::Array;
    use crate::network::attr::{Attr, Attrs, attrs};
    use crate::network::dtype::DType;
    use crate::network::ops;
    use crate::providers::common::scope::Orders;

    fn input(network: &mut Network, name: &str, dims: &str) -> TensorId {
        let dims = dims.split_whitespace().map(|d| d.parse().unwrap()).collect();
        network.add_input(name, DType::Float16, dims).unwrap()
    }

    fn layer(network: &mut Network, op: &str, attrs: Attrs, inputs: &[TensorId]) -> Vec<TensorId> {
        let inputs: Vec<_> = inputs.iter().map(|&t| Some(t)).collect();
        network.add_layer("", ops::find(op).unwrap(), attrs, &inputs).unwrap()
    }

    fn shaped(network: &mut Network, x: TensorId, shape: &[i64]) -> TensorId {
        let shape = network.add_constant("shape", Array::ints(shape));
        layer(network, "Reshape", attrs([]), &[x, shape])[0]
    }

    fn turned(network: &mut Network, x: TensorId, perm: &[i64]) -> TensorId {
        layer(network, "Transpose", attrs([("perm", Attr::Ints(perm.to_vec()))]), &[x])[0]
    }

    /// What is found around the only attention of a network.
    fn found(network: &Network, output: TensorId) -> Vec<Around> {
        let mut network = network.clone();
        network.mark_output(output, "y").unwrap();
        let (id, _) = network.layers().find(|(_, l)| l.op.name == "Attention").unwrap();
        all(&Scope {
            network: &network,
            layer: id,
            orders: &Orders::default(),
        })
    }

    fn strides(view: &StridedView) -> String {
        let strides: Vec<_> = view.strides.iter().map(ToString::to_string).collect();
        strides.join(" ")
    }

    #[test]
    fn projections_become_strides() {
        let mut n = Network::new("");
        let heads = ["q", "k", "v"].map(|name| {
            let x = input(&mut n, name, "b s 32");
            let x = shaped(&mut n, x, &[0, 0, 4, 8]);
            turned(&mut n, x, &[0, 2, 1, 3])
        });
        let y = layer(&mut n, "Attention", attrs([]), &heads)[0];
        let y = turned(&mut n, y, &[0, 2, 1, 3]);
        let y = shaped(&mut n, y, &[0, 0, 32]);
        let all = found(&n, y);
        assert_eq!(all.len(), 2);
        assert_eq!((all[0].layers.len(), all[0].inputs.len()), (9, 3));
        assert!(all[0].name.ends_with("+Attention+Transpose+Reshape"), "{}", all[0].name);
        for (_, view) in &all[0].arrangements[0].operands {
            assert_eq!(strides(view), "32*s 8 32 1");
        }
        assert_eq!(strides(&all[0].y), "32*s 8 32 1");
        assert_eq!((all[1].layers.len(), all[1].name.as_str()), (1, "Attention"));
    }

    #[test]
    fn parts_of_one_tensor_are_one_input() {
        let mut n = Network::new("");
        let x = input(&mut n, "x", "b s 96");
        let split = attrs([("axis", Attr::Int(2)), ("split", Attr::Ints(vec![32; 3]))]);
        let parts = layer(&mut n, "Split", split, &[x]);
        let heads: Vec<_> = parts
            .into_iter()
            .map(|part| {
                let part = shaped(&mut n, part, &[0, 0, 4, 8]);
                turned(&mut n, part, &[0, 2, 1, 3])
            })
            .collect();
        let y = layer(&mut n, "Attention", attrs([]), &heads)[0];
        let all = found(&n, y);
        assert_eq!(all[0].inputs, [x]);
        let offsets: Vec<_> = all[0].arrangements[0]
            .operands
            .iter()
            .map(|(_, view)| view.offset.clone())
            .collect();
        assert_eq!(offsets, [0i64.into(), 32i64.into(), 64i64.into()]);
        assert_eq!(strides(&all[0].arrangements[0].operands[1].1), "96*s 8 96 1");
    }

    #[test]
    fn pixels_are_read_channels_last_as_well() {
        let mut n = Network::new("");
        let (image, keys) = (input(&mut n, "image", "b 32 4 5"), input(&mut n, "keys", "b 4 s 8"));
        let x = turned(&mut n, image, &[0, 2, 3, 1]);
        let x = shaped(&mut n, x, &[0, 20, 4, 8]);
        let q = turned(&mut n, x, &[0, 2, 1, 3]);
        let y = layer(&mut n, "Attention", attrs([]), &[q, keys, keys])[0];
        let all = found(&n, y);
        let [plain, pixels] = &all[0].arrangements[..] else {
            panic!("{:?}", all[0].arrangements)
        };
        assert_eq!(plain.layouts, [Layout::Plain; 2]);
        assert_eq!(strides(&plain.operands[0].1), "640 160 1 20");
        assert_eq!(pixels.layouts, [Layout::ChannelsLast, Layout::Plain]);
        assert_eq!(strides(&pixels.operands[0].1), "640 8 32 1");
        assert_eq!(strides(&pixels.operands[1].1), strides(&plain.operands[1].1));
        assert_eq!(all[1].arrangements.len(), 1);
    }

    #[test]
    fn what_others_read_stays_and_masks_get_the_rank_of_scores() {
        let mut n = Network::new("");
        let x = input(&mut n, "x", "b s 4 8");
        let mask = input(&mut n, "mask", "s s");
        let x = turned(&mut n, x, &[0, 2, 1, 3]);
        let y = layer(&mut n, "Attention", attrs([]), &[x, x, x, mask])[0];
        let other = layer(&mut n, "Relu", attrs([]), &[x])[0];
        n.mark_output(other, "other").unwrap();
        let all = found(&n, y);
        assert_eq!((all.len(), all[0].layers.len()), (1, 1));
        assert_eq!(all[0].inputs, [x, mask]);
        assert_eq!(strides(&all[0].arrangements[0].operands[3].1), "0 0 s 1");
    }
}
