//! Constant arrays: weights and folded values, shared and never changed.

use crate::error::{Error, Result};
use crate::network::dtype::DType;
use half::{bf16, f16};
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::NonNull;
use std::sync::Arc;

/// Alignment of every buffer that Neurenix allocates: a cache line, and one AVX-512 register.
pub const ALIGNMENT: usize = 64;

/// Owned bytes, aligned to [`ALIGNMENT`], zero at first.
pub struct Buffer {
    pointer: NonNull<u8>,
    bytes: usize,
}

// SAFETY: a Buffer owns its memory; shared references only read it.
unsafe impl Send for Buffer {}
// SAFETY: as above.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// Allocates `bytes` zeroed bytes.
    pub fn zeroed(bytes: usize) -> Self {
        let layout = Self::layout(bytes);
        // SAFETY: the layout has a size of at least ALIGNMENT.
        let pointer = NonNull::new(unsafe { alloc_zeroed(layout) });
        Self {
            pointer: pointer.unwrap_or_else(|| handle_alloc_error(layout)),
            bytes,
        }
    }

    /// The address of the first byte; writing through it needs exclusive use of the buffer.
    pub fn as_ptr(&self) -> *mut u8 {
        self.pointer.as_ptr()
    }

    /// The number of bytes.
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// The bytes, writable.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: the pointer is valid for `bytes` bytes and `self` is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.pointer.as_ptr(), self.bytes) }
    }

    fn layout(bytes: usize) -> Layout {
        let padded = bytes.max(1).div_ceil(ALIGNMENT) * ALIGNMENT;
        Layout::from_size_align(padded, ALIGNMENT).expect("buffer size fits isize")
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: the pointer is valid for `bytes` initialised bytes as long as `self` lives.
        unsafe { std::slice::from_raw_parts(self.pointer.as_ptr(), self.bytes) }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: allocated in `zeroed` with this very layout.
        unsafe { dealloc(self.pointer.as_ptr(), Self::layout(self.bytes)) }
    }
}

/// Bytes that somebody owns: a [`Buffer`], a mapped file, ...
pub type Bytes = Arc<dyn AsRef<[u8]> + Send + Sync>;

/// A dense, row-major, immutable array; cloning shares the bytes.
#[derive(Clone)]
pub struct Array {
    dtype: DType,
    shape: Vec<usize>,
    owner: Bytes,
    offset: usize,
}

impl std::fmt::Debug for Array {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Array({}{:?})", self.dtype, self.shape)
    }
}

impl PartialEq for Array {
    /// Same dtype, shape and bytes (so NaN equals itself).
    fn eq(&self, other: &Self) -> bool {
        self.dtype == other.dtype && self.shape == other.shape && self.bytes() == other.bytes()
    }
}

impl Array {
    /// An array over `owner`'s bytes from `offset` on.
    ///
    /// # Errors
    /// If the bytes do not reach, or their address is not aligned for the dtype.
    pub fn new(dtype: DType, shape: Vec<usize>, owner: Bytes, offset: usize) -> Result<Self> {
        let need = shape
            .iter()
            .try_fold(dtype.size(), |n, &d| n.checked_mul(d))
            .and_then(|n| n.checked_add(offset));
        let have = (*owner).as_ref();
        if need.is_none_or(|n| n > have.len()) {
            return Err(Error::shape("array data is shorter than its shape says")
                .expected(format!("{dtype} {shape:?}"))
                .got(format!("{} bytes", have.len().saturating_sub(offset))));
        }
        if !(have.as_ptr() as usize + offset).is_multiple_of(dtype.size()) {
            return Err(Error::internal("array data is not aligned").got(format!("offset {offset} for {dtype}")));
        }
        Ok(Self {
            dtype,
            shape,
            owner,
            offset,
        })
    }

    /// An array with a copy of `bytes`.
    pub fn from_bytes(dtype: DType, shape: Vec<usize>, bytes: &[u8]) -> Result<Self> {
        let mut buffer = Buffer::zeroed(bytes.len());
        buffer.as_mut_slice().copy_from_slice(bytes);
        Self::new(dtype, shape, Arc::new(buffer), 0)
    }

    /// An array of `dtype` with these values, each rounded to the nearest.
    pub fn from_f64(dtype: DType, shape: Vec<usize>, values: &[f64]) -> Result<Self> {
        Self::from_values(dtype, shape, values, store_f64)
    }

    /// An array of `dtype` with these values, wrapped to its width as a C cast does.
    pub fn from_i64(dtype: DType, shape: Vec<usize>, values: &[i64]) -> Result<Self> {
        Self::from_values(dtype, shape, values, store_i64)
    }

    fn from_values<T: Copy>(
        dtype: DType,
        shape: Vec<usize>,
        values: &[T],
        store: fn(DType, T, &mut [u8]),
    ) -> Result<Self> {
        let mut buffer = Buffer::zeroed(values.len() * dtype.size());
        for (chunk, &v) in buffer.as_mut_slice().chunks_exact_mut(dtype.size()).zip(values) {
            store(dtype, v, chunk);
        }
        Self::new(dtype, shape, Arc::new(buffer), 0)
    }

    /// A rank-0 array.
    pub fn scalar(dtype: DType, value: f64) -> Self {
        Self::from_f64(dtype, vec![], &[value]).expect("one value fills a scalar")
    }

    /// A rank-1 int64 array.
    pub fn ints(values: &[i64]) -> Self {
        Self::from_i64(DType::Int64, vec![values.len()], values).expect("the shape is made from the values")
    }

    /// The element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The extent of each dimension.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The number of elements.
    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The raw bytes, row-major, native byte order.
    pub fn bytes(&self) -> &[u8] {
        &(*self.owner).as_ref()[self.offset..self.offset + self.len() * self.dtype.size()]
    }

    /// The same bytes under another shape of as many elements.
    pub fn reshaped(&self, shape: Vec<usize>) -> Result<Self> {
        if shape.iter().product::<usize>() != self.len() {
            return Err(Error::shape("reshape changes the number of elements")
                .expected(format!("{} elements", self.len()))
                .got(format!("{shape:?}")));
        }
        Ok(Self { shape, ..self.clone() })
    }

    /// The elements as f64 (int64 beyond 2^53 rounds).
    pub fn to_f64(&self) -> Vec<f64> {
        self.bytes()
            .chunks_exact(self.dtype.size())
            .map(|c| load_f64(self.dtype, c))
            .collect()
    }

    /// The elements as i64; floats truncate towards zero as a cast does.
    pub fn to_i64(&self) -> Vec<i64> {
        self.bytes()
            .chunks_exact(self.dtype.size())
            .map(|c| load_i64(self.dtype, c))
            .collect()
    }

    /// The same values as another dtype.
    pub fn cast(&self, dtype: DType) -> Self {
        if dtype == self.dtype {
            return self.clone();
        }
        let cast = if self.dtype.is_float() {
            Self::from_f64(dtype, self.shape.clone(), &self.to_f64())
        } else {
            Self::from_i64(dtype, self.shape.clone(), &self.to_i64())
        };
        cast.expect("a cast keeps the number of elements")
    }

    /// The value when all elements are equal (and there is at least one).
    pub fn uniform(&self) -> Option<f64> {
        let size = self.dtype.size();
        let bytes = self.bytes();
        let first = bytes.get(..size)?;
        bytes
            .chunks_exact(size)
            .all(|c| c == first)
            .then(|| load_f64(self.dtype, first))
    }
}

fn bytes_of<const N: usize>(chunk: &[u8]) -> [u8; N] {
    chunk.try_into().expect("the chunk has the size of the dtype")
}

fn load_f64(dtype: DType, c: &[u8]) -> f64 {
    match dtype {
        DType::Float32 => f32::from_ne_bytes(bytes_of(c)) as f64,
        DType::Float64 => f64::from_ne_bytes(bytes_of(c)),
        DType::Float16 => f16::from_ne_bytes(bytes_of(c)).to_f64(),
        DType::BFloat16 => bf16::from_ne_bytes(bytes_of(c)).to_f64(),
        DType::UInt64 => u64::from_ne_bytes(bytes_of(c)) as f64,
        _ => load_i64(dtype, c) as f64,
    }
}

fn load_i64(dtype: DType, c: &[u8]) -> i64 {
    match dtype {
        DType::Int8 => c[0] as i8 as i64,
        DType::UInt8 => c[0] as i64,
        DType::Bool => (c[0] != 0) as i64,
        DType::Int16 => i16::from_ne_bytes(bytes_of(c)) as i64,
        DType::UInt16 => u16::from_ne_bytes(bytes_of(c)) as i64,
        DType::Int32 => i32::from_ne_bytes(bytes_of(c)) as i64,
        DType::UInt32 => u32::from_ne_bytes(bytes_of(c)) as i64,
        DType::Int64 | DType::UInt64 => i64::from_ne_bytes(bytes_of(c)),
        _ => load_f64(dtype, c) as i64,
    }
}

fn store_f64(dtype: DType, v: f64, c: &mut [u8]) {
    match dtype {
        DType::Float32 => c.copy_from_slice(&(v as f32).to_ne_bytes()),
        DType::Float64 => c.copy_from_slice(&v.to_ne_bytes()),
        DType::Float16 => c.copy_from_slice(&f16::from_f64(v).to_ne_bytes()),
        DType::BFloat16 => c.copy_from_slice(&bf16::from_f64(v).to_ne_bytes()),
        DType::UInt64 if v >= 0.0 => c.copy_from_slice(&(v as u64).to_ne_bytes()),
        DType::Bool => c[0] = (v != 0.0) as u8,
        _ => store_i64(dtype, v as i64, c),
    }
}

fn store_i64(dtype: DType, v: i64, c: &mut [u8]) {
    match dtype {
        DType::Int8 | DType::UInt8 => c[0] = v as u8,
        DType::Bool => c[0] = (v != 0) as u8,
        DType::Int16 | DType::UInt16 => c.copy_from_slice(&(v as u16).to_ne_bytes()),
        DType::Int32 | DType::UInt32 => c.copy_from_slice(&(v as u32).to_ne_bytes()),
        DType::Int64 | DType::UInt64 => c.copy_from_slice(&v.to_ne_bytes()),
        _ => store_f64(dtype, v as f64, c),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_survive_a_round_trip_through_every_dtype() {
        for dtype in DType::ALL {
            let values = if dtype == DType::Bool {
                [0.0, 1.0, 1.0]
            } else {
                [0.0, 1.0, 100.0]
            };
            let array = Array::from_f64(dtype, vec![3], &values).unwrap();
            assert_eq!(array.to_f64(), values, "{dtype}");
            assert_eq!(array.cast(DType::Int64).to_i64(), values.map(|v| v as i64), "{dtype}");
        }
    }

    #[test]
    fn too_few_bytes_are_refused() {
        assert!(Array::from_bytes(DType::Float32, vec![2, 2], &[0; 15]).is_err());
        assert!(Array::from_bytes(DType::Float32, vec![usize::MAX, 2], &[0; 16]).is_err());
    }

    #[test]
    fn uniform_sees_one_value() {
        assert_eq!(
            Array::from_f64(DType::BFloat16, vec![2], &[2.0, 2.0])
                .unwrap()
                .uniform(),
            Some(2.0)
        );
        assert_eq!(Array::ints(&[1, 2]).uniform(), None);
    }
}
