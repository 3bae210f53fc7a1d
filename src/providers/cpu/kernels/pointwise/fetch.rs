//! How an operand of a pointwise kernel is reached from a place in the space that the kernel walks through.

use crate::network::dtype::DType;
use crate::providers::cpu::kernels::operand_strides::coalesce;
use crate::providers::cpu::simd::convert;

/// What a register holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// f32; bools as 0 and 1.
    Float,
    /// i64, for every integer.
    Int,
}

impl Class {
    /// The class in which tensors of a dtype are computed; none for float64.
    pub fn of(dtype: DType) -> Option<Class> {
        match dtype {
            DType::Float64 => None,
            _ if dtype.is_int() => Some(Class::Int),
            _ => Some(Class::Float),
        }
    }

    /// Bytes of one element in a register.
    pub fn size(self) -> usize {
        match self {
            Class::Float => 4,
            Class::Int => 8,
        }
    }

    /// Whether memory of a dtype can be used as it is.
    pub fn is_native(self, dtype: DType) -> bool {
        match self {
            Class::Float => dtype == DType::Float32,
            Class::Int => matches!(dtype, DType::Int64 | DType::UInt64),
        }
    }

    /// Reads `n` elements into a register.
    ///
    /// # Safety
    /// Both must hold `n` elements.
    pub unsafe fn load(self, dtype: DType, from: *const u8, to: *mut u8, n: usize) {
        // SAFETY: the caller's promise.
        unsafe {
            match self {
                Class::Float => convert::to_f32(dtype, from, to.cast(), n),
                Class::Int => convert::to_i64(dtype, from, to.cast(), n),
            }
        }
    }

    /// Writes `n` elements of a register.
    ///
    /// # Safety
    /// Both must hold `n` elements.
    pub unsafe fn store(self, dtype: DType, from: *const u8, to: *mut u8, n: usize) {
        // SAFETY: the caller's promise.
        unsafe {
            match self {
                Class::Float => convert::from_f32(dtype, from.cast(), to, n),
                Class::Int => convert::from_i64(dtype, from.cast(), to, n),
            }
        }
    }

    /// Writes `n` elements of a register, each `stride` elements behind the one before.
    ///
    /// # Safety
    /// Both must hold the elements.
    unsafe fn scatter(self, dtype: DType, from: *const u8, to: *mut u8, stride: usize, n: usize) {
        let mut dense = [0u64; 256];
        let size = dtype.size();
        for start in (0..n).step_by(dense.len()) {
            let count = dense.len().min(n - start);
            // SAFETY: no dtype has more than 8 bytes; the caller's promise.
            unsafe {
                let near = dense.as_mut_ptr().cast::<u8>();
                self.store(dtype, from.add(start * self.size()), near, count);
                let far = to.add(start * stride * size);
                match size {
                    1 => (0..count).for_each(|i| *far.add(i * stride) = *near.add(i)),
                    _ => (0..count).for_each(|i| {
                        std::ptr::copy_nonoverlapping(near.add(i * size), far.add(i * stride * size), size);
                    }),
                }
            }
        }
    }

    /// Fills `n` elements of a register with its first one.
    ///
    /// # Safety
    /// The register must hold `n >= 1` elements.
    unsafe fn spread(self, register: *mut u8, n: usize) {
        // SAFETY: the caller's promise.
        unsafe {
            match self {
                Class::Float => {
                    let register = std::slice::from_raw_parts_mut(register.cast::<f32>(), n);
                    register.fill(register[0]);
                }
                Class::Int => {
                    let register = std::slice::from_raw_parts_mut(register.cast::<i64>(), n);
                    register.fill(register[0]);
                }
            }
        }
    }
}

/// The path of an operand through the space.
#[derive(Debug, Clone)]
pub struct Walk {
    sizes: Vec<usize>,
    strides: Vec<usize>,
    /// Elements within which the operand repeats itself, and elements of one repetition.
    repeats: Option<(usize, usize)>,
}

/// Most axes that a walk may keep after joining those that are even.
pub const MOST_AXES: usize = 12;

/// What a register holds of an operand, so that it need not be read again.
pub type Held = Option<(usize, usize, usize)>;

impl Walk {
    /// The path with these strides through a space of these sizes.
    pub fn new(sizes: &[usize], strides: &[usize]) -> Self {
        let (sizes, mut strides) = coalesce(sizes, &[strides]);
        let strides = strides.swap_remove(0);
        let zero = strides.iter().rposition(|&s| s == 0);
        let repeats = zero.map(|axis| {
            let once: usize = sizes[axis + 1..].iter().product();
            (once * sizes[axis], once)
        });
        Self {
            sizes,
            strides,
            repeats,
        }
    }

    /// The number of axes that are left.
    pub fn axes(&self) -> usize {
        self.sizes.len()
    }

    /// Whether the elements lie one after another, without gaps.
    pub fn is_contiguous(&self) -> bool {
        self.strides == [1]
    }

    /// Whether there is just one element.
    pub fn is_scalar(&self) -> bool {
        self.strides == [0] || self.sizes == [1]
    }

    /// After how many elements the operand may repeat itself.
    pub fn period(&self) -> Option<usize> {
        self.repeats.map(|(_, once)| once)
    }

    /// Calls `run` for each evenly spaced stretch of elements `start..end` of the space: the offset of its first
    /// element, its stride, its place after `start`, and its length.
    #[inline]
    fn each_run(&self, start: usize, end: usize, mut run: impl FnMut(usize, usize, usize, usize)) {
        let last = self.sizes.len() - 1;
        let (size, stride) = (self.sizes[last], self.strides[last]);
        let mut index = [0usize; MOST_AXES];
        let mut rest = start / size;
        let mut offset = 0;
        for axis in (0..last).rev() {
            index[axis] = rest % self.sizes[axis];
            rest /= self.sizes[axis];
            offset += index[axis] * self.strides[axis];
        }
        let mut inner = start % size;
        let mut at = start;
        while at < end {
            let length = (size - inner).min(end - at);
            run(offset + inner * stride, stride, at - start, length);
            at += length;
            inner = 0;
            for axis in (0..last).rev() {
                index[axis] += 1;
                offset += self.strides[axis];
                if index[axis] < self.sizes[axis] {
                    break;
                }
                offset -= index[axis] * self.strides[axis];
                index[axis] = 0;
            }
        }
    }

    /// Brings the elements `start..end` of the space into a register.
    ///
    /// # Safety
    /// The operand must reach from `base` over all of the space, and the register over `end - start` elements.
    pub unsafe fn fetch(
        &self,
        class: Class,
        dtype: DType,
        base: *const u8,
        register: *mut u8,
        (start, end): (usize, usize),
        held: &mut Held,
    ) {
        if let Some((whole, once)) = self.repeats {
            let now = (start / whole, start % once, end - start);
            let within = start / whole == (end - 1) / whole;
            if within && held.is_some_and(|h| h.0 == now.0 && h.1 == now.1 && h.2 >= now.2) {
                return;
            }
            *held = within.then_some(now);
        }
        self.each_run(start, end, |offset, stride, at, n| {
            // SAFETY: the offsets stay within the operand, `at + n` within the register.
            unsafe {
                let (from, to) = (base.add(offset * dtype.size()), register.add(at * class.size()));
                match stride {
                    1 => class.load(dtype, from, to, n),
                    0 => {
                        class.load(dtype, from, to, 1);
                        class.spread(to, n);
                    }
                    _ => (0..n).for_each(|i| {
                        class.load(dtype, from.add(i * stride * dtype.size()), to.add(i * class.size()), 1);
                    }),
                }
            }
        });
    }

    /// Brings the elements `start..end` of the space from a register to memory.
    ///
    /// # Safety
    /// As [`Walk::fetch`]; the strides must not be 0.
    pub unsafe fn put(
        &self,
        class: Class,
        dtype: DType,
        register: *const u8,
        base: *mut u8,
        (start, end): (usize, usize),
    ) {
        self.each_run(start, end, |offset, stride, at, n| {
            // SAFETY: as in `fetch`.
            unsafe {
                let (from, to) = (register.add(at * class.size()), base.add(offset * dtype.size()));
                match stride {
                    1 => class.store(dtype, from, to, n),
                    _ => class.scatter(dtype, from, to, stride, n),
                }
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_walk_meets_every_element_in_order() {
        let walk = Walk::new(&[2, 3, 4], &[3, 1, 0]);
        let data: Vec<f32> = (0..6).map(|v| v as f32).collect();
        for start in 0..24 {
            for end in start + 1..=24 {
                let mut register = vec![0f32; 24];
                let mut held = None;
                let (from, to) = (data.as_ptr().cast(), register.as_mut_ptr().cast());
                // SAFETY: six elements are read through the strides, at most 24 written.
                unsafe { walk.fetch(Class::Float, DType::Float32, from, to, (start, end), &mut held) };
                let want: Vec<f32> = (start..end).map(|i| (i / 4) as f32).collect();
                assert_eq!(&register[..end - start], want);
            }
        }
    }

    #[test]
    fn a_repeated_operand_is_read_once() {
        let walk = Walk::new(&[10, 4], &[0, 1]);
        assert_eq!(walk.period(), Some(4));
        assert!(Walk::new(&[10, 4], &[0, 0]).is_scalar() && Walk::new(&[10, 4], &[4, 1]).is_contiguous());
    }
}
