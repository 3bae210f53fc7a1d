//! OneHot: one value everywhere, then another at the indices.

use super::Answer;
use super::copy::{Axis, Move, Mover, Origin};
use super::scope::{Scope, uniform_forms};
use crate::error::Result;
use crate::network::attr::Read;
use crate::network::dtype::DType;
use crate::plan::layout::{Layout, Operand};
use crate::plan::{Call, Form, Kernel, Launcher, Prepared, Request};
use crate::providers::cpu::simd::convert;

/// OneHot where the shapes say how deep it is.
pub fn offer(scope: &Scope) -> Answer {
    if scope.op() != "OneHot" {
        return Ok(vec![]);
    }
    let axis = scope.output_type(0).axis(scope.layer().attrs.int("axis"));
    let axis = axis.map_err(|e| super::Why::new(e.message()))?;
    Ok(vec![scope.alone(OneHot { axis }, &[0, 2])])
}

struct OneHot {
    axis: usize,
}

impl Kernel for OneHot {
    fn name(&self) -> String {
        "OneHot".into()
    }

    fn identity(&self) -> String {
        format!("OneHot {}", self.axis)
    }

    fn forms(&self) -> Vec<Form> {
        uniform_forms(&[Layout::Plain], 2, 1)
    }

    fn prepare(&self, request: &Request) -> Result<Prepared> {
        let to = &request.outputs[0];
        let everywhere = Axis {
            size: to.elements(),
            from: 0,
            to: 1,
        };
        let fill = Move {
            origin: Origin::Input(1),
            output: 0,
            from: 0,
            to: 0,
            axes: vec![everywhere],
            size: to.dtype.size(),
        };
        Ok(Prepared::new(
            "fill and mark",
            Marking {
                fill: Mover::new(vec![fill]),
                index: request.inputs[0].dtype,
                to: to.clone(),
                axis: self.axis,
            },
        ))
    }
}

struct Marking {
    fill: Mover,
    index: DType,
    to: Operand,
    axis: usize,
}

impl Launcher for Marking {
    fn launch(&mut self, call: &Call) -> Result<()> {
        self.fill.launch(call)?;
        let (depth, size) = (self.to.shape[self.axis], self.to.dtype.size());
        let inner: usize = self.to.shape[self.axis + 1..].iter().product();
        for i in 0..self.to.elements() / depth.max(1) {
            let mut index = 0i64;
            // SAFETY: the planner gives addresses that hold the operands of the request; there is one index for each
            // element along the other axes.
            unsafe { convert::to_i64(self.index, call.inputs[0].add(i * self.index.size()), &mut index, 1) };
            let index = if index < 0 { index + depth as i64 } else { index };
            if (0..depth as i64).contains(&index) {
                let at = (i / inner * depth + index as usize) * inner + i % inner;
                // SAFETY: as above; the place lies in the output, and the second of two values is the mark.
                unsafe {
                    std::ptr::copy_nonoverlapping(call.inputs[1].add(size), call.outputs[0].add(at * size), size)
                };
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::network::array::Array;
    use crate::network::attr::{Attr, attrs};
    use crate::network::dtype::DType;
    use crate::providers::cpu::kernels::testing::Case;

    #[test]
    fn marks_along_any_axis() {
        for axis in [0, 1, 2, -1] {
            for h in [5, 0] {
                let mut case = Case::new(DType::Int64);
                let indices = case.input("h 3");
                let depth = case.constant(Array::ints(&[3]));
                let values = case.constant(Array::from_f64(DType::Float32, vec![2], &[0.5, 2.0]).unwrap());
                let y = case.layer("OneHot", attrs([("axis", Attr::Int(axis))]), &[indices, depth, values]);
                case.output(y).check_fast(&[("h", h)]);
            }
        }
    }
}
