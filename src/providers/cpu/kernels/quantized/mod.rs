//! Convolutions and matrix products of 8 bits: `Dequantize -> product -> ... -> Quantize` as one primitive of oneDNN, which sums
//! integers and scales the sums.

pub mod dynamic;
mod integer;
mod per_token;
mod product;
mod qlinear_add;

use super::chain::Channels;
use super::conv::{Geometry, geometry};
use super::matmul::Shapes;
use super::primitive::{Source, nothing};
use super::scope::Scope;
use super::{Answer, Why};
use crate::error::{Error, Result};
use crate::network::attr::{Attrs, Read};
use crate::network::dim::Dim;
use crate::network::dtype::DType;
use crate::network::ops::conv_transpose;
use crate::network::quantization::Scheme;
use crate::network::{Layer, Network};
use crate::plan::layout::{Layout, Operand};
use crate::plan::{Form, Kernel, Prepared, Request};
use crate::providers::common::quantized;
use crate::providers::cpu::handle::{self, Desc};
use product::{Found, Product, Right};

/// Conv, ConvTranspose and MatMul between Dequantize layers, with what follows.
pub fn offer(scope: &Scope) -> Answer {
    match scope.op() {
        "MatMulInteger" => integer::offer(scope),
        "DynamicQuantizeLinear" => dynamic::offer(scope),
        "DynamicQuantizePerToken" => per_token::offer(scope),
        _ if scope.output_type(0).dtype != DType::Float32 => Ok(vec![]),
        "Conv" => convolution(scope, false),
        "ConvTranspose" => convolution(scope, true),
        "MatMul" => matrices(scope),
        _ => Ok(vec![]),
    }
}

/// Whether this processor multiplies integers of 8 bits exactly: without VNNI, oneDNN sums pairs in 16 bits, which saturate.
pub fn sums_exactly() -> bool {
    is_x86_feature_detected!("avx512vnni") || is_x86_feature_detected!("avxvnni")
}

/// Whether a Dequantize layer had better be left to the product behind it.
pub fn claims(network: &Network, layer: &Layer) -> bool {
    let products = &["Conv", "ConvTranspose", "MatMul"];
    sums_exactly()
        && (quantized::claims(network, layer, products, Scheme::is_int) || quantized::claims_tokens(network, layer))
}

/// The operands, or why a product between Dequantize layers is not one of 8 bits.
fn found(scope: &Scope, axis: usize) -> std::result::Result<Option<Found>, Why> {
    let Some(found) = Found::of(scope, axis) else {
        return Ok(None);
    };
    match sums_exactly() {
        true => Ok(Some(found)),
        false => Err(Why {
            reason: "this processor has no VNNI, without which sums of 8 bits saturate".into(),
            hint: "",
        }),
    }
}

fn convolution(scope: &Scope, transposed: bool) -> Answer {
    let (Some(x), Some(w)) = (scope.input_type(0), scope.input_type(1)) else {
        return Ok(vec![]);
    };
    let attrs = &scope.layer().attrs;
    let takes = |found: &Found| matches!(found.right, Right::Constant(_)) && found.tokens.is_none();
    let Some(found) = found(scope, transposed as usize)?.filter(takes) else {
        return Ok(vec![]);
    };
    if x.rank() > 5 || (!transposed && attrs.ints("pads").iter().any(|&pad| pad < 0)) {
        return Ok(vec![]);
    }
    if transposed && !is_whole_transposed(scope) {
        return Ok(vec![]);
    }
    let groups = attrs.int("group") as usize;
    let mask = if groups > 1 { 0b11 } else { 0b1 };
    let repeats = if transposed { groups } else { 1 };
    Ok(Product::candidates(
        scope,
        &found,
        Channels::Second,
        (mask, repeats),
        |product| Conv {
            product,
            weights: w.shape.clone(),
            attrs: attrs.clone(),
            transposed,
        },
    ))
}

/// Whether oneDNN gives all of a ConvTranspose of 8 bits. It leaves out products where a step is longer than the kernel, and
/// where the result goes on behind the last window: an `output_padding` beyond `pads`.
fn is_whole_transposed(scope: &Scope) -> bool {
    let (Some(x), Some(w)) = (scope.input_type(0), scope.input_type(1)) else {
        return false;
    };
    let sizes = &x.shape[2..];
    let Ok((window, extents, cuts)) = conv_transpose::geometry(&scope.layer().attrs, &w.shape, sizes) else {
        return false;
    };
    let is_covered = |axis: usize| {
        let (stride, reach) = (window.strides[axis], window.reach(axis));
        let full = (sizes[axis].clone() - 1i64.into()) * stride.into() + reach.into();
        let end = full - cuts[axis].clone() - extents[axis].clone();
        let is_within = |cut: &Dim| cut.as_const().is_some_and(|c| c >= 0);
        stride <= reach && is_within(&cuts[axis]) && is_within(&end)
    };
    (0..sizes.len()).all(is_covered)
}

fn matrices(scope: &Scope) -> Answer {
    let (Some(a), Some(b)) = (scope.input_type(0), scope.input_type(1)) else {
        return Ok(vec![]);
    };
    let attrs = &scope.layer().attrs;
    let transposed = [attrs.flag("transA"), attrs.flag("transB")];
    if a.rank() < 2 || b.rank() < 2 {
        return Ok(vec![]);
    }
    let axis = b.rank() - 1 - transposed[1] as usize;
    let Some(found) = found(scope, axis)? else {
        return Ok(vec![]);
    };
    if matches!(found.right, Right::Constant(_)) && b.rank() != 2 {
        return Ok(vec![]);
    }
    let tokens = found.tokens.is_some();
    if tokens && (transposed[0] || !matches!(found.right, Right::Constant(_))) {
        return Ok(vec![]);
    }
    // A right matrix for all rows has two axes, as the collapsed result has; elsewhere as many as the result.
    let rank = match transposed[0] {
        true => a.rank(),
        false => 2 + tokens as usize,
    };
    let mask = 1 << (rank - 1);
    Ok(Product::candidates(
        scope,
        &found,
        Channels::Last,
        (mask, 1),
        |product| MatMul {
            product,
            transposed,
            tokens,
        },
    ))
}

struct Conv {
    product: Product,
    weights: Vec<Dim>,
    attrs: Attrs,
    transposed: bool,
}

/// Without a sum there is nothing that oneDNN would write.
fn without_terms() -> Error {
    Error::unsupported("an integer product of an input without elements")
        .hint("give inputs with at least one element in each dimension")
}

impl Kernel for Conv {
    fn name(&self) -> String {
        self.product.name.clone()
    }

    fn identity(&self) -> String {
        let kind = if self.transposed { "ConvTranspose" } else { "Conv" };
        format!("int8 {kind} {:?} {}", self.attrs, self.product.identity())
    }

    fn products_of_8_bits(&self) -> Option<DType> {
        Some(DType::Int8)
    }

    fn forms(&self) -> Vec<Form> {
        self.product.forms(Layout::ChannelsLast)
    }

    fn in_place(&self) -> Vec<(usize, usize)> {
        self.product.in_place()
    }

    fn prepare(&self, request: &Request) -> Result<Prepared> {
        let (src, dst) = (&request.inputs[0], &request.outputs[0]);
        if dst.elements() == 0 {
            return Ok(nothing());
        }
        if src.is_empty() {
            return Err(without_terms());
        }
        let Geometry {
            strides,
            dilations,
            begin,
            end,
        } = geometry(&self.attrs, &self.weights, self.transposed, &src.shape, &dst.shape)?;
        let asked = self.product.asked(request, &dst.shape)?;
        let spec = handle::Conv {
            src: Desc::of(src)?,
            dst: Desc::of(&Operand {
                dtype: asked.dtype,
                ..dst.clone()
            })?,
            weights: self.product.weights_shape(request).to_vec(),
            weights_dtype: DType::Int8,
            bias: self.product.bias(),
            groups: self.attrs.int("group") as usize,
            strides,
            dilations,
            begin,
            end,
            transposed: self.transposed,
        };
        let primitive = spec.create(self.product.weights.format().as_ref(), &asked.options)?;
        self.product.prepared(primitive, request, asked)
    }
}

struct MatMul {
    product: Product,
    transposed: [bool; 2],
    /// Whether each row has a scale.
    tokens: bool,
}

impl Kernel for MatMul {
    fn name(&self) -> String {
        self.product.name.clone()
    }

    fn identity(&self) -> String {
        format!("int8 MatMul {:?} {}", self.transposed, self.product.identity())
    }

    fn products_of_8_bits(&self) -> Option<DType> {
        Some(DType::Int8)
    }

    fn forms(&self) -> Vec<Form> {
        self.product.forms(Layout::Plain)
    }

    fn in_place(&self) -> Vec<(usize, usize)> {
        self.product.in_place()
    }

    fn prepare(&self, request: &Request) -> Result<Prepared> {
        let (a, result) = (&request.inputs[0], &request.outputs[0]);
        if result.elements() == 0 {
            return Ok(nothing());
        }
        if a.is_empty() {
            return Err(without_terms());
        }
        let b = self.product.weights_shape(request);
        let mut shapes = Shapes::of(self.transposed[0], &a.shape, b, &result.shape);
        if self.tokens {
            // oneDNN multiplies rows with a number each beside a batch alone; of two axes it has its reference.
            for shape in [&mut shapes.a, &mut shapes.b, &mut shapes.result] {
                shape.insert(0, 1);
            }
        }
        let matrices = |dtype: DType, shape: &[usize], transposed: bool| {
            let desc = Desc::plain(dtype, shape)?;
            Ok::<_, Error>(if transposed { desc.transposed() } else { desc })
        };
        let asked = self.product.asked(request, &shapes.result)?;
        let spec = handle::Matmul {
            a: matrices(a.dtype, &shapes.a, self.transposed[0])?,
            b: matrices(DType::Int8, &shapes.b, self.transposed[1])?,
            bias: self.product.bias(),
            dst: matrices(asked.dtype, &shapes.result, false)?,
            pack_b: shapes.single && matches!(self.product.weights, Source::Constant(_)),
        };
        let primitive = spec.create(self.product.weights.format().as_ref(), &asked.options)?;
        self.product.prepared(primitive, request, asked)
    }
}

#[cfg(test)]
mod tests;
