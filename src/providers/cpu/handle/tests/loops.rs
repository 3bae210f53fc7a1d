//! The plain loops.
use super::tensor::Tensor;

/// What a convolution and a pooling share, along each spatial axis.
#[derive(Debug, Clone)]
pub(super) struct Window {
    pub kernel: Vec<usize>,
    pub strides: Vec<usize>,
    pub dilations: Vec<usize>,
    pub begin: Vec<usize>,
    pub end: Vec<usize>,
}

impl Window {
    pub fn new(kernel: &[usize]) -> Self {
        let of = |value| vec![value; kernel.len()];
        Self {
            kernel: kernel.to_vec(),
            strides: of(1),
            dilations: of(1),
            begin: of(0),
            end: of(0),
        }
    }

    fn reach(&self, axis: usize) -> usize {
        (self.kernel[axis] - 1) * self.dilations[axis] + 1
    }

    pub fn outputs(&self, sizes: &[usize]) -> Vec<usize> {
        let extent =
            |axis: usize| (sizes[axis] + self.begin[axis] + self.end[axis] - self.reach(axis)) / self.strides[axis] + 1;
        (0..sizes.len()).map(extent).collect()
    }

    pub fn transposed_outputs(&self, sizes: &[usize]) -> Vec<usize> {
        let extent =
            |axis: usize| (sizes[axis] - 1) * self.strides[axis] + self.reach(axis) - self.begin[axis] - self.end[axis];
        (0..sizes.len()).map(extent).collect()
    }

    /// Calls `f(tap, source)` for each tap of the window at `output`; no source where it is padding.
    pub fn taps(&self, output: &[usize], sizes: &[usize], mut f: impl FnMut(&[usize], Option<&[usize]>)) {
        let shape = Tensor::new(&self.kernel, |tap| {
            let source: Option<Vec<_>> = (0..tap.len())
                .map(|axis| {
                    let padded = output[axis] * self.strides[axis] + tap[axis] * self.dilations[axis];
                    padded.checked_sub(self.begin[axis]).filter(|&at| at < sizes[axis])
                })
                .collect();
            f(tap, source.as_deref());
            0.0
        });
        drop(shape);
    }
}

fn index(first: usize, second: usize, rest: &[usize]) -> Vec<usize> {
    [&[first, second], rest].concat()
}

pub(super) fn conv(x: &Tensor, w: &Tensor, bias: &Tensor, groups: usize, window: &Window) -> Tensor {
    let outputs = window.outputs(&x.shape[2..]);
    let (inputs, per_group) = (w.shape[1], w.shape[0] / groups);
    Tensor::new(&index(x.shape[0], w.shape[0], &outputs), |at| {
        let mut sum = bias.data[at[1]];
        window.taps(&at[2..], &x.shape[2..], |tap, source| {
            for c in 0..inputs {
                let channel = at[1] / per_group * inputs + c;
                sum += source.map_or(0.0, |s| x.at(&index(at[0], channel, s)) * w.at(&index(at[1], c, tap)));
            }
        });
        sum
    })
}

/// Scatters each input element, as the transposed convolution is defined.
pub(super) fn conv_transpose(x: &Tensor, w: &Tensor, groups: usize, window: &Window) -> Tensor {
    let sizes = window.transposed_outputs(&x.shape[2..]);
    let (outputs, per_group) = (w.shape[1], w.shape[0] / groups);
    let mut y = Tensor::new(&index(x.shape[0], outputs * groups, &sizes), |_| 0.0);
    let shape = y.shape.clone();
    Tensor::new(&x.shape, |at| {
        window.taps(&at[2..], &sizes, |tap, target| {
            for m in 0..if target.is_some() { outputs } else { 0 } {
                let to = index(at[0], at[1] / per_group * outputs + m, target.unwrap_or_default());
                let flat = to.iter().zip(&shape).fold(0, |flat, (i, extent)| flat * extent + i);
                y.data[flat] += x.at(at) * w.at(&index(at[1], m, tap));
            }
        });
        0.0
    });
    y
}

/// `a` [.., m, k] times `b` [.., k, n], broadcast over the leading axes.
pub(super) fn matmul(a: &Tensor, b: &Tensor) -> Tensor {
    let rank = a.shape.len();
    let (m, n, k) = (a.shape[rank - 2], b.shape[rank - 1], b.shape[rank - 2]);
    let mut shape: Vec<_> = a.shape.iter().zip(&b.shape).map(|(&x, &y)| x.max(y)).collect();
    shape[rank - 2..].copy_from_slice(&[m, n]);
    let pick = |t: &Tensor, at: &[usize], last: [usize; 2]| {
        let batch = at[..rank - 2]
            .iter()
            .zip(&t.shape)
            .map(|(&i, &extent)| i.min(extent - 1));
        t.at(&batch.chain(last).collect::<Vec<_>>())
    };
    Tensor::new(&shape, |at| {
        (0..k)
            .map(|i| pick(a, at, [at[rank - 2], i]) * pick(b, at, [i, at[rank - 1]]))
            .sum()
    })
}
