//! MatMulNBits.

use crate::error::{Error, Result};
use crate::network::array::Array;
use crate::network::attr::{Attr, Attrs, Preset, Read, attr};
use crate::network::dtype::DType;
use crate::network::op::{Decomposition, Evaluate, Infer, Lowering, OpDef, Sizes, TensorType};
use crate::network::ops::rewrite::Rewrite;
use crate::network::ops::{matmul, tf32};
use crate::network::patch::Patch;
use crate::network::{LayerId, Network};

/// Product with weights that are stored in few bits, with a scale for each block along the inner axis (MatMulNBits of ONNX Runtime).
pub static DEF: OpDef = OpDef {
    name: "MatMulNBits",
    doc: "Matrix product a [..., K] and [K, N] weights of 2, 4 or 8 bits: b [N, blocks, bytes] holds block_size of them in a row, \
          the first in the lowest bits, and stands for (b - zero_points) * scales, where scales has a number for each of N * blocks, and \
          zero_points is as scales or packed as b, ceil(blocks * bits / 8) bytes for each of N; without, it is 2^(bits - 1). With \
          accuracy_level 4, a is rounded to 8 bits by the greatest of each block (MatMulNBits of ONNX Runtime, whose bias is an \
          Add here)",
    inputs: &["a", "b", "scales", "zero_points?"],
    attrs: &[
        attr("K", Preset::RequiredInt, "rows of the weights, which are summed over"),
        attr("N", Preset::RequiredInt, "columns of the weights"),
        attr("bits", Preset::Int(4), "bits of a weight: 2, 4 or 8"),
        attr("block_size", Preset::RequiredInt, "weights along K that share a scale"),
        attr(
            "accuracy_level",
            Preset::Int(0),
            "4: a may be rounded to integers of 8 bits; else the arithmetic is that of its dtype",
        ),
        tf32::TF32,
    ],
    infer,
    evaluate,
    // Scales stay as they are: there are few of them.
    lowering: Lowering::SUMS.operands(1),
    multiplications: Some(|sizes: &Sizes| Some(sizes.given() * sizes.input(0)?.last().unwrap_or(&1.0))),
    decomposition: Decomposition::WithoutKernel(decompose),
    ..OpDef::PLAIN
};

/// How the weights lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Geometry {
    /// Rows of the weights, which are summed over.
    pub k: usize,
    /// Columns.
    pub n: usize,
    /// Bits of a weight.
    pub bits: usize,
    /// Weights that share a scale.
    pub block: usize,
}

impl Geometry {
    /// What the attributes say.
    ///
    /// # Errors
    /// If they are out of range.
    pub fn of(attrs: &Attrs) -> Result<Self> {
        let size = |name: &str| usize::try_from(attrs.int(name)).ok().filter(|&v| v > 0);
        let bits = size("bits").filter(|bits| [2, 4, 8].contains(bits));
        match (size("K"), size("N"), bits, size("block_size")) {
            (Some(k), Some(n), Some(bits), Some(block)) if (block * bits).is_multiple_of(8) => {
                Ok(Self { k, n, bits, block })
            }
            _ => Err(Error::invalid("the attributes of MatMulNBits are out of range")
                .expected("2, 4 or 8 bits, positive K, N and block_size, and blocks of whole bytes")
                .got(format!("{attrs:?}"))),
        }
    }

    /// Blocks of a column.
    pub fn blocks(&self) -> usize {
        self.k.div_ceil(self.block)
    }

    /// The number that all zero points are where none are given.
    pub fn middle(&self) -> f64 {
        f64::from(1u32 << (self.bits - 1))
    }

    /// Bytes of the zero points of a column, where they are packed.
    fn zero_bytes(&self) -> usize {
        (self.blocks() * self.bits).div_ceil(8)
    }

    /// The integer at a place of packed ones.
    fn code(&self, packed: &[u8], at: usize) -> u8 {
        let bit = at * self.bits;
        packed[bit / 8] >> (bit % 8) & (((1u32 << self.bits) - 1) as u8)
    }

    /// The integers of a column, up to the end of its last block.
    pub fn codes(&self, b: &Array, column: usize, into: &mut [u8]) {
        let bytes = self.blocks() * self.block * self.bits / 8;
        let packed = &b.bytes()[column * bytes..][..bytes];
        into.iter_mut()
            .enumerate()
            .for_each(|(at, code)| *code = self.code(packed, at));
    }

    /// The zero point of each block, column by column; none where all are the middle.
    pub fn zeros(&self, zeros: Option<&Array>) -> Option<Vec<f64>> {
        let zeros = zeros?;
        if zeros.dtype() != DType::UInt8 {
            return Some(zeros.to_f64());
        }
        let columns = zeros.bytes().chunks_exact(self.zero_bytes()).take(self.n);
        let of = |packed| (0..self.blocks()).map(move |block| f64::from(self.code(packed, block)));
        Some(columns.flat_map(of).collect())
    }

    /// The weights as numbers, `[N, K]`.
    ///
    /// # Errors
    /// If there is no memory.
    fn numbers(&self, dtype: DType, b: &Array, scales: &Array, zeros: Option<&Array>) -> Result<Array> {
        let (scales, zeros) = (scales.to_f64(), self.zeros(zeros));
        let size = dtype.size();
        Array::filled(dtype, vec![self.n, self.k], |first, bytes| {
            let mut codes = vec![0; self.blocks() * self.block];
            let mut column = usize::MAX;
            for (i, slot) in bytes.chunks_exact_mut(size).enumerate() {
                let at = first + i;
                if at / self.k != column {
                    column = at / self.k;
                    self.codes(b, column, &mut codes);
                }
                let block = column * self.blocks() + at % self.k / self.block;
                let zero = zeros.as_ref().map_or(self.middle(), |zeros| zeros[block]);
                let number = (f64::from(codes[at % self.k]) - zero) * scales[block];
                crate::network::array::store_f64s(dtype, &[number], slot);
            }
        })
    }
}

fn infer(infer: &Infer) -> Result<Vec<TensorType>> {
    let at = Geometry::of(infer.attrs)?;
    let (a, b, scales) = (infer.input(0)?, infer.input(1)?, infer.input(2)?);
    if !a.dtype.is_float() || !scales.dtype.is_float() || b.dtype != DType::UInt8 {
        return Err(Error::dtype("MatMulNBits multiplies numbers with packed bytes")
            .expected("floats, uint8 and scales that are floats")
            .got(format!("{}, {} and {}", a.dtype, b.dtype, scales.dtype)));
    }
    let count = at.n * at.blocks();
    let mut wanted = vec![(b, "b", count * at.block * at.bits / 8), (scales, "scales", count)];
    if let Some(zeros) = infer.optional(3) {
        let packed = zeros.dtype == DType::UInt8;
        if !packed && !zeros.dtype.is_float() {
            return Err(Error::dtype("zero_points has another dtype")
                .expected("uint8, or a float")
                .got(zeros.dtype.name()));
        }
        let bytes = at.n * at.zero_bytes();
        wanted.push((zeros, "zero_points", if packed { bytes } else { count }));
    }
    for (ty, name, elements) in wanted {
        infer.require_equal(
            &(elements as i64).into(),
            &ty.elements(),
            &format!("{name} has another size"),
        )?;
    }
    let Some((inner, outer)) = a.shape.split_last() else {
        return Err(Error::shape("a scalar can't be multiplied as a matrix"));
    };
    infer.require_equal(&(at.k as i64).into(), inner, "the last dimension of a is not K")?;
    let mut shape = outer.to_vec();
    shape.push((at.n as i64).into());
    Ok(vec![TensorType::new(a.dtype, shape)])
}

fn evaluate(e: &Evaluate) -> Result<Vec<Array>> {
    let at = Geometry::of(e.attrs)?;
    let mut a = e.input(0)?.to_f64();
    if e.attrs.int("accuracy_level") == 4 {
        let blocks = a.chunks_mut(at.k).flat_map(|row| row.chunks_mut(at.block));
        blocks.for_each(rounded);
    }
    let weights = at
        .numbers(DType::Float64, e.input(1)?, e.input(2)?, e.optional(3))?
        .to_f64();
    let dot = |row: &[f64], column: &[f64]| row.iter().zip(column).map(|(x, w)| x * w).sum::<f64>();
    let rows = a.chunks_exact(at.k);
    let values: Vec<f64> = rows
        .flat_map(|row| weights.chunks_exact(at.k).map(move |column| dot(row, column)))
        .collect();
    e.output(&values)
}

/// A block as the integers of 8 bits, times their scale, that stand for it; what is not finite makes it NaN.
fn rounded(block: &mut [f64]) {
    let (scale, inverse) = scale(block.iter().map(|&x| x as f32));
    for x in block {
        *x = f64::from((*x as f32 * inverse).round_ties_even()) * f64::from(scale);
    }
}

/// The scale of a block that is rounded to 8 bits, and its inverse.
pub fn scale(block: impl Iterator<Item = f32>) -> (f32, f32) {
    let (mut greatest, mut poison) = (0f32, 0f32);
    for x in block {
        greatest = greatest.max(x.abs());
        poison += x * 0.0;
    }
    let scale = greatest / 127.0 + poison;
    (scale, if scale == 0.0 { 0.0 } else { 1.0 / scale })
}

/// A product with the weights written out as numbers.
fn decompose(network: &Network, id: LayerId) -> Result<Patch<'_>> {
    let mut rewrite = Rewrite::of(network, id);
    let at = Geometry::of(rewrite.attrs())?;
    let constant = |at: usize| -> Result<Option<&Array>> {
        let Some(tensor) = network[id].inputs.get(at).copied().flatten() else {
            return Ok(None);
        };
        let found = network[tensor].constant();
        found.map(Some).ok_or_else(|| {
            Error::unsupported(format!("input {at} of MatMulNBits is not constant"))
                .layer(&network[id].name)
                .hint("store the packed weights, scales and zero points in the model")
        })
    };
    let (Some(b), Some(scales)) = (constant(1)?, constant(2)?) else {
        return Err(Error::invalid("MatMulNBits has no weights").layer(&network[id].name));
    };
    let a = rewrite.input(0)?;
    let weights = at.numbers(rewrite.ty(a).dtype, b, scales, constant(3)?)?;
    let weights = rewrite.constant(weights);
    let mut pairs = vec![("transA", 0), ("transB", 1)];
    pairs.extend(tf32::is_allowed(&network[id]).then_some((tf32::TF32.name, 1)));
    let attrs = pairs.into_iter().map(|(name, value)| (name.into(), Attr::Int(value)));
    let result = rewrite.apply_by(&matmul::DEF, attrs.collect(), &[a, weights])?;
    rewrite.finish(result)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::attr::{attrs, complete};
    use crate::network::reference::evaluate_op;

    /// Two columns of three weights, in blocks of two.
    fn given(level: i64) -> (Attrs, Vec<Option<Array>>) {
        let numbers = [("K", 3), ("N", 2), ("block_size", 2), ("accuracy_level", level)];
        let attrs = complete(DEF.attrs, attrs(numbers.map(|(name, value)| (name, Attr::Int(value))))).unwrap();
        let a = Array::from_f64(DType::Float32, vec![1, 3], &[1.0, 100.4, 1.0]).unwrap();
        let b = Array::from_bytes(DType::UInt8, vec![2, 2, 1], &[0x79, 0x0A, 0x88, 0x0F]).unwrap();
        let scales = Array::from_f64(DType::Float32, vec![4], &[1.0, 2.0, 3.0, 4.0]).unwrap();
        (attrs, vec![Some(a), Some(b), Some(scales)])
    }

    #[test]
    fn the_first_weight_lies_in_the_lowest_bits_and_the_middle_is_zero() {
        let (attrs, given) = given(0);
        let out = evaluate_op(&DEF, &attrs, &given).unwrap()[0].to_f64();
        // 9, 7 | 10 and 8, 8 | 15, less 8.
        assert!((out[0] - (1.0 - f64::from(100.4f32) + 4.0)).abs() < 1e-4, "{out:?}");
        assert_eq!(out[1], 28.0);
    }

    #[test]
    fn without_kernel_weights_are_written_out() {
        let (attrs, given) = given(0);
        let want = evaluate_op(&DEF, &attrs, &given).unwrap()[0].to_f64();
        let mut network = Network::new("");
        let a = network
            .add_input("a", DType::Float32, vec![1i64.into(), 3i64.into()])
            .unwrap();
        let constants = given[1..]
            .iter()
            .flatten()
            .map(|array| Some(network.add_constant("c", array.clone())));
        let inputs: Vec<_> = std::iter::once(Some(a)).chain(constants.collect::<Vec<_>>()).collect();
        let out = network.add_layer("layer", &DEF, attrs, &inputs).unwrap()[0];
        network.mark_output(out, "y").unwrap();
        let (id, _) = network.producer(out).unwrap();
        decompose(&network, id).unwrap().finish().apply(&mut network);
        assert!(network.layers().all(|(_, layer)| layer.op.name == "MatMul"));
        let got = crate::network::reference::evaluate(&network, &[given[0].clone().unwrap()]).unwrap();
        assert_eq!(got[0].to_f64(), want);
    }

    #[test]
    fn zero_points_are_packed_or_numbers() {
        let (attrs, mut given) = given(0);
        let packed = Array::from_bytes(DType::UInt8, vec![2, 1], &[0x87, 0x80]).unwrap();
        let numbers = Array::from_f64(DType::Float32, vec![4], &[7.0, 8.0, 0.0, 8.0]).unwrap();
        let mut results = vec![];
        for zeros in [packed, numbers] {
            given.truncate(3);
            given.push(Some(zeros));
            results.push(evaluate_op(&DEF, &attrs, &given).unwrap()[0].to_f64());
        }
        assert_eq!(results[0], results[1]);
        assert_eq!(results[0][0], 2.0 + 4.0);
    }

    #[test]
    fn level_4_rounds_by_the_greatest_of_a_block() {
        let (attrs, given) = given(4);
        let out = evaluate_op(&DEF, &attrs, &given).unwrap()[0].to_f64();
        // 100.4 is 127 steps, so that 1.0 is one step of 0.79.
        let step = f64::from(100.4f32 / 127.0);
        assert!((out[0] - (step - 127.0 * step + 4.0)).abs() < 1e-4, "{out:?}");
    }
}
