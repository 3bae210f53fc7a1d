//! Products of matrices, with pointwise steps behind them, as graphs of operations.

use super::Cudnn;
use super::descriptor::Descriptor;
use super::engines::Subject;
use super::graph::{Drawn, data_type, pointwise};
use super::numbers::{kind, mode, name, ty};
use crate::error::Result;
use crate::network::dtype::DType;
use crate::providers::cuda::library::driver::Handle;

/// A matrix of each batch, or one for all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Matrix {
    /// Batches, rows and columns.
    pub sizes: [usize; 3],
    /// Elements from one to the next of each.
    pub strides: [usize; 3],
}

impl Matrix {
    /// Rows one after another, without gaps.
    pub fn dense(sizes: [usize; 3]) -> Self {
        let [_, rows, columns] = sizes;
        Self {
            sizes,
            strides: [rows * columns, columns, 1],
        }
    }
}

/// What a step does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Function {
    /// Adds a number.
    Add,
    /// Subtracts a number.
    Sub,
    /// Multiplies by a number.
    Mul,
    /// Divides by a number.
    Div,
    /// max(x, 0).
    Relu,
    /// tanh(x).
    Tanh,
    /// 1 / (1 + exp(-x)).
    Sigmoid,
    /// x / (1 + exp(-x)).
    Silu,
    /// Gelu, by erf.
    Gelu,
    /// Gelu, approximated by tanh.
    GeluTanh,
}

impl Function {
    /// `cudnnPointwiseMode_t`.
    fn number(self) -> i32 {
        match self {
            Function::Add => 0,
            Function::Mul => 1,
            Function::Div => 6,
            Function::Sub => 9,
            Function::Relu => mode::RELU,
            Function::Tanh => 101,
            Function::Sigmoid => 102,
            Function::Gelu => 104,
            Function::Silu => 106,
            Function::GeluTanh => 107,
        }
    }
}

/// What a step reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Value {
    /// What the operation of this number gives: 0 is the product, 1 the first step.
    Given(usize),
    /// The operand of this number.
    Operand(usize),
}

/// A pointwise operation behind a product.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PointwiseOp {
    /// What it does.
    pub function: Function,
    /// The number of the operation whose result it works on.
    pub x: usize,
    /// The other value, where it takes one.
    pub other: Option<Value>,
}

/// A product with the steps behind it; what the last one gives is the result, row by row.
#[derive(Debug, Clone)]
pub struct Product {
    /// The element type of all operands.
    pub dtype: DType,
    /// Both matrices.
    pub sides: [Matrix; 2],
    /// What the steps read besides, each by one of them: an extent is that of the result, or 1.
    pub operands: Vec<Matrix>,
    /// The steps.
    pub steps: Vec<PointwiseOp>,
}

/// The numbers by which a plan knows its tensors.
mod id {
    pub const SIDES: [i64; 2] = [1, 2];
    pub const RESULT: i64 = 3;
    pub const FIRST_OPERAND: i64 = 10;
    pub const FIRST_VIRTUAL: i64 = 100;
}

/// What all addresses are multiples of.
pub const ALIGNMENT: usize = 16;

impl Product {
    /// Batches, rows and columns of the result.
    fn result(&self) -> [usize; 3] {
        let [left, right] = [0, 1].map(|side| self.sides[side].sizes);
        [left[0].max(right[0]), left[1], right[2]]
    }

    /// A tensor, which has the element type of the operands or, `inside`, float32.
    fn tensor(&self, library: &'static Cudnn, id: i64, matrix: Matrix, inside: bool) -> Result<Descriptor> {
        let dtype = if inside { DType::Float32 } else { self.dtype };
        let descriptor = Descriptor::new(library, kind::TENSOR)?;
        descriptor
            .set(name::TENSOR_TYPE, ty::DATA_TYPE, &[data_type(dtype)?])?
            .set(
                name::TENSOR_DIMENSIONS,
                ty::INT64,
                &matrix.sizes.map(|size| size as i64),
            )?
            .set(
                name::TENSOR_STRIDES,
                ty::INT64,
                &matrix.strides.map(|stride| stride as i64),
            )?
            .set(name::TENSOR_ID, ty::INT64, &[id])?
            .set(name::TENSOR_ALIGNMENT, ty::INT64, &[ALIGNMENT as i64])?
            .set(name::TENSOR_VIRTUAL, ty::BOOLEAN, &[inside])?;
        descriptor.finish()
    }

    /// What the operation of this number gives.
    fn given(&self, library: &'static Cudnn, number: usize) -> Result<Descriptor> {
        let matrix = Matrix::dense(self.result());
        if number == self.steps.len() {
            return self.tensor(library, id::RESULT, matrix, false);
        }
        self.tensor(library, id::FIRST_VIRTUAL + number as i64, matrix, true)
    }
}

impl Subject for Product {
    fn dtype(&self) -> DType {
        self.dtype
    }

    fn clamps(&self) -> bool {
        self.steps.iter().any(|step| step.function == Function::Relu)
    }

    fn draw(&self, library: &'static Cudnn, handle: Handle, keeps_nan: bool) -> Result<Drawn> {
        let side = |side: usize| self.tensor(library, id::SIDES[side], self.sides[side], false);
        let (left, right) = (side(0)?, side(1)?);
        let given = (0..=self.steps.len()).map(|number| self.given(library, number));
        let given = given.collect::<Result<Vec<_>>>()?;
        let ids: Vec<i64> = (id::FIRST_OPERAND..).take(self.operands.len()).collect();
        let operands = ids.iter().zip(&self.operands);
        let operands = operands.map(|(&id, &matrix)| self.tensor(library, id, matrix, false));
        let operands = operands.collect::<Result<Vec<_>>>()?;
        let float = [data_type(DType::Float32)?];
        let matmul = Descriptor::new(library, kind::MATMUL)?;
        matmul.set(name::MATMUL_PRECISION, ty::DATA_TYPE, &float)?;
        let matmul = matmul.finish()?;
        let operation = Descriptor::new(library, kind::OPERATION_MATMUL)?;
        operation
            .link(name::MATMUL_A, &[&left])?
            .link(name::MATMUL_B, &[&right])?
            .link(name::MATMUL_C, &[&given[0]])?
            .link(name::OPERATION_MATMUL, &[&matmul])?;
        let mut operations = vec![operation.finish()?];
        let mut kept = vec![left, right, matmul];
        for (number, step) in self.steps.iter().enumerate() {
            let pointwise = pointwise(library, step.function.number(), DType::Float32, keeps_nan)?.finish()?;
            let operation = Descriptor::new(library, kind::OPERATION_POINTWISE)?;
            operation
                .link(name::OPERATION_POINTWISE, &[&pointwise])?
                .link(name::OPERATION_X, &[&given[step.x]])?
                .link(name::OPERATION_Y, &[&given[number + 1]])?;
            match step.other {
                Some(Value::Given(other)) => _ = operation.link(name::OPERATION_B, &[&given[other]])?,
                Some(Value::Operand(other)) => _ = operation.link(name::OPERATION_B, &[&operands[other]])?,
                None => {}
            }
            operations.push(operation.finish()?);
            kept.push(pointwise);
        }
        kept.extend(given.into_iter().chain(operands));
        let ids = id::SIDES.into_iter().chain(ids).chain([id::RESULT]).collect();
        Drawn::new(library, handle, operations, ids, kept)
    }
}
