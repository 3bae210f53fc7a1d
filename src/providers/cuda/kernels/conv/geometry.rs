//! What a Conv or ConvTranspose computes at concrete shapes.

use super::{depthwise, planes, stem, tiled};
use crate::error::Result;
use crate::network::attr::{Attrs, Read};
use crate::network::dim::Dim;
use crate::network::dtype::DType;
use crate::network::ops::{conv, conv_transpose};
use crate::plan::Request;
use crate::plan::layout::Operand;
use crate::providers::common::operand_strides::axes;
use crate::providers::cuda::library::cudnn::{ALIGNMENT, After, Convolution, Tensor};

/// A Conv or ConvTranspose, whatever its shapes are.
#[derive(Clone)]
pub struct Geometry {
    /// The attributes.
    pub attrs: Attrs,
    /// The shape of the weights.
    pub weights: Vec<Dim>,
    /// Whether it is a ConvTranspose.
    pub transposed: bool,
}

/// What a convolution is besides, at any shapes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Traits {
    /// Each channel is convolved by itself, to one result or a few, and the kernel of ours knows the window.
    pub depthwise: bool,
    /// Each place of the result sees one of the input, at the same place.
    pub product: bool,
    /// Each place of the input is seen once.
    pub patches: bool,
    /// Some places of the input are seen once, and the others never.
    pub sparse: bool,
    /// There are few channels, and the kernel of ours knows the window.
    pub stem: bool,
    /// The kernel of ours for small convolutions can do it.
    pub tiled: bool,
    /// Each place sees the same place, and there are few channels on both sides.
    pub planes: bool,
}

impl Geometry {
    /// What is known of it before there are shapes.
    pub fn traits(&self, dtype: DType) -> Traits {
        let (Ok(window), false) = (conv::window(&self.attrs, &self.weights), self.transposed) else {
            return Traits::default();
        };
        let group = self.attrs.int("group");
        let ones = |list: &[i64]| list.iter().all(|&n| n == 1);
        let padded = window.begin.iter().chain(&window.end).any(|&n| n != 0);
        let explicit = matches!(self.attrs.text("auto_pad"), "NOTSET" | "VALID");
        let alone = group == 1 && !padded;
        let channels = [0, 1].map(|axis: usize| self.weights[axis].as_const().unwrap_or(0));
        let product = alone && ones(&window.kernel) && ones(&window.strides);
        let patches = alone && !product && explicit && ones(&window.dilations);
        let all = window.kernel == window.strides;
        let mut steps = window.kernel.iter().zip(&window.strides);
        Traits {
            depthwise: self.weights[1].is(1)
                && channels[0] % group == 0
                && depthwise::fits(
                    dtype,
                    channels[0] / group,
                    &window.kernel,
                    &window.strides,
                    &window.dilations,
                ),
            product,
            patches: patches && all,
            sparse: patches && !all && steps.all(|(kernel, stride)| kernel <= stride),
            stem: group == 1 && stem::fits(channels, &window.kernel, &window.strides, &window.dilations),
            tiled: group == 1 && tiled::fits(dtype, channels[1], window.kernel.len(), product),
            planes: product && planes::fits(channels),
        }
    }

    /// The convolution of a request, with two or three spatial axes and without bias and activation.
    ///
    /// # Errors
    /// If the attributes do not fit.
    pub fn convolution(&self, request: &Request, residual: Option<&Operand>) -> Result<Convolution> {
        let (x, w, y) = (&request.inputs[0], &request.inputs[1], &request.outputs[0]);
        let spatial = 0..x.shape.len() - 2;
        let (window, begin, end) = if self.transposed {
            let sizes: Vec<Dim> = x.shape[2..].iter().map(|&d| d.into()).collect();
            let (window, _, cuts) = conv_transpose::geometry(&self.attrs, &self.weights, &sizes)?;
            let begin: Vec<i64> = cuts.iter().map(|cut| cut.as_const().unwrap_or(0)).collect();
            (window, begin, vec![0; spatial.len()])
        } else {
            let window = conv::window(&self.attrs, &self.weights)?;
            let padding = spatial.map(|a| window.padding(a, x.shape[a + 2] as i64, y.shape[a + 2] as i64));
            let (begin, end) = padding.unzip();
            (window, begin, end)
        };
        let mut found = Convolution {
            dtype: y.dtype,
            tf32: false,
            transposed: self.transposed,
            x: tensor(x),
            w: tensor(w),
            y: tensor(y),
            strides: window.strides,
            dilations: window.dilations,
            begin,
            end,
            bias: false,
            residual: residual.map(tensor),
            activation: None,
            after: After::default(),
        };
        if found.strides.len() == 1 {
            found.widen();
        }
        Ok(found)
    }
}

/// An operand as cuDNN sees it.
pub fn tensor(operand: &Operand) -> Tensor {
    Tensor {
        sizes: operand.shape.iter().map(|&d| d as i64).collect(),
        strides: axes(operand).strides.iter().map(|&s| s as i64).collect(),
        alignment: alignment(operand),
    }
}

/// What the address of an operand is a multiple of: for a slice a guess by its channels, and those of the tensor that it is
/// part of, since it is not known yet where it begins.
fn alignment(operand: &Operand) -> usize {
    let channels = operand.parent_channels.map_or(0, |all| all | operand.shape[1]);
    let even = 1usize << channels.trailing_zeros().min(ALIGNMENT.trailing_zeros());
    (even * operand.dtype.size()).min(ALIGNMENT)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::attr::{Attr, complete};
    use crate::plan::layout::Layout;

    fn geometry(weights: &[i64], pairs: &[(&str, Attr)]) -> Geometry {
        let given = pairs.iter().map(|(n, v)| (n.to_string(), v.clone())).collect();
        Geometry {
            attrs: complete(conv::DEF.attrs, given).unwrap(),
            weights: weights.iter().map(|&d| d.into()).collect(),
            transposed: false,
        }
    }

    fn ints(values: &[i64]) -> Attr {
        Attr::Ints(values.to_vec())
    }

    #[test]
    fn windows_that_a_kernel_is_for_are_found() {
        let of = |weights: &[i64], pairs: &[(&str, Attr)]| geometry(weights, pairs).traits(DType::Float16);
        let product = Traits {
            product: true,
            ..Traits::default()
        };
        assert_eq!(of(&[32, 4, 1, 1], &[]), product);
        assert!(of(&[8, 4, 1, 1], &[]).planes && !of(&[8, 4, 1, 1], &[("strides", ints(&[2, 2]))]).planes);
        assert!(of(&[8, 16, 3, 3], &[]).tiled && of(&[8, 16, 1, 1, 1], &[]).tiled && !of(&[8, 16, 1, 1, 3], &[]).tiled);
        let sparse = Traits {
            sparse: true,
            ..Traits::default()
        };
        assert_eq!(of(&[8, 4, 1, 1], &[("strides", ints(&[2, 2]))]), sparse);
        assert_eq!(of(&[8, 4, 3, 1], &[("strides", ints(&[2, 2]))]), Traits::default());
        assert_eq!(of(&[8, 4, 1, 1], &[("pads", ints(&[1, 0, 0, 0]))]), Traits::default());
        assert!(of(&[768, 3, 16, 16], &[("strides", ints(&[16, 16]))]).patches);
        assert!(of(&[8, 1, 3, 3], &[("group", Attr::Int(8)), ("pads", ints(&[1, 1, 1, 1]))]).depthwise);
        assert!(of(&[16, 1, 3, 3], &[("group", Attr::Int(8))]).depthwise);
        assert!(!of(&[24, 1, 3, 3], &[("group", Attr::Int(8))]).depthwise);
        assert!(!of(&[8, 1, 3, 3], &[("group", Attr::Int(8)), ("dilations", ints(&[1, 2]))]).depthwise);
    }

    #[test]
    fn a_slice_is_as_even_as_its_channels() {
        let mut operand = Operand::dense(DType::Float16, vec![1, 24, 4, 4], Layout::ChannelsLast);
        assert_eq!(alignment(&operand), 16);
        operand.parent_channels = Some(56);
        assert_eq!(alignment(&operand), 16);
        operand.parent_channels = Some(36);
        assert_eq!(alignment(&operand), 8);
        operand.parent_channels = Some(37);
        assert_eq!(alignment(&operand), 2);
    }
}
