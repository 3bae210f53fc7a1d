//! Convolutions as graphs of operations.

use super::descriptor::Descriptor;
use super::numbers::{PROPAGATE_NAN, kind, mode, name, ty};
use super::{ALIGNMENT, Activation, Convolution, Cudnn, Tensor, supported};
use crate::error::{Error, Result};
use crate::network::dtype::DType;
use crate::providers::cuda::library::driver::Handle;

/// The numbers by which a plan knows its tensors.
mod id {
    pub const X: i64 = 1;
    pub const W: i64 = 2;
    pub const Y: i64 = 3;
    pub const BIAS: i64 = 4;
    pub const RESIDUAL: i64 = 5;
    pub const SCALE: i64 = 6;
    pub const SHIFT: i64 = 7;
    pub const FIRST_VIRTUAL: i64 = 100;
}

/// A graph in the making.
pub(super) struct Drawing<'a> {
    library: &'static Cudnn,
    convolution: &'a Convolution,
    keeps_nan: bool,
    next: i64,
    /// The graph refers to its tensors and operations: they live as long.
    kept: Vec<Descriptor>,
}

/// A graph, with the numbers of its tensors in the order in which a plan takes their addresses.
pub struct Drawn {
    pub(super) graph: Descriptor,
    pub(super) ids: Vec<i64>,
    _kept: Vec<Descriptor>,
}

impl Drawn {
    /// The graph of these operations, which live as long, with all that they refer to.
    pub(super) fn new(
        library: &'static Cudnn,
        handle: Handle,
        operations: Vec<Descriptor>,
        ids: Vec<i64>,
        mut kept: Vec<Descriptor>,
    ) -> Result<Self> {
        let graph = Descriptor::new(library, kind::GRAPH)?;
        let all: Vec<&Descriptor> = operations.iter().collect();
        graph
            .set(name::GRAPH_HANDLE, ty::HANDLE, &[handle])?
            .link(name::GRAPH_OPERATIONS, &all)?;
        let graph = graph.finish()?;
        kept.extend(operations);
        Ok(Self {
            graph,
            ids,
            _kept: kept,
        })
    }
}

pub(super) fn data_type(dtype: DType) -> Result<i32> {
    Ok(match dtype {
        DType::Float32 => 0,
        DType::Float64 => 1,
        DType::Float16 => 2,
        DType::BFloat16 => 9,
        other => return Err(Error::unsupported(format!("cuDNN does not convolve {other}"))),
    })
}

impl<'a> Drawing<'a> {
    pub(super) fn new(library: &'static Cudnn, convolution: &'a Convolution, keeps_nan: bool) -> Self {
        Self {
            library,
            convolution,
            keeps_nan,
            next: id::FIRST_VIRTUAL,
            kept: vec![],
        }
    }

    fn tensor(&self, tensor: &Tensor, id: i64, dtype: DType, inside: bool) -> Result<Descriptor> {
        let descriptor = Descriptor::new(self.library, kind::TENSOR)?;
        descriptor
            .set(name::TENSOR_TYPE, ty::DATA_TYPE, &[data_type(dtype)?])?
            .set(name::TENSOR_DIMENSIONS, ty::INT64, &tensor.sizes)?
            .set(name::TENSOR_STRIDES, ty::INT64, &tensor.strides)?
            .set(name::TENSOR_ID, ty::INT64, &[id])?
            .set(name::TENSOR_ALIGNMENT, ty::INT64, &[tensor.alignment as i64])?
            .set(name::TENSOR_VIRTUAL, ty::BOOLEAN, &[inside])?;
        descriptor.finish()
    }

    /// The type that is computed in: float32, or float64.
    fn wide(&self) -> DType {
        match self.convolution.dtype {
            DType::Float64 => DType::Float64,
            _ => DType::Float32,
        }
    }

    /// The tensor that the operation before the last `left` ones gives: the result, or one that stays inside.
    fn output(&mut self, left: usize) -> Result<Descriptor> {
        let c = self.convolution;
        if left == 0 {
            return self.tensor(&c.y, id::Y, c.dtype, false);
        }
        self.next += 1;
        self.tensor(&c.y, self.next, self.wide(), true)
    }

    pub(super) fn draw(mut self, handle: Handle) -> Result<Drawn> {
        let c = self.convolution;
        let steps = self.steps()?;
        let mut operations = vec![];
        let x = self.tensor(&c.x, id::X, c.dtype, false)?;
        let w = self.tensor(&c.w, id::W, c.dtype, false)?;
        let mut y = self.output(steps.len())?;
        operations.push(self.convolve(&x, &w, &y)?);
        self.kept.extend([x, w]);
        for (left, step) in (0..steps.len()).rev().zip(steps) {
            y = self.pointwise(step, y, left, &mut operations)?;
        }
        self.kept.push(y);
        Drawn::new(self.library, handle, operations, ids(c), self.kept)
    }

    /// What follows the convolution.
    fn steps(&self) -> Result<Vec<PointwiseKind>> {
        let c = self.convolution;
        let number = |id: i64| self.tensor(&for_each_channel(c), id, c.dtype, false);
        let residual = || {
            let other = c
                .residual
                .as_ref()
                .map(|other| self.tensor(other, id::RESIDUAL, c.dtype, false));
            Ok::<_, Error>(other.transpose()?.map(PointwiseKind::Add))
        };
        let mut steps = vec![];
        if c.bias {
            steps.push(PointwiseKind::Add(number(id::BIAS)?));
        }
        if !c.after.residual {
            steps.extend(residual()?);
        }
        steps.extend(c.activation.map(PointwiseKind::Activation));
        if c.after.scale {
            steps.push(PointwiseKind::Mul(number(id::SCALE)?));
        }
        if c.after.shift {
            steps.push(PointwiseKind::Add(number(id::SHIFT)?));
        }
        if c.after.residual {
            steps.extend(residual()?);
        }
        Ok(steps)
    }

    /// The convolution itself; a transposed one is what gives the gradient of another one's input.
    fn convolve(&mut self, x: &Descriptor, w: &Descriptor, y: &Descriptor) -> Result<Descriptor> {
        let c = self.convolution;
        let end = if c.transposed { c.gradient_end() } else { c.end.clone() };
        let descriptor = Descriptor::new(self.library, kind::CONVOLUTION)?;
        descriptor
            .set(name::CONVOLUTION_PRECISION, ty::DATA_TYPE, &[data_type(self.wide())?])?
            // A cross-correlation: the kernel is not turned around.
            .set(name::CONVOLUTION_MODE, ty::CONVOLUTION_MODE, &[1i32])?
            .set(name::CONVOLUTION_AXES, ty::INT64, &[c.strides.len() as i64])?
            .set(name::CONVOLUTION_STRIDES, ty::INT64, &c.strides)?
            .set(name::CONVOLUTION_DILATIONS, ty::INT64, &c.dilations)?
            .set(name::CONVOLUTION_BEGIN, ty::INT64, &c.begin)?
            .set(name::CONVOLUTION_END, ty::INT64, &end)?;
        let convolution = descriptor.finish()?;
        let (kind, names) = if c.transposed {
            (kind::CONVOLUTION_BACKWARD_DATA, &BACKWARD)
        } else {
            (kind::CONVOLUTION_FORWARD, &FORWARD)
        };
        let operation = Descriptor::new(self.library, kind)?;
        operation
            .link(names.convolution, &[&convolution])?
            .link(names.w, &[w])?
            .link(names.from, &[x])?
            .link(names.to, &[y])?;
        match self.wide() {
            DType::Float64 => operation
                .set(names.alpha, ty::DOUBLE, &[1f64])?
                .set(names.beta, ty::DOUBLE, &[0f64])?,
            _ => operation
                .set(names.alpha, ty::FLOAT, &[1f32])?
                .set(names.beta, ty::FLOAT, &[0f32])?,
        };
        self.kept.push(convolution);
        operation.finish()
    }

    /// Adds an operation on what the last one gave, behind which `left` follow; gives its output.
    fn pointwise(
        &mut self,
        op: PointwiseKind,
        x: Descriptor,
        left: usize,
        operations: &mut Vec<Descriptor>,
    ) -> Result<Descriptor> {
        let y = self.output(left)?;
        let (mode, slope) = op.mode()?;
        let pointwise = pointwise(self.library, mode, self.wide(), self.keeps_nan)?;
        if let Some(slope) = slope {
            pointwise.set(name::POINTWISE_RELU_SLOPE, ty::DOUBLE, &[f64::from(slope)])?;
        }
        let pointwise = pointwise.finish()?;
        let operation = Descriptor::new(self.library, kind::OPERATION_POINTWISE)?;
        operation
            .link(name::OPERATION_POINTWISE, &[&pointwise])?
            .link(name::OPERATION_X, &[&x])?
            .link(name::OPERATION_Y, &[&y])?;
        self.kept.extend([pointwise, x]);
        if let PointwiseKind::Add(other) | PointwiseKind::Mul(other) = op {
            operation.link(name::OPERATION_B, &[&other])?;
            self.kept.push(other);
        }
        operations.push(operation.finish()?);
        Ok(y)
    }
}

/// A number for each channel of the result.
fn for_each_channel(c: &Convolution) -> Tensor {
    let mut sizes = vec![1; c.y.sizes.len()];
    sizes[1] = c.y.sizes[1];
    let mut strides = vec![1; sizes.len()];
    strides[0] = sizes[1];
    strides[2..].fill(sizes[1]);
    Tensor {
        sizes,
        strides,
        alignment: ALIGNMENT,
    }
}

/// The numbers of the tensors in the order in which a plan takes their addresses: that of the inputs, and the result.
fn ids(c: &Convolution) -> Vec<i64> {
    let there = [
        (id::X, true),
        (id::W, true),
        (id::BIAS, c.bias),
        (id::RESIDUAL, c.residual.is_some()),
        (id::SCALE, c.after.scale),
        (id::SHIFT, c.after.shift),
        (id::Y, true),
    ];
    there
        .into_iter()
        .filter_map(|(id, there)| there.then_some(id))
        .collect()
}

/// A function in the making, computed in this type.
pub(super) fn pointwise(library: &'static Cudnn, mode: i32, dtype: DType, keeps_nan: bool) -> Result<Descriptor> {
    let pointwise = Descriptor::new(library, kind::POINTWISE)?;
    pointwise.set(name::POINTWISE_MODE, ty::POINTWISE_MODE, &[mode])?.set(
        name::POINTWISE_PRECISION,
        ty::DATA_TYPE,
        &[data_type(dtype)?],
    )?;
    if keeps_nan && mode == mode::RELU {
        // The headers call it deprecated: a version that knows it no more goes on without it.
        let set = pointwise.set(name::POINTWISE_NAN_PROPAGATION, ty::NAN_PROPAGATION, &[PROPAGATE_NAN]);
        supported(set.map(|_| ()))?;
    }
    Ok(pointwise)
}

/// The attributes of an operation that convolves.
struct Names {
    convolution: i32,
    from: i32,
    w: i32,
    to: i32,
    alpha: i32,
    beta: i32,
}

const FORWARD: Names = Names {
    convolution: name::FORWARD_CONVOLUTION,
    from: name::FORWARD_X,
    w: name::FORWARD_W,
    to: name::FORWARD_Y,
    alpha: name::FORWARD_ALPHA,
    beta: name::FORWARD_BETA,
};

const BACKWARD: Names = Names {
    convolution: name::BACKWARD_CONVOLUTION,
    from: name::BACKWARD_Y,
    w: name::BACKWARD_W,
    to: name::BACKWARD_X,
    alpha: name::BACKWARD_ALPHA,
    beta: name::BACKWARD_BETA,
};

/// A pointwise operation of a graph.
enum PointwiseKind {
    Add(Descriptor),
    Mul(Descriptor),
    Activation(Activation),
}

impl PointwiseKind {
    /// `cudnnPointwiseMode_t`, and the slope of a Relu.
    ///
    /// # Errors
    /// Of what graphs have no operation for; bounds of a Relu are left out, since engines differ in what becomes of NaN.
    fn mode(&self) -> Result<(i32, Option<f32>)> {
        let activation = match self {
            PointwiseKind::Add(_) => return Ok((0, None)),
            PointwiseKind::Mul(_) => return Ok((1, None)),
            PointwiseKind::Activation(activation) => activation,
        };
        Ok(match activation {
            Activation::Relu(slope) => (mode::RELU, Some(*slope).filter(|slope| *slope != 0.0)),
            Activation::Tanh => (101, None),
            Activation::Sigmoid => (102, None),
            Activation::Gelu => (104, None),
            Activation::Silu => (106, None),
            Activation::Clip(..) | Activation::HardSigmoid(..) | Activation::HardSwish => {
                return Err(Error::unsupported(format!("cuDNN's graphs have no {activation:?}")));
            }
        })
    }
}
