//! MatMulNBits: products with weights that stay in 4 or 8 bits in memory. Few rows meet weights that are unpacked in registers, which
//! the bandwidth of memory bounds; many meet panels of them as float32, or their integers where the layer asks for 8-bit arithmetic.

mod columns;
mod float;
mod integer;
mod launch;
mod pack;
mod results;
mod rows;
#[cfg(test)]
mod tests;

use super::Answer;
use super::primitive::nothing;
use super::scope::{Scope, uniform_forms};
use crate::error::Result;
use crate::network::array::Array;
use crate::network::attr::Read;
use crate::network::dtype::DType;
use crate::network::ops::matmul_n_bits::Geometry;
use crate::plan::layout::Layout;
use crate::plan::{Form, Instance, Kernel, Prepared, Request};
use launch::Product;
use pack::{Packed, Units};
use std::sync::{Arc, OnceLock};

/// The layer alone, where its weights are constant.
pub fn offer(scope: &Scope) -> Answer {
    if scope.op() != "MatMulNBits" {
        return Ok(vec![]);
    }
    let attrs = &scope.layer().attrs;
    let integers = attrs.int("accuracy_level") == 4;
    let fits = matches!(
        scope.output_type(0).dtype,
        DType::Float32 | DType::BFloat16 | DType::Float16
    );
    if !fits {
        return Ok(vec![]);
    }
    let (Ok(geometry), Some(b), Some(scales)) = (Geometry::of(attrs), scope.constant(1), scope.constant(2)) else {
        return Ok(vec![]);
    };
    let zeros = scope.constant(3).cloned();
    if zeros.is_none() && scope.input(3).is_some() {
        return Ok(vec![]);
    }
    let Some(units) = Units::of(&geometry, zeros.is_some()) else {
        return Ok(vec![]);
    };
    let kernel = NBits {
        units,
        integers,
        stored: [b.clone(), scales.clone()],
        zeros,
        packed: OnceLock::new(),
    };
    Ok(vec![scope.alone(kernel, &[0])])
}

struct NBits {
    units: Units,
    /// Whether rows are rounded to 8 bits.
    integers: bool,
    /// The weights and their scales, as the model has them.
    stored: [Array; 2],
    zeros: Option<Array>,
    packed: OnceLock<Arc<Packed>>,
}

impl NBits {
    /// The weights as the kernels read them, packed when they are first asked for.
    fn packed(&self, threads: usize) -> Result<Arc<Packed>> {
        if let Some(packed) = self.packed.get() {
            return Ok(packed.clone());
        }
        let [b, scales] = &self.stored;
        let packed = Arc::new(Packed::new(self.units, b, scales, self.zeros.as_ref(), threads)?);
        Ok(self.packed.get_or_init(|| packed).clone())
    }
}

impl Kernel for NBits {
    fn name(&self) -> String {
        format!("MatMul of {}-bit weights", self.units.geometry.bits)
    }

    fn identity(&self) -> String {
        format!("MatMulNBits {:?} {}", self.units, self.integers)
    }

    fn products_of_8_bits(&self) -> Option<DType> {
        self.integers.then_some(DType::Int8)
    }

    fn forms(&self) -> Vec<Form> {
        uniform_forms(&[Layout::Plain], 1, 1)
    }

    fn prepare(&self, request: &Request) -> Result<Prepared> {
        let result = &request.outputs[0];
        let rows = result.elements() / self.units.geometry.n;
        if rows == 0 {
            return Ok(nothing());
        }
        let packed = self.packed(request.threads)?;
        let product = Product::new(packed, rows, result.dtype, self.integers, request.threads);
        let (how, workspace) = (product.implementation(), product.workspace());
        Ok(Instance::new(how, product).with_workspace(workspace).into())
    }
}
