//! The post-ops of a chain at concrete shapes.

use super::{Chain, End, Link};
use crate::error::Result;
use crate::network::dtype::DType;
use crate::network::quantization::Scheme;
use crate::plan::layout::{Layout, Operand};
use crate::providers::cpu::handle::{Binary, Desc, Eltwise, PostOp};

impl Chain {
    /// The post-ops, for a result of this shape with operands in this order.
    ///
    /// # Errors
    /// If oneDNN has no such element type.
    pub fn post_ops(&self, result: &[usize], operands: &[Operand]) -> Result<Vec<PostOp>> {
        let mut post = Post {
            ops: vec![],
            merges: self.of_8_bits,
        };
        let mut operands = operands.iter();
        let mut operand = || {
            operands
                .next()
                .cloned()
                .unwrap_or_else(|| Operand::dense(DType::Float32, vec![], Layout::Plain))
        };
        // A result that is seen under another shape (batches as rows) has operands seen so too.
        let seen = |operand: Operand| {
            Desc::of(&Operand {
                shape: result.to_vec(),
                ..operand
            })
        };
        for link in &self.links {
            match link {
                Link::Eltwise(e) => post.eltwise(*e),
                Link::Full(binary, _) => {
                    let operand = operand();
                    post.ops.push(match operand.in_place {
                        true => PostOp::Sum,
                        false => PostOp::Binary(*binary, seen(operand)?),
                    });
                }
                Link::Channel(binary, _) => {
                    let mut shape = vec![1; result.len()];
                    let axis = self.channels.of(result.len());
                    shape[axis] = result[axis];
                    post.ops
                        .push(PostOp::Binary(*binary, Desc::plain(operand().dtype, &shape)?));
                }
                Link::Tokens(_) => {
                    let mut shape = vec![1; result.len()];
                    let axis = result.len() - 2;
                    shape[axis] = result[axis];
                    post.ops
                        .push(PostOp::Binary(Binary::Mul, Desc::plain(operand().dtype, &shape)?));
                }
                Link::Residual(_, scheme) => {
                    let (operand, scale) = (operand(), scheme.scale / self.unit);
                    if operand.in_place {
                        post.ops.push(PostOp::Dequantized {
                            scale,
                            zero: scheme.zero,
                            dtype: scheme.dtype,
                        });
                        continue;
                    }
                    post.linear(1.0 / scale, -scheme.zero as f32);
                    post.ops.push(PostOp::Binary(Binary::Add, seen(operand)?));
                    post.linear(scale, 0.0);
                }
                Link::Rounded(scheme) => {
                    let scale = scheme.scale / self.unit;
                    let (low, high) = scheme.ends();
                    post.linear(1.0 / scale, 0.0);
                    post.ops.push(PostOp::Eltwise(Eltwise::Round));
                    post.eltwise(Eltwise::Clip { low, high });
                    post.linear(scale, 0.0);
                }
            }
        }
        if let Some(End::Quantized(scheme)) = self.end {
            post.finish(scheme, self.unit);
        }
        Ok(post.ops)
    }
}

/// Post-ops in the making.
struct Post {
    ops: Vec<PostOp>,
    /// Whether linear functions that follow one another become one, which rounds once less.
    merges: bool,
}

impl Post {
    fn eltwise(&mut self, eltwise: Eltwise) {
        match eltwise {
            Eltwise::Linear { scale, shift } if self.merges => self.linear(scale, shift),
            other => self.ops.push(PostOp::Eltwise(other)),
        }
    }

    /// `scale * x + shift`, together with such a function before it.
    fn linear(&mut self, scale: f32, shift: f32) {
        let last = match self.ops.last() {
            Some(&PostOp::Eltwise(Eltwise::Linear { scale, shift })) => Some((scale, shift)),
            _ => None,
        };
        let (mut scale, mut shift) = (scale, shift);
        if let Some((inner, by)) = last {
            self.ops.pop();
            (scale, shift) = (scale * inner, scale * by + shift);
        }
        if (scale, shift) != (1.0, 0.0) {
            self.ops.push(PostOp::Eltwise(Eltwise::Linear { scale, shift }));
        }
    }

    /// What is left to do before oneDNN rounds, halves to even, and saturates.
    fn finish(&mut self, scheme: Scheme, unit: f32) {
        self.linear(unit / scheme.scale, 0.0);
        // Halves go to the even quotient, which an odd zero point makes an odd number.
        if scheme.zero % 2 != 0 {
            self.ops.push(PostOp::Eltwise(Eltwise::Round));
        }
        self.linear(1.0, scheme.zero as f32);
        // Below zero nothing is left of it anyway.
        if let (0, [.., PostOp::Eltwise(Eltwise::Relu { slope: 0.0 })]) = (scheme.ends().0 as i32, self.ops.as_slice())
        {
            self.ops.pop();
        }
    }
}
