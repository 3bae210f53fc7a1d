//! The constants of a product of 8 bits, as its kernels read them; once in the memory of the GPU, whoever runs them.

use super::borders::Borders;
use crate::device::Memory;
use crate::error::Result;
use crate::network::array::Array;
use crate::network::quantization::Scheme;
use crate::providers::common::quantized::Weights;
use crate::providers::cuda::device::Device;
use crate::providers::cuda::device::memory::DeviceMemory;
use crate::providers::cuda::kernels::spare::get_or_try_init;
use std::sync::{Arc, OnceLock};

/// What rows of weights are multiples of, in bytes, and lists of numbers, in elements.
const EVEN: usize = 16;
/// So many channels at a time are brought by the copy engine: there are zeros behind the last ones.
const CHANNELS: usize = 64;

/// How weights lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lie {
    /// Channels of the result, those of the input, elements of the kernel.
    Conv,
    /// A row for each term.
    Matrix,
    /// A row for each column of the result.
    Turned,
    /// Channels of the input, those of the result, elements of the kernel, each of which has columns of its own.
    Blocks,
}

/// Weights, and what becomes of the sums of each channel.
pub struct Constants {
    /// How many products a sum has.
    pub terms: usize,
    /// How many columns the result has.
    pub results: usize,
    /// Bytes from the weights of one channel to those of the next; zeros follow the terms.
    pub pitch: usize,
    weights: Array,
    lie: Lie,
    /// One, or one for each channel.
    scales: Vec<f32>,
    left: Scheme,
    bias: Option<Vec<f64>>,
    /// For each channel and each element of the kernel, the sum of the weights.
    sums: OnceLock<Vec<i32>>,
    uploaded: OnceLock<Arc<DeviceMemory>>,
}

impl Constants {
    /// Of weights with one scale or one for each channel, for an input of a scheme; none if 32 bits may not hold a sum.
    pub fn new(weights: &Weights, lie: Lie, left: Scheme, bias: Option<Vec<f64>>) -> Option<Self> {
        let shape = weights.array.shape();
        let (results, terms) = match lie {
            Lie::Conv => (shape[0], shape[1..].iter().product()),
            Lie::Matrix => (shape[1], shape[0]),
            Lie::Turned => (shape[0], shape[1]),
            Lie::Blocks => (shape[1..].iter().product(), shape[0]),
        };
        /// The greatest magnitude of a product, and as much of one with the zero point.
        const MOST: usize = 128 * 255 * 2;
        let fits = terms <= i32::MAX as usize / MOST || !left.is_int();
        fits.then(|| Self {
            terms,
            results,
            pitch: terms.next_multiple_of(EVEN),
            weights: weights.array.clone(),
            lie,
            scales: weights.scales.clone(),
            left,
            bias,
            sums: OnceLock::new(),
            uploaded: OnceLock::new(),
        })
    }

    /// The weights of each channel, as bytes: elements of the kernel, and in each of those channels of the input.
    fn rows(&self) -> Vec<Vec<u8>> {
        let values = self.weights.bytes();
        let (terms, results) = (self.terms, self.results);
        let row = |at: usize| match self.lie {
            Lie::Turned => values[at * terms..][..terms].to_vec(),
            Lie::Matrix => values.iter().skip(at).step_by(results).copied().collect(),
            Lie::Conv => {
                let own = &values[at * terms..][..terms];
                let taps = self.taps();
                let tap = |tap: usize| own.iter().skip(tap).step_by(taps).copied();
                (0..taps).flat_map(tap).collect()
            }
            Lie::Blocks => {
                let channels = self.weights.shape()[1];
                let first = at % channels * (results / channels) + at / channels;
                values.iter().skip(first).step_by(results).copied().collect()
            }
        };
        (0..results).map(row).collect()
    }

    /// Bytes of all weights.
    fn bytes(&self) -> usize {
        self.results.next_multiple_of(CHANNELS) * self.pitch
    }

    /// Elements of the kernel.
    fn taps(&self) -> usize {
        match self.lie {
            Lie::Conv => self.weights.shape()[2..].iter().product(),
            Lie::Matrix | Lie::Turned | Lie::Blocks => 1,
        }
    }

    /// Numbers from one list to the next.
    fn listed(&self) -> usize {
        self.results.next_multiple_of(EVEN)
    }

    /// A number for each channel, and zeros behind the last one.
    fn list(&self, number: impl Fn(usize) -> [u8; 4]) -> Vec<u8> {
        let all = 0..self.listed();
        all.flat_map(|row| if row < self.results { number(row) } else { [0; 4] })
            .collect()
    }

    /// Two lists, in a unit that is so many times smaller: what sums are multiplied by, and what is added then.
    fn units(&self, times: f64) -> Vec<u8> {
        let channel = |row: usize| match self.lie {
            Lie::Blocks => row % self.weights.shape()[1],
            _ => row,
        };
        let scale = |row: usize| {
            let own = self
                .scales
                .get(channel(row))
                .or(self.scales.first())
                .copied()
                .unwrap_or(1.0);
            (f64::from(own) * f64::from(self.left.scale) * times) as f32
        };
        let bias = self.bias.as_deref().unwrap_or_default();
        let shift = |row: usize| {
            bias.get(channel(row))
                .or(bias.first())
                .map_or(0.0, |&b| (b * times) as f32)
        };
        let lists = [
            self.list(|row| scale(row).to_le_bytes()),
            self.list(|row| shift(row).to_le_bytes()),
        ];
        lists.concat()
    }

    /// Sums of weights: all lists of starts are made of these.
    fn sums(&self) -> &[i32] {
        let each = self.terms / self.taps();
        let sum = |weights: &[u8]| weights.iter().map(|&w| i32::from(w as i8)).sum::<i32>();
        let make = || self.rows().iter().flat_map(|row| row.chunks(each).map(sum)).collect();
        self.sums.get_or_init(make)
    }

    /// What sums begin with where these elements of the kernel see the image.
    fn starts(&self, sees: impl Fn(usize) -> bool) -> Vec<u8> {
        let (sums, taps) = (self.sums(), self.taps());
        let start = |row: usize| {
            let own = sums[row * taps..][..taps].iter().enumerate();
            // Floats have no zero point.
            -self.left.zero * own.filter(|(tap, _)| sees(*tap)).map(|(_, sum)| sum).sum::<i32>()
        };
        self.list(|row| start(row).to_le_bytes())
    }

    /// Three lists, in a unit that is so many times smaller: what sums are multiplied by, what is added then, and what they begin with.
    fn lists(&self, times: f64) -> Vec<u8> {
        [self.units(times), self.starts(|_| true)].concat()
    }

    /// The same with a list of starts for each class of pixels, and what says which one is whose: `Borders` of `implicit_gemm.cu`.
    fn lists_with_borders(&self, times: f64, borders: &Borders) -> Vec<u8> {
        let mut bytes = self.units(times);
        borders.classes().for_each(|sees| bytes.extend(self.starts(sees)));
        let listed = self.listed();
        bytes.extend(borders.parts().flat_map(|part| ((part * listed) as i32).to_le_bytes()));
        bytes
    }

    /// Rows of weights, and behind them the lists.
    fn packed(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.bytes());
        for row in self.rows() {
            bytes.extend(&row);
            bytes.resize(bytes.len() + self.pitch - self.terms, 0);
        }
        bytes.resize(self.bytes(), 0);
        bytes.extend(self.lists(1.0));
        bytes
    }

    /// Whether all numbers of the lists are finite in a unit that is so many times smaller.
    pub fn has_unit(&self, times: f64) -> bool {
        let scales = self
            .scales
            .iter()
            .map(|&scale| f64::from(scale) * f64::from(self.left.scale));
        let mut all = scales.chain(self.bias.iter().flatten().copied());
        all.all(|number| ((number * times) as f32).is_finite())
    }

    /// The lists alone in the memory of a GPU, in a unit that is so many times smaller.
    ///
    /// # Errors
    /// If there is too little of it.
    pub fn lists_on(&self, device: &Arc<Device>, times: f64) -> Result<DeviceMemory> {
        device.upload(&self.lists(times))
    }

    /// They with a list of starts for each class of pixels of a convolution.
    ///
    /// # Errors
    /// If there is too little of it.
    pub fn lists_with_borders_on(&self, device: &Arc<Device>, times: f64, borders: &Borders) -> Result<DeviceMemory> {
        device.upload(&self.lists_with_borders(times, borders))
    }

    /// They in the memory of a GPU.
    ///
    /// # Errors
    /// If there is too little of it.
    pub fn on(&self, device: &Arc<Device>) -> Result<OnDevice> {
        let memory = get_or_try_init(&self.uploaded, || device.upload(&self.packed()).map(Arc::new))?;
        Ok(OnDevice {
            memory: memory.clone(),
            lists: self.bytes(),
            listed: self.listed(),
        })
    }
}

/// Constants in the memory of a GPU.
#[derive(Clone)]
pub struct OnDevice {
    memory: Arc<DeviceMemory>,
    lists: usize,
    listed: usize,
}

impl OnDevice {
    /// Where the weights begin.
    pub fn weights(&self) -> *const u8 {
        self.memory.address().cast_const()
    }

    /// Where the lists of numbers begin.
    pub fn lists(&self) -> *const u8 {
        self.weights().wrapping_add(self.lists)
    }

    /// Numbers from one list to the next.
    pub fn listed(&self) -> i64 {
        self.listed as i64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::LayerId;
    use crate::network::dtype::DType;
    use crate::providers::cuda::kernels::conv::problem::Problem;

    fn constants(shape: &[usize], lie: Lie) -> Constants {
        let values: Vec<i64> = (0..shape.iter().product::<usize>() as i64).collect();
        let weights = Weights {
            layer: LayerId(0),
            array: Array::from_i64(DType::Int8, shape.to_vec(), &values).unwrap(),
            scales: vec![0.5, 2.0],
        };
        let left = Scheme {
            scale: 0.25,
            zero: 3,
            dtype: DType::UInt8,
        };
        Constants::new(&weights, lie, left, Some(vec![7.0, 9.0])).unwrap()
    }

    fn packed(shape: &[usize], lie: Lie) -> Vec<u8> {
        constants(shape, lie).packed()
    }

    #[test]
    fn rows_are_elements_of_the_kernel_and_then_channels() {
        let bytes = packed(&[2, 2, 1, 3], Lie::Conv);
        assert_eq!(bytes[..8], [0, 3, 1, 4, 2, 5, 0, 0]);
        assert_eq!(bytes[16..22], [6, 9, 7, 10, 8, 11]);
        let list = |at: usize| bytes[CHANNELS * 16 + at * 64..][..8].to_vec();
        assert_eq!(list(0), [0.125f32.to_le_bytes(), 0.5f32.to_le_bytes()].concat());
        assert_eq!(list(1), [7f32.to_le_bytes(), 9f32.to_le_bytes()].concat());
        assert_eq!(
            list(2),
            [(-3 * 15i32).to_le_bytes(), (-3 * 51i32).to_le_bytes()].concat()
        );
        assert_eq!(bytes.len(), CHANNELS * 16 + 3 * 64);
    }

    #[test]
    fn starts_leave_out_what_sees_no_image() {
        let borders = Borders::new(&Problem {
            images: 1,
            input: [1, 2],
            output: [1, 2],
            kernel: [1, 3],
            begin: [0, 1],
            strides: [1; 2],
            dilations: [1; 2],
            channels: 2,
            results: 2,
        });
        let bytes = constants(&[2, 2, 1, 3], Lie::Conv).lists_with_borders(1.0, &borders);
        let numbers = bytes.chunks(4).map(|four| i32::from_le_bytes(four.try_into().unwrap()));
        let numbers: Vec<i32> = numbers.skip(2 * EVEN).collect();
        // Weights of the first channel are 0, 3; 1, 4; 2, 5, and those of the second one six more.
        assert_eq!(numbers[..2], [-3 * 12, -3 * 36]);
        assert_eq!(numbers[EVEN..][..2], [-3 * 8, -3 * 32]);
        // One row, and two columns.
        assert_eq!(numbers[2 * EVEN..], [0, 0, EVEN as i32]);
    }

    #[test]
    fn columns_of_matrices_are_rows() {
        assert_eq!(packed(&[3, 2], Lie::Matrix)[16..20], [1, 3, 5, 0]);
        assert_eq!(packed(&[2, 3], Lie::Turned)[16..20], [3, 4, 5, 0]);
    }
}
