//! What ops share that move elements without changing them.

use crate::error::{Error, Result};
use crate::network::array::Array;
use crate::network::ops::strides;

/// The elements of `x` at these places, under a shape; exact for every dtype.
pub fn pick(x: &Array, shape: Vec<usize>, places: &[usize]) -> Result<Array> {
    Array::filled(x.dtype(), shape, |first, into| match x.dtype().size() {
        1 => pick_each::<1>(x, &places[first..], into),
        2 => pick_each::<2>(x, &places[first..], into),
        4 => pick_each::<4>(x, &places[first..], into),
        _ => pick_each::<8>(x, &places[first..], into),
    })
}

/// As [`pick`], and `other` where there is no place.
pub fn pick_or(x: &Array, shape: Vec<usize>, places: &[Option<usize>], other: f64) -> Result<Array> {
    let size = x.dtype().size();
    let other = Array::scalar(x.dtype(), other);
    Array::filled(x.dtype(), shape, |first, into| {
        for (slot, place) in into.chunks_exact_mut(size).zip(&places[first..]) {
            slot.copy_from_slice(place.map_or(other.bytes(), |at| &x.bytes()[at * size..][..size]));
        }
    })
}

fn pick_each<const N: usize>(x: &Array, places: &[usize], into: &mut [u8]) {
    let (elements, _) = x.bytes().as_chunks::<N>();
    let (slots, _) = into.as_chunks_mut::<N>();
    slots
        .iter_mut()
        .zip(places)
        .for_each(|(slot, &place)| *slot = elements[place]);
}

/// The elements of `x` from the first on in steps along each axis of a shape, without a list of places.
pub fn strided(x: &Array, shape: Vec<usize>, steps: &[usize]) -> Result<Array> {
    let extents = shape.clone();
    Array::filled(x.dtype(), shape, |first, into| match x.dtype().size() {
        1 => stride_each::<1>(x, &extents, steps, first, into),
        2 => stride_each::<2>(x, &extents, steps, first, into),
        4 => stride_each::<4>(x, &extents, steps, first, into),
        _ => stride_each::<8>(x, &extents, steps, first, into),
    })
}

fn stride_each<const N: usize>(x: &Array, shape: &[usize], steps: &[usize], first: usize, into: &mut [u8]) {
    let (elements, _) = x.bytes().as_chunks::<N>();
    let (slots, _) = into.as_chunks_mut::<N>();
    let (run, step) = (shape.last().copied().unwrap_or(1), steps.last().copied().unwrap_or(0));
    let mut done = 0;
    while done < slots.len() {
        let (mut at, mut place) = (first + done, 0);
        for (&extent, &step) in shape.iter().zip(steps).rev() {
            place += at % extent * step;
            at /= extent;
        }
        let count = (run - (first + done) % run).min(slots.len() - done);
        let slots = &mut slots[done..done + count];
        slots
            .iter_mut()
            .enumerate()
            .for_each(|(i, slot)| *slot = elements[place + i * step]);
        done += count;
    }
}

/// `x` with elements replaced: `from[i]` of `source` goes to `to[i]`; a later one wins.
pub fn put(x: &Array, to: &[usize], source: &Array) -> Result<Array> {
    let size = x.dtype().size();
    let mut out = x.bytes().to_vec();
    for (element, &place) in source.bytes().chunks_exact(size).zip(to) {
        out[place * size..(place + 1) * size].copy_from_slice(element);
    }
    Array::from_bytes(x.dtype(), x.shape().to_vec(), &out)
}

/// The places, row-major, of the elements of an array of this shape that lie at the given indices along each axis.
pub fn grid(shape: &[usize], along: &[Vec<usize>]) -> Vec<usize> {
    let mut places = vec![0];
    for (indices, stride) in along.iter().zip(strides(shape)) {
        places = places
            .iter()
            .flat_map(|&base| indices.iter().map(move |i| base + i * stride))
            .collect();
    }
    places
}

/// [`grid`], with all of every axis but one.
pub fn along_axis(shape: &[usize], axis: usize, indices: Vec<usize>) -> Vec<usize> {
    let mut along: Vec<Vec<usize>> = shape.iter().map(|&size| (0..size).collect()).collect();
    along[axis] = indices;
    grid(shape, &along)
}

/// The index vectors of all elements, row-major.
pub fn positions(shape: &[usize]) -> Vec<Vec<usize>> {
    let strides = strides(shape);
    let unravel = |i: usize| strides.iter().zip(shape).map(|(s, d)| i / s % d).collect();
    (0..shape.iter().product()).map(unravel).collect()
}

/// An index counted from the front.
///
/// # Errors
/// If it is outside `-size..size`.
pub fn index(i: i64, size: usize) -> Result<usize> {
    let counted = if i < 0 { i + size as i64 } else { i };
    usize::try_from(counted).ok().filter(|&i| i < size).ok_or_else(|| {
        Error::shape("an index is out of range")
            .expected_index(size as i64)
            .got(i.to_string())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn picked_elements_come_row_major() {
        let x = Array::ints(&[0, 1, 2, 3, 4, 5]).reshaped(vec![2, 3]).unwrap();
        let places = along_axis(x.shape(), 1, vec![2, 0]);
        assert_eq!(pick(&x, vec![2, 2], &places).unwrap().to_i64(), [2, 0, 5, 3]);
        assert_eq!(positions(&[1, 2]), [[0, 0], [0, 1]]);
        assert_eq!(index(-1, 3).unwrap(), 2);
        assert!(index(3, 3).is_err());
    }
}
