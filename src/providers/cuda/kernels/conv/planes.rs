//! Convolutions over one pixel from few channels to few, of tensors that lie channel by channel: the kernel of `planes.cu`.

use super::direct::{after, code, numbers};
use crate::error::Result;
use crate::plan::Prepared;
use crate::providers::cuda::device::Grid;
use crate::providers::cuda::kernels::Gpu;
use crate::providers::cuda::kernels::launch::{Launches, fields};
use crate::providers::cuda::kernels::packs::{self, in_packs};
use crate::providers::cuda::kernels::pointwise::code::element;
use crate::providers::cuda::library::cudnn::Convolution;
use std::sync::Arc;

const SOURCE: &str = include_str!("../../../../../kernels/planes.cu");
/// Threads of a block.
const THREADS: u32 = 64;
/// Channels and results, at most: a thread keeps a pack of pixels of every channel in registers.
const MOST: i64 = 16;

/// Whether the kernel is for a convolution over one pixel (`Traits::product`) of so many results and channels.
pub fn fits([results, channels]: [i64; 2]) -> bool {
    (1..=MOST).contains(&results) && (1..=MOST).contains(&channels)
}

/// The kernel for a convolution that [`fits`], of dense tensors that lie channel by channel. `held` says that the weights are a constant.
///
/// # Errors
/// If it is too large for one launch.
pub fn prepared(gpu: &Arc<Gpu>, c: &Convolution, held: bool) -> Result<Prepared> {
    let pixels = c.x.sizes[2..].iter().product::<i64>() as usize;
    let images = c.x.sizes[0] as usize;
    let blocks = |pack: usize| (pixels / pack).div_ceil(THREADS as usize);
    let mut pack = packs::pack(c.dtype, [pixels]);
    // Fewer pixels a thread where there would not be a block for each multiprocessor.
    while pack > 2 && blocks(pack) * images < gpu.device.multiprocessors as usize {
        pack /= 2;
    }
    in_packs(pack, |pack| {
        let function = gpu.compiler.entry(&source(c, pack, held), "convolve_planes", 0);
        let grid = Grid::over(images * blocks(pack) * THREADS as usize, THREADS)?;
        let words = [pixels / pack, blocks(pack), pixels].map(|word| word as i64);
        let words = fields(words.into_iter().chain(numbers(c.activation)))?;
        Ok(Launches::one(
            function,
            grid,
            words,
            "all channels of some pixels a thread",
        ))
    })
}

fn source(c: &Convolution, pack: usize, held: bool) -> String {
    let ty = element(c.dtype).unwrap_or("float");
    let [results, channels] = [c.y.sizes[1], c.x.sizes[1]];
    let sides = [
        ("bias", c.bias),
        ("residual", c.residual.is_some()),
        ("scale", c.after.scale),
        ("shift", c.after.shift),
    ];
    let [parameters, arguments] = packs::optional(ty, &sides);
    let terms = results * channels;
    // Nobody writes constants, so that they are read while the kernel in front still runs.
    let bring = format!("    widen_weights<{terms}, {THREADS}>(weights, w);\n");
    let (early, late) = if held {
        (bring.as_str(), "")
    } else {
        ("", bring.as_str())
    };
    format!(
        "{SOURCE}\nextern \"C\" __global__ void __launch_bounds__({THREADS}) convolve_planes({ty}* y, const {ty}* x, const {ty}* w, \
         {parameters}const Planes s) {{\n    __shared__ Wide<{ty}>::type weights[{terms}];\n{early}    after_previous();\n{late}    \
         __syncthreads();\n    mix_planes<{channels}, {results}, {pack}, {}, {}>(y, x, weights, {}, s);\n}}\n",
        code(c.activation),
        after(c),
        arguments,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::dtype::DType;
    use crate::providers::cuda::library::cudnn::Tensor;

    #[test]
    fn a_kernel_is_given_what_there_is() {
        let [x, y] = [4, 8].map(|channels| Tensor::dense(vec![2, channels, 5, 6]));
        let c = Convolution::pointwise(DType::Float16, x, y);
        let text = source(&c, 8, true);
        assert!(
            text.contains("const float16* w, const float16* bias, const Planes s"),
            "{text}"
        );
        assert!(
            text.contains("mix_planes<4, 8, 8, 0, 0>(y, x, weights, bias, (const float16*)0"),
            "{text}"
        );
        let (weights, wait) = (
            text.find("(weights, w)").unwrap(),
            text.rfind("after_previous").unwrap(),
        );
        assert!(weights < wait);
    }

    #[test]
    fn few_channels_are_at_most_sixteen() {
        assert!(fits([16, 1]) && !fits([17, 4]) && !fits([4, 17]) && !fits([4, 0]));
    }
}
