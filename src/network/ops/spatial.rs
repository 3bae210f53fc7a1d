//! What convolutions and pooling share: kernel, stride, dilation and padding along the spatial axes.

use crate::error::{Error, Result};
use crate::network::attr::{AttrDef, Attrs, Preset, Read, attr};
use crate::network::dim::Dim;
use crate::network::op::Sizes;

/// `strides`.
pub const STRIDES: AttrDef = attr("strides", Preset::Ints(&[]), "step along each spatial axis; empty: 1");
/// `dilations`.
pub const DILATIONS: AttrDef = attr(
    "dilations",
    Preset::Ints(&[]),
    "spacing of the kernel's elements; empty: 1",
);
/// `pads`.
pub const PADS: AttrDef = attr(
    "pads",
    Preset::Ints(&[]),
    "padding before each spatial axis, then after each; empty: 0",
);
/// `auto_pad`.
pub const AUTO_PAD: AttrDef = attr(
    "auto_pad",
    Preset::Text("NOTSET"),
    "NOTSET (use pads), VALID, SAME_UPPER or SAME_LOWER (ONNX Conv)",
);

/// Multiplications of a convolution whose weights, input 1, are [M, C/group, kernel...].
pub(super) fn multiplications(sizes: &Sizes) -> Option<f64> {
    Some(sizes.given() * sizes.product(1, 1)?)
}

/// No extent, step or padding is greater: products of two fit 64 bits.
const GREATEST: i64 = 1 << 31;

/// The window of a convolution or pooling along its spatial axes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Window {
    /// Extent of the kernel.
    pub kernel: Vec<i64>,
    /// Step.
    pub strides: Vec<i64>,
    /// Spacing of the kernel's elements, 1 is dense.
    pub dilations: Vec<i64>,
    /// Padding before.
    pub begin: Vec<i64>,
    /// Padding after.
    pub end: Vec<i64>,
    auto_pad: AutoPad,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AutoPad {
    Explicit,
    Valid,
    Upper,
    Lower,
}

impl Window {
    /// Reads the attributes for a kernel of this extent.
    ///
    /// # Errors
    /// If a list has another length than the kernel, or a value makes no sense.
    pub fn read(attrs: &Attrs, kernel: Vec<i64>) -> Result<Self> {
        let rank = kernel.len();
        let pads = list(attrs, "pads", 2 * rank, 0, -GREATEST)?;
        let (auto_pad, keep) = match attrs.text("auto_pad") {
            "NOTSET" => (AutoPad::Explicit, 1),
            "VALID" => (AutoPad::Valid, 0),
            "SAME_UPPER" => (AutoPad::Upper, 0),
            "SAME_LOWER" => (AutoPad::Lower, 0),
            other => {
                return Err(Error::invalid("auto_pad is unknown")
                    .expected("NOTSET, VALID, SAME_UPPER or SAME_LOWER")
                    .got(other));
            }
        };
        if kernel.iter().any(|&k| !(1..=GREATEST).contains(&k)) {
            return Err(Error::shape("the kernel is empty, or too large").got(format!("{kernel:?}")));
        }
        let mut dilations = list(attrs, "dilations", rank, 1, 1)?;
        // One element has no spacing; libraries refuse one that reaches beyond the input.
        dilations
            .iter_mut()
            .zip(&kernel)
            .filter(|(_, k)| **k == 1)
            .for_each(|(d, _)| *d = 1);
        Ok(Self {
            strides: list(attrs, "strides", rank, 1, 1)?,
            dilations,
            begin: pads[..rank].iter().map(|p| p * keep).collect(),
            end: pads[rank..].iter().map(|p| p * keep).collect(),
            auto_pad,
            kernel,
        })
    }

    /// The extent of the dilated kernel along an axis.
    pub fn reach(&self, axis: usize) -> i64 {
        (self.kernel[axis] - 1) * self.dilations[axis] + 1
    }

    /// The output's extent along an axis for an input of `size`; `ceil` as ONNX's pooling defines ceil_mode.
    pub fn output(&self, axis: usize, size: &Dim, ceil: bool) -> Dim {
        let stride = Dim::from(self.strides[axis]);
        if matches!(self.auto_pad, AutoPad::Upper | AutoPad::Lower) {
            return size.ceildiv(&stride);
        }
        let mut end = self.end[axis] - self.reach(axis);
        if ceil && self.auto_pad == AutoPad::Explicit {
            // A last window may reach beyond the padding, if it starts before it.
            end = (end + self.strides[axis] - 1).min(-1);
        }
        let span = size.clone() + (self.begin[axis] + end).into();
        span.floordiv(&stride) + 1i64.into()
    }

    /// Padding before and after along an axis, for an input and output of these extents.
    pub fn padding(&self, axis: usize, input: i64, output: i64) -> (i64, i64) {
        let total = ((output - 1) * self.strides[axis] + self.reach(axis) - input).max(0);
        match self.auto_pad {
            AutoPad::Explicit | AutoPad::Valid => (self.begin[axis], self.end[axis]),
            AutoPad::Upper => (total / 2, total - total / 2),
            AutoPad::Lower => (total - total / 2, total / 2),
        }
    }
}

/// A list with one entry per axis, or the default everywhere.
pub(super) fn list(attrs: &Attrs, name: &str, length: usize, default: i64, least: i64) -> Result<Vec<i64>> {
    match attrs.ints(name) {
        [] => Ok(vec![default; length]),
        values if values.len() != length || values.iter().any(|&v| v < least || v.abs() > GREATEST) => {
            Err(Error::shape(format!("attribute {name:?} does not fit"))
                .expected(format!(
                    "{length} integers, each at least {least} and at most {GREATEST}"
                ))
                .got(format!("{values:?}")))
        }
        values => Ok(values.to_vec()),
    }
}
