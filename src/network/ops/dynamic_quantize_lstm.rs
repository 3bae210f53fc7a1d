//! DynamicQuantizeLSTM.

use crate::error::{Error, Result};
use crate::network::array::Array;
use crate::network::dtype::DType;
use crate::network::op::{Decomposition, Evaluate, Infer, Lowering, OpDef, Sizes, TensorType};
use crate::network::ops::dynamic_quantize_linear::parameters;
use crate::network::ops::lstm;
use crate::network::ops::recurrent::{self, Kind};
use crate::network::ops::rewrite::Rewrite;
use crate::network::patch::Patch;
use crate::network::{LayerId, Network};

/// An LSTM whose weights are integers of 8 bits, and whose input and states are rounded to such (DynamicQuantizeLSTM of ONNX
/// Runtime).
pub static DEF: OpDef = OpDef {
    name: "DynamicQuantizeLSTM",
    doc: "An LSTM whose weights w [D, K, 4 * hidden] and r [D, hidden, 4 * hidden] stand for (q - zero) * scale, with a scale and a \
          zero point for each direction, [D], or each column, [D, 4 * hidden]. x as a whole, and each state of each sequence before it \
          meets r, are rounded to uint8 as DynamicQuantizeLinear does, sums are of integers (DynamicQuantizeLSTM of ONNX Runtime, \
          which takes the range of a state over the sequences of a batch)",
    inputs: &[
        "x",
        "w",
        "r",
        "w_scale",
        "w_zero_point",
        "r_scale",
        "r_zero_point",
        "b?",
        "sequence_lens?",
        "initial_h?",
        "initial_c?",
        "p?",
    ],
    attrs: &[
        recurrent::ACTIVATIONS,
        recurrent::ALPHA,
        recurrent::BETA,
        recurrent::CLIP,
        recurrent::DIRECTION,
        recurrent::HIDDEN_SIZE,
        recurrent::INPUT_FORGET,
        recurrent::LAYOUT,
    ],
    infer,
    evaluate,
    lowering: Lowering::BOUNDED,
    multiplications: Some(|sizes: &Sizes| {
        let steps = sizes.input(0)?.get(..2)?.iter().product::<f64>();
        Some(steps * (sizes.product(1, 0)? + sizes.product(2, 0)?))
    }),
    decomposition: Decomposition::WithoutKernel(decompose),
    ..OpDef::PLAIN
};

/// The inputs that are weights, scales and zero points of the input, and of the states.
pub const STORED: [[usize; 3]; 2] = [[1, 3, 4], [2, 5, 6]];
/// The first of the inputs that an LSTM has too, behind its weights.
const BIAS: usize = 7;

fn infer(infer: &Infer) -> Result<Vec<TensorType>> {
    let x = infer.input(0)?;
    if x.dtype != DType::Float32 {
        return Err(Error::dtype("the input must be a float32 tensor").got(x.describe()));
    }
    let mut inputs = vec![Some(x.clone())];
    for [weights, scale, zero] in STORED {
        let (w, scale, zero) = (infer.input(weights)?, infer.input(scale)?, infer.input(zero)?);
        let &[directions, rows, columns] = &w.shape.as_slice() else {
            return Err(Error::shape("the weights do not fit")
                .expected("rank 3")
                .got(w.describe()));
        };
        if !matches!(w.dtype, DType::Int8 | DType::UInt8) || zero.dtype != w.dtype || scale.dtype != DType::Float32 {
            return Err(
                Error::dtype("weights, scales and zero points have dtypes that do not go together")
                    .expected("int8 or uint8 weights, zero points of the same, and float32 scales")
                    .got(format!("{}, {} and {}", w.dtype, zero.dtype, scale.dtype)),
            );
        }
        for parameter in [scale, zero] {
            let wanted = [directions.clone(), columns.clone()];
            if parameter.rank() == 0 || parameter.rank() > 2 {
                return Err(Error::shape("a scale or a zero point does not fit")
                    .expected("one number for each direction, or for each of its columns")
                    .got(parameter.describe()));
            }
            for (have, want) in parameter.shape.iter().zip(&wanted) {
                infer.require_equal(want, have, "a scale or a zero point does not fit")?;
            }
        }
        let shape = [directions, columns, rows].map(Clone::clone);
        inputs.push(Some(TensorType::new(DType::Float32, shape)));
    }
    inputs.extend((BIAS..BIAS + 5).map(|at| infer.optional(at).cloned()));
    let lstm = Infer {
        inputs: &inputs,
        constants: &[],
        guards: Default::default(),
        ..*infer
    };
    let outputs = recurrent::infer(&lstm, Kind::Lstm)?;
    infer.guards.borrow_mut().extend(lstm.guards.into_inner());
    Ok(outputs)
}

/// The weights as numbers, as an LSTM has them: `[D, 4 * hidden, K]`.
fn numbers(weights: &Array, scale: &Array, zero: &Array) -> Result<Array> {
    let &[directions, rows, columns] = weights.shape() else {
        return Err(Error::internal("weights of an LSTM have three dimensions"));
    };
    let (codes, scales, zeros) = (weights.to_f64(), scale.to_f64(), zero.to_f64());
    let of = |parameters: &[f64], direction: usize, column: usize| match parameters.len() == directions {
        true => parameters[direction],
        false => parameters[direction * columns + column],
    };
    let mut values = Vec::with_capacity(codes.len());
    for direction in 0..directions {
        for column in 0..columns {
            let (scale, zero) = (of(&scales, direction, column), of(&zeros, direction, column));
            values.extend((0..rows).map(|row| (codes[(direction * rows + row) * columns + column] - zero) * scale));
        }
    }
    Array::from_f64(DType::Float32, vec![directions, columns, rows], &values)
}

/// Numbers as the integers that stand for them by their range, times their scale.
fn round(values: &mut [f64]) {
    let ends = |(low, high): (f32, f32), &v: &f64| (low.min(v as f32), high.max(v as f32));
    let (low, high) = values.iter().fold((0f32, 0f32), ends);
    let (scale, zero) = parameters(low, high);
    for value in values {
        let code = ((*value as f32 / scale).round_ties_even() + zero).clamp(0.0, 255.0);
        *value = f64::from(code - zero) * f64::from(scale);
    }
}

fn evaluate(e: &Evaluate) -> Result<Vec<Array>> {
    let x = e.input(0)?;
    let mut values = x.to_f64();
    round(&mut values);
    let mut inputs = vec![Some(Array::from_f64(DType::Float64, x.shape().to_vec(), &values)?)];
    for [weights, scale, zero] in STORED {
        inputs.push(Some(numbers(e.input(weights)?, e.input(scale)?, e.input(zero)?)?));
    }
    inputs.extend((BIAS..BIAS + 5).map(|at| e.optional(at).cloned()));
    let lstm = Evaluate { inputs: &inputs, ..*e };
    recurrent::evaluate_rounding(&lstm, Kind::Lstm, round)
}

/// An LSTM of float32, with the weights written out as numbers.
fn decompose(network: &Network, id: LayerId) -> Result<Patch<'_>> {
    let mut rewrite = Rewrite::of(network, id);
    let mut inputs = vec![Some(rewrite.input(0)?)];
    for at in STORED {
        let mut arrays = vec![];
        for at in at {
            let found = network[rewrite.input(at)?].constant();
            arrays.push(found.ok_or_else(|| {
                Error::unsupported(format!("input {at} of DynamicQuantizeLSTM is not constant"))
                    .layer(&network[id].name)
                    .hint("store weights, scales and zero points in the model")
            })?);
        }
        let weights = numbers(arrays[0], arrays[1], arrays[2])?;
        inputs.push(Some(rewrite.constant(weights)));
    }
    inputs.extend((BIAS..BIAS + 5).map(|at| rewrite.optional(at)));
    let results = rewrite.apply_optional(&lstm::DEF, &inputs)?;
    rewrite.finish_all(&results)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::attr::{Attrs, complete};
    use crate::network::reference::evaluate_op;

    /// Weights of the input and of the states, with scales and zero points.
    fn given() -> Vec<Array> {
        let array = |dtype, shape: &[usize], of: &dyn Fn(usize) -> f64| {
            let values: Vec<f64> = (0..shape.iter().product()).map(of).collect();
            Array::from_f64(dtype, shape.to_vec(), &values).unwrap()
        };
        vec![
            array(DType::Float32, &[3, 2, 5], &|i| (i as f64 * 0.37).sin()),
            array(DType::UInt8, &[1, 5, 8], &|i| (i * 53 % 256) as f64),
            array(DType::Int8, &[1, 2, 8], &|i| (i * 29 % 256) as f64 - 128.0),
            array(DType::Float32, &[1], &|_| 0.004),
            array(DType::UInt8, &[1], &|_| 127.0),
            array(DType::Float32, &[1, 8], &|i| 0.002 + 0.0005 * i as f64),
            array(DType::Int8, &[1, 8], &|_| 0.0),
        ]
    }

    #[test]
    fn it_is_an_lstm_but_for_what_is_rounded() {
        let (arrays, attrs) = (given(), complete(DEF.attrs, Attrs::new()).unwrap());
        let inputs: Vec<_> = arrays.iter().cloned().map(Some).collect();
        let got = evaluate_op(&DEF, &attrs, &inputs).unwrap();
        let mut network = Network::new("");
        let x = network
            .add_input("x", DType::Float32, [3, 2, 5].map(|d: i64| d.into()).to_vec())
            .unwrap();
        let constants = arrays[1..]
            .iter()
            .map(|array| Some(network.add_constant("c", array.clone())));
        let all: Vec<_> = std::iter::once(Some(x)).chain(constants.collect::<Vec<_>>()).collect();
        let outputs = network.add_layer("layer", &DEF, attrs, &all).unwrap();
        network.mark_output(outputs[0], "y").unwrap();
        let (id, _) = network.producer(outputs[0]).unwrap();
        decompose(&network, id).unwrap().finish().apply(&mut network);
        let want = crate::network::reference::evaluate(&network, &arrays[..1]).unwrap();
        let (got, want) = (got[0].to_f64(), want[0].to_f64());
        let greatest = |values: &mut dyn Iterator<Item = f64>| values.fold(0.0, |a: f64, b| a.max(b.abs()));
        let off = greatest(&mut got.iter().zip(&want).map(|(a, b)| a - b));
        assert!(off > 0.0 && off < 0.01 * greatest(&mut want.iter().copied()), "{off}");
    }
}
