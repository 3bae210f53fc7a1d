//! Products with weights that are constant (packed once) or come with the call.

use super::few_rows::Columns;
use crate::error::Result;
use crate::network::array::{Array, Buffer};
use crate::network::dtype::DType;
use crate::providers::cpu::handle::{Desc, Matmul, Options, Primitive};
use crate::providers::cpu::kernels::primitive::Weights;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Rows of weights [D, gates * hidden, K], as f32.
pub struct Matrix {
    /// The rows as a matrix, if they are constant.
    constant: Option<Weights>,
    /// The first row, in gates; and how many gates.
    gates: [usize; 2],
    /// As products of few rows read them, while somebody does.
    columns: Mutex<Weak<Columns>>,
}

impl Matrix {
    /// All rows.
    pub fn whole(array: Option<Array>) -> Self {
        Self {
            constant: array.map(Weights::new),
            gates: [0, 0],
            columns: Mutex::default(),
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
            columns: Mutex::default(),
        })
    }

    /// The product `a [rows, k]` times this, transposed: `[rows, columns]`.
    ///
    /// # Errors
    /// If oneDNN can't.
    pub fn product(&self, [rows, k, columns]: [usize; 3], threads: usize) -> Result<Product> {
        let extents = [rows, k, columns];
        if rows * k * columns == 0 {
            return Ok(Product::new(extents, How::Nothing));
        }
        if let Some(weights) = self.constant.as_ref().filter(|_| Columns::fit(extents, threads)) {
            return Ok(Product::new(extents, How::FewRows(self.columns(weights)?)));
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
        let offset = self.gates[0] * gate * k;
        let how = How::Primitive {
            primitive,
            packed,
            offset,
        };
        Ok(Product::new(extents, how))
    }

    fn columns(&self, weights: &Weights) -> Result<Arc<Columns>> {
        let mut known = self.columns.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(columns) = known.upgrade() {
            return Ok(columns);
        }
        let columns = Arc::new(Columns::new(weights.source())?);
        *known = Arc::downgrade(&columns);
        Ok(columns)
    }
}

/// A product at concrete extents.
pub struct Product {
    rows: usize,
    elements: usize,
    how: How,
}

enum How {
    /// There is nothing to sum.
    Nothing,
    FewRows(Arc<Columns>),
    Primitive {
        primitive: Primitive,
        packed: Option<Arc<Buffer>>,
        /// Where the rows start in weights that come with the call.
        offset: usize,
    },
}

impl Product {
    fn new([rows, _, columns]: [usize; 3], how: How) -> Self {
        Self {
            rows,
            elements: rows * columns,
            how,
        }
    }

    /// Bytes of scratch memory.
    pub fn workspace(&self) -> usize {
        match &self.how {
            How::Primitive { primitive, .. } => primitive.workspace(),
            _ => 0,
        }
    }

    /// Whether it is the work of the thread that calls it, without scratch memory.
    pub fn is_of_one_thread(&self) -> bool {
        !matches!(self.how, How::Primitive { .. })
    }

    /// How it is computed.
    pub fn implementation(&self) -> String {
        match &self.how {
            How::Nothing => String::new(),
            How::FewRows(_) => "few rows".into(),
            How::Primitive { primitive, .. } => format!("oneDNN {}", primitive.implementation()),
        }
    }

    /// Computes it; `weights` are read where they are not constant.
    ///
    /// # Safety
    /// The addresses must hold what the extents say.
    pub unsafe fn run(&mut self, a: *const f32, weights: *const f32, out: *mut f32, workspace: *mut u8) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe {
            match &mut self.how {
                How::Nothing => out.write_bytes(0, self.elements),
                How::FewRows(columns) => columns.run(self.rows, a, out),
                How::Primitive {
                    primitive,
                    packed,
                    offset,
                } => {
                    let weights = match packed {
                        Some(packed) => packed.as_ptr().cast_const(),
                        None => weights.add(*offset).cast(),
                    };
                    primitive.run(&[a.cast(), weights], out.cast(), workspace)?;
                }
            }
        }
        Ok(())
    }
}
