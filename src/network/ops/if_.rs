//! If.

use crate::error::{Error, Result};
use crate::network::array::Array;
use crate::network::attr::{Preset, Read, attr};
use crate::network::dtype::DType;
use crate::network::op::{Evaluate, Infer, Lowering, OpDef, TensorType, Uint64};
use crate::network::ops::control::{self, Inside, Known};

/// One of two networks, as a condition says (ONNX If).
pub static DEF: OpDef = OpDef {
    name: "If",
    doc: "The results of one of two networks, as a condition says; the inputs are the condition, then what each network \
          captures and the sizes that it needs (ONNX If)",
    inputs: &["condition", "captured*"],
    attrs: &[
        attr(
            "then_branch",
            Preset::RequiredBody,
            "what runs where the condition holds",
        ),
        attr("else_branch", Preset::RequiredBody, "what runs where it does not"),
    ],
    infer,
    evaluate,
    lowering: Lowering::BOUNDED,
    uint64: Uint64::Exact,
    ..OpDef::PLAIN
};

fn infer(infer: &Infer) -> Result<Vec<TensorType>> {
    let condition = infer.input(0)?;
    if condition.dtype != DType::Bool || !condition.elements().is(1) {
        return Err(Error::dtype("the condition must be one truth value").got(condition.describe()));
    }
    let (then, next) = Inside::of(infer, "then_branch", 1)?;
    let (other, end) = Inside::of(infer, "else_branch", next)?;
    let inner = then.network.inputs().len() - 1;
    (0..inner).try_for_each(|i| then.check(i, 1 + i, false))?;
    (0..end - next - 1).try_for_each(|i| other.check(i, next + i, false))?;
    let (left, right) = (then.results(), other.results());
    if left.len() != right.len() {
        return Err(Error::invalid("the branches give different numbers of results")
            .expected(left.len().to_string())
            .got(right.len().to_string()));
    }
    let joined = left.into_iter().zip(right).enumerate();
    let joined = joined.map(|(at, (a, b))| join(a, b).map_err(|e| e.tensor(&then.network.outputs()[at].name)));
    Ok(control::typed(infer, joined.collect::<Result<_>>()?))
}

/// What holds of a result whichever branch gives it.
fn join(a: Known, b: Known) -> Result<Known> {
    if a.0 != b.0 || a.1.len() != b.1.len() {
        return Err(Error::unsupported("the branches give tensors of different dtypes or numbers of dimensions")
            .expected(format!("{}, {} dimensions", a.0, a.1.len()))
            .got(format!("{}, {} dimensions", b.0, b.1.len()))
            .hint("give the shapes of the inputs as numbers, so that the condition is known, or both branches one rank"));
    }
    let dims = a.1.into_iter().zip(b.1).map(|(a, b)| if a == b { a } else { None });
    Ok((a.0, dims.collect()))
}

fn evaluate(e: &Evaluate) -> Result<Vec<Array>> {
    let then = e.attrs.body("then_branch").0.inputs().len();
    if control::truth(e.input(0)?)? {
        e.run("then_branch", &control::captured(&e.inputs[1..1 + then])?)
    } else {
        e.run("else_branch", &control::captured(&e.inputs[1 + then..])?)
    }
}
