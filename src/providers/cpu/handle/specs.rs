//! What can be asked of oneDNN.
pub use super::ffi::{PoolingKind, ReductionKind};
use super::{
    Desc, Options, PostOp, Primitive, WeightFormat,
    desc::element_type,
    ffi::{self, ElementType, TensorDesc},
    images::Images,
};
use crate::{error::Result, network::dtype::DType};

/// A convolution over 1 to 3 spatial axes, or a transposed one. Inputs: src, weights (packed), bias if there is one.
#[derive(Debug, Clone)]
pub struct Conv {
    /// The input.
    pub src: Desc,
    /// The output.
    pub dst: Desc,
    /// The shape of the weights in the model: [M, C/groups, kernel...], or transposed [C, M/groups, kernel...].
    pub weights: Vec<usize>,
    /// Their dtype.
    pub weights_dtype: DType,
    /// The dtype of the bias, if there is one.
    pub bias: Option<DType>,
    /// Groups of channels.
    pub groups: usize,
    /// Step along each spatial axis.
    pub strides: Vec<i64>,
    /// Spacing of the kernel's elements; 1 is dense.
    pub dilations: Vec<i64>,
    /// Padding before.
    pub begin: Vec<i64>,
    /// Padding after (transposed: what is cut off after, less any output padding).
    pub end: Vec<i64>,
    /// Whether it is the transposed one.
    pub transposed: bool,
}

impl Conv {
    /// Creates the primitive, with the weights in `given` where that is as fast.
    ///
    /// # Errors
    /// If oneDNN can't.
    pub fn create(&self, given: Option<&WeightFormat>, options: &Options) -> Result<Primitive> {
        let (mut src, mut dst, mut options) = (self.src.clone(), self.dst.clone(), options.clone());
        let images = Images::split(&mut src, &mut dst, &mut options);
        let spec = ffi::Convolution {
            src: src.raw,
            weights: self.weights()?,
            bias: optional(self.bias)?,
            dst: dst.raw,
            strides: self.strides.clone(),
            dilations: gaps(&self.dilations),
            begin: self.begin.clone(),
            end: self.end.clone(),
            transposed: self.transposed,
        };
        Primitive::new(ffi::convolution(&spec, &options.raw(), WeightFormat::raw(given)))?.over(images)
    }

    /// oneDNN wants [groups, outputs, inputs, kernel...]; the strides say how the model has them.
    fn weights(&self) -> Result<TensorDesc> {
        let kernel = &self.weights[2..];
        let taps: usize = kernel.iter().product();
        let (first, second) = (self.weights[0] / self.groups, self.weights[1]);
        let (outer, inner) = (second * taps, taps);
        let mut shape = if self.transposed {
            vec![second, first]
        } else {
            vec![first, second]
        };
        let mut strides = if self.transposed {
            vec![inner, outer]
        } else {
            vec![outer, inner]
        };
        if self.groups > 1 {
            shape.insert(0, self.groups);
            strides.insert(0, first * outer);
        }
        shape.extend(kernel);
        strides.extend((1..=kernel.len()).map(|axis| kernel[axis..].iter().product::<usize>()));
        Ok(Desc::strided(self.weights_dtype, &shape, &strides)?.raw)
    }
}

/// A batch of matrix products, broadcast over the leading axes. Inputs: a, b, bias (over the last axis) if there is one.
#[derive(Debug, Clone)]
pub struct Matmul {
    /// The left matrices.
    pub a: Desc,
    /// The right matrices.
    pub b: Desc,
    /// The dtype of the bias, if there is one.
    pub bias: Option<DType>,
    /// The output.
    pub dst: Desc,
    /// Whether `b` is constant and wanted in its [`WeightFormat`]; `b` then says how the model has it.
    pub pack_b: bool,
}

impl Matmul {
    /// Creates the primitive, with a constant `b` in `given` where that is as fast.
    ///
    /// # Errors
    /// If oneDNN can't.
    pub fn create(&self, given: Option<&WeightFormat>, options: &Options) -> Result<Primitive> {
        let (a, b, dst) = (self.a.raw.clone(), self.b.raw.clone(), self.dst.raw.clone());
        let spec = ffi::Matmul {
            a,
            b,
            bias: optional(self.bias)?,
            dst,
            pack_b: self.pack_b,
        };
        Primitive::new(ffi::matmul(&spec, &options.raw(), WeightFormat::raw(given)))
    }
}

/// The maximum or average over windows. Input: src.
#[derive(Debug, Clone)]
pub struct Pooling {
    /// What to make of a window.
    pub kind: PoolingKind,
    /// The input.
    pub src: Desc,
    /// The output.
    pub dst: Desc,
    /// Extent of the window.
    pub kernel: Vec<i64>,
    /// Step along each spatial axis.
    pub strides: Vec<i64>,
    /// Spacing of the window's elements; 1 is dense.
    pub dilations: Vec<i64>,
    /// Padding before.
    pub begin: Vec<i64>,
    /// Padding after; enough for the output's extent.
    pub end: Vec<i64>,
}

impl Pooling {
    /// Creates the primitive.
    ///
    /// # Errors
    /// If oneDNN can't.
    pub fn create(&self, options: &Options) -> Result<Primitive> {
        let (mut src, mut dst, mut options) = (self.src.clone(), self.dst.clone(), options.clone());
        let images = Images::split(&mut src, &mut dst, &mut options);
        let spec = ffi::Pooling {
            kind: self.kind,
            src: src.raw,
            dst: dst.raw,
            kernel: self.kernel.clone(),
            strides: self.strides.clone(),
            dilations: gaps(&self.dilations),
            begin: self.begin.clone(),
            end: self.end.clone(),
        };
        Primitive::new(ffi::pooling(&spec, &options.raw()))?.over(images)
    }
}

/// Softmax along an axis. Input: src.
#[derive(Debug, Clone)]
pub struct Softmax {
    /// The input.
    pub src: Desc,
    /// The output.
    pub dst: Desc,
    /// The axis.
    pub axis: usize,
    /// Whether to give the logarithm.
    pub logarithm: bool,
}

impl Softmax {
    /// Creates the primitive.
    ///
    /// # Errors
    /// If oneDNN can't.
    pub fn create(&self, options: &Options) -> Result<Primitive> {
        let (src, dst) = (self.src.raw.clone(), self.dst.raw.clone());
        let spec = ffi::Softmax {
            src,
            dst,
            axis: self.axis,
            logarithm: self.logarithm,
        };
        Primitive::new(ffi::softmax(&spec, &options.raw()))
    }
}

/// Normalises the last axis. Inputs: src, scale and shift (f32) if there are such.
#[derive(Debug, Clone)]
pub struct LayerNorm {
    /// The input.
    pub src: Desc,
    /// The output.
    pub dst: Desc,
    /// Added to the variance.
    pub epsilon: f32,
    /// Whether there is a scale.
    pub scale: bool,
    /// Whether there is a shift.
    pub shift: bool,
}

impl LayerNorm {
    /// Creates the primitive.
    ///
    /// # Errors
    /// If oneDNN can't.
    pub fn create(&self, options: &Options) -> Result<Primitive> {
        let (src, dst) = (self.src.raw.clone(), self.dst.raw.clone());
        let spec = ffi::LayerNorm {
            src,
            dst,
            epsilon: self.epsilon,
            scale: self.scale,
            shift: self.shift,
        };
        Primitive::new(ffi::layer_norm(&spec, &options.raw()))
    }
}

/// Interpolates over the spatial axes, pixel centres at halves. Input: src.
#[derive(Debug, Clone)]
pub struct Resampling {
    /// The input.
    pub src: Desc,
    /// The output.
    pub dst: Desc,
    /// Linear, else nearest.
    pub linear: bool,
}

impl Resampling {
    /// Creates the primitive.
    ///
    /// # Errors
    /// If oneDNN can't.
    pub fn create(&self, options: &Options) -> Result<Primitive> {
        let (src, dst) = (self.src.raw.clone(), self.dst.raw.clone());
        Primitive::new(ffi::resampling(
            &ffi::Resampling {
                src,
                dst,
                linear: self.linear,
            },
            &options.raw(),
        ))
    }
}

/// A chain of post-ops as a primitive of its own: `first` is done on `src`. Inputs: src, then the operands. `Sum` is
/// no first op.
///
/// # Errors
/// If oneDNN can't.
pub fn pointwise(src: &Desc, dst: &Desc, first: &PostOp, options: &Options) -> Result<Primitive> {
    Primitive::new(ffi::pointwise(&src.raw, &dst.raw, &first.raw(), &options.raw()))
}

/// Reduces the axes in which `dst` has extent 1. Input: src.
///
/// # Errors
/// If oneDNN can't.
pub fn reduction(src: &Desc, dst: &Desc, kind: ReductionKind, options: &Options) -> Result<Primitive> {
    Primitive::new(ffi::reduction(&src.raw, &dst.raw, kind, &options.raw()))
}

/// Copies a tensor into another layout or element type. Input: src.
///
/// # Errors
/// If oneDNN can't.
pub fn reorder(from: &Desc, to: &Desc, threads: usize) -> Result<Primitive> {
    Primitive::new(ffi::reorder(&from.raw, &to.raw, threads))
}

fn optional(dtype: Option<DType>) -> Result<ElementType> {
    dtype.map_or(Ok(ElementType::Absent), element_type)
}

/// oneDNN counts the gaps between the elements of a kernel.
fn gaps(dilations: &[i64]) -> Vec<i64> {
    dilations.iter().map(|dilation| dilation - 1).collect()
}
