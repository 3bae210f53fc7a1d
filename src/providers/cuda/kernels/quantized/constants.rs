//! The constants of a product of 8 bits, as its kernels read them; once in the memory of the GPU, whoever runs them.

use crate::device::Memory;
use crate::error::Result;
use crate::network::array::Array;
use crate::network::quantization::Scheme;
use crate::providers::cuda::device::Device;
use crate::providers::cuda::device::memory::DeviceMemory;
use crate::providers::cuda::kernels::spare::get_or_try_init;
use std::sync::{Arc, OnceLock};

/// What rows of weights are multiples of, in bytes, and lists of numbers, in elements.
const EVEN: usize = 16;

/// Weights, and what becomes of the sums of each channel.
pub struct Constants {
    /// How many products a sum has.
    pub terms: usize,
    /// How many channels the result has.
    pub results: usize,
    /// Bytes from the weights of one channel to those of the next; zeros follow the terms.
    pub pitch: usize,
    bytes: Vec<u8>,
    uploaded: OnceLock<Arc<DeviceMemory>>,
}

/// The weights of a convolution, one row for each channel: elements of the kernel, and in each of those channels of the input.
pub fn rows_of_conv(weights: &Array) -> Vec<Vec<i8>> {
    let shape = weights.shape();
    let (inputs, taps) = (shape[1], shape[2..].iter().product::<usize>());
    let values = integers(weights);
    let row = |channel: usize| {
        let own = &values[channel * inputs * taps..][..inputs * taps];
        let tap = |tap: usize| (0..inputs).map(move |input| own[input * taps + tap]);
        (0..taps).flat_map(tap).collect()
    };
    (0..shape[0]).map(row).collect()
}

/// Those of a matrix, one row for each column of the result; `turned` where they lie so.
pub fn rows_of_matrix(weights: &Array, turned: bool) -> Vec<Vec<i8>> {
    let (shape, values) = (weights.shape(), integers(weights));
    let columns = shape[1];
    match turned {
        true => values.chunks(columns.max(1)).map(<[i8]>::to_vec).collect(),
        false => (0..columns)
            .map(|column| values.iter().skip(column).step_by(columns).copied().collect())
            .collect(),
    }
}

fn integers(weights: &Array) -> Vec<i8> {
    weights.to_i64().iter().map(|&value| value as i8).collect()
}

impl Constants {
    /// Of rows of weights with one scale or one for each row, for an input of a scheme; none if 32 bits may not hold a sum.
    pub fn new(rows: Vec<Vec<i8>>, scales: &[f32], left: Scheme, bias: Option<&[f64]>) -> Option<Self> {
        let (terms, results) = (rows.first().map_or(0, Vec::len), rows.len());
        /// The greatest magnitude of the left operand, and as much of its zero point.
        const MOST: i64 = 255 * 2;
        let sum = |row: &Vec<i8>| row.iter().map(|&w| i64::from(w).abs()).sum::<i64>() * MOST;
        if rows.iter().map(sum).max()? > i64::from(i32::MAX) {
            return None;
        }
        let (pitch, listed) = (terms.next_multiple_of(EVEN), results.next_multiple_of(EVEN));
        let mut bytes = Vec::with_capacity(results * pitch + 3 * 4 * listed);
        for row in &rows {
            bytes.extend(row.iter().map(|&w| w as u8));
            bytes.resize(bytes.len() + pitch - terms, 0);
        }
        let scale = |row: usize| {
            let own = scales.get(row).or(scales.first()).copied().unwrap_or(1.0);
            (f64::from(own) * f64::from(left.scale)) as f32
        };
        let shift = |row: usize| {
            bias.and_then(|bias| bias.get(row).or(bias.first()))
                .map_or(0.0, |&b| b as f32)
        };
        let start = |row: usize| -left.zero * rows[row].iter().map(|&w| i32::from(w)).sum::<i32>();
        let mut list = |number: &dyn Fn(usize) -> [u8; 4]| {
            let own = (0..listed).map(|row| if row < results { number(row) } else { [0; 4] });
            bytes.extend(own.flatten());
        };
        list(&|row| scale(row).to_le_bytes());
        list(&|row| shift(row).to_le_bytes());
        list(&|row| start(row).to_le_bytes());
        Some(Self {
            terms,
            results,
            pitch,
            bytes,
            uploaded: OnceLock::new(),
        })
    }

    /// They in the memory of a GPU.
    ///
    /// # Errors
    /// If there is too little of it.
    pub fn on(&self, device: &Arc<Device>) -> Result<OnDevice> {
        let memory = get_or_try_init(&self.uploaded, || device.upload(&self.bytes).map(Arc::new))?;
        Ok(OnDevice {
            memory: memory.clone(),
            lists: self.results * self.pitch,
            listed: self.results.next_multiple_of(EVEN),
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
