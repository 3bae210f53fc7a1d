//! After a build in lower precision, or by other compilers: does the engine compute what the float32 network computes?

use crate::engine::config::Precision;
use crate::engine::slices::Judged;
use crate::error::Result;
use crate::network::array::{Array, Buffer};
use crate::network::dim::Binding;
use crate::network::dtype::DType;
use crate::network::{Layer, Network};
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
pub const BUDGET: f64 = 16.0;

/// How far the results of a program are from what they should be.
#[derive(Debug, Clone, Default)]
pub struct Departure {
    /// The error that is worst beside what is allowed: above 1 it is too large.
    pub excess: f64,
    /// The same of results as a whole, without slices of them.
    pub whole: f64,
    /// For the report: which result, by how much, and how much was allowed.
    pub message: String,
}

impl Departure {
    /// Itself, where it is too large.
    pub fn too_far(self) -> Option<Self> {
        (self.excess > 1.0).then_some(self)
    }
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
    /// they become: on GPUs and processors ResNet-50 differed by 0.79 % and BERT by 2.51 %, half of what this allows.
    const SPREAD: f64 = 1.0 / 320.0;
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
    let judged = Judged {
        got: &got,
        want: &want,
        is_relative: true,
        allowed: (BUDGET * rounding).max(OTHER_FAMILY),
    };
    let found = judged.whole();
    match judged.is_broken() {
        true => Some("gives numbers that are not finite, other than".into()),
        false => (found.excess() > 1.0).then(|| format!("departs by {:.3} %", found.error * 100.0)),
    }
}

/// Whether numbers were too large for a tensor of float16. What a kernel makes of infinity depends on the order of its sums, and on
/// what it multiplies by the zeros around its input. The infinity of a mask is negative, and is no such number.
pub fn overflowed(array: &Array) -> bool {
    array.dtype() == DType::Float16 && array.f64s().any(|v| v.is_nan() || v == f64::INFINITY)
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
    fn steps_of_8_bits_count_where_sums_differ() {
        let of = |dtype, precision| {
            let mut g = Graph::new();
            let (x, scale) = (g.input("x", "2 3"), g.scalar(0.5));
            g.op_with("QuantizeLinear", attrs([("to", Attr::Type(dtype))]), &[x, scale]);
            rounding_with_8_bits(&g.network, precision)
        };
        assert_eq!(of(DType::Int8, Precision::FLOAT32), 1.0 / 320.0);
        assert_eq!(of(DType::UInt8, HALF), 1.0 / 256.0);
        assert_eq!(of(DType::Float8E4M3FN, Precision::FLOAT32), 1.0 / 16.0);
        assert_eq!(of(DType::Int16, HALF), HALF.rounding());
    }
}
