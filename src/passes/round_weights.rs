//! Rounds the weights of convolutions so that the errors of each window cancel.
//!
//! Rounded to the nearest, the errors of a window's weights have some sum. Times the mean of what the window sees, which is
//! far from 0 behind a Relu, that is an offset at every place of the result, and the greater part of a network's error. Here
//! some weights are rounded the other way, those nearest to the middle first, until the sum is as near to 0 as it comes.
//! Each is still less than one step off. Windows of one element are taken together: those of a filter.
//!
//! Source: Guo et al., "SQuant: On-the-Fly Data-Free Quantization via Diagonal Hessian Approximation", ICLR 2022: its flips
//! of kernels, and of output channels where a kernel has one element.

use super::matching::{given_by, input, is_constant, output_type};
use super::{Pass, rewrite_with, rule_if, rule_if_some};
use crate::error::Result;
use crate::network::array::{Array, require};
use crate::network::dtype::DType;
use crate::network::ops::{cast, tf32};
use crate::network::patch::{Change, Patch};
use crate::network::{LayerId, Network, TensorId};
use crate::threads::collect_on_threads;
use std::collections::{BTreeMap, BTreeSet};

/// See [`Pass::doc`].
pub static PASS: Pass = Pass {
    name: "round_weights",
    doc: "Conv by the Cast of a constant to 16 bits => Conv by a constant of which the errors of each window cancel; \
          TF32-eligible Conv by a constant => the same",
    apply: |network, _| {
        let jobs: BTreeSet<Job> = network.layers().filter_map(|(id, _)| job(network, id)).collect();
        let rounded = all(network, jobs)?;
        rewrite_with(network, |network, id| rule(network, id, &rounded))
    },
};

/// A constant in float32, and the dtype that it is rounded to; float32 stands for tf32.
type Job = (TensorId, DType);

fn rule(network: &Network, id: LayerId, rounded: &BTreeMap<Job, Array>) -> Result<Option<Change>> {
    rule_if_some!(job = job(network, id));
    rule_if_some!(array = rounded.get(&job));
    rule_if!(network[job.0].constant() != Some(array));
    let layer = &network[id];
    let mut patch = Patch::new(network);
    let mut inputs = layer.inputs.clone();
    inputs[1] = Some(patch.constant(array.clone()));
    let new = patch.add_named("", layer.op, layer.attrs.clone(), &inputs)?[0];
    patch.shunt(layer.outputs[0], new)?;
    Ok(Some(patch.finish()))
}

/// What is to be rounded for a layer.
fn job(network: &Network, id: LayerId) -> Option<Job> {
    let layer = &network[id];
    let weights = input(layer, 1).filter(|_| layer.op.name == "Conv")?;
    let dtype = network[weights].ty.dtype;
    let source = match dtype {
        DType::Float16 | DType::BFloat16 => {
            // A Cast of the model's own rounds to the nearest.
            let placed = given_by(network, weights, "Cast").filter(|cast| !cast::rounds(&cast.attrs))?;
            input(placed, 0)?
        }
        DType::Float32 if tf32::is_allowed(layer) && is_matrix(network, id, weights) => weights,
        _ => return None,
    };
    let fits = is_constant(network, source) && network[source].ty.dtype == DType::Float32;
    fits.then_some((source, dtype))
}

/// Whether a convolution multiplies more than rows, columns and single numbers, which nobody rounds to tf32.
fn is_matrix(network: &Network, id: LayerId, weights: TensorId) -> bool {
    let places = &output_type(network, id).shape[2..];
    let channels = &network[weights].ty.shape[..2];
    channels.iter().all(|extent| !extent.is(1)) && !places.iter().all(|extent| extent.is(1))
}

/// All jobs, the longest first, by several threads.
fn all(network: &Network, jobs: BTreeSet<Job>) -> Result<BTreeMap<Job, Array>> {
    let arrays = jobs
        .into_iter()
        .filter_map(|job| Some((job, network[job.0].constant()?)));
    let mut arrays: Vec<(Job, &Array)> = arrays.collect();
    arrays.sort_by_key(|(_, array)| std::cmp::Reverse(array.len()));
    let made = collect_on_threads(arrays.len(), |at| rounded(arrays[at].1, arrays[at].0.1))?;
    let made = arrays.iter().zip(made);
    made.map(|(&(job, _), array)| Ok((job, array?))).collect()
}

/// The weights of a Conv in another dtype.
fn rounded(weights: &Array, dtype: DType) -> Result<Array> {
    let window: usize = weights.shape()[2..].iter().product();
    let together = if window > 1 { window } else { weights.shape()[1] };
    require(weights.len().saturating_mul(size_of::<f64>()))?;
    let mut values = weights.to_f64();
    let (steps, mut others) = (Steps::of(dtype), vec![]);
    for group in values.chunks_mut(together.max(1)) {
        cancel(group, steps, &mut others);
    }
    Array::from_f64(dtype, weights.shape().to_vec(), &values)
}

/// How far apart the numbers of a dtype are.
#[derive(Clone, Copy)]
struct Steps {
    /// Binary digits behind the first one.
    digits: i32,
    /// The exponent of 2 of the smallest normal number.
    least: i32,
}

impl Steps {
    fn of(dtype: DType) -> Self {
        match dtype {
            DType::Float16 => Self { digits: 10, least: -14 },
            DType::BFloat16 => Self { digits: 7, least: -126 },
            _ => Self {
                digits: 10,
                least: -126,
            },
        }
    }

    /// The step at a number of float32.
    fn at(self, number: f64) -> f64 {
        const BIAS: i32 = 1023;
        let exponent = (number.to_bits() >> 52 & 0x7ff) as i32 - BIAS;
        let power = exponent.max(self.least) - self.digits;
        f64::from_bits(((power + BIAS) as u64) << 52)
    }
}

/// The number on the other side of a weight.
struct Other {
    at: usize,
    /// How far it is from the nearest one.
    by: f64,
    /// What it adds to the square of the error, by the length of its way: 0 to the length.
    cost: f64,
}

/// The nearest integer of a number below 2^51, which has no instruction on every processor.
fn nearest(number: f64) -> f64 {
    const INTEGERS: f64 = 1.5 * (1u64 << 52) as f64;
    number + INTEGERS - INTEGERS
}

/// Rounds numbers so that the sum of their errors is near 0. What is not finite stays so; `others` is room to work in.
fn cancel(group: &mut [f64], steps: Steps, others: &mut Vec<Other>) {
    others.clear();
    let mut sum = 0.0;
    for (at, weight) in group.iter_mut().enumerate() {
        let step = steps.at(*weight);
        let near = nearest(*weight / step) * step;
        // The rest would be infinite.
        if near.abs() > f64::from(f32::MAX) || near.is_nan() {
            continue;
        }
        let error = near - *weight;
        sum += error;
        if error != 0.0 {
            let (by, cost) = (-step.copysign(error), step - 2.0 * error.abs());
            others.push(Other { at, by, cost });
        }
        *weight = near;
    }
    others.retain(|other| other.by * sum < 0.0);
    others.sort_unstable_by(|a, b| a.cost.total_cmp(&b.cost));
    for other in others {
        // Nor do those that cost more help: their ways are longer yet.
        if other.cost >= 2.0 * sum.abs() {
            break;
        }
        if (sum + other.by).abs() < sum.abs() {
            sum += other.by;
            group[other.at] += other.by;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::attr::{Attr, attrs};
    use crate::passes::testing::{Graph, Rng};
    use crate::passes::{Settings, allow_tf32, assign_precision, clean_casts, fold_constants, plan_precision};

    const LOW: [DType; 3] = [DType::Float16, DType::BFloat16, DType::Float32];

    fn groups(array: &Array, length: usize) -> Vec<Vec<f64>> {
        array.to_f64().chunks(length).map(<[f64]>::to_vec).collect()
    }

    #[test]
    fn errors_cancel_and_each_is_less_than_a_step() {
        for (shape, length) in [(vec![16, 8, 3, 3], 9), (vec![32, 64, 1, 1], 64), (vec![4, 1, 5], 5)] {
            let exact = Rng(7).array(DType::Float32, shape);
            for dtype in LOW {
                let found = rounded(&exact, dtype).unwrap();
                assert_eq!((found.dtype(), found.shape()), (dtype, exact.shape()));
                let steps = Steps::of(dtype);
                for (found, exact) in groups(&found, length).iter().zip(groups(&exact, length)) {
                    let errors = found.iter().zip(&exact).map(|(f, e)| f - e);
                    let largest = exact.iter().map(|&e| steps.at(e)).fold(0.0, f64::max);
                    assert!(
                        errors.clone().sum::<f64>().abs() <= largest / 2.0,
                        "{found:?} {exact:?}"
                    );
                    let near = |(error, &e): (f64, &f64)| error.abs() < steps.at(e);
                    assert!(errors.zip(&exact).all(near), "{found:?} {exact:?}");
                    let even = |&f: &f64| f % steps.at(f) == 0.0;
                    assert!(found.iter().all(even), "{found:?}");
                }
            }
        }
    }

    #[test]
    fn what_needs_no_rounding_stays() {
        let edges = [
            0.0,
            1.0,
            -0.5,
            6.1e-5,
            f64::INFINITY,
            f64::NAN,
            f64::from(f32::MAX),
            0.25,
            0.0,
        ];
        let edges = Array::from_f64(DType::Float32, vec![1, 1, 3, 3], &edges).unwrap();
        for dtype in LOW {
            let (found, cast) = (rounded(&edges, dtype).unwrap(), edges.cast(dtype));
            let (found, cast) = (found.to_f64(), cast.to_f64());
            let same = |i: &usize| found[*i] == cast[*i] || (found[*i].is_nan() && cast[*i].is_nan());
            // Of the one number that is between two, either is right.
            assert!((0..9).filter(|&i| i != 3).all(|i| same(&i)), "{found:?} {cast:?}");
            let once = rounded(&Rng(3).array(DType::Float32, vec![8, 4, 3, 3]), dtype).unwrap();
            assert_eq!(rounded(&once.cast(DType::Float32), dtype).unwrap(), once);
        }
    }

    fn conv(g: &mut Graph, x: TensorId, shape: &[usize], group: i64) -> TensorId {
        let w = g.weights(shape);
        g.op_with("Conv", attrs([("group", Attr::Int(group))]), &[x, w])
    }

    #[test]
    fn weights_of_16_bits_are_rounded_before_they_fold() {
        let mut g = Graph::new();
        let x = g.input("x", "n 4 6 6");
        let y = conv(&mut g, x, &[4, 4, 3, 3], 1);
        let y = conv(&mut g, y, &[4, 1, 3, 3], 4);
        let weights = g.weights(&[2, 3]);
        let z = g.op("MatMul", &[y, weights]);
        g.output(z);
        let settings = Settings {
            compute: DType::Float16,
            ..Settings::default()
        };
        (plan_precision::PASS.apply)(&mut g.network, &settings).unwrap();
        (assign_precision::PASS.apply)(&mut g.network, &settings).unwrap();
        assert_eq!((PASS.apply)(&mut g.network, &settings).unwrap(), 2);
        g.becomes_by(
            &[&PASS, &clean_casts::PASS, &fold_constants::PASS],
            &settings,
            "
            %Conv: float16[n, 4, 6, 6] = Cast(%x) {elidable=1, round_mode=up, saturate=1, to=float16}
            %Conv~1: float16[n, 4, 4, 4] = Conv(%Conv, float16[4, 4, 3, 3](...)) {auto_pad=NOTSET, dilations=[], group=1, pads=[], strides=[]}
            %Conv~2: float16[n, 4, 2, 2] = Conv(%Conv~1, float16[4, 1, 3, 3](...)) {auto_pad=NOTSET, dilations=[], group=4, pads=[], strides=[]}
            %MatMul: float16[n, 4, 2, 3] = MatMul(%Conv~2, float16[2, 3](...)) {transA=0, transB=0}
            %MatMul~1: float32[n, 4, 2, 3] = Cast(%MatMul) {elidable=1, round_mode=up, saturate=1, to=float32}",
        );
    }

    #[test]
    fn so_are_those_that_may_be_rounded_to_tf32() {
        let mut g = Graph::new();
        let x = g.input("x", "n 32 6 6");
        let shapes: [(&[usize], i64); 5] = [
            (&[4, 32, 3, 3], 1),
            (&[4, 16, 3, 3], 2),
            (&[32, 1, 3, 3], 32),
            (&[1, 32, 1, 1], 1),
            (&[4, 32, 6, 6], 1),
        ];
        for (shape, group) in shapes {
            let y = conv(&mut g, x, shape, group);
            g.output(y);
        }
        let settings = Settings {
            tf32: true,
            ..Settings::default()
        };
        (plan_precision::PASS.apply)(&mut g.network, &settings).unwrap();
        (allow_tf32::PASS.apply)(&mut g.network, &settings).unwrap();
        // Not what multiplies numbers one by one, nor what gives one row or column.
        assert_eq!((PASS.apply)(&mut g.network, &settings).unwrap(), 2);
        assert_eq!((PASS.apply)(&mut g.network, &settings).unwrap(), 0);
    }

    #[test]
    fn a_mean_far_from_zero_leaves_no_offset() {
        let exact = Rng(11).array(DType::Float32, vec![64, 16, 3, 3]);
        // What a window of ones sees is the sum of the weights.
        let offset = |array: &Array| {
            let filters = groups(array, 144).into_iter().zip(groups(&exact, 144));
            let squares = filters.map(|(a, b)| (a.iter().sum::<f64>() - b.iter().sum::<f64>()).powi(2));
            squares.sum::<f64>().sqrt()
        };
        let (nearest, ours) = (exact.cast(DType::BFloat16), rounded(&exact, DType::BFloat16).unwrap());
        assert!(
            offset(&ours) < 0.5 * offset(&nearest),
            "{} {}",
            offset(&ours),
            offset(&nearest)
        );
    }
}
