//! Which layers must stay float32 where the others compute in floats of 16 bits.
//!
//! Numbers that come from integers or count something (positions, times, lengths) are exact, and in 16 bits they no longer
//! are: 1,023 is 1,024 in bfloat16. They stay float32 through arithmetic and moves, up to the op that makes numbers of its own
//! out of them, which reads them still; and so does what becomes an angle, an exponent, or an integer. Arithmetic with
//! features, which are rounded already, is lowered. What leaves the range of 16 bits (the -3.4e38 of masks) stays float32 up to
//! the Softmax that it is for. The facts stand with the ops: [`Lowering`](crate::network::op::Lowering).

use super::matching::{clip_bounds, input};
use super::{Settings, eight_bits};
use crate::error::Result;
use crate::network::array::Array;
use crate::network::dtype::DType;
use crate::network::op::{Gives, Movement};
use crate::network::ops::matmul::inner_from_end;
use crate::network::precision::{LayerPrecision, Reason};
use crate::network::{Layer, LayerId, Network, TensorId};
use std::collections::{HashMap, HashSet};

/// What is known of the numbers in a tensor, from the least to the most sensitive to rounding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    /// Numbers of the model.
    Constant,
    /// As the caller gave them, or computed from such.
    Given,
    /// Exact numbers: made from integers, or counted.
    Counted,
    /// Made by some op out of others, and rounded as often.
    Features,
}

#[derive(Debug, Clone, Copy)]
struct Fact {
    kind: Kind,
    /// Whether numbers are there that become infinite in 16 bits.
    beyond: bool,
}

/// Which of the float32 layers compute in the float of 16 bits that the settings name, and why the others do not. What belongs to
/// products of 8 bits (see [`eight_bits`]) of the dtypes in [`Settings::eight_bits`] is none of them.
///
/// # Errors
/// If the network has a cycle.
pub fn plan(network: &Network, settings: &Settings) -> Result<HashMap<LayerId, LayerPrecision>> {
    let order = network.order()?;
    let analysis = Analysis {
        network,
        low: settings.compute,
        kept: eight_bits::kept(network, &order, &settings.eight_bits),
        wanted: wanted_exact(network, &order),
        facts: HashMap::new(),
    };
    Ok(analysis.run(&order))
}

struct Analysis<'n> {
    network: &'n Network,
    low: DType,
    kept: HashSet<LayerId>,
    wanted: HashSet<TensorId>,
    facts: HashMap<TensorId, Fact>,
}

impl Analysis<'_> {
    fn run(mut self, order: &[LayerId]) -> HashMap<LayerId, LayerPrecision> {
        let mut found = HashMap::new();
        for &id in order {
            let layer = &self.network[id];
            for tensor in layer.inputs.iter().copied().flatten() {
                self.look_at(tensor);
            }
            let fact = self.given_by(layer);
            let floats = |&t: &TensorId| self.network[t].ty.dtype == DType::Float32;
            if layer.outputs.iter().all(floats) {
                let reason = self.reason_for_full(id, layer, fact);
                found.insert(id, reason.map_or_else(|| self.lower(layer), LayerPrecision::full));
            }
            self.facts.extend(layer.outputs.iter().map(|&t| (t, fact)));
        }
        found
    }

    /// Finds what is known of an input or a constant.
    fn look_at(&mut self, tensor: TensorId) {
        let constant = self.network[tensor].constant();
        let (_, most) = self.low.normal_range();
        self.facts.entry(tensor).or_insert_with(|| Fact {
            kind: constant.map_or(Kind::Given, |_| Kind::Constant),
            beyond: constant.is_some_and(|array| has_beyond(array, most)),
        });
    }

    /// The fact that [`Self::look_at`] or the layer that produces a tensor recorded.
    fn fact(&self, tensor: TensorId) -> Fact {
        self.facts.get(&tensor).copied().unwrap_or(Fact {
            kind: Kind::Given,
            beyond: false,
        })
    }

    /// What is known of what a layer gives.
    fn given_by(&self, layer: &Layer) -> Fact {
        let operands: Vec<_> = operands(self.network, layer).map(|t| self.fact(t)).collect();
        let beyond = operands.iter().any(|fact| fact.beyond) && self.hands_on_range(layer);
        let kinds = || operands.iter().map(|fact| fact.kind);
        let counted = kinds().any(|kind| kind == Kind::Counted);
        let kind = match layer.op.lowering.gives {
            Gives::Counted => Kind::Counted,
            _ if layer.op.moves() && counted => Kind::Counted,
            _ if !hands_on(self.network, layer) => Kind::Features,
            _ if layer.op.name == "Cast" && operands.is_empty() => self.kind_of_integers(layer),
            // Of features and exact numbers come features.
            _ => kinds().max().unwrap_or(Kind::Given),
        };
        Fact { kind, beyond }
    }

    /// Of what kind the floats are that a Cast makes of integers.
    fn kind_of_integers(&self, cast: &Layer) -> Kind {
        // Up to this a float holds every integer.
        let most = 1i64 << self.low.significant_bits();
        match input(cast, 0).and_then(|t| magnitude(self.network, t, DEEPEST)) {
            Some(magnitude) if magnitude <= most => Kind::Given,
            _ => Kind::Counted,
        }
    }

    /// Whether what a layer gives may be out of range because an operand is.
    fn hands_on_range(&self, layer: &Layer) -> bool {
        let bounded = |(a, b): (f64, f64)| a.abs().max(b.abs()) <= self.low.normal_range().1;
        let is_clip = layer.op.name == "Clip" && clip_bounds(self.network, layer).is_some_and(bounded);
        hands_on(self.network, layer) && !layer.op.lowering.exact.contains(&0) && !is_clip
    }

    /// The lower precision for a layer.
    fn lower(&self, layer: &Layer) -> LayerPrecision {
        let mask = layer.op.lowering.mask.and_then(|at| input(layer, at));
        LayerPrecision {
            dtype: self.low,
            clips_mask: mask.is_some_and(|mask| self.fact(mask).beyond),
            ..LayerPrecision::full(Reason::Asked)
        }
    }

    /// Why a layer stays float32, if it does.
    fn reason_for_full(&self, id: LayerId, layer: &Layer, gives: Fact) -> Option<Reason> {
        let network = self.network;
        if self.kept.contains(&id) {
            return Some(Reason::EightBits);
        }
        if !layer.op.lowering.lowers {
            return Some(Reason::Op);
        }
        let operands: Vec<_> = operands(network, layer).map(|t| (t, self.fact(t))).collect();
        let any = |kind: Kind| operands.iter().any(|(_, fact)| fact.kind == kind);
        let moves_exact = layer.op.moves() && gives.kind == Kind::Counted;
        // Exact numbers are read by themselves, or with numbers of the model.
        let reads_exact = any(Kind::Counted) && !any(Kind::Features);
        let is_wanted = hands_on(network, layer) && layer.outputs.iter().any(|t| self.wanted.contains(t));
        let feeds_exact = is_wanted && (any(Kind::Counted) || any(Kind::Given));
        let reasons = [
            (operands.iter().any(|(_, fact)| fact.beyond), Reason::OutOfRange),
            (operands.iter().any(|(t, _)| self.vanishes(*t)), Reason::Vanishes),
            (moves_exact || reads_exact, Reason::ReadsExact),
            (feeds_exact, Reason::FeedsExact),
        ];
        reasons.into_iter().find_map(|(holds, reason)| holds.then_some(reason))
    }

    /// Whether a single number of the model becomes 0.
    fn vanishes(&self, tensor: TensorId) -> bool {
        let single = self.network[tensor].constant().filter(|array| array.len() == 1);
        let least = f64::from(half::f16::MIN_POSITIVE_SUBNORMAL.to_f32());
        self.low == DType::Float16 && single.is_some_and(|a| a.f64s().any(|v| v != 0.0 && v.abs() < least))
    }
}

/// Whether a constant holds finite floats of a greater magnitude than this.
fn has_beyond(array: &Array, most: f64) -> bool {
    let beyond = |v: f64| v.is_finite() && v.abs() > most;
    array.dtype().is_float() && array.f64s().any(beyond)
}

/// The floats that a layer computes with; the rest (scales of a Resize, a mask) say how.
fn operands<'n>(network: &'n Network, layer: &'n Layer) -> impl Iterator<Item = TensorId> + 'n {
    let lowering = layer.op.lowering;
    let count = lowering.mask.unwrap_or(lowering.operands);
    let inputs = layer.inputs.iter().take(count).copied().flatten();
    inputs.filter(|&t| network[t].ty.dtype.is_float())
}

/// Whether a layer gives the numbers that it gets, moved or computed with one by one.
fn hands_on(network: &Network, layer: &Layer) -> bool {
    match layer.op.lowering.gives {
        Gives::Computed => true,
        Gives::Summed => sums_one(network, layer),
        Gives::Counted | Gives::New => false,
    }
}

/// Whether each sum of a MatMul is of one product.
fn sums_one(network: &Network, layer: &Layer) -> bool {
    let back = inner_from_end(&layer.attrs);
    let shape = input(layer, 0).map(|a| &network[a].ty.shape);
    shape.is_some_and(|shape| shape.len() >= back && shape[shape.len() - back].is(1))
}

/// The tensors that become an operand which must be exact.
fn wanted_exact(network: &Network, order: &[LayerId]) -> HashSet<TensorId> {
    let mut wanted = HashSet::new();
    for &id in order.iter().rev() {
        let layer = &network[id];
        if hands_on(network, layer) && layer.outputs.iter().any(|t| wanted.contains(t)) {
            wanted.extend(operands(network, layer));
        }
        // Floats that become other floats are only rounded.
        let rounds = layer.op.name == "Cast" && !layer.outputs.iter().any(|&t| network[t].ty.dtype.is_int());
        let exact = layer.op.lowering.exact.iter().filter(|_| !rounds);
        wanted.extend(exact.filter_map(|&at| input(layer, at)));
    }
    wanted
}

/// More layers are not looked through for the bound of an integer.
const DEEPEST: usize = 8;

/// The greatest magnitude that integers or truth values can have, where something bounds it.
fn magnitude(network: &Network, tensor: TensorId, deepest: usize) -> Option<i64> {
    let ty = &network[tensor].ty;
    let by_value = ty.value.as_ref().and_then(|value| {
        let ends = value.iter().map(|dim| dim.bounds(&network.symbols));
        ends.map(|(low, high)| low.saturating_abs().max(high.saturating_abs()))
            .max()
    });
    let by_dtype = match ty.dtype {
        DType::Bool => Some(1),
        dtype if dtype.bits() <= 8 => Some(1 << (dtype.bits() - u32::from(!dtype.name().starts_with("uint")))),
        _ => None,
    };
    let by_layer = || {
        let (_, layer) = network.producer(tensor).filter(|_| deepest > 0)?;
        // What Gather and Slice go by is no element.
        let count = match layer.op.movement {
            Movement::None if layer.op.name == "Cast" => 1,
            // What is filled in may be greater.
            Movement::None | Movement::Select | Movement::Fill => return None,
            Movement::Concat => layer.inputs.len(),
            _ => 1,
        };
        let inputs = layer.inputs.iter().take(count).flatten();
        let all = inputs
            .map(|&t| magnitude(network, t, deepest - 1))
            .collect::<Option<Vec<_>>>();
        all?.into_iter().max()
    };
    let by_constant = || {
        let array = network[tensor].constant().filter(|array| array.dtype().is_int())?;
        array.i64s().map(i64::saturating_abs).max()
    };
    by_dtype.or(by_value).or_else(by_constant).or_else(by_layer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::attr::{Attr, attrs};
    use crate::passes::testing::Graph;

    fn float(g: &mut Graph, x: TensorId) -> TensorId {
        g.op_with("Cast", attrs([("to", Attr::Type(DType::Float32))]), &[x])
    }

    /// The ops that are lowered, in order.
    fn ops(g: &Graph, low: DType) -> Vec<&'static str> {
        let settings = Settings {
            compute: low,
            ..Settings::default()
        };
        let found = plan(&g.network, &settings).unwrap();
        let order = g.network.order().unwrap();
        let layers = order
            .into_iter()
            .filter(|id| found.get(id).is_some_and(LayerPrecision::is_lower));
        layers.map(|id| g.network[id].op.name).collect()
    }

    #[test]
    fn positions_stay_exact_up_to_the_op_that_reads_them() {
        for (dtype, low, want) in [
            (DType::Int64, DType::BFloat16, &["MatMul"][..]),
            // 255 has 8 bits.
            (DType::UInt8, DType::BFloat16, &["Mul", "Softmax", "MatMul"]),
            (DType::Bool, DType::Float16, &["Mul", "Softmax", "MatMul"]),
        ] {
            let mut g = Graph::new();
            let x = g.input_of("x", dtype, "n 4");
            let (frequencies, w) = (g.weights(&[4]), g.weights(&[4, 4]));
            let y = float(&mut g, x);
            let y = g.op("Mul", &[y, frequencies]);
            let y = g.op("Softmax", &[y]);
            let y = g.op("MatMul", &[y, w]);
            g.output(y);
            assert_eq!(ops(&g, low), want, "{dtype}");
        }
    }

    #[test]
    fn what_becomes_an_angle_stays_exact_and_features_do_not() {
        let mut g = Graph::new();
        let (time, w) = (g.input("time", "n 1"), g.weights(&[4, 4]));
        let frequencies = g.weights(&[1, 4]);
        // An outer product, as rotary embeddings have it.
        let angles = g.op("MatMul", &[time, frequencies]);
        let waves = g.op("Sin", &[angles]);
        let features = g.op("MatMul", &[waves, w]);
        let sums = g.op("Add", &[features, waves]);
        let of_features = g.op("Cos", &[sums]);
        let y = g.op("MatMul", &[of_features, w]);
        g.output(y);
        assert_eq!(ops(&g, DType::BFloat16), ["MatMul", "Add", "MatMul"]);
    }

    #[test]
    fn features_times_a_mask_of_integers_are_features() {
        let mut g = Graph::new();
        let (x, w) = (g.input("x", "n 4"), g.weights(&[4, 4]));
        let mask = g.input_of("mask", DType::Int64, "n 1");
        let y = g.op("MatMul", &[x, w]);
        let mask = float(&mut g, mask);
        let y = g.op("Mul", &[y, mask]);
        let y = g.op("MatMul", &[y, w]);
        g.output(y);
        assert_eq!(ops(&g, DType::Float16), ["MatMul", "Mul", "MatMul"]);
    }

    #[test]
    fn counts_that_are_joined_to_features_stay_exact() {
        let mut g = Graph::new();
        let (x, w) = (g.input("x", "n 4"), g.weights(&[4, 4]));
        let count = g.input_of("count", DType::Int64, "n 4");
        let y = g.op("MatMul", &[x, w]);
        let count = float(&mut g, count);
        let both = g.op_with("Concat", attrs([("axis", Attr::Int(1))]), &[y, count]);
        let y = g.op("Relu", &[both]);
        g.output(y);
        assert_eq!(ops(&g, DType::BFloat16), ["MatMul"]);
    }

    #[test]
    fn what_is_out_of_range_stays_wide_up_to_the_softmax() {
        for (low, value, lowers) in [
            (DType::Float16, -1e9, false),
            (DType::BFloat16, -1e9, true),
            (DType::BFloat16, f64::from(f32::MIN), false),
            (DType::BFloat16, f64::NEG_INFINITY, true),
        ] {
            let mut g = Graph::new();
            let (x, w) = (g.input("x", "n 4"), g.weights(&[4, 4]));
            let seen = g.input_of("seen", DType::Bool, "n 4");
            let (zero, hidden) = (g.scalar(0.0), g.scalar(value));
            let mask = g.op("Where", &[seen, zero, hidden]);
            let scores = g.op("MatMul", &[x, w]);
            let scores = g.op("Add", &[scores, mask]);
            let weights = g.op("Softmax", &[scores]);
            let y = g.op("MatMul", &[weights, w]);
            g.output(y);
            let found = ops(&g, low);
            assert_eq!(found.len(), if lowers { 5 } else { 2 }, "{low} {value}: {found:?}");
        }
    }

    #[test]
    fn known_bounds_let_integers_be_lowered() {
        for (values, lowers) in [(vec![3, 250], true), (vec![3, 300], false)] {
            let mut g = Graph::new();
            let (table, x) = (g.ints(&values), g.input_of("x", DType::Int64, "n"));
            let found = g.op("Gather", &[table, x]);
            let y = float(&mut g, found);
            let y = g.op("Relu", &[y]);
            g.output(y);
            assert_eq!(ops(&g, DType::BFloat16).len(), lowers as usize, "{values:?}");
        }
    }

    #[test]
    fn what_is_scattered_into_bounded_integers_may_be_greater() {
        let mut g = Graph::new();
        let (table, at, x) = (g.ints(&[3, 250]), g.ints(&[0]), g.input_of("x", DType::Int64, "1"));
        let filled = g.op("ScatterElements", &[table, at, x]);
        let y = float(&mut g, filled);
        let y = g.op("Relu", &[y]);
        g.output(y);
        assert_eq!(ops(&g, DType::BFloat16).len(), 0);
    }
}
