//! What a graph computes: a convolution, or the transpose of one, with what follows it.

use super::Cudnn;
use super::engines::Subject;
use super::graph::{Drawing, Drawn};
use crate::error::Result;
use crate::network::dtype::DType;
use crate::providers::cuda::library::driver::Handle;

/// A tensor of a convolution: extents and strides of batch, channels, and spatial axes.
#[derive(Debug, Clone, PartialEq)]
pub struct Tensor {
    /// The extents.
    pub sizes: Vec<i64>,
    /// Elements from one place to the next along each axis.
    pub strides: Vec<i64>,
    /// Bytes that its address is a multiple of.
    pub alignment: usize,
}

impl Tensor {
    /// A tensor whose channels are innermost, without gaps.
    pub fn dense(sizes: Vec<i64>) -> Self {
        let mut strides = vec![1; sizes.len()];
        let mut stride = sizes[1];
        for axis in (2..sizes.len()).rev() {
            strides[axis] = stride;
            stride *= sizes[axis];
        }
        strides[0] = stride;
        Self {
            sizes,
            strides,
            alignment: ALIGNMENT,
        }
    }

    /// Elements from one pixel to the next: as many as there are channels, or more in a slice.
    pub fn step(&self) -> i64 {
        self.strides[self.strides.len() - 1]
    }

    /// How many places there are for each channel.
    pub fn pixels(&self) -> i64 {
        self.sizes[0] * self.sizes[2..].iter().product::<i64>()
    }
}

/// What engines like addresses to be multiples of.
pub const ALIGNMENT: usize = 16;

/// A function behind a convolution.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Activation {
    /// max(x, 0), or `slope` times x below 0.
    Relu(f32),
    /// Between two bounds.
    Clip(f32, f32),
    /// 1 / (1 + exp(-x)).
    Sigmoid,
    /// x / (1 + exp(-x)).
    Silu,
    /// tanh(x).
    Tanh,
    /// Gelu, by erf.
    Gelu,
    /// A factor times x, and a summand, between 0 and 1.
    HardSigmoid(f32, f32),
    /// x times x / 6 + 1 / 2 between 0 and 1.
    HardSwish,
}

/// What is done with what the activation gives, in this order.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct After {
    /// Whether it is multiplied by a number for each channel.
    pub scale: bool,
    /// Whether a number for each channel is added.
    pub shift: bool,
    /// Whether the residual is added here, and not in front of the activation.
    pub residual: bool,
}

impl After {
    /// Whether nothing is done.
    pub fn is_nothing(self) -> bool {
        self == Self::default()
    }
}

/// A convolution with what follows it.
#[derive(Debug, Clone)]
pub struct Convolution {
    /// The element type of all tensors.
    pub dtype: DType,
    /// Whether operands of float32 may be rounded to tf32.
    pub tf32: bool,
    /// Whether it is the transpose of the convolution from `y` to `x` that the other fields describe.
    pub transposed: bool,
    /// The input.
    pub x: Tensor,
    /// The weights: [outputs, inputs of a group, kernel...]; of a transposed one [inputs, outputs of a group, kernel...].
    pub w: Tensor,
    /// The result.
    pub y: Tensor,
    /// Strides along the spatial axes.
    pub strides: Vec<i64>,
    /// Dilations along them.
    pub dilations: Vec<i64>,
    /// Padding before.
    pub begin: Vec<i64>,
    /// Padding behind.
    pub end: Vec<i64>,
    /// Whether a number for each channel is added.
    pub bias: bool,
    /// A tensor of the result's shape that is added.
    pub residual: Option<Tensor>,
    /// A function of that.
    pub activation: Option<Activation>,
    /// What is done in the end.
    pub after: After,
}

impl Convolution {
    /// One over a pixel, with a bias.
    #[cfg(test)]
    pub fn pointwise(dtype: DType, x: Tensor, y: Tensor) -> Self {
        Self {
            dtype,
            tf32: false,
            transposed: false,
            w: Tensor::dense(vec![y.sizes[1], x.sizes[1], 1, 1]),
            x,
            y,
            strides: vec![1, 1],
            dilations: vec![1, 1],
            begin: vec![0, 0],
            end: vec![0, 0],
            bias: true,
            residual: None,
            activation: None,
            after: After::default(),
        }
    }

    /// The same with one more spatial axis, of extent 1, in front of the others: cuDNN wants two.
    pub fn widen(&mut self) {
        for tensor in [&mut self.x, &mut self.w, &mut self.y]
            .into_iter()
            .chain(&mut self.residual)
        {
            tensor.sizes.insert(2, 1);
            tensor.strides.insert(2, tensor.strides[0]);
        }
        for (list, value) in [
            (&mut self.strides, 1),
            (&mut self.dilations, 1),
            (&mut self.begin, 0),
            (&mut self.end, 0),
        ] {
            list.insert(0, value);
        }
    }

    /// How many groups the channels are in.
    pub fn groups(&self) -> i64 {
        let channels = if self.transposed { &self.y } else { &self.x };
        channels.sizes[1] / self.w.sizes[1]
    }

    /// Whether nothing follows.
    pub fn is_bare(&self) -> bool {
        !self.bias && self.residual.is_none() && self.activation.is_none() && self.after.is_nothing()
    }

    /// What its tensors, bias included, are multiples of, in the order that a plan takes them in.
    pub fn alignments(&self) -> Vec<usize> {
        let mut all = vec![self.x.alignment, self.w.alignment];
        all.extend(self.bias.then_some(ALIGNMENT));
        all.extend(self.residual.as_ref().map(|residual| residual.alignment));
        all.extend(self.after.scale.then_some(ALIGNMENT));
        all.extend(self.after.shift.then_some(ALIGNMENT));
        all.push(self.y.alignment);
        all
    }

    /// The padding behind that makes cuDNN's forward convolution of `y` give as many places as `x` has. There is a range
    /// of it, since a stride may leave places over; a symmetric padding is what most engines take.
    pub(super) fn gradient_end(&self) -> Vec<i64> {
        let one = |axis: usize| {
            let reach = (self.w.sizes[axis + 2] - 1) * self.dilations[axis] + 1;
            let least = (self.x.sizes[axis + 2] - 1) * self.strides[axis] + reach - self.y.sizes[axis + 2];
            let least = least - self.begin[axis];
            self.begin[axis].clamp(least, least + self.strides[axis] - 1)
        };
        (0..self.begin.len()).map(one).collect()
    }
}

impl Subject for Convolution {
    fn dtype(&self) -> DType {
        self.dtype
    }

    fn tf32(&self) -> bool {
        self.tf32
    }

    fn clamps(&self) -> bool {
        matches!(self.activation, Some(Activation::Relu(_)))
    }

    fn draw(&self, library: &'static Cudnn, handle: Handle, keeps_nan: bool) -> Result<Drawn> {
        Drawing::new(library, self, keeps_nan).draw(handle)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn transposed(x: i64, kernel: i64, stride: i64, begin: i64, y: i64) -> Convolution {
        Convolution {
            dtype: DType::Float16,
            tf32: false,
            transposed: true,
            x: Tensor::dense(vec![1, 8, x]),
            w: Tensor::dense(vec![8, 4, kernel]),
            y: Tensor::dense(vec![1, 4, y]),
            strides: vec![stride],
            dilations: vec![1],
            begin: vec![begin],
            end: vec![0],
            bias: false,
            residual: None,
            activation: None,
            after: After::default(),
        }
    }

    #[test]
    fn the_padding_behind_a_gradient_is_symmetric_where_it_can_be() {
        // kernel 3, stride 2, padding 1, output padding 1.
        assert_eq!(transposed(5, 3, 2, 1, 10).gradient_end(), [1]);
        // An output padding behind no padding at all.
        assert_eq!(transposed(5, 2, 2, 0, 11).gradient_end(), [0]);
        assert_eq!(transposed(5, 3, 1, 0, 5).gradient_end(), [2]);
    }

    #[test]
    fn one_more_axis_keeps_the_pixels_where_they_are() {
        let mut c = transposed(5, 3, 2, 1, 10);
        c.residual = Some(c.y.clone());
        c.widen();
        assert_eq!((c.x.sizes.as_slice(), c.x.step()), ([1, 8, 1, 5].as_slice(), 8));
        assert_eq!(c.x.strides, Tensor::dense(vec![1, 8, 1, 5]).strides);
        assert_eq!((c.groups(), c.y.pixels()), (1, 10));
        assert_eq!(c.residual.map(|r| r.sizes.len()), Some(4));
    }
}
