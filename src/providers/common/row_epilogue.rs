//! What is done with the rows of a product before they are stored: a layer that brings each row together, pointwise layers in front of
//! it and behind it.

use super::epilogue::{Epilogue, Takes, behind};
use super::group;
use super::scope::Scope;
use crate::network::attr::Read;
use crate::network::ops::reduce;
use crate::network::{Layer, LayerId, Network, TensorId};

/// More results than this are not stored.
const MOST_RESULTS: usize = 4;

/// A layer that needs the whole of each row, which lies along the last axis.
#[derive(Debug, Clone, PartialEq)]
pub enum RowStep {
    /// LayerNormalization, or RMSNormalization where it is not centred.
    Normalize {
        /// Whether the mean is taken away.
        centred: bool,
        /// A number for each column, or none.
        scale: Option<TensorId>,
        /// The same.
        shift: Option<TensorId>,
        /// What is added to the variance.
        epsilon: f64,
    },
    /// A reduction by the op of this name.
    Reduce(&'static str),
    /// DynamicQuantizePerToken.
    PerToken,
}

impl RowStep {
    /// What a layer does with the rows of its first input; `None` if it does something else.
    pub fn of(network: &Network, layer: &Layer) -> Option<Self> {
        let x = &network[layer.inputs.first().copied().flatten()?].ty;
        let last = x.rank().checked_sub(1)?;
        match layer.op.name {
            "LayerNormalization" | "RMSNormalization" => {
                let side = |input: usize| layer.inputs.get(input).copied().flatten();
                let sides = [side(1), side(2)];
                let fits = |&t: &TensorId| network[t].ty.shape == x.shape[last..];
                let all = x.axis(layer.attrs.int("axis")).ok() == Some(last) && sides.iter().flatten().all(fits);
                all.then(|| Self::Normalize {
                    centred: layer.op.name == "LayerNormalization",
                    scale: sides[0],
                    shift: sides[1],
                    epsilon: layer.attrs.float("epsilon"),
                })
            }
            name @ ("ReduceMax" | "ReduceMin" | "ReduceSum" | "ReduceMean") => {
                (reduce::axes(&layer.attrs, x).ok()? == [last]).then_some(Self::Reduce(name))
            }
            "DynamicQuantizePerToken" => Some(Self::PerToken),
            _ => None,
        }
    }

    /// What it reads beside the rows.
    pub fn operands(&self) -> impl Iterator<Item = TensorId> {
        let sides = match *self {
            Self::Normalize { scale, shift, .. } => [scale, shift],
            _ => [None, None],
        };
        sides.into_iter().flatten()
    }
}

/// Steps behind a product, one of which brings rows together.
#[derive(Debug, Clone, PartialEq)]
pub struct RowEpilogue {
    /// The steps in front of it, whose result is what it reads.
    pub before: Epilogue,
    /// Whether that is stored too.
    pub kept: bool,
    /// The layer.
    pub layer: LayerId,
    /// What it does.
    pub step: RowStep,
    /// The steps behind it, whose product is what it gives for each element; none where it gives none.
    pub after: Option<Epilogue>,
}

impl RowEpilogue {
    /// A layer, which is that of the product, and those of all steps.
    pub fn layers_behind(&self, first: LayerId) -> Vec<LayerId> {
        let mut layers = self.before.layers_behind(first);
        layers.push(self.layer);
        layers.extend(self.after.iter().flat_map(Epilogue::layers));
        layers
    }
}

/// What may follow a product whose columns lie along its last axis, with the most behind the layer that brings rows together, and with
/// nothing behind it. `takes` says of pointwise layers whether they may be steps.
pub fn behind_rows(scope: &Scope, product: TensorId, takes: Takes) -> Vec<RowEpilogue> {
    let network = scope.network;
    let Some(axis) = network[product].ty.rank().checked_sub(1) else {
        return vec![];
    };
    let mut found = vec![];
    for before in behind(scope, product, axis, takes) {
        for &user in &network[before.result()].users {
            let layer = &network[user];
            let reads_rows = layer.inputs.first() == Some(&Some(before.result()));
            let Some(step) = RowStep::of(network, layer).filter(|_| reads_rows) else {
                continue;
            };
            let y = layer.outputs[0];
            let after = match step {
                RowStep::Normalize { .. } => behind(scope, y, axis, takes).into_iter().map(Some).collect(),
                RowStep::PerToken => vec![Epilogue::new(network, y, axis, &[])],
                RowStep::Reduce(_) => vec![None],
            };
            let whole = after
                .into_iter()
                .filter_map(|after| join(scope, &before, user, &step, after));
            let mut whole: Vec<_> = whole.collect();
            // The most, and nothing.
            if whole.len() > 2 {
                whole.drain(1..whole.len() - 1);
            }
            found.extend(whole);
        }
    }
    found
}

/// All of it as one kernel, if no other layer stands between.
fn join(
    scope: &Scope,
    before: &Epilogue,
    layer: LayerId,
    step: &RowStep,
    after: Option<Epilogue>,
) -> Option<RowEpilogue> {
    let network = scope.network;
    let mut found = RowEpilogue {
        before: before.clone(),
        kept: false,
        layer,
        step: step.clone(),
        after,
    };
    let layers = found.layers_behind(scope.layer);
    found.kept = group::leaves(network, &layers, before.result());
    let stored = before.others().iter();
    // What only steps further on read would not have to be stored.
    let all_leave = stored.clone().all(|&t| group::leaves(network, &layers, t));
    let operands = found
        .after
        .iter()
        .flat_map(|after| after.operands.iter().map(|operand| operand.tensor));
    let read = operands
        .chain(step.operands())
        .chain(before.operands.iter().map(|operand| operand.tensor));
    let producers = read
        .filter_map(|t| network.producer(t))
        .map(|(layer, _)| layer)
        .collect::<Vec<_>>();
    let inside = producers.iter().any(|producer| layers.contains(producer));
    let circular = inside || group::depend(network, &scope.positions(), producers, &layers);
    let after = found.after.as_ref().map_or(1, |after| after.outputs.len());
    let few = stored.len() + usize::from(found.kept) + after <= MOST_RESULTS;
    (all_leave && !circular && few).then_some(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::attr::{Attr, attrs};
    use crate::providers::common::epilogue::name;
    use crate::providers::common::scope::Orders;
    use crate::providers::common::testing::Graph;

    /// What is found behind the first layer, as words: `kept` where what the row's layer reads is stored.
    fn found(g: &Graph) -> Vec<String> {
        let first = g.network.order().unwrap()[0];
        let scope = Scope {
            network: &g.network,
            layer: first,
            orders: &Orders::default(),
        };
        let words = |epilogue: &RowEpilogue| {
            let kept = if epilogue.kept { " kept" } else { "" };
            name(&g.network, &epilogue.layers_behind(first)[1..]) + kept
        };
        let product = g.network[first].outputs[0];
        let takes = |id: LayerId| ["Add", "Relu", "Mul"].contains(&g.network[id].op.name);
        behind_rows(&scope, product, &takes).iter().map(words).collect()
    }

    fn product(g: &mut Graph) -> TensorId {
        let (x, w) = (g.input("x", "4 8"), g.weights(&[8, 6]));
        g.op("MatMul", &[x, w])
    }

    fn norm(g: &mut Graph, x: TensorId, axis: i64) -> TensorId {
        let scale = g.weights(&[6]);
        g.op_with("LayerNormalization", attrs([("axis", Attr::Int(axis))]), &[x, scale])
    }

    #[test]
    fn a_residual_in_front_is_kept_for_the_next_one() {
        let mut g = Graph::new();
        let product = product(&mut g);
        let skip = g.input("skip", "4 6");
        let sum = g.op("Add", &[product, skip]);
        let y = norm(&mut g, sum, -1);
        let y = g.op("Relu", &[y]);
        g.output(y);
        assert_eq!(found(&g), ["Add+LayerNormalization+Relu", "Add+LayerNormalization"]);
        let next = g.op("Exp", &[sum]);
        g.network.mark_output(next, "next").unwrap();
        assert_eq!(
            found(&g),
            ["Add+LayerNormalization+Relu kept", "Add+LayerNormalization kept"]
        );
    }

    #[test]
    fn what_the_kernel_stores_itself_is_no_operand() {
        let mut g = Graph::new();
        let product = product(&mut g);
        let y = norm(&mut g, product, 1);
        let y = g.op("Add", &[y, product]);
        g.output(y);
        assert_eq!(found(&g), ["LayerNormalization kept"]);
        let mut g = Graph::new();
        let product = self::product(&mut g);
        let exp = g.op("Exp", &[product]);
        let y = norm(&mut g, product, 1);
        let y = g.op("Add", &[y, exp]);
        g.output(y);
        assert_eq!(found(&g), ["LayerNormalization kept"]);
    }

    #[test]
    fn rows_lie_along_the_last_axis() {
        let mut g = Graph::new();
        let product = product(&mut g);
        let axes = attrs([("axes", Attr::Ints(vec![0]))]);
        let y = g.op_with("ReduceMax", axes, &[product]);
        g.output(y);
        assert!(found(&g).is_empty());
        let axes = attrs([("axes", Attr::Ints(vec![1]))]);
        g.op_with("ReduceMax", axes, &[product]);
        assert_eq!(found(&g), ["ReduceMax kept"]);
    }

    #[test]
    fn a_token_has_its_integers_and_its_scale() {
        let mut g = Graph::new();
        let product = product(&mut g);
        let y = g.op("Relu", &[product]);
        let y = g.op("DynamicQuantizePerToken", &[y]);
        g.output(y);
        assert_eq!(found(&g), ["Relu+DynamicQuantizePerToken"]);
    }
}
