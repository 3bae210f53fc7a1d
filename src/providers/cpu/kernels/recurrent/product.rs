//! Products with weights that are constant (packed once) or come with the call.

use crate::error::Result;
use crate::network::array::{Array, Buffer};
use crate::network::dtype::DType;
use crate::providers::cpu::handle::{Desc, Matmul, Options, Primitive};
use crate::providers::cpu::kernels::primitive::Weights;
use std::sync::Arc;

/// Rows of weights [D, gates * hidden, K], as f32.
pub struct Matrix {
    /// The rows as a matrix, if they are constant.
    constant: Option<Weights>,
    /// The first row, in gates; and how many gates.
    gates: [usize; 2],
}

impl Matrix {
    /// All rows.
    pub fn whole(array: Option<Array>) -> Self {
        Self {
            constant: array.map(Weights::new),
            gates: [0, 0],
        }
    }

    /// Some gates (the first, and how many) of weights [D, gates * hidden, K].
    ///
    /// # Errors
    /// If the weights are shorter than their shape says.
    pub fn part(array: Option<&Array>, gates: usize, rows: [usize; 2]) -> Result<Self> {
        let part = |array: &Array| {
            let shape = array.shape();
            let (hidden, bytes) = (shape[1] / gates, array.dtype().size());
            let gate = hidden * shape[2] * bytes;
            let bytes = &array.bytes()[rows[0] * gate..(rows[0] + rows[1]) * gate];
            Array::from_bytes(array.dtype(), vec![rows[1] * hidden, shape[2]], bytes)
        };
        Ok(Self {
            constant: array.map(part).transpose()?.map(Weights::new),
            gates: rows,
        })
    }

    /// The product `a [rows, k]` times this, transposed: `[rows, columns]`.
    ///
    /// # Errors
    /// If oneDNN can't.
    pub fn product(&self, [rows, k, columns]: [usize; 3], threads: usize) -> Result<Product> {
        if rows * k * columns == 0 {
            return Ok(Product {
                primitive: None,
                packed: None,
                offset: 0,
                elements: rows * columns,
            });
        }
        let plain = |shape: &[usize]| Desc::plain(DType::Float32, shape);
        let spec = Matmul {
            a: plain(&[rows, k])?,
            b: plain(&[columns, k])?.transposed(),
            bias: None,
            dst: plain(&[rows, columns])?,
            pack_b: self.constant.is_some(),
        };
        let given = self.constant.as_ref().and_then(Weights::format);
        let primitive = spec.create(given.as_ref(), &Options::threads(threads))?;
        let packed = match (&self.constant, primitive.weight_format()) {
            (Some(weights), Some(format)) => Some(weights.packed(&format, threads)?),
            _ => None,
        };
        let gate = columns / self.gates[1].max(1);
        Ok(Product {
            offset: self.gates[0] * gate * k,
            elements: rows * columns,
            primitive: Some(primitive),
            packed,
        })
    }
}

/// A product at concrete extents.
pub struct Product {
    /// None where there is nothing to sum.
    primitive: Option<Primitive>,
    packed: Option<Arc<Buffer>>,
    /// Where the rows start in weights that come with the call.
    offset: usize,
    elements: usize,
}

impl Product {
    /// Bytes of scratch memory.
    pub fn workspace(&self) -> usize {
        self.primitive.as_ref().map_or(0, Primitive::workspace)
    }

    /// How it is computed.
    pub fn implementation(&self) -> String {
        self.primitive.as_ref().map_or(String::new(), Primitive::implementation)
    }

    /// Computes it; `weights` are read where they are not constant.
    ///
    /// # Safety
    /// The addresses must hold what the extents say.
    pub unsafe fn run(&mut self, a: *const f32, weights: *const f32, out: *mut f32, workspace: *mut u8) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe {
            let Some(primitive) = &mut self.primitive else {
                out.write_bytes(0, self.elements);
                return Ok(());
            };
            let weights = match &self.packed {
                Some(packed) => packed.as_ptr().cast_const(),
                None => weights.add(self.offset).cast(),
            };
            primitive.run(&[a.cast(), weights], out.cast(), workspace)
        }
    }
}
