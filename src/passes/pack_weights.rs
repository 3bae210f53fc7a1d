//! Keeps weights that alone are quantized in few bits, up to the product that reads them.

use super::matching::{given_by, input};
use super::{Found, Pass, Settings, rewrite_with, rule_if, rule_if_some};
use crate::error::Result;
use crate::network::array::Array;
use crate::network::attr::{Attr, Attrs, Read};
use crate::network::dtype::DType;
use crate::network::ops::{cast, matmul_n_bits};
use crate::network::patch::Patch;
use crate::network::{LayerId, Network, TensorId};

/// See [`Pass::doc`].
pub static PASS: Pass = Pass {
    name: "pack_weights",
    doc: "MatMul of floats and Dequantize of constants, with a scale for each column or for blocks along the inner axis => MatMulNBits, \
          with Settings::packed_weights",
    apply,
};

fn apply(network: &mut Network, settings: &Settings) -> Result<usize> {
    if !settings.packed_weights {
        return Ok(0);
    }
    rewrite_with(network, |network, id| Ok(rule(network, id)?.map(Patch::finish)))
}

fn rule(network: &Network, id: LayerId) -> Found<'_> {
    let layer = &network[id];
    rule_if!(layer.op.name == "MatMul" && !layer.attrs.flag("transA"));
    rule_if_some!(a = input(layer, 0));
    // Products of 8 bits on either side have kernels of their own.
    rule_if!(given_by(network, a, "DequantizeLinear").is_none());
    rule_if_some!(b = input(layer, 1));
    // Where products are of 16 bits, weights that stay in few bits need not be rounded to them.
    let cast = given_by(network, b, "Cast").filter(|cast| !cast::rounds(&cast.attrs));
    let b = cast.and_then(|cast| input(cast, 0)).unwrap_or(b);
    rule_if_some!(weights = Weights::of(network, b, layer.attrs.flag("transB")));
    rule_if_some!(packed = weights.packed());
    let mut patch = Patch::new(network);
    let sizes = packed.sizes.map(|(name, size)| (name.into(), Attr::Int(size as i64)));
    let attrs: Attrs = sizes.into();
    let arrays = [Some(packed.integers), Some(packed.scales), packed.zeros];
    let constants = arrays.map(|array| array.map(|array| patch.constant(array)));
    let inputs = [&[Some(a)][..], &constants].concat();
    let new = patch.add_named("", &matmul_n_bits::DEF, attrs, &inputs)?[0];
    patch.shunt(layer.outputs[0], new)?;
    Ok(Some(patch))
}

/// A scale or zero point of a matrix of weights, with the index that repeats those of blocks, where there is one.
struct Parameter {
    values: Vec<f64>,
    /// 1 along an axis where it is the same everywhere.
    shape: [usize; 2],
    repeated: Option<(usize, Vec<i64>)>,
}

impl Parameter {
    /// A constant, or a Gather of constants that repeats the numbers of blocks.
    fn of(network: &Network, tensor: TensorId) -> Option<Self> {
        let (source, repeated) = match network[tensor].constant() {
            Some(array) => (array, None),
            None => {
                let gather = given_by(network, tensor, "Gather")?;
                let index = network[input(gather, 1)?]
                    .constant()
                    .filter(|index| index.shape().len() == 1)?;
                let source = network[input(gather, 0)?]
                    .constant()
                    .filter(|source| source.shape().len() == 2)?;
                let axis = network[tensor].ty.axis(gather.attrs.int("axis")).ok()?;
                (source, Some((axis, index.to_i64())))
            }
        };
        let shape = match source.shape() {
            [] => [1, 1],
            &[columns] => [1, columns],
            &[rows, columns] => [rows, columns],
            _ => return None,
        };
        let fits = |(axis, index): &(usize, Vec<i64>)| {
            let extent = shape[*axis] as i64;
            index.iter().all(|at| (0..extent).contains(at))
        };
        repeated.as_ref().is_none_or(fits).then(|| Self {
            values: source.to_f64(),
            shape,
            repeated,
        })
    }

    /// The one of a weight.
    fn at(&self, mut place: [usize; 2]) -> f64 {
        if let Some((axis, index)) = &self.repeated {
            place[*axis] = index[place[*axis]] as usize;
        }
        let [row, column] = [0, 1].map(|axis| if self.shape[axis] == 1 { 0 } else { place[axis] });
        self.values[row * self.shape[1] + column]
    }
}

/// Constants that stand for a matrix of weights, `[N, K]` or `[K, N]`.
struct Weights<'n> {
    transposed: bool,
    shape: [usize; 2],
    codes: &'n Array,
    scales: Parameter,
    zeros: Option<Parameter>,
}

/// Weights, packed.
struct Packed {
    sizes: [(&'static str, usize); 4],
    integers: Array,
    scales: Array,
    zeros: Option<Array>,
}

impl<'n> Weights<'n> {
    fn of(network: &'n Network, b: TensorId, transposed: bool) -> Option<Self> {
        let layer = given_by(network, b, "DequantizeLinear")?;
        let codes = network[input(layer, 0)?].constant()?;
        let narrow = matches!(codes.dtype(), DType::Int8 | DType::UInt8 | DType::Int4 | DType::UInt4);
        let &[rows, columns] = codes.shape() else { return None };
        let zeros = match input(layer, 2) {
            Some(zeros) => Some(Parameter::of(network, zeros)?),
            None => None,
        };
        let scales = Parameter::of(network, input(layer, 1)?)?;
        (narrow && !codes.is_empty()).then_some(Self {
            transposed,
            shape: [rows, columns],
            codes,
            scales,
            zeros,
        })
    }

    /// Columns and rows of the product.
    fn extents(&self) -> (usize, usize) {
        let [rows, columns] = self.shape;
        if self.transposed {
            (rows, columns)
        } else {
            (columns, rows)
        }
    }

    /// The place of the weight of a column and a row.
    fn place(&self, column: usize, row: usize) -> [usize; 2] {
        if self.transposed { [column, row] } else { [row, column] }
    }

    /// The greatest block along rows in which no parameter changes, if kernels take it. One that ends with the rows is filled up.
    fn block(&self) -> Option<usize> {
        const WHOLE: usize = 128;
        let (n, k) = self.extents();
        let parameters = || [Some(&self.scales), self.zeros.as_ref()].into_iter().flatten();
        let differs = |p: &Parameter, row: usize| {
            (0..n).any(|column| p.at(self.place(column, row)) != p.at(self.place(column, row - 1)))
        };
        let changes = |row: usize| parameters().any(|p| differs(p, row));
        let Some(block) = (1..k).find(|&row| changes(row)) else {
            return Some(k.next_multiple_of(WHOLE));
        };
        let fits = block.is_multiple_of(16) && (1..k).all(|row| row % block == 0 || !changes(row));
        fits.then_some(block)
    }

    /// None where scales or zero points change in places that are no blocks.
    fn packed(&self) -> Option<Packed> {
        let ((n, k), block) = (self.extents(), self.block()?);
        let blocks = k.div_ceil(block);
        let codes = self.codes.to_i64();
        let (low, high) = (*codes.iter().min()?, *codes.iter().max()?);
        let signed = matches!(self.codes.dtype(), DType::Int8 | DType::Int4);
        let ends = if signed { -8..=7 } else { 0..=15 };
        let bits = if ends.contains(&low) && ends.contains(&high) {
            4
        } else {
            8
        };
        let middle = 1i64 << (bits - 1);
        let shift = if signed { middle } else { 0 };
        let each = || (0..n).flat_map(|column| (0..blocks).map(move |at| self.place(column, at * block)));
        let scales: Vec<f64> = each().map(|place| self.scales.at(place)).collect();
        let zero = |place| self.zeros.as_ref().map_or(0.0, |zeros| zeros.at(place)) + shift as f64;
        let zeros: Vec<f64> = each().map(zero).collect();
        let uneven = zeros.iter().any(|&zero| zero != middle as f64);
        let bytes = block * bits / 8;
        let mut integers = vec![0u8; n * blocks * bytes];
        for column in 0..n {
            for row in 0..k {
                let [i, j] = self.place(column, row);
                let code = (codes[i * self.shape[1] + j] + shift) as u8;
                integers[column * blocks * bytes + row * bits / 8] |= code << (row * bits % 8);
            }
        }
        let numbers = |values: &[f64]| Array::from_f64(DType::Float32, vec![n, blocks], values).ok();
        Some(Packed {
            sizes: [("K", k), ("N", n), ("bits", bits), ("block_size", block)],
            integers: Array::from_bytes(DType::UInt8, vec![n, blocks, bytes], &integers).ok()?,
            scales: numbers(&scales)?,
            zeros: if uneven { Some(numbers(&zeros)?) } else { None },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::attr::attrs;
    use crate::passes::testing::{Graph, assert_same};

    fn check(dtype: DType, transposed: bool, scale: &[usize], block: usize, zero: bool, bits: i64) {
        let (k, n) = (64, 5);
        let mut g = Graph::new();
        let x = g.input("x", "m 64");
        let shape = if transposed { vec![n, k] } else { vec![k, n] };
        let values: Vec<f64> = (0..k * n).map(|i| (i * 7 % 16) as f64).collect();
        let array = |dtype, shape: &[usize], values: &[f64]| Array::from_f64(dtype, shape.to_vec(), values).unwrap();
        let q = g.network.add_constant("w", array(dtype, &shape, &values));
        let along = if transposed { 1 } else { 0 };
        let mut grid = shape.clone();
        let parameter = |g: &mut Graph, name: &str, dtype, step: f64| {
            let numbers = |count: usize| -> Vec<f64> { (0..count).map(|i| step * (1 + i % 7) as f64).collect() };
            if block == 0 {
                return g
                    .network
                    .add_constant(name, array(dtype, scale, &numbers(scale.iter().product())));
            }
            grid[along] = k / block;
            let blocks = g
                .network
                .add_constant(name, array(dtype, &grid, &numbers(grid.iter().product())));
            let index: Vec<i64> = (0..k).map(|at| (at / block) as i64).collect();
            let index = g.network.add_constant("index", Array::ints(&index));
            g.op_with("Gather", attrs([("axis", Attr::Int(along as i64))]), &[blocks, index])
        };
        let mut parameter = parameter;
        let s = parameter(&mut g, "s", DType::Float32, 0.25);
        let mut inputs = vec![q, s];
        if zero {
            inputs.push(parameter(&mut g, "z", dtype, 1.0));
        }
        let w = g.op("DequantizeLinear", &inputs);
        let y = g.op_with("MatMul", attrs([("transB", Attr::Int(transposed.into()))]), &[x, w]);
        g.output(y);
        let before = g.network.clone();
        let settings = Settings {
            packed_weights: true,
            ..Settings::default()
        };
        assert_eq!((PASS.apply)(&mut g.network, &settings).unwrap(), 1);
        let layer = g.network.layers().find(|(_, l)| l.op.name == "MatMulNBits").unwrap().1;
        assert_eq!(layer.attrs.int("bits"), bits);
        assert_eq!(
            layer.attrs.int("block_size"),
            if block == 0 { 128 } else { block as i64 }
        );
        assert_same(&before, &g.network);
    }

    #[test]
    fn columns_and_blocks_of_either_order_are_packed() {
        check(DType::UInt8, false, &[5], 0, false, 4);
        check(DType::Int8, true, &[5, 1], 0, true, 8);
        check(DType::Int8, false, &[], 0, false, 8);
        for transposed in [false, true] {
            check(DType::UInt4, transposed, &[], 16, true, 4);
            check(DType::Int8, transposed, &[], 32, false, 8);
        }
    }

    #[test]
    fn scales_along_no_blocks_stay() {
        let mut g = Graph::new();
        let x = g.input("x", "m 64");
        let array = |dtype, shape: &[usize]| {
            let values: Vec<f64> = (0..shape.iter().product::<usize>()).map(|i| (i % 7) as f64).collect();
            Array::from_f64(dtype, shape.to_vec(), &values).unwrap()
        };
        let q = g.network.add_constant("w", array(DType::Int8, &[64, 5]));
        let s = g.network.add_constant("s", array(DType::Float32, &[64, 1]));
        let w = g.op("DequantizeLinear", &[q, s]);
        let y = g.op("MatMul", &[x, w]);
        g.output(y);
        let settings = Settings {
            packed_weights: true,
            ..Settings::default()
        };
        assert_eq!((PASS.apply)(&mut g.network, &settings).unwrap(), 0);
    }
}
