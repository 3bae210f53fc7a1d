//! Trilu: the kept part of each row, and zeros.

use super::Answer;
use super::parallel::{self, Shared};
use super::scope::{Scope, uniform_forms};
use crate::error::Result;
use crate::network::attr::Read;
use crate::network::dtype::DType;
use crate::plan::layout::{Layout, Operand};
use crate::plan::{Call, Form, Kernel, Launcher, Prepared, Request};
use crate::providers::cpu::simd::convert;

/// Bytes that a thread should at least write.
const GRAIN: usize = 32 << 10;

/// Trilu of row-major matrices.
pub fn offer(scope: &Scope) -> Answer {
    if scope.op() != "Trilu" {
        return Ok(vec![]);
    }
    let kernel = Trilu {
        upper: scope.layer().attrs.flag("upper"),
        moved: scope.input(1).is_some(),
    };
    Ok(vec![scope.alone(kernel, &[0, 1])])
}

struct Trilu {
    upper: bool,
    /// Whether an input says where the diagonal is.
    moved: bool,
}

impl Kernel for Trilu {
    fn name(&self) -> String {
        "Trilu".into()
    }

    fn identity(&self) -> String {
        format!("Trilu upper {} moved {}", self.upper, self.moved)
    }

    fn forms(&self) -> Vec<Form> {
        uniform_forms(&[Layout::Plain], 1 + self.moved as usize, 1)
    }

    fn prepare(&self, request: &Request) -> Result<Prepared> {
        Ok(Prepared::new(
            "part of each row",
            Triangle {
                upper: self.upper,
                diagonal: request.inputs.get(1).map(|k| k.dtype),
                x: request.inputs[0].clone(),
            },
        ))
    }
}

struct Triangle {
    upper: bool,
    diagonal: Option<DType>,
    x: Operand,
}

impl Triangle {
    /// Writes one row.
    ///
    /// # Safety
    /// The row must lie at the addresses.
    unsafe fn row(&self, source: *const u8, target: *mut u8, row: i64, diagonal: i64) {
        let columns = self.x.shape[self.x.shape.len() - 1];
        let at = |place: i64| place.clamp(0, columns as i64) as usize;
        let first = row.saturating_add(diagonal);
        let kept = if self.upper {
            at(first)..columns
        } else {
            0..at(first.saturating_add(1))
        };
        let size = self.x.dtype.size();
        // SAFETY: the caller's promise; `kept` lies in the row.
        unsafe {
            std::ptr::write_bytes(target, 0, kept.start * size);
            let start = kept.start * size;
            std::ptr::copy_nonoverlapping(source.add(start), target.add(start), kept.len() * size);
            std::ptr::write_bytes(target.add(kept.end * size), 0, (columns - kept.end) * size);
        }
    }
}

impl Launcher for Triangle {
    fn launch(&mut self, call: &Call) -> Result<()> {
        let mut diagonal = 0i64;
        if let Some(dtype) = self.diagonal {
            // SAFETY: the planner gives addresses that hold the operands of the request.
            unsafe { convert::to_i64(dtype, call.inputs[1], &mut diagonal, 1) };
        }
        let [.., height, columns] = self.x.shape[..] else {
            return Ok(());
        };
        let bytes = columns * self.x.dtype.size();
        let rows = self.x.bytes().checked_div(bytes).unwrap_or(0);
        let (this, call) = (&*self, Shared(call));
        parallel::over(rows, GRAIN / bytes.max(1), |range| {
            let call = call.get();
            for row in range {
                // SAFETY: as above.
                unsafe {
                    let (source, target) = (call.inputs[0].add(row * bytes), call.outputs[0].add(row * bytes));
                    this.row(source, target, (row % height) as i64, diagonal);
                }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::network::array::Array;
    use crate::network::attr::{Attr, attrs};
    use crate::network::dtype::DType;
    use crate::providers::cpu::kernels::testing::Case;

    #[test]
    fn triangles_around_any_diagonal() {
        for dtype in [DType::Float32, DType::Bool, DType::Int64] {
            for upper in [0, 1] {
                for k in [0, 1, -2, 100, -100, i64::MAX, i64::MIN] {
                    for h in [5, 0] {
                        let mut case = Case::new(dtype);
                        let x = case.input("2 h 7");
                        let k = case.constant(Array::ints(&[k]));
                        let y = case.layer("Trilu", attrs([("upper", Attr::Int(upper))]), &[x, k]);
                        let z = case.op("Trilu", &[x]);
                        case.output(y).output(z).check_fast(&[("h", h)]);
                    }
                }
            }
        }
    }
}
