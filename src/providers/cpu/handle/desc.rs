//! How a tensor lies in memory, as oneDNN reads it.
use super::ffi::{ElementType, TensorDesc};
use crate::{
    error::{Error, Result},
    network::dtype::DType,
    plan::layout::{Layout, Operand},
};

/// Extents, element type and strides of a tensor, or of a slice of one.
#[derive(Debug, Clone)]
pub struct Desc {
    pub(super) raw: TensorDesc,
    /// Bytes from one image to the next.
    image: usize,
    /// Whether there are gaps, all of them between images.
    gaps: bool,
}

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
        if operand.layout == Layout::Blocked16 && parent != channels && channels % 16 != 0 {
            let text = "a slice of a blocked tensor must consist of whole blocks of 16 channels";
            return Err(Error::unsupported(text).got(channels.to_string()));
        }
        let mut whole = shape.clone();
        whole.iter_mut().skip(1).take(1).for_each(|channels| *channels = parent);
        let image = operand.layout.bytes(operand.dtype, &whole) / shape.first().copied().unwrap_or(1).max(1);
        let gaps = parent != channels && operand.layout != Layout::ChannelsLast;
        // One image of a slice is dense, and oneDNN is faster when told so.
        let seen = if gaps && shape[0] == 1 { shape } else { &whole };
        let raw = match operand.layout {
            Layout::Blocked16 => TensorDesc {
                dims: extents(shape)?,
                strides: Vec::new(),
                dtype: element_type(operand.dtype)?,
                blocked: true,
                parent_channels: seen[1] as i64,
            },
            Layout::Plain | Layout::ChannelsLast => {
                Self::strided(operand.dtype, shape, &strides(seen, operand.layout))?.raw
            }
        };
        Ok(Self { raw, image, gaps })
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
        let image = strides.first().copied().unwrap_or(0) * dtype.size();
        let (dims, strides, dtype) = (extents(shape)?, signed(strides), element_type(dtype)?);
        let raw = TensorDesc {
            dims,
            strides,
            dtype,
            blocked: false,
            parent_channels: 0,
        };
        Ok(Self {
            raw,
            image,
            gaps: false,
        })
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
        let rank = self.raw.dims.len();
        self.raw.dims.swap(rank - 2, rank - 1);
        self.raw.strides.swap(rank - 2, rank - 1);
        self
    }

    pub(super) fn none() -> Self {
        let dtype = ElementType::Absent;
        let raw = TensorDesc {
            dims: Vec::new(),
            strides: Vec::new(),
            dtype,
            blocked: false,
            parent_channels: 0,
        };
        Self {
            raw,
            image: 0,
            gaps: false,
        }
    }

    pub(super) fn images(&self) -> usize {
        self.raw.dims.first().map_or(1, |&count| count as usize)
    }

    /// How far apart two images lie in bytes; 0 where there is but one, which then serves all.
    pub(super) fn image_bytes(&self) -> usize {
        if self.images() == 1 { 0 } else { self.image }
    }

    pub(super) fn has_gaps_between_images(&self) -> bool {
        self.gaps && self.images() > 1
    }

    /// Describes the first image alone.
    pub(super) fn take_one_image(&mut self) {
        self.raw.dims[0] = 1;
        if self.gaps && self.raw.blocked {
            self.raw.parent_channels = self.raw.dims[1];
        }
    }
}

/// The strides of a dense tensor.
fn strides(shape: &[usize], layout: Layout) -> Vec<usize> {
    let order: Vec<_> = match layout {
        Layout::ChannelsLast => [0].into_iter().chain(2..shape.len()).chain([1]).collect(),
        _ => (0..shape.len()).collect(),
    };
    let mut strides = vec![1; shape.len()];
    let mut step = 1;
    for axis in order.into_iter().rev() {
        strides[axis] = step;
        step *= shape[axis].max(1);
    }
    strides
}

fn signed(values: &[usize]) -> Vec<i64> {
    values.iter().map(|&value| value as i64).collect()
}

/// Extents as oneDNN takes them. It computes with 32 bits in places, and divides by what overflowed there.
fn extents(shape: &[usize]) -> Result<Vec<i64>> {
    match shape.iter().find(|&&extent| extent > i32::MAX as usize) {
        Some(extent) => Err(Error::unsupported("a dimension is too large for this kernel")
            .expected(format!("at most {}", i32::MAX))
            .got(extent.to_string())),
        None => Ok(signed(shape)),
    }
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
