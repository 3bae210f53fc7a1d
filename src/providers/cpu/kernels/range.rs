//! Range: numbers that are counted.

use super::Answer;
use super::scope::{Scope, uniform_forms};
use crate::error::Result;
use crate::network::dtype::DType;
use crate::plan::layout::Layout;
use crate::plan::{Call, Launcher, Prepared};
use crate::providers::common::fn_kernel::FnKernel;
use crate::providers::cpu::simd::convert;

/// Range where the shapes say how many numbers there are.
pub fn offer(scope: &Scope) -> Answer {
    if scope.op() != "Range" {
        return Ok(vec![]);
    }
    let kernel = FnKernel::new("Range", "Range", uniform_forms(&[Layout::Plain], 2, 1), |request| {
        let to = &request.outputs[0];
        let (dtype, count) = (to.dtype, to.elements());
        Ok(Prepared::new("counting", Counting { dtype, count }))
    });
    Ok(vec![scope.alone(kernel, &[0, 2])])
}

struct Counting {
    dtype: DType,
    count: usize,
}

impl Counting {
    /// Writes `start + i * delta` for all `i`.
    ///
    /// # Safety
    /// As many elements must be writable.
    unsafe fn count<T>(&self, to: *mut u8, number: impl Fn(usize) -> T, write: impl Fn(&T, *mut u8)) {
        for i in 0..self.count {
            // SAFETY: the caller's promise.
            write(&number(i), unsafe { to.add(i * self.dtype.size()) });
        }
    }
}

impl Launcher for Counting {
    fn launch(&mut self, call: &Call) -> Result<()> {
        let (dtype, to) = (self.dtype, call.outputs[0]);
        // SAFETY: the planner gives addresses that hold the operands of the request.
        unsafe {
            match dtype {
                DType::Float64 => {
                    let [start, delta] = [0, 1].map(|i| call.inputs[i].cast::<f64>().read_unaligned());
                    let number = |i: usize| start + i as f64 * delta;
                    self.count(to, number, |v, to| to.cast::<f64>().write_unaligned(*v));
                }
                _ if dtype.is_float() => {
                    let mut given = [0f32; 2];
                    (0..2).for_each(|i| convert::to_f32(dtype, call.inputs[i], &mut given[i], 1));
                    let [start, delta] = given.map(f64::from);
                    let number = |i: usize| (start + i as f64 * delta) as f32;
                    self.count(to, number, |v, to| convert::from_f32(dtype, v, to, 1));
                }
                _ => {
                    let mut given = [0i64; 2];
                    (0..2).for_each(|i| convert::to_i64(dtype, call.inputs[i], &mut given[i], 1));
                    let [start, delta] = given;
                    let number = |i: usize| start.wrapping_add((i as i64).wrapping_mul(delta));
                    self.count(to, number, |v, to| convert::from_i64(dtype, v, to, 1));
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::network::array::Array;
    use crate::network::dtype::DType;
    use crate::providers::cpu::kernels::testing::Case;

    #[test]
    fn numbers_up_and_down() {
        for dtype in [DType::Float32, DType::Float64, DType::Int64, DType::Int32] {
            for (start, limit, delta) in [(0.0, 2000.0, 1.0), (5.0, -3000.0, -2.0), (3.0, 3.0, 1.0)] {
                let mut case = Case::new(dtype);
                let given = [start, limit, delta].map(|v| case.constant(Array::scalar(dtype, v)));
                let y = case.op("Range", &given);
                case.output(y).check_fast(&[]);
            }
        }
    }
}
