//! Constant arrays: weights and folded values, shared and never changed.

use crate::error::{Error, Result};
pub use crate::network::buffer::{ALIGNMENT, Buffer, require, try_vec};
use crate::network::dtype::DType;
use crate::network::narrow::{self, Narrow, PLAIN, Rounding};
use half::{bf16, f16};
use std::sync::Arc;

/// No tensor has more bytes than this: more is a mistake, and sums of a few such sizes fit 64 bits.
pub const LARGEST: usize = 1 << 46;

/// The bytes of a dense tensor.
///
/// # Errors
/// If there are more than [`LARGEST`].
pub fn bytes_of(dtype: DType, shape: &[usize]) -> Result<usize> {
    let bytes = shape.iter().try_fold(dtype.size(), |n, &d| n.checked_mul(d));
    match bytes {
        _ if shape.contains(&0) => Ok(0),
        Some(bytes) if bytes <= LARGEST => Ok(bytes),
        _ => Err(Error::shape("a tensor would be too large")
            .expected(format!("at most {LARGEST} bytes"))
            .got(format!("{dtype}{shape:?}"))),
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
        let need = bytes_of(dtype, &shape).ok().and_then(|bytes| bytes.checked_add(offset));
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
        let mut buffer = Buffer::try_zeroed(bytes.len())?;
        buffer.as_mut_slice().copy_from_slice(bytes);
        Self::new(dtype, shape, Arc::new(buffer), 0)
    }

    /// The same elements in memory of their own.
    ///
    /// # Errors
    /// If there is not so much.
    pub fn copied(&self) -> Result<Self> {
        Self::from_bytes(self.dtype, self.shape.clone(), self.bytes())
    }

    /// An array of `dtype` with these values, each rounded to the nearest.
    pub fn from_f64(dtype: DType, shape: Vec<usize>, values: &[f64]) -> Result<Self> {
        Self::from_values(dtype, shape, values, store_f64s)
    }

    /// An array of `dtype` with these values, wrapped to its width as a C cast does.
    pub fn from_i64(dtype: DType, shape: Vec<usize>, values: &[i64]) -> Result<Self> {
        Self::from_values(dtype, shape, values, store_i64s)
    }

    fn from_values<T>(
        dtype: DType,
        shape: Vec<usize>,
        values: &[T],
        store: fn(DType, &[T], &mut [u8]),
    ) -> Result<Self> {
        let mut buffer = Buffer::try_zeroed(values.len() * dtype.size())?;
        store(dtype, values, buffer.as_mut_slice());
        Self::new(dtype, shape, Arc::new(buffer), 0)
    }

    /// An array whose bytes `fill` writes, given the number of the first element and the bytes from there on.
    /// A long one is filled by several threads, each a part of it.
    pub fn filled(dtype: DType, shape: Vec<usize>, fill: impl Fn(usize, &mut [u8]) + Sync) -> Result<Self> {
        /// Fewer elements than this are not worth a thread.
        const PART: usize = 1 << 19;
        let size = dtype.size();
        let mut buffer = Buffer::try_zeroed(bytes_of(dtype, &shape)?)?;
        let count = buffer.len() / size;
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let part = count.div_ceil(threads).max(PART);
        if count <= part {
            fill(0, buffer.as_mut_slice());
        } else {
            let parts = buffer.as_mut_slice().chunks_mut(part * size).enumerate();
            std::thread::scope(|scope| {
                for (i, bytes) in parts {
                    let fill = &fill;
                    scope.spawn(move || fill(i * part, bytes));
                }
            });
        }
        Self::new(dtype, shape, Arc::new(buffer), 0)
    }

    /// An array with one value everywhere.
    ///
    /// # Errors
    /// If there is not so much memory.
    pub fn full(dtype: DType, shape: Vec<usize>, value: f64) -> Result<Self> {
        let one = Self::scalar(dtype, value);
        Self::filled(dtype, shape, |_, bytes| {
            let elements = bytes.chunks_exact_mut(dtype.size());
            elements.for_each(|element| element.copy_from_slice(one.bytes()));
        })
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
        let mut values = vec![0.0; self.len()];
        self.load_f64s(0, &mut values);
        values
    }

    /// The elements as i64; floats truncate towards zero as a cast does.
    pub fn to_i64(&self) -> Vec<i64> {
        let mut values = vec![0; self.len()];
        self.load_i64s(0, &mut values);
        values
    }

    /// The elements, as [`Array::to_f64`] gives them, without memory for all of them.
    pub fn f64s(&self) -> impl Iterator<Item = f64> + '_ {
        self.blocks(Self::load_f64s)
    }

    /// The elements, as [`Array::to_i64`] gives them, without memory for all of them.
    pub fn i64s(&self) -> impl Iterator<Item = i64> + '_ {
        self.blocks(Self::load_i64s)
    }

    fn blocks<T: Copy + Default + 'static>(&self, load: fn(&Self, usize, &mut [T])) -> impl Iterator<Item = T> + '_ {
        let count = self.len();
        (0..count).step_by(BLOCK).flat_map(move |first| {
            let (mut block, length) = ([T::default(); BLOCK], BLOCK.min(count - first));
            load(self, first, &mut block[..length]);
            block.into_iter().take(length)
        })
    }

    /// The elements from `first` on, as [`Array::to_f64`] gives them.
    pub fn load_f64s(&self, first: usize, into: &mut [f64]) {
        let bytes = &self.bytes()[first * self.dtype.size()..];
        match self.dtype {
            DType::Float32 => load(bytes, into, |c| f32::from_ne_bytes(c) as f64),
            DType::Float64 => load(bytes, into, f64::from_ne_bytes),
            DType::Float16 => load(bytes, into, |c| f16::from_ne_bytes(c).to_f64()),
            DType::BFloat16 => load(bytes, into, |c| bf16::from_ne_bytes(c).to_f64()),
            DType::UInt64 => load(bytes, into, |c| u64::from_ne_bytes(c) as f64),
            dtype if dtype.narrow().is_some() => load_narrow(dtype, bytes, into, f64::from),
            dtype => load_integers(dtype, bytes, into, |v| v as f64),
        }
    }

    /// The elements from `first` on, as [`Array::to_i64`] gives them.
    pub fn load_i64s(&self, first: usize, into: &mut [i64]) {
        let bytes = &self.bytes()[first * self.dtype.size()..];
        match self.dtype {
            DType::Float32 => load(bytes, into, |c| f32::from_ne_bytes(c) as i64),
            DType::Float64 => load(bytes, into, |c| f64::from_ne_bytes(c) as i64),
            DType::Float16 => load(bytes, into, |c| f16::from_ne_bytes(c).to_f64() as i64),
            DType::BFloat16 => load(bytes, into, |c| bf16::from_ne_bytes(c).to_f64() as i64),
            dtype if dtype.narrow().is_some() => load_narrow(dtype, bytes, into, |v| v as i64),
            dtype => load_integers(dtype, bytes, into, |v| v),
        }
    }

    /// The same values as another dtype.
    pub fn cast(&self, dtype: DType) -> Self {
        self.cast_by(dtype, PLAIN)
    }

    /// As [`Array::cast`]; how numbers become narrow floats is told.
    pub fn cast_by(&self, dtype: DType, rounding: Rounding) -> Self {
        if dtype == self.dtype {
            return self.clone();
        }
        let cast = Self::filled(dtype, self.shape.clone(), |first, bytes| {
            let blocks = bytes.chunks_mut(BLOCK * dtype.size()).enumerate();
            for (i, block) in blocks {
                self.cast_block(dtype, rounding, first + i * BLOCK, block);
            }
        });
        cast.expect("a cast keeps the number of elements")
    }

    fn cast_block(&self, dtype: DType, rounding: Rounding, first: usize, into: &mut [u8]) {
        let count = into.len() / dtype.size();
        let narrow = dtype.narrow().filter(|narrow| !narrow.is_int());
        let unsigned = self.dtype == DType::UInt64 && dtype.is_float();
        if self.dtype.is_float() || unsigned || self.dtype.narrow().or(narrow).is_some() {
            let mut values = [0.0; BLOCK];
            self.load_f64s(first, &mut values[..count]);
            match narrow {
                Some(narrow) => store(&values[..count], into, |v| [narrow.encode(v, rounding)]),
                None => store_f64s(dtype, &values[..count], into),
            }
        } else {
            let mut values = [0; BLOCK];
            self.load_i64s(first, &mut values[..count]);
            store_i64s(dtype, &values[..count], into);
        }
    }

    /// The value when all elements are equal (and there is at least one).
    pub fn uniform(&self) -> Option<f64> {
        let size = self.dtype.size();
        let bytes = self.bytes();
        let first = bytes.get(..size)?;
        bytes.chunks_exact(size).all(|c| c == first).then(|| {
            let mut value = [0.0];
            self.load_f64s(0, &mut value);
            value[0]
        })
    }
}

/// As many elements as are converted at a time: they stay in the first-level cache.
pub const BLOCK: usize = 512;

fn load<const N: usize, T>(bytes: &[u8], into: &mut [T], read: impl Fn([u8; N]) -> T) {
    let (elements, _) = bytes.as_chunks::<N>();
    into.iter_mut().zip(elements).for_each(|(slot, &c)| *slot = read(c));
}

fn load_integers<T>(dtype: DType, bytes: &[u8], into: &mut [T], of: impl Fn(i64) -> T) {
    match dtype {
        DType::Int8 => load(bytes, into, |[b]| of(i64::from(b as i8))),
        DType::UInt8 => load(bytes, into, |[b]| of(i64::from(b))),
        DType::Bool => load(bytes, into, |[b]| of(i64::from(b != 0))),
        DType::Int16 => load(bytes, into, |c| of(i16::from_ne_bytes(c).into())),
        DType::UInt16 => load(bytes, into, |c| of(u16::from_ne_bytes(c).into())),
        DType::Int32 => load(bytes, into, |c| of(i32::from_ne_bytes(c).into())),
        DType::UInt32 => load(bytes, into, |c| of(u32::from_ne_bytes(c).into())),
        _ => load(bytes, into, |c| of(i64::from_ne_bytes(c))),
    }
}

fn load_narrow<T>(dtype: DType, bytes: &[u8], into: &mut [T], of: impl Fn(f32) -> T) {
    let numbers = narrow::numbers(dtype);
    load(bytes, into, |[code]| of(numbers[usize::from(code)]));
}

fn store<const N: usize, T: Copy>(values: &[T], into: &mut [u8], write: impl Fn(T) -> [u8; N]) {
    let (elements, _) = into.as_chunks_mut::<N>();
    elements.iter_mut().zip(values).for_each(|(slot, &v)| *slot = write(v));
}

/// Writes values as elements of a dtype, each rounded to the nearest.
pub fn store_f64s(dtype: DType, values: &[f64], into: &mut [u8]) {
    if let Some(narrow) = dtype.narrow() {
        return store(values, into, |v| [narrow.encode(v, PLAIN)]);
    }
    match dtype {
        DType::Float32 => store(values, into, |v| (v as f32).to_ne_bytes()),
        DType::Float64 => store(values, into, f64::to_ne_bytes),
        DType::Float16 => store(values, into, |v| f16::from_f64(v).to_ne_bytes()),
        DType::BFloat16 => store(values, into, |v| bf16::from_f64(v).to_ne_bytes()),
        DType::UInt64 => store(values, into, |v| {
            if v >= 0.0 {
                (v as u64).to_ne_bytes()
            } else {
                (v as i64).to_ne_bytes()
            }
        }),
        DType::Bool => store(values, into, |v| [u8::from(v != 0.0)]),
        dtype => store_integers(dtype, values, into, |v| v as i64),
    }
}

/// Writes values as elements of a dtype, wrapped to its width as a C cast does.
pub fn store_i64s(dtype: DType, values: &[i64], into: &mut [u8]) {
    if let Some(narrow) = dtype.narrow().filter(|narrow| !narrow.is_int()) {
        return store(values, into, |v| [narrow.encode(v as f64, PLAIN)]);
    }
    match dtype {
        DType::Float32 => store(values, into, |v| (v as f64 as f32).to_ne_bytes()),
        DType::Float64 => store(values, into, |v| (v as f64).to_ne_bytes()),
        DType::Float16 => store(values, into, |v| f16::from_f64(v as f64).to_ne_bytes()),
        DType::BFloat16 => store(values, into, |v| bf16::from_f64(v as f64).to_ne_bytes()),
        DType::Bool => store(values, into, |v| [u8::from(v != 0)]),
        dtype => store_integers(dtype, values, into, |v| v),
    }
}

fn store_integers<T: Copy>(dtype: DType, values: &[T], into: &mut [u8], of: impl Fn(T) -> i64) {
    let mask = dtype.narrow().map_or(u8::MAX, Narrow::mask);
    match dtype.size() {
        1 => store(values, into, |v| [of(v) as u8 & mask]),
        2 => store(values, into, |v| (of(v) as u16).to_ne_bytes()),
        4 => store(values, into, |v| (of(v) as u32).to_ne_bytes()),
        _ => store(values, into, |v| of(v).to_ne_bytes()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_survive_a_round_trip_through_every_dtype() {
        for dtype in DType::ALL {
            let values = match dtype {
                DType::Float8E8M0 => [2.0, 1.0, 64.0],
                _ if dtype.bits() < 8 || dtype == DType::Bool => [0.0, 1.0, 1.0],
                _ => [0.0, 1.0, 96.0],
            };
            let array = Array::from_f64(dtype, vec![3], &values).unwrap();
            assert_eq!(array.to_f64(), values, "{dtype}");
            assert_eq!(array.cast(DType::Int64).to_i64(), values.map(|v| v as i64), "{dtype}");
        }
    }

    #[test]
    fn elements_come_in_blocks_too() {
        let values: Vec<_> = (0..2 * BLOCK as i64 + 3).collect();
        let array = Array::ints(&values);
        assert!(array.i64s().eq(values) && array.f64s().eq(array.to_f64()));
        assert_eq!(Array::ints(&[]).i64s().next(), None);
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
