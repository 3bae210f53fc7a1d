//! Matrix products with bias, residual and activations, on oneDNN.

use super::Answer;
use super::chain::{self, Channels};
use super::primitive::{Source, nothing};
use super::scope::Scope;
use super::weighted::{Weighted, lengthened};
use crate::error::Result;
use crate::network::attr::Read;
use crate::network::dtype::DType;
use crate::plan::layout::Layout;
use crate::plan::{Form, Kernel, Prepared, Request};
use crate::providers::cpu::handle::{Desc, Matmul as Spec};

/// MatMul with as much of what follows as the primitive can do, longest first.
pub fn offer(scope: &Scope) -> Answer {
    let ty = scope.output_type(0);
    if scope.op() != "MatMul" || !matches!(ty.dtype, DType::Float32 | DType::BFloat16) {
        return Ok(vec![]);
    }
    // Behind a product with a vector there is no axis that counts as channels.
    let matrices = [0, 1]
        .iter()
        .all(|&i| scope.input_type(i).is_some_and(|t| t.rank() >= 2));
    let mut epilogues = chain::epilogues(scope, Channels::Last);
    epilogues.retain(|epilogue| matrices || epilogue.steps.is_empty());
    let attrs = &scope.layer().attrs;
    Ok(Weighted::candidates(scope, &epilogues, Channels::Last, |weighted| {
        MatMul {
            weighted,
            transposed: [attrs.flag("transA"), attrs.flag("transB")],
        }
    }))
}

struct MatMul {
    weighted: Weighted,
    transposed: [bool; 2],
}

/// The operands as batches of matrices of one rank, and whether the right one is a single matrix.
pub struct Shapes {
    /// The left operand.
    pub a: Vec<usize>,
    /// The right operand.
    pub b: Vec<usize>,
    /// The result.
    pub result: Vec<usize>,
    /// Whether all left matrices meet the same right one.
    pub single: bool,
}

impl Shapes {
    /// Of operands of these shapes, the left one of which is transposed or not.
    pub fn of(transposed: bool, a: &[usize], b: &[usize], result: &[usize]) -> Self {
        let (mut a, mut b, mut result) = (a.to_vec(), b.to_vec(), result.to_vec());
        if b.len() == 1 {
            b.push(1);
            result.push(1);
        }
        if a.len() == 1 {
            a.insert(0, 1);
            result.insert(result.len() - 1, 1);
        }
        let single = b.len() == 2;
        if single && !transposed && a.len() > 2 {
            // All rows of all batches meet the same matrix.
            let rows = a[..a.len() - 1].iter().product();
            a = vec![rows, a[a.len() - 1]];
            result = vec![rows, result[result.len() - 1]];
        }
        let rank = result.len();
        let widen = |shape: &mut Vec<usize>| {
            let missing = rank.saturating_sub(shape.len());
            shape.splice(0..0, vec![1; missing]);
        };
        widen(&mut a);
        widen(&mut b);
        Self { a, b, result, single }
    }
}

impl Kernel for MatMul {
    fn name(&self) -> String {
        self.weighted.name.clone()
    }

    fn identity(&self) -> String {
        format!("MatMul {:?} {}", self.transposed, self.weighted.identity())
    }

    fn forms(&self) -> Vec<Form> {
        vec![self.weighted.form(Layout::Plain, Layout::Plain)]
    }

    fn in_place(&self) -> Vec<(usize, usize)> {
        self.weighted.in_place()
    }

    fn prepare(&self, request: &Request) -> Result<Prepared> {
        let (a, result) = (&request.inputs[0], &request.outputs[0]);
        if result.elements() == 0 {
            return Ok(nothing());
        }
        let b = self.weighted.weights_shape(request);
        let shapes = Shapes::of(self.transposed[0], &lengthened(&a.shape), &lengthened(b), &result.shape);
        let matrices = |dtype: DType, shape: &[usize], transposed: bool| {
            let desc = Desc::plain(dtype, shape)?;
            Ok::<_, crate::error::Error>(if transposed { desc.transposed() } else { desc })
        };
        let options = self.weighted.options(request, &shapes.result)?;
        let spec = Spec {
            a: matrices(a.dtype, &shapes.a, self.transposed[0])?,
            b: matrices(a.dtype, &shapes.b, self.transposed[1])?,
            bias: self.weighted.bias.dtype(),
            dst: matrices(result.dtype, &shapes.result, false)?,
            pack_b: shapes.single && matches!(self.weighted.weights, Source::Constant(_)),
        };
        let primitive = spec.create(self.weighted.weights.format().as_ref(), &options)?;
        if a.is_empty() {
            let bytes = |shape: &[usize]| a.dtype.size() * shape.iter().product::<usize>();
            let bytes = [&shapes.a, &shapes.b].map(|shape| bytes(shape));
            return self.weighted.instance_of_zeros(primitive, request, bytes);
        }
        self.weighted.instance(primitive, request)
    }
}

#[cfg(test)]
mod tests {
    use crate::network::attr::{Attr, attrs};
    use crate::network::dtype::DType;
    use crate::providers::cpu::kernels::testing::Case;

    #[test]
    fn constant_matrices_with_bias_and_activation() {
        for dtype in [DType::Float32, DType::BFloat16] {
            for (k, n, transposed) in [(17, 24, false), (32, 33, true), (1, 1, false)] {
                let mut case = Case::new(dtype);
                let x = case.input(&format!("b s {k}"));
                let skip = case.input(&format!("b s {n}"));
                let w = if transposed {
                    case.weights(&[n, k])
                } else {
                    case.weights(&[k, n])
                };
                let y = case.layer("MatMul", attrs([("transB", Attr::Int(transposed as i64))]), &[x, w]);
                let bias = case.weights(&[n]);
                let y = case.op("Add", &[bias, y]);
                let y = case.op("Gelu", &[y]);
                let y = case.op("Add", &[y, skip]);
                case.output(y).check_fast(&[("b", 2), ("s", 5)]);
                case.check_fast(&[("b", 1), ("s", 1)]);
                case.check_fast(&[("b", 1), ("s", 0)]);
            }
        }
    }

    #[test]
    fn a_gate_of_a_multiple_is_done_at_once() {
        let mut case = Case::new(DType::Float32);
        let (x, w) = (case.input("b 17"), case.weights(&[17, 24]));
        let y = case.op("MatMul", &[x, w]);
        let factor = case.scalar(1.702);
        let gate = case.op("Mul", &[y, factor]);
        let gate = case.op("Sigmoid", &[gate]);
        let y = case.op("Mul", &[y, gate]);
        let names = case.output(y).check_fast(&[("b", 5)]);
        assert!(names.contains(&"MatMul+Mul+Sigmoid+Mul".into()), "{names:?}");
    }

    #[test]
    fn batches_broadcast_and_transpose() {
        let mut case = Case::new(DType::Float32);
        let q = case.input("b 4 s 16");
        let k = case.input("b 4 s 16");
        let scores = case.layer("MatMul", attrs([("transB", Attr::Int(1))]), &[q, k]);
        let scale = case.scalar(8.0);
        let scores = case.op("Div", &[scores, scale]);
        let v = case.input("4 s 9");
        let y = case.op("MatMul", &[scores, v]);
        let z = case.layer("MatMul", attrs([("transA", Attr::Int(1))]), &[q, q]);
        case.output(y).output(z).check_fast(&[("b", 2), ("s", 7)]);
    }

    #[test]
    fn sums_without_terms_are_zero() {
        for transposed in [0, 1] {
            let mut case = Case::new(DType::Float32);
            let (x, w, b) = (case.input("3 k"), case.input("k 5"), case.input("5"));
            let attrs = attrs([("transA", Attr::Int(transposed))]);
            let x = if transposed == 1 { case.op("Transpose", &[x]) } else { x };
            let y = case.layer("MatMul", attrs, &[x, w]);
            let y = case.op("Add", &[y, b]);
            let y = case.op("Sigmoid", &[y]);
            case.output(y).check_fast(&[("k", 0)]);
            case.check_fast(&[("k", 2)]);
        }
    }

    #[test]
    fn vectors_on_either_side() {
        let mut case = Case::new(DType::Float32);
        let (m, row, column) = (case.input("3 s 6"), case.input("s"), case.input("6"));
        let a = case.op("MatMul", &[m, column]);
        let b = case.op("MatMul", &[row, m]);
        let c = case.op("MatMul", &[column, column]);
        case.output(a).output(b).output(c).check_fast(&[("s", 5)]);
    }
}
