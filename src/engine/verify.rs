//! After a build in lower precision, or by other compilers: does the engine compute what the float32 network computes?

use crate::engine::config::Precision;
use crate::engine::parts::parts;
use crate::error::Result;
use crate::network::array::{Array, Buffer, require};
use crate::network::dim::Binding;
use crate::network::dtype::DType;
use crate::network::{Layer, Network, TensorId};
use crate::runtime::bindings::ArrayAddress;
use crate::runtime::context_memory::ContextMemory;
use crate::runtime::executable::Executable;
use crate::runtime::instance::ProgramInstance;
use std::sync::Arc;

/// The results of other compilers may differ by so much in any precision: convolutions by Winograd's transform round so, and
/// what is wrong departs further.
pub const FOREIGN: f64 = 1e-3;
/// Those of another family of our own kernels, which only sum in another order.
pub const OTHER_FAMILY: f64 = 5e-5;
/// The results may differ by so many times the rounding error of the precision (root mean square, relative).
const BUDGET: f64 = 16.0;

/// How far the results of a program are from what they should be.
#[derive(Debug, Clone, Default)]
pub struct Departure {
    /// The error that is worst beside what is allowed: above 1 it is too large.
    pub excess: f64,
    /// For the report: which result, by how much, and how much was allowed.
    pub message: String,
}

impl Departure {
    /// Itself, where it is too large.
    pub fn too_far(self) -> Option<Self> {
        (self.excess > 1.0).then_some(self)
    }
}

/// What a network should give on one batch.
pub struct Want<'w> {
    /// The network in full precision.
    pub network: &'w Network,
    /// The sizes.
    pub binding: &'w Binding,
    /// An array for each of its outputs.
    pub arrays: &'w [Array],
}

/// What departs most, of results in a precision whose numbers are rounded by `rounding`. The error of a result may be
/// sixteen times that, root mean square and relative, or `least`. Each part that Concat joined is judged by itself, and chances by
/// what a Sigmoid made them of.
///
/// # Errors
/// If an extent of the network has no value at these sizes.
pub fn departure(want: &Want<'_>, got: &[Array], precision: Precision, rounding: f64, least: f64) -> Result<Departure> {
    let mut worst = Departure::default();
    for ((output, got), array) in want.network.outputs().iter().zip(got).zip(want.arrays) {
        let decided = precision != Precision::FLOAT32 && !array.dtype().is_float();
        let budget = match decided {
            true => MOST_DECIDED_OTHERWISE,
            false => (BUDGET * rounding).max(least),
        };
        require(array.len().saturating_mul(2 * size_of::<f64>()))?;
        let (got, array, shape) = (got.to_f64(), array.to_f64(), array.shape());
        let parts = parts(want.network, output.tensor, want.binding)?;
        for part in &parts {
            let (got, array) = (part.of(shape, &got), part.of(shape, &array));
            let chances = gives_chances(want.network, part.source).then_some(precision);
            let error = match decided {
                true => share_that_differs(&got, &array),
                false => error(&got, &array, chances),
            };
            if error / budget <= worst.excess {
                continue;
            }
            let which = match parts.len() {
                1 => String::new(),
                _ => format!(", of what {} gives,", named(want.network, part.source)),
            };
            let [share, most] = [error, budget].map(|share| format!("{:.2} %", share * 100.0));
            let name = &output.name;
            worst = Departure {
                excess: error / budget,
                message: match (error.is_finite(), decided) {
                    (false, _) => format!("elements of output {name:?}{which} are not finite in {precision}"),
                    (true, true) => {
                        format!("output {name:?}{which} is another number in {share} in {precision}, above {most}")
                    }
                    (true, false) => format!("output {name:?}{which} departs by {share} in {precision}, above {most}"),
                },
            };
        }
    }
    Ok(worst)
}

/// Of integers that are found by what floats are greater, so many may be others in a lower precision: the floats themselves are
/// judged besides.
const MOST_DECIDED_OTHERWISE: f64 = 0.5;

fn share_that_differs(got: &[f64], want: &[f64]) -> f64 {
    let others = got.iter().zip(want).filter(|(g, w)| g != w).count();
    others as f64 / want.len().max(1) as f64
}

/// The error of a result, infinite where it is not finite as it should be.
fn error(got: &[f64], want: &[f64], chances: Option<Precision>) -> f64 {
    let broken = got.iter().zip(want).any(|(g, w)| !g.is_finite() && w.is_finite());
    match (broken, chances) {
        (true, _) => f64::INFINITY,
        (false, Some(precision)) => relative_rms(&logits(got, precision), &logits(want, precision)),
        (false, None) => relative_rms(got, want),
    }
}

/// The layer that gives a tensor, for people, or its name.
fn named(network: &Network, tensor: TensorId) -> String {
    let layer = network.producer(tensor).map(|(_, layer)| &layer.name);
    layer.unwrap_or(&network[tensor].name).clone()
}

/// What a network's numbers are rounded to: the precision that was asked for, or what the model itself computes in.
pub fn rounding(network: &Network, precision: Precision) -> f64 {
    let of_dtype = |dtype| Precision { dtype, tf32: false }.rounding();
    let floats = network
        .tensors()
        .map(|(_, tensor)| tensor.ty.dtype)
        .filter(|dtype| dtype.is_float());
    floats.map(of_dtype).fold(precision.rounding(), f64::max)
}

/// As [`rounding`], for results of a network as a whole. Where tensors are quantized to 8 bits, a number that is rounded past the
/// middle of two steps becomes another step: next to these the roundings of float16 are small, and so are those of a GPU that sums
/// products of float8, with some 13 bits, next to its steps.
pub fn rounding_with_8_bits(network: &Network, precision: Precision) -> f64 {
    /// Half a step of integers of 8 bits beside the greatest number, and of float8_e4m3fn beside each.
    const INT8: f64 = 1.0 / 256.0;
    const FLOAT8: f64 = 1.0 / 16.0;
    /// Few sums of float32 that differ in their last bits lie next to the middle of two integers, but each layer behind spreads what
    /// they become: on an H200 and a processor a ResNet-50 differed by 0.79 %, half of what this allows.
    const SPREAD: f64 = 1.0 / 1024.0;
    let half_a_step = |layer: &Layer| match network[layer.outputs[0]].ty.dtype {
        _ if layer.op.name != "QuantizeLinear" => 0.0,
        DType::Int8 | DType::UInt8 if precision == Precision::FLOAT32 => SPREAD,
        DType::Int8 | DType::UInt8 => INT8,
        DType::Float8E4M3FN => FLOAT8,
        _ => 0.0,
    };
    let steps = network.layers().map(|(_, layer)| half_a_step(layer));
    steps.fold(rounding(network, precision), f64::max)
}

/// By how much what a kernel gives departs from the same by a kernel of another family, if that is more than the precision of
/// its network explains, given what the numbers of its network are rounded to. Infinity is no fault next to where numbers end.
pub fn kernel_departs(got: &Array, want: &Array, rounding: f64) -> Option<String> {
    /// A kernel may round, or add up, what is so much of the greatest number to infinity.
    const NEAR: f64 = 0.25;
    let dtype = want.dtype();
    if !dtype.is_float() {
        return None;
    }
    let near = NEAR * dtype.normal_range().1;
    let pairs = got.to_f64().into_iter().zip(want.to_f64());
    let (got, want): (Vec<_>, Vec<_>) = pairs.filter(|(g, w)| g.is_finite() || w.abs() < near).unzip();
    let broken = got.iter().zip(&want).any(|(g, w)| !g.is_finite() && w.is_finite());
    let error = relative_rms(&got, &want);
    let budget = (BUDGET * rounding).max(OTHER_FAMILY);
    (broken || error > budget).then(|| match broken {
        true => "gives numbers that are not finite, other than".into(),
        false => format!("departs by {:.3} %", error * 100.0),
    })
}

/// Whether numbers were too large for a tensor of float16. What a kernel makes of infinity depends on the order of its sums, and on
/// what it multiplies by the zeros around its input. The infinity of a mask is negative, and is no such number.
pub fn overflowed(array: &Array) -> bool {
    array.dtype() == DType::Float16 && array.f64s().any(|v| v.is_nan() || v == f64::INFINITY)
}

/// Whether a tensor is what a Sigmoid gives, however it is moved or cast behind it.
fn gives_chances(network: &Network, tensor: TensorId) -> bool {
    let Some((_, layer)) = network.producer(tensor) else {
        return false;
    };
    let moves = layer.op.name == "Cast" || layer.op.movement.keeps_all();
    let source = layer.inputs.first().copied().flatten().filter(|_| moves);
    layer.op.name == "Sigmoid" || source.is_some_and(|source| gives_chances(network, source))
}

/// What a Sigmoid made chances of, as far as the precision tells them from 0 and 1. On noise a detector finds nothing: it gives
/// chances of next to 0, which are off by a large share of themselves though what they were made of is right.
fn logits(chances: &[f64], precision: Precision) -> Vec<f64> {
    let least = precision.rounding();
    let logit = |&chance: &f64| {
        let inside = chance.clamp(least, 1.0 - least);
        let outside = chance - chance.clamp(0.0, 1.0);
        (inside / (1.0 - inside)).ln() + outside / least
    };
    chances.iter().map(logit).collect()
}

fn relative_rms(got: &[f64], want: &[f64]) -> f64 {
    let finite = || got.iter().zip(want).filter(|(_, w)| w.is_finite());
    let error: f64 = finite().map(|(g, w)| (g - w) * (g - w)).sum();
    let size: f64 = finite().map(|(_, w)| w * w).sum();
    if size == 0.0 {
        error.sqrt()
    } else {
        (error / size).sqrt()
    }
}

/// What a program gives.
///
/// # Errors
/// Those of running it.
pub fn run_once(program: &Arc<Executable>, inputs: &[Array], binding: &Binding) -> Result<Vec<Array>> {
    let mut instance = ProgramInstance::new(program.clone(), binding, &ContextMemory::default())?;
    let outputs = instance.outputs().iter().map(|o| Buffer::try_zeroed(o.bytes()));
    let outputs = outputs.collect::<Result<Vec<_>>>()?;
    let from: Vec<_> = inputs.iter().map(|a| ArrayAddress::host(a.bytes().as_ptr())).collect();
    let to: Vec<_> = outputs.iter().map(|b| ArrayAddress::host(b.as_ptr())).collect();
    // SAFETY: the arrays have the shapes that the binding gives their tensors, and live until the run is over.
    unsafe { instance.run(&from, &to, None) }?;
    let arrays = instance.outputs().to_vec().into_iter().zip(outputs);
    arrays
        .map(|(operand, buffer)| Array::new(operand.dtype, operand.shape, Arc::new(buffer), 0))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::attr::{Attr, attrs};
    use crate::passes::testing::Graph;

    const HALF: Precision = Precision {
        dtype: DType::Float16,
        tf32: false,
    };

    #[test]
    fn chances_of_next_to_nothing_may_be_off_by_a_share_of_themselves_and_not_be_gone() {
        let departs = |got: &[f64], want: &[f64]| {
            relative_rms(&logits(got, HALF), &logits(want, HALF)) > BUDGET * HALF.rounding()
        };
        let want = [1e-3, 2e-3, 0.9, 1e-9];
        assert!(!departs(&[1.03e-3, 1.95e-3, 0.9003, 0.0], &want));
        assert!(departs(&[0.0, 2e-3, 0.9, 0.0], &want));
        assert!(departs(&[1e-3, 2e-3, 0.9, -0.1], &want));
        assert!(departs(&[1e-3, 2e-3, 0.85, 1e-9], &want));
    }

    #[test]
    fn infinity_is_a_fault_of_a_kernel_but_where_numbers_end() {
        let half = |values: [f64; 3]| Array::from_f64(DType::Float16, vec![3], &values).unwrap();
        let departs = |got, want| kernel_departs(&half(got), &half(want), HALF.rounding());
        let want = [1.0, 65000.0, f64::INFINITY];
        assert_eq!(departs([1.0, f64::INFINITY, f64::NAN], want), None);
        assert!(departs([f64::INFINITY, 65000.0, f64::INFINITY], want).is_some());
        assert!(departs([1.0, 60000.0, f64::INFINITY], want).is_some());
        let masked = [1.0, 2.0, f64::NEG_INFINITY];
        assert_eq!([want, masked].map(|values| overflowed(&half(values))), [true, false]);
    }

    #[test]
    fn what_only_moves_chances_gives_chances() {
        let mut g = Graph::new();
        let x = g.input("x", "2 3");
        let chances = g.op("Sigmoid", &[x]);
        let moved = g.op("Transpose", &[chances]);
        let sum = g.op("Add", &[moved, moved]);
        let found = [x, chances, moved, sum].map(|tensor| gives_chances(&g.network, tensor));
        assert_eq!(found, [false, true, true, false]);
    }

    #[test]
    fn steps_of_8_bits_count_where_sums_differ() {
        let of = |dtype, precision| {
            let mut g = Graph::new();
            let (x, scale) = (g.input("x", "2 3"), g.scalar(0.5));
            g.op_with("QuantizeLinear", attrs([("to", Attr::Type(dtype))]), &[x, scale]);
            rounding_with_8_bits(&g.network, precision)
        };
        assert_eq!(of(DType::Int8, Precision::FLOAT32), 1.0 / 1024.0);
        assert_eq!(of(DType::UInt8, HALF), 1.0 / 256.0);
        assert_eq!(of(DType::Float8E4M3FN, Precision::FLOAT32), 1.0 / 16.0);
        assert_eq!(of(DType::Int16, HALF), HALF.rounding());
    }
}
