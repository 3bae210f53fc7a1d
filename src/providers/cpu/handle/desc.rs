//! How a tensor lies in memory, as oneDNN reads it.
use super::ffi::{ElementType, TensorDesc};
use crate::{
    error::{Error, Result},
    network::dtype::DType,
    plan::layout::{Layout, Operand},
};

/// Extents, element type and strides of a tensor, or of a slice of one.
#[derive(Debug, Clone)]
pub struct Desc(pub(super) TensorDesc);

impl Desc {
    /// An operand of a kernel, slices along the channels included.
    ///
    /// # Errors
    /// If oneDNN has no such element type, or the slice does not consist of whole channel blocks.
    pub fn of(operand: &Operand) -> Result<Self> {
        let shape = &operand.shape;
        if !operand.layout.fits(shape.len()) {
            return Err(Error::internal(format!(
                "{} has no channels to put first",
                operand.describe()
            )));
        }
        let channels = shape.get(1).copied().unwrap_or(1);
        let parent = operand.parent_channels.unwrap_or(channels);
        if operand.layout == Layout::Blocked16 {
            if parent != channels && channels % 16 != 0 {
                let text = "a slice of a blocked tensor must consist of whole blocks of 16 channels";
                return Err(Error::unsupported(text).got(channels.to_string()));
            }
            let parent_channels = if parent == channels { 0 } else { parent as i64 };
            let (dims, dtype) = (signed(shape), element_type(operand.dtype)?);
            return Ok(Self(TensorDesc {
                dims,
                strides: Vec::new(),
                dtype,
                blocked: true,
                parent_channels,
            }));
        }
        let mut whole = shape.clone();
        if let Some(channels) = whole.get_mut(1) {
            *channels = parent;
        }
        let order = match operand.layout {
            Layout::ChannelsLast => [0].into_iter().chain(2..shape.len()).chain([1]).collect(),
            _ => (0..shape.len()).collect::<Vec<_>>(),
        };
        let mut strides = vec![1; shape.len()];
        let mut step = 1;
        for axis in order.into_iter().rev() {
            strides[axis] = step;
            step *= whole[axis].max(1);
        }
        Self::strided(operand.dtype, shape, &strides)
    }

    /// A dense row-major tensor.
    ///
    /// # Errors
    /// If oneDNN has no such element type.
    pub fn plain(dtype: DType, shape: &[usize]) -> Result<Self> {
        Self::of(&Operand::dense(dtype, shape.to_vec(), Layout::Plain))
    }

    /// A tensor with any strides, counted in elements; a stride of an axis of extent 1 does not matter.
    ///
    /// # Errors
    /// If oneDNN has no such element type.
    pub fn strided(dtype: DType, shape: &[usize], strides: &[usize]) -> Result<Self> {
        let (dims, strides, dtype) = (signed(shape), signed(strides), element_type(dtype)?);
        Ok(Self(TensorDesc {
            dims,
            strides,
            dtype,
            blocked: false,
            parent_channels: 0,
        }))
    }

    /// One number per channel, to be broadcast over a tensor of `rank` axes.
    ///
    /// # Errors
    /// If oneDNN has no such element type.
    pub fn per_channel(dtype: DType, rank: usize, channels: usize) -> Result<Self> {
        let mut shape = vec![1; rank];
        shape[1] = channels;
        Self::plain(dtype, &shape)
    }

    /// The same memory with the last two axes exchanged: a transposed matrix. Not for blocked tensors.
    pub fn transposed(mut self) -> Self {
        let rank = self.0.dims.len();
        self.0.dims.swap(rank - 2, rank - 1);
        self.0.strides.swap(rank - 2, rank - 1);
        self
    }

    pub(super) fn none() -> Self {
        let dtype = ElementType::Absent;
        Self(TensorDesc {
            dims: Vec::new(),
            strides: Vec::new(),
            dtype,
            blocked: false,
            parent_channels: 0,
        })
    }
}

fn signed(values: &[usize]) -> Vec<i64> {
    values.iter().map(|&value| value as i64).collect()
}

/// The element type that oneDNN has for a dtype.
pub(super) fn element_type(dtype: DType) -> Result<ElementType> {
    Ok(match dtype {
        DType::Float32 => ElementType::F32,
        DType::Float16 => ElementType::F16,
        DType::BFloat16 => ElementType::BF16,
        DType::Int8 => ElementType::S8,
        DType::UInt8 | DType::Bool => ElementType::U8,
        DType::Int32 => ElementType::S32,
        other => return Err(Error::unsupported(format!("oneDNN has no {other}"))),
    })
}
