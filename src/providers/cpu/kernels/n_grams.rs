//! TfIdfVectorizer: rows of tokens, the n-grams looked up in a table that is made once.

use super::parallel::{self, Shared};
use super::scope::{Scope, uniform_forms};
use super::{Answer, Why};
use crate::error::Result;
use crate::network::array::require;
use crate::network::ops::tf_idf_vectorizer::Pool;
use crate::plan::layout::{Layout, Operand};
use crate::plan::{Call, Form, Kernel, Launcher, Prepared, Request};
use crate::providers::cpu::simd::convert;
use std::ops::Range;
use std::sync::Arc;

/// Tokens that a thread should at least get.
const GRAIN: usize = 1 << 10;

/// TfIdfVectorizer of integers.
pub fn offer(scope: &Scope) -> Answer {
    if scope.op() != "TfIdfVectorizer" {
        return Ok(vec![]);
    }
    let attrs = &scope.layer().attrs;
    let kernel = Grams {
        identity: format!("TfIdfVectorizer {attrs:?}"),
        pool: Arc::new(Pool::new(attrs).map_err(|e| Why::new(e.message()))?),
    };
    Ok(vec![scope.alone(kernel, &[0])])
}

struct Grams {
    identity: String,
    pool: Arc<Pool>,
}

impl Kernel for Grams {
    fn name(&self) -> String {
        "TfIdfVectorizer".into()
    }

    fn identity(&self) -> String {
        self.identity.clone()
    }

    fn forms(&self) -> Vec<Form> {
        uniform_forms(&[Layout::Plain], 1, 1)
    }

    fn prepare(&self, request: &Request) -> Result<Prepared> {
        // Each thread counts in a row of its own, and holds one of the input's.
        let row = request.inputs[0].shape.last().copied().unwrap_or(1) + self.pool.width();
        require(row.saturating_mul(size_of::<f64>() * request.threads))?;
        Ok(Prepared::new(
            "table of n-grams",
            Counting {
                pool: self.pool.clone(),
                x: request.inputs[0].clone(),
                y: request.outputs[0].clone(),
            },
        ))
    }
}

struct Counting {
    pool: Arc<Pool>,
    x: Operand,
    y: Operand,
}

impl Launcher for Counting {
    fn launch(&mut self, call: &Call) -> Result<()> {
        let (this, call) = (&*self, Shared(call));
        let length = this.x.shape.last().copied().unwrap_or(1);
        let rows = this.y.elements() / this.pool.width().max(1);
        parallel::over(rows, GRAIN / length.max(1), |range| {
            // SAFETY: the planner gives addresses that hold the operands of the request.
            unsafe { this.work(range, length, call.get()) }
        })
    }
}

impl Counting {
    unsafe fn work(&self, rows: Range<usize>, length: usize, call: &Call) {
        let width = self.pool.width();
        let (mut tokens, mut y) = (vec![0i64; length], vec![0f64; width]);
        for row in rows {
            y.fill(0.0);
            // SAFETY: a row of the input has `length` tokens, one of the output `width` numbers.
            unsafe {
                let from = call.inputs[0].add(row * length * self.x.dtype.size());
                convert::to_i64(self.x.dtype, from, tokens.as_mut_ptr(), length);
                self.pool.apply(&tokens, &mut y);
                let to = call.outputs[0].cast::<f32>().add(row * width);
                y.iter().enumerate().for_each(|(i, &y)| to.add(i).write(y as f32));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::network::attr::{Attr, attrs};
    use crate::network::dtype::DType;
    use crate::providers::cpu::kernels::testing::Case;

    #[test]
    fn rows_are_counted_each_by_itself() {
        for dtype in [DType::Int32, DType::Int64] {
            let mut case = Case::new(dtype);
            let x = case.input("n 40");
            let how = attrs([
                ("mode", Attr::Text("TFIDF".into())),
                ("pool_int64s", Attr::Ints(vec![1, 2, -3, 1, 2, 2, 0])),
                ("ngram_counts", Attr::Ints(vec![0, 3])),
                ("ngram_indexes", Attr::Ints(vec![0, 1, 4, 3, 2])),
                ("weights", Attr::Floats(vec![0.5, 2.0, 1.0, 3.0, 4.0])),
                ("min_gram_length", Attr::Int(1)),
                ("max_gram_length", Attr::Int(2)),
                ("max_skip_count", Attr::Int(3)),
            ]);
            let y = case.layer("TfIdfVectorizer", how, &[x]);
            case.output(y).check_fast(&[("n", 70)]);
            case.check_fast(&[("n", 0)]);
        }
    }
}
