//! Tensors as the copy engine of Hopper and later GPUs sees them.

use super::Device;
use crate::error::{Error, Result};
use crate::network::dtype::DType;
use crate::providers::cuda::library::driver::TensorMap;

/// A tensor that is brought to shared memory in boxes, whose rows of 128 bytes lie there as tensor cores read them. The
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

impl Boxes {
    /// What addresses and strides are multiples of, in bytes.
    pub const EVEN: usize = 16;

    /// What a kernel takes for the tensor at an address (CUDA Driver API, "Tensor Map Object Management").
    ///
    /// # Errors
    /// If the driver has no such boxes.
    pub fn at(&self, device: &Device, address: *const u8) -> Result<TensorMap> {
        /// `CU_TENSOR_MAP_DATA_TYPE_FLOAT16` and `_BFLOAT16`.
        const FLOAT16: i32 = 6;
        const BFLOAT16: i32 = 9;
        /// `CU_TENSOR_MAP_INTERLEAVE_NONE`, `_SWIZZLE_128B`, `_L2_PROMOTION_L2_128B`, `_FLOAT_OOB_FILL_NONE`.
        const HOW: [i32; 4] = [0, 3, 2, 0];
        let dtype = match self.dtype {
            DType::Float16 => FLOAT16,
            DType::BFloat16 => BFLOAT16,
            other => return Err(Error::internal(format!("boxes of {}", other.name()))),
        };
        let wide = |numbers: &[usize]| numbers.iter().map(|&number| number as u64).collect::<Vec<_>>();
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
                HOW[0],
                HOW[1],
                HOW[2],
                HOW[3],
            )
        };
        device.check("cuTensorMapEncodeTiled", status)?;
        Ok(map)
    }
}
