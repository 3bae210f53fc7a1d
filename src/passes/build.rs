//! How rules write layers: one word for each op that they often need.

use super::matching::Chain;
use crate::error::Result;
use crate::network::TensorId;
use crate::network::attr::{Attr, Attrs, attrs};
use crate::network::dim::Dim;
use crate::network::dtype::DType;
use crate::network::ops::{self, cast};
use crate::network::patch::Patch;

/// Ops by name on a [`Patch`].
pub trait Build {
    /// A layer without attributes.
    fn op(&mut self, op: &str, inputs: &[TensorId]) -> Result<TensorId>;
    /// A layer with attributes.
    fn op_with(&mut self, op: &str, attrs: Attrs, inputs: &[TensorId]) -> Result<TensorId>;
    /// A layer with attributes and inputs that may be left out; gives all outputs.
    fn op_full(&mut self, op: &str, attrs: Attrs, inputs: &[Option<TensorId>]) -> Result<Vec<TensorId>>;
    /// The tensor as another dtype; itself if it has that.
    fn cast(&mut self, x: TensorId, to: DType) -> Result<TensorId>;
    /// As [`Build::cast`], of ours: a kernel may go on with numbers that are not rounded (see [`cast::elidable`]).
    fn placed_cast(&mut self, x: TensorId, to: DType) -> Result<TensorId>;
    /// The tensor under another shape; itself if it has that. -1 stands for what is left.
    fn reshape(&mut self, x: TensorId, shape: &[Dim]) -> Result<TensorId>;
    /// The tensor with its axes in another order.
    fn transpose(&mut self, x: TensorId, perm: &[usize]) -> Result<TensorId>;
    /// The layers of a chain once more, on another tensor.
    fn again(&mut self, chain: &Chain<'_>, x: TensorId) -> Result<TensorId>;
    /// An int64 vector that holds these dimensions.
    fn dims(&mut self, dims: &[Dim]) -> TensorId;
    /// Clip to these bounds, or Relu; a bound that bounds nothing is left out.
    fn clip(&mut self, x: TensorId, bounds: (f64, f64)) -> Result<TensorId>;
}

impl Build for Patch<'_> {
    fn op(&mut self, op: &str, inputs: &[TensorId]) -> Result<TensorId> {
        self.op_with(op, Attrs::new(), inputs)
    }

    fn op_with(&mut self, op: &str, attrs: Attrs, inputs: &[TensorId]) -> Result<TensorId> {
        self.add(ops::find(op)?, attrs, inputs)
    }

    fn op_full(&mut self, op: &str, attrs: Attrs, inputs: &[Option<TensorId>]) -> Result<Vec<TensorId>> {
        self.add_named("", ops::find(op)?, attrs, inputs)
    }

    fn cast(&mut self, x: TensorId, to: DType) -> Result<TensorId> {
        if self.ty(x).dtype == to {
            return Ok(x);
        }
        self.op_with("Cast", attrs([("to", Attr::Type(to))]), &[x])
    }

    fn placed_cast(&mut self, x: TensorId, to: DType) -> Result<TensorId> {
        if self.ty(x).dtype == to {
            return Ok(x);
        }
        self.op_with("Cast", cast::elidable(to), &[x])
    }

    fn reshape(&mut self, x: TensorId, shape: &[Dim]) -> Result<TensorId> {
        if self.ty(x).shape == shape {
            return Ok(x);
        }
        let shape = self.dims(shape);
        self.op_with("Reshape", attrs([("allowzero", Attr::Int(1))]), &[x, shape])
    }

    fn transpose(&mut self, x: TensorId, perm: &[usize]) -> Result<TensorId> {
        if perm.iter().enumerate().all(|(i, &axis)| i == axis) {
            return Ok(x);
        }
        let perm = perm.iter().map(|&axis| axis as i64).collect();
        self.op_with("Transpose", attrs([("perm", Attr::Ints(perm))]), &[x])
    }

    fn again(&mut self, chain: &Chain<'_>, mut x: TensorId) -> Result<TensorId> {
        for &(layer, main) in chain.iter().rev() {
            let mut inputs = layer.inputs.clone();
            inputs[main] = Some(x);
            x = self.add_named("", layer.op, layer.attrs.clone(), &inputs)?[0];
        }
        Ok(x)
    }

    fn dims(&mut self, dims: &[Dim]) -> TensorId {
        self.symbolic("shape", DType::Int64, vec![dims.len().into()], dims.to_vec())
    }

    fn clip(&mut self, x: TensorId, (low, high): (f64, f64)) -> Result<TensorId> {
        if (low, high) == (0.0, f64::INFINITY) {
            return self.op("Relu", &[x]);
        }
        let dtype = self.ty(x).dtype;
        let mut bound = |value: f64, open: f64| (value != open).then(|| self.scalar(dtype, value));
        let bounds = [Some(x), bound(low, f64::NEG_INFINITY), bound(high, f64::INFINITY)];
        Ok(self.op_full("Clip", Attrs::new(), &bounds)?[0])
    }
}
