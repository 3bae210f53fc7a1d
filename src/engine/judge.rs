//! How far the results of an engine are from those of the float32 network: each part of each output, and the slices of it along its
//! axes.

use crate::engine::config::Precision;
use crate::engine::parts::{Part, parts};
use crate::engine::slices::{Deviation, Judged, Slices};
use crate::engine::verify::{BUDGET, Departure};
use crate::error::Result;
use crate::network::array::{Array, require};
use crate::network::dim::Binding;
use crate::network::{Network, TensorId};
use std::rc::Rc;

/// Of integers that are found by what floats are greater, so many may be others in a lower precision: the floats themselves are
/// judged besides.
const MOST_DECIDED_OTHERWISE: f64 = 0.5;
/// A probability may be off by so much in any precision, whatever it was made of.
const MOST_OF_A_PROBABILITY: f64 = 1.0 / 16.0;
/// Parts of fewer elements are judged over all batches: a few may all be small by chance, or nearly right.
const FEW: usize = 1 << 16;

/// For a batch and an output by their numbers, as [`PlannedEnd::moves`](crate::engine::noise::PlannedEnd::moves).
pub type Noise<'n> = &'n dyn Fn(usize, usize) -> Result<Option<Rc<[f64]>>>;

/// What results may depart by.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// What they were computed in.
    pub precision: Precision,
    /// What numbers are rounded by: sixteen times that is allowed, root mean square and relative.
    pub rounding: f64,
    /// The least that is allowed.
    pub least: f64,
}

/// Looks at the results of one network, batch by batch.
pub struct Judge<'j> {
    network: &'j Network,
    limits: Limits,
    /// Is asked where a slice departs; without it slices are not judged.
    noise: Option<Noise<'j>>,
    /// Whether somebody gave the batches, each of which is to be right.
    given: bool,
    worst: Departure,
    few: Vec<Group>,
}

/// A part of a result, in several batches.
struct Group {
    output: usize,
    /// Which part of the output, and what gives it.
    number: usize,
    source: TensorId,
    /// Whether the output has others.
    is_one_of_many: bool,
    /// Whether floats decided what integers are in it.
    decided: bool,
    slices: Vec<Slices>,
    /// The batches, and where in their results the part stands.
    places: Vec<(usize, Part, Vec<usize>)>,
    got: Vec<f64>,
    want: Vec<f64>,
}

impl<'j> Judge<'j> {
    /// One that has seen nothing yet.
    pub fn new(network: &'j Network, limits: Limits, noise: Option<Noise<'j>>, given: bool) -> Self {
        Self {
            network,
            limits,
            noise,
            given,
            worst: Departure::default(),
            few: vec![],
        }
    }

    /// Looks at what came where something else was wanted, in the batch of this number at these sizes.
    ///
    /// # Errors
    /// If an extent of the network has no value at these sizes; those of asking for noise.
    pub fn batch(&mut self, number: usize, binding: &Binding, want: &[Array], got: &[Array]) -> Result<()> {
        let outputs = self.network.outputs().iter().map(|output| output.tensor);
        for (output, ((tensor, got), want)) in outputs.zip(got).zip(want).enumerate() {
            require(want.len().saturating_mul(2 * size_of::<f64>()))?;
            let (got, exact, shape) = (got.to_f64(), want.to_f64(), want.shape());
            let parts = parts(self.network, tensor, binding)?;
            let is_one_of_many = parts.len() > 1;
            for (at, part) in parts.into_iter().enumerate() {
                let group = Group {
                    output,
                    number: at,
                    source: part.source,
                    is_one_of_many,
                    decided: self.limits.precision != Precision::FLOAT32 && !want.dtype().is_float(),
                    slices: part.slices(),
                    got: part.of(shape, &got).into_owned(),
                    want: part.of(shape, &exact).into_owned(),
                    places: vec![(number, part, shape.to_vec())],
                };
                match group.want.len() < FEW {
                    true => self.keep(group),
                    false => self.judge(&group)?,
                }
            }
        }
        Ok(())
    }

    fn keep(&mut self, group: Group) {
        let like = |other: &&mut Group| {
            (other.output, other.number) == (group.output, group.number) && other.shape() == group.shape()
        };
        match self.few.iter_mut().find(like) {
            Some(known) => {
                known.got.extend(group.got);
                known.want.extend(group.want);
                known.places.extend(group.places);
            }
            None => self.few.push(group),
        }
    }

    /// What departs most, when all batches were seen.
    ///
    /// # Errors
    /// Those of asking for noise.
    pub fn worst(mut self) -> Result<Departure> {
        for group in std::mem::take(&mut self.few) {
            self.judge(&group)?;
        }
        Ok(self.worst)
    }

    fn judge(&mut self, group: &Group) -> Result<()> {
        let Limits {
            precision,
            rounding,
            least,
        } = self.limits;
        let budget = (BUDGET * rounding).max(least);
        let [whole, slice] = match (group.decided, gives_probabilities(self.network, group.source)) {
            _ if group.judged(budget, true).is_broken() => [group.broken(budget), Deviation::default()],
            (true, _) => [group.decided_otherwise(), Deviation::default()],
            (false, false) => self.floats(group, budget)?,
            (false, true) => self.probabilities(group, budget, precision)?,
        };
        self.worst.whole = self.worst.whole.max(whole.excess());
        let found = whole.or_worse(slice);
        if found.excess() > self.worst.excess {
            self.worst.excess = found.excess();
            self.worst.message = self.message(group, &found);
        }
        Ok(())
    }

    fn floats(&self, group: &Group, allowed: f64) -> Result<[Deviation; 2]> {
        self.worst_of(&group.judged(allowed, true), group, &|noise| group.noise(noise))
    }

    /// Of probabilities, in themselves and in what a Sigmoid was given.
    fn probabilities(&self, group: &Group, budget: f64, precision: Precision) -> Result<[Deviation; 2]> {
        let probabilities = group.judged(MOST_OF_A_PROBABILITY.max(budget), false);
        let (got, want) = (logits(&group.got, precision), logits(&group.want, precision));
        let logits = Judged {
            got: &got,
            want: &want,
            is_relative: true,
            allowed: budget,
        };
        let of_logits = |noise: Noise<'_>| {
            let found = group.noise(noise)?;
            Ok(found.map(|noise| group.noise_of_logits(noise, precision)))
        };
        let [whole, slice] = self.worst_of(&probabilities, group, &|_| Ok(None))?;
        let [of_whole, of_slice] = self.worst_of(&logits, group, &of_logits)?;
        Ok([whole.or_worse(of_whole), slice.or_worse(of_slice)])
    }

    /// The whole, or the worst of the batches that somebody gave, and the worst of the slices.
    fn worst_of(
        &self,
        judged: &Judged<'_>,
        group: &Group,
        noise: &dyn Fn(Noise<'_>) -> Result<Option<Vec<f64>>>,
    ) -> Result<[Deviation; 2]> {
        let whole = match self.given {
            true => judged.worst_batch(group.places.len()),
            false => judged.whole(),
        };
        let slice = match self.noise {
            Some(ask) => judged.worst_slice(&group.slices, &|| noise(ask))?,
            None => Deviation::default(),
        };
        Ok([whole, slice])
    }

    /// What departs, for people.
    fn message(&self, group: &Group, found: &Deviation) -> String {
        let source = group.is_one_of_many.then(|| named(self.network, group.source));
        let which = match (source, found.slice) {
            (None, None) => String::new(),
            (None, Some((axis, at))) => format!(", slice {at} along axis {axis},"),
            (Some(source), None) => format!(", of what {source} gives,"),
            (Some(source), Some((axis, at))) => format!(", slice {at} along axis {axis} of what {source} gives,"),
        };
        let output = format!("output {:?}{which}", self.network.outputs()[group.output].name);
        let [share, most] = [found.error, found.allowed].map(|share| format!("{:.2} %", share * 100.0));
        let precision = self.limits.precision;
        match (found.error.is_finite(), group.decided) {
            (false, _) => format!("elements of {output} are not finite in {precision}"),
            (true, true) => format!("{output} is another number in {share} in {precision}, above {most}"),
            (true, false) => format!("{output} departs by {share} in {precision}, above {most}"),
        }
    }
}

impl Group {
    /// Of the part, in each batch.
    fn shape(&self) -> Vec<usize> {
        let (_, part, _) = &self.places[0];
        part.extents.iter().map(ExactSizeIterator::len).collect()
    }

    /// The numbers, which may be off by `allowed`.
    fn judged(&self, allowed: f64, is_relative: bool) -> Judged<'_> {
        Judged {
            got: &self.got,
            want: &self.want,
            is_relative,
            allowed,
        }
    }

    fn broken(&self, allowed: f64) -> Deviation {
        Deviation {
            error: f64::INFINITY,
            allowed,
            slice: None,
        }
    }

    /// The share of integers that are others, where that says more than that some were close.
    fn decided_otherwise(&self) -> Deviation {
        let others = self.got.iter().zip(&self.want).filter(|(g, w)| g != w).count();
        let share = others as f64 / self.want.len().max(1) as f64;
        Deviation {
            error: if share > MOST_DECIDED_OTHERWISE { share } else { 0.0 },
            allowed: MOST_DECIDED_OTHERWISE,
            slice: None,
        }
    }

    /// How far roundings move each element.
    fn noise(&self, noise: Noise<'_>) -> Result<Option<Vec<f64>>> {
        let mut all = vec![];
        for (batch, part, shape) in &self.places {
            let Some(found) = noise(*batch, self.output)? else {
                return Ok(None);
            };
            all.extend_from_slice(&part.of(shape, &found));
        }
        Ok(Some(all))
    }

    /// By how much what a Sigmoid is given moves where probabilities move so.
    fn noise_of_logits(&self, noise: Vec<f64>, precision: Precision) -> Vec<f64> {
        let slope = |&probability: &f64| {
            let inside = inside(probability, precision);
            inside * (1.0 - inside)
        };
        let pairs = noise.into_iter().zip(&self.want);
        pairs.map(|(noise, probability)| noise / slope(probability)).collect()
    }
}

/// The layer that gives a tensor, for people, or its name.
fn named(network: &Network, tensor: TensorId) -> String {
    let layer = network.producer(tensor).map(|(_, layer)| &layer.name);
    layer.unwrap_or(&network[tensor].name).clone()
}

/// Whether a tensor is what a Sigmoid gives, however it is moved or cast behind it.
fn gives_probabilities(network: &Network, tensor: TensorId) -> bool {
    let Some((_, layer)) = network.producer(tensor) else {
        return false;
    };
    let moves = layer.op.name == "Cast" || layer.op.movement.keeps_all();
    let source = layer.inputs.first().copied().flatten().filter(|_| moves);
    layer.op.name == "Sigmoid" || source.is_some_and(|source| gives_probabilities(network, source))
}

/// What a Sigmoid made probabilities of, as far as the precision tells them from 0 and 1. On noise a detector finds nothing: it gives
/// probabilities of next to 0, which are off by a large share of themselves though what they were made of is right.
fn logits(probabilities: &[f64], precision: Precision) -> Vec<f64> {
    let logit = |&probability: &f64| {
        let inside = inside(probability, precision);
        let outside = probability - probability.clamp(0.0, 1.0);
        (inside / (1.0 - inside)).ln() + outside / precision.rounding()
    };
    probabilities.iter().map(logit).collect()
}

/// A probability, as far as the precision tells it from 0 and 1.
fn inside(probability: f64, precision: Precision) -> f64 {
    let least = precision.rounding();
    probability.clamp(least, 1.0 - least)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::dtype::DType;
    use crate::passes::testing::Graph;

    const HALF: Precision = Precision {
        dtype: DType::Float16,
        tf32: false,
    };

    /// What departs most where an output gives this in each batch.
    fn excess(op: &str, dims: &str, batches: &[(&[f64], &[f64])], noise: Option<Noise<'_>>) -> f64 {
        excess_of(op, dims, batches, noise, false)
    }

    fn excess_of(op: &str, dims: &str, batches: &[(&[f64], &[f64])], noise: Option<Noise<'_>>, given: bool) -> f64 {
        let mut g = Graph::new();
        let x = g.input("x", dims);
        let y = g.op(op, &[x]);
        g.output(y);
        let limits = Limits {
            precision: HALF,
            rounding: HALF.rounding(),
            least: 0.0,
        };
        let mut judge = Judge::new(&g.network, limits, noise, given);
        let shape = g.network[x].ty.concrete().unwrap();
        for (number, (got, want)) in batches.iter().enumerate() {
            let [got, want] = [got, want].map(|v| Array::from_f64(DType::Float32, shape.clone(), v).unwrap());
            judge.batch(number, &Binding::new(), &[want], &[got]).unwrap();
        }
        judge.worst().unwrap().excess
    }

    #[test]
    fn probabilities_of_next_to_nothing_may_be_off_by_a_share_of_themselves_and_not_be_gone() {
        let departs = |got: &[f64]| {
            let want: &[f64] = &[1e-3, 2e-3, 0.9, 1e-9];
            excess("Sigmoid", "4", &[(got, want)], None) > 1.0
        };
        assert!(!departs(&[1.03e-3, 1.95e-3, 0.9003, 0.0]));
        assert!(departs(&[0.0, 2e-3, 0.9, 0.0]));
        assert!(departs(&[1e-3, 2e-3, 0.9, -0.1]));
        assert!(departs(&[1e-3, 2e-3, 0.85, 1e-9]));
    }

    #[test]
    fn probabilities_are_judged_beside_what_a_sigmoid_was_given() {
        // Off by a little beside logits of 1,000, and by a quarter in themselves.
        let (got, want) = ([0.75, 1.0, 1.0, 1.0], [0.5, 1.0, 1.0, 1.0]);
        assert!(excess("Sigmoid", "4", &[(&got, &want)], None) > 1.0);
    }

    #[test]
    fn few_elements_are_judged_over_all_batches() {
        let (small, large): (&[f64], &[f64]) = (&[0.01, 0.02], &[1.0, -2.0]);
        let alone = excess("Relu", "2", &[(&[0.011, 0.02], small)], None);
        let of = |got, given| excess_of("Relu", "2", &[(got, small), (large, large)], None, given);
        let near: &[f64] = &[0.011, 0.02];
        assert!(alone > 1.0 && of(near, false) < 0.1 && of(near, true) < 0.1);
        let off: &[f64] = &[0.025, 0.02];
        assert!(
            of(off, false) < 1.0 && of(off, true) > 1.0,
            "of what somebody gave each batch counts"
        );
    }

    #[test]
    fn a_slice_is_beside_what_roundings_explain() {
        let (want, got) = ([1.0, 0.001].repeat(8), [1.0, 0.0014].repeat(8));
        let of = |noise| excess("Relu", "8 2", &[(&got, &want)], noise);
        assert!(of(None) < 1.0);
        assert!(of(Some(&|_, _| Ok(None))) > 1.0);
        assert!(of(Some(&|_, _| Ok(Some(vec![1.0; 16].into())))) < 1.0);
    }

    #[test]
    fn what_only_moves_probabilities_gives_probabilities() {
        let mut g = Graph::new();
        let x = g.input("x", "2 3");
        let probabilities = g.op("Sigmoid", &[x]);
        let moved = g.op("Transpose", &[probabilities]);
        let sum = g.op("Add", &[moved, moved]);
        let found = [x, probabilities, moved, sum].map(|tensor| gives_probabilities(&g.network, tensor));
        assert_eq!(found, [false, true, true, false]);
    }
}
