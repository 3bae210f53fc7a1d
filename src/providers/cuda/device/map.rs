//! Tensors as the copy engine of Hopper and later GPUs sees them.

use super::Device;
use crate::error::{Error, Result};
use crate::network::dtype::DType;
use crate::providers::cuda::library::driver::TensorMap;

/// A tensor that is brought to shared memory in boxes, whose rows of 128, 64 or 32 bytes lie there as tensor cores read them. The
/// innermost axis comes first, whose elements follow one another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Boxes {
    /// The element type: 16-bit floats.
    pub dtype: DType,
    /// Extents of the tensor.
    pub extents: Vec<usize>,
    /// Bytes from one element to the next along the second axis and those behind it.
    pub strides: Vec<usize>,
    /// Extents of a box; what lies beyond the tensor is zero there.
    pub size: Vec<usize>,
}

/// Images (channels, columns, rows, images) of which the copy engine brings the rows of an im2col matrix: pixels that follow each
/// other, some channels of each, in steps. Pixels beyond an image are zero.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Windows {
    /// The element type: 16-bit floats.
    pub dtype: DType,
    /// Extents of the images.
    pub extents: [usize; 4],
    /// Bytes from one element to the next along columns, rows and images.
    pub strides: [usize; 3],
    /// The first pixel that the first tap sees, as columns and rows from the first one of an image.
    pub lower: [i32; 2],
    /// The last pixel that it may see, from the last one of an image.
    pub upper: [i32; 2],
    /// Columns and rows from one pixel to the next.
    pub steps: [usize; 2],
    /// Channels and pixels that are brought at once.
    pub size: [usize; 2],
}

/// `CU_TENSOR_MAP_INTERLEAVE_NONE`, `_L2_PROMOTION_L2_128B`, `_FLOAT_OOB_FILL_NONE`.
const PLAIN: i32 = 0;
const PROMOTION: i32 = 2;
const ZEROS: i32 = 0;

/// `CU_TENSOR_MAP_SWIZZLE_128B`, `_64B` or `_32B`: that of rows of so many bytes.
fn swizzle(row: usize) -> i32 {
    match row {
        0..=32 => 1,
        33..=64 => 2,
        _ => 3,
    }
}

/// `CU_TENSOR_MAP_DATA_TYPE_FLOAT16` or `_BFLOAT16`.
fn number_of(dtype: DType) -> Result<i32> {
    match dtype {
        DType::Float16 => Ok(6),
        DType::BFloat16 => Ok(9),
        other => Err(Error::internal(format!("boxes of {}", other.name()))),
    }
}

fn wide(numbers: &[usize]) -> Vec<u64> {
    numbers.iter().map(|&number| number as u64).collect()
}

impl Windows {
    /// Whether the driver has such a map: corners of at most a byte, and steps of at most eight.
    pub fn fits(&self) -> bool {
        let corners = self.lower.iter().chain(&self.upper);
        corners.into_iter().all(|&corner| (-128..128).contains(&corner)) && self.steps.iter().all(|&step| step <= 8)
    }

    /// What a kernel takes for the images at an address (CUDA Driver API, "Tensor Map Object Management").
    ///
    /// # Errors
    /// If the driver has no such map.
    pub fn at(&self, device: &Device, address: *const u8) -> Result<TensorMap> {
        let (extents, strides) = (wide(&self.extents), wide(&self.strides));
        let steps = [1, self.steps[0] as u32, self.steps[1] as u32, 1];
        let mut map = TensorMap::default();
        // SAFETY: everything that is read and written has the length that the driver expects of four axes. The tensor itself is not
        // touched.
        let status = unsafe {
            (device.driver.cuTensorMapEncodeIm2col)(
                &mut map,
                number_of(self.dtype)?,
                extents.len() as u32,
                address as u64,
                extents.as_ptr(),
                strides.as_ptr(),
                self.lower.as_ptr(),
                self.upper.as_ptr(),
                self.size[0] as u32,
                self.size[1] as u32,
                steps.as_ptr(),
                PLAIN,
                swizzle(self.size[0] * self.dtype.size()),
                PROMOTION,
                ZEROS,
            )
        };
        device.check("cuTensorMapEncodeIm2col", status)?;
        Ok(map)
    }
}

impl Boxes {
    /// What addresses and strides are multiples of, in bytes.
    pub const EVEN: usize = 16;

    /// What a kernel takes for the tensor at an address (CUDA Driver API, "Tensor Map Object Management").
    ///
    /// # Errors
    /// If the driver has no such boxes.
    pub fn at(&self, device: &Device, address: *const u8) -> Result<TensorMap> {
        let dtype = number_of(self.dtype)?;
        let (extents, strides) = (wide(&self.extents), wide(&self.strides));
        let size: Vec<u32> = self.size.iter().map(|&extent| extent as u32).collect();
        let each = vec![1u32; size.len()];
        let mut map = TensorMap::default();
        // SAFETY: everything that is read and written has the length that the driver expects of so many axes. The tensor itself
        // is not touched.
        let status = unsafe {
            (device.driver.cuTensorMapEncodeTiled)(
                &mut map,
                dtype,
                extents.len() as u32,
                address as u64,
                extents.as_ptr(),
                strides.as_ptr(),
                size.as_ptr(),
                each.as_ptr(),
                PLAIN,
                swizzle(self.size[0] * self.dtype.size()),
                PROMOTION,
                ZEROS,
            )
        };
        device.check("cuTensorMapEncodeTiled", status)?;
        Ok(map)
    }
}
