//! Numbers in row-major order, and their way into memory of any layout and back.
use crate::{
    network::{array::Buffer, dtype::DType},
    plan::layout::{Layout, Operand},
};
use half::{bf16, f16};

#[derive(Debug, Clone)]
pub(super) struct Tensor {
    pub shape: Vec<usize>,
    pub data: Vec<f64>,
}

impl Tensor {
    pub fn new(shape: &[usize], mut value: impl FnMut(&[usize]) -> f64) -> Self {
        let count = shape.iter().product();
        let data = (0..count).map(|flat| value(&unravel(flat, shape))).collect();
        Self {
            shape: shape.to_vec(),
            data,
        }
    }

    /// Numbers between -1 and 1 that every dtype holds exactly.
    pub fn random(shape: &[usize], seed: u64) -> Self {
        let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        Self::new(shape, |_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            ((state >> 32) % 129) as f64 / 64.0 - 1.0
        })
    }

    pub fn at(&self, index: &[usize]) -> f64 {
        self.data[index
            .iter()
            .zip(&self.shape)
            .fold(0, |flat, (&i, &extent)| flat * extent + i)]
    }

    pub fn map(&self, f: impl Fn(f64) -> f64) -> Self {
        Self {
            shape: self.shape.clone(),
            data: self.data.iter().map(|&x| f(x)).collect(),
        }
    }

    pub fn zip(&self, other: &Self, f: impl Fn(f64, f64) -> f64) -> Self {
        Self::new(&self.shape, |index| {
            let there: Vec<_> = index
                .iter()
                .zip(&other.shape)
                .map(|(&i, &extent)| i.min(extent - 1))
                .collect();
            f(self.at(index), other.at(&there))
        })
    }

    /// Zeroed memory for an operand, its parent where it is a slice.
    pub fn memory(operand: &Operand) -> Buffer {
        Buffer::zeroed(operand.layout.bytes(operand.dtype, &whole(operand)))
    }

    pub fn store(&self, operand: &Operand) -> Buffer {
        assert_eq!(self.shape, operand.shape);
        let mut memory = Self::memory(operand);
        for (flat, &value) in self.data.iter().enumerate() {
            let at = position(operand, &unravel(flat, &self.shape)) * operand.dtype.size();
            write(operand.dtype, &mut memory.as_mut_slice()[at..], value);
        }
        memory
    }

    pub fn load(operand: &Operand, memory: &Buffer) -> Self {
        Self::new(&operand.shape, |index| {
            read(
                operand.dtype,
                &memory.as_ref()[position(operand, index) * operand.dtype.size()..],
            )
        })
    }

    #[track_caller]
    pub fn assert_close(&self, wanted: &Self, tolerance: f64) {
        assert_eq!(self.shape, wanted.shape);
        let scale = wanted.data.iter().fold(1e-3_f64, |most, x| most.max(x.abs()));
        let worst = self
            .data
            .iter()
            .zip(&wanted.data)
            .map(|(a, b)| (a - b).abs())
            .fold(0.0, f64::max);
        assert!(worst <= tolerance * scale, "off by {worst} of {scale}");
    }
}

fn whole(operand: &Operand) -> Vec<usize> {
    let mut shape = operand.shape.clone();
    if let Some(parent) = operand.parent_channels {
        shape[1] = parent;
    }
    shape
}

/// Where an element lies, counted in elements.
fn position(operand: &Operand, index: &[usize]) -> usize {
    let shape = whole(operand);
    let row_major = |axes: &[(usize, usize)]| axes.iter().fold(0, |flat, (i, extent)| flat * extent + i);
    let pairs: Vec<_> = index.iter().copied().zip(shape.iter().copied()).collect();
    match operand.layout {
        Layout::Plain => row_major(&pairs),
        Layout::ChannelsLast => row_major(&[&pairs[..1], &pairs[2..], &pairs[1..2]].concat()),
        Layout::Blocked16 => {
            let (channel, channels) = pairs[1];
            let (outer, inner) = ((channel / 16, channels.div_ceil(16)), (channel % 16, 16));
            row_major(&[&pairs[..1], &[outer], &pairs[2..], &[inner]].concat())
        }
    }
}

fn unravel(mut flat: usize, shape: &[usize]) -> Vec<usize> {
    let mut index = vec![0; shape.len()];
    for axis in (0..shape.len()).rev() {
        index[axis] = flat % shape[axis];
        flat /= shape[axis];
    }
    index
}

fn write(dtype: DType, to: &mut [u8], value: f64) {
    match dtype {
        DType::Float32 => to[..4].copy_from_slice(&(value as f32).to_ne_bytes()),
        DType::BFloat16 => to[..2].copy_from_slice(&bf16::from_f64(value).to_ne_bytes()),
        DType::Float16 => to[..2].copy_from_slice(&f16::from_f64(value).to_ne_bytes()),
        DType::Int8 => to[0] = value as i8 as u8,
        other => panic!("no test needs {other}"),
    }
}

fn read(dtype: DType, from: &[u8]) -> f64 {
    match dtype {
        DType::Float32 => f32::from_ne_bytes([from[0], from[1], from[2], from[3]]).into(),
        DType::BFloat16 => bf16::from_ne_bytes([from[0], from[1]]).into(),
        DType::Float16 => f16::from_ne_bytes([from[0], from[1]]).into(),
        DType::Int8 => (from[0] as i8).into(),
        other => panic!("no test needs {other}"),
    }
}
