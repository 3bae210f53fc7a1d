//! Transposed convolutions whose windows do not overlap: each pixel gives a block of pixels of the result, all of them as one product of
//! rows, which a kernel puts where they belong (the sub-pixel convolution of Shi et al., 2016).

use super::{Operation, Quantized, rows};
use crate::error::Result;
use crate::network::attr::{Attrs, Read};
use crate::network::dim::Dim;
use crate::network::ops::conv;
use crate::plan::layout::Operand;
use crate::providers::cuda::kernels::conv::geometry;
use crate::providers::cuda::kernels::launch::fields;
use crate::providers::cuda::kernels::words::divisor;
use crate::providers::cuda::library::cudnn::{Convolution, Tensor};

/// Results that a kernel writes at once are channels of one pixel.
const TOGETHER: usize = 16;
/// The most spatial axes.
const AXES: usize = 2;

/// A ConvTranspose whose windows lie side by side.
#[derive(Debug, Clone)]
pub struct Blocks {
    /// Rows and columns of a block.
    kernel: [usize; 2],
    /// Channels of the input and of the result.
    channels: [usize; 2],
}

impl Blocks {
    /// That of a ConvTranspose with such weights, if it is one.
    pub fn of(attrs: &Attrs, weights: &[Dim]) -> Option<Self> {
        let window = conv::window(attrs, weights).ok()?;
        let sizes: Option<Vec<i64>> = weights.iter().map(Dim::as_const).collect();
        let sizes: Vec<usize> = sizes?.into_iter().map(|size| size as usize).collect();
        let all = |list: &[i64], number: i64| list.iter().all(|&n| n == number);
        let cut = [attrs.ints("output_padding"), &window.begin, &window.end];
        let side_by_side = window.kernel == window.strides && all(&window.dilations, 1);
        let whole = cut.iter().all(|list| all(list, 0)) && attrs.ints("output_shape").is_empty();
        let explicit = matches!(attrs.text("auto_pad"), "NOTSET" | "VALID") && attrs.int("group") == 1;
        let kernel = match sizes[2..] {
            [width] => [1, width],
            [height, width] => [height, width],
            _ => return None,
        };
        (side_by_side && whole && explicit && sizes.len() <= AXES + 2).then_some(Self {
            kernel,
            channels: [sizes[0], sizes[1]],
        })
    }

    /// Whether kernels for tiles take it.
    pub fn is_even(&self) -> bool {
        self.channels.iter().all(|channels| channels.is_multiple_of(TOGETHER))
    }

    /// The product: a column for each channel of each pixel of a block. Its result has the steps between pixels of that of the ConvTranspose.
    pub fn product(&self, x: &Operand, y: &Operand) -> Convolution {
        let columns = self.kernel[0] * self.kernel[1] * self.channels[1];
        let [images, height, width] = match x.shape[..] {
            [images, _, width] => [images, 1, width],
            _ => [x.shape[0], x.shape[2], x.shape[3]],
        };
        let pixels = |operand: &Operand, channels: usize| {
            let lies = geometry::tensor(operand);
            let sizes = [images, channels, height, width].map(|size| size as i64);
            let step = lies.step();
            Tensor {
                strides: vec![step * sizes[2] * sizes[3], 1, step * sizes[3], step],
                sizes: sizes.to_vec(),
                alignment: lies.alignment,
            }
        };
        rows::of_pixels(y.dtype, pixels(x, self.channels[0]), pixels(y, columns))
    }
}

/// Where a kernel puts results: its parameter, how that is named, and the words that it has.
pub struct Places {
    /// What is declared.
    pub declared: &'static str,
    /// The object that knows.
    pub made: &'static str,
    /// `AsBlocks` of `quantized.cuh`, or nothing.
    pub words: Vec<i32>,
}

impl Places {
    /// Those of a product of 8 bits.
    ///
    /// # Errors
    /// If it is too large.
    pub fn of(of: &Quantized, c: &Convolution) -> Result<Self> {
        let Operation::ConvTranspose(blocks) = &of.operation else {
            return Ok(Self {
                declared: "",
                made: "AsRows()",
                words: vec![],
            });
        };
        let [down, across] = blocks.kernel;
        let width = c.x.sizes[3] as usize;
        let words = [blocks.channels[1], across, width].map(divisor).concat();
        Ok(Self {
            declared: ", const AsBlocks places",
            made: "places",
            words: fields(words.into_iter().chain([down as i64]))?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::attr::{Attr, complete};
    use crate::network::dtype::DType;
    use crate::network::ops::conv_transpose;
    use crate::plan::layout::Layout;

    fn blocks(weights: &[i64], pairs: &[(&str, &[i64])]) -> Option<Blocks> {
        let given = pairs
            .iter()
            .map(|(n, v)| (n.to_string(), Attr::Ints(v.to_vec())))
            .collect();
        let weights: Vec<Dim> = weights.iter().map(|&d| d.into()).collect();
        Blocks::of(&complete(conv_transpose::DEF.attrs, given).unwrap(), &weights)
    }

    #[test]
    fn windows_that_overlap_or_are_cut_are_no_blocks() {
        assert!(blocks(&[32, 16, 2, 2], &[("strides", &[2, 2])]).is_some_and(|found| found.is_even()));
        assert!(blocks(&[32, 9, 3], &[("strides", &[3])]).is_some_and(|found| !found.is_even()));
        assert!(blocks(&[32, 16, 3, 3], &[("strides", &[2, 2])]).is_none());
        assert!(blocks(&[32, 16, 2, 2], &[("strides", &[3, 3])]).is_none());
        assert!(blocks(&[32, 16, 2, 2], &[("strides", &[2, 2]), ("pads", &[0, 0, 1, 0])]).is_none());
        assert!(blocks(&[32, 16, 2, 2], &[("strides", &[2, 2]), ("output_padding", &[0, 1])]).is_none());
        assert!(blocks(&[32, 16, 2, 2, 2], &[("strides", &[2, 2, 2])]).is_none());
    }

    #[test]
    fn its_product_has_a_column_for_each_channel_of_a_block() {
        let found = blocks(&[32, 16, 2, 3], &[("strides", &[2, 3])]).unwrap();
        let x = Operand::dense(DType::Int8, vec![5, 32, 4, 7], Layout::ChannelsLast);
        let mut y = Operand::dense(DType::Int8, vec![5, 16, 8, 21], Layout::ChannelsLast);
        let c = found.product(&x, &y);
        assert_eq!((&c.w.sizes[..], c.x.step(), c.y.step()), (&[96, 32, 1, 1][..], 32, 16));
        y.parent_channels = Some(48);
        let c = found.product(&x, &y);
        assert_eq!(c.y.strides, [48 * 28, 1, 48 * 7, 48]);
    }
}
