//! What If, Loop and Scan share: the types of what a body gives, and how arrays go in and out.

use crate::error::{Error, Result};
use crate::interrupt;
use crate::network::array::{Array, Buffer};
use crate::network::attr::Read;
use crate::network::body;
use crate::network::dim::Dim;
use crate::network::dtype::DType;
use crate::network::op::{Infer, TensorType};
use crate::network::{Network, TensorId};
use std::collections::HashMap;
use std::sync::Arc;

/// A body, as the rule of its layer sees it.
pub(super) struct Inside<'a> {
    /// The body.
    pub network: &'a Network,
    /// What its symbols are in the network around.
    sizes: HashMap<Arc<str>, Dim>,
    infer: &'a Infer<'a>,
}

/// dtype and shape of a tensor; a dimension that only the body knows is `None`.
pub(super) type Known = (DType, Vec<Option<Dim>>);

impl<'a> Inside<'a> {
    /// The body that an attribute holds. Its inputs are those of the layer from `first` on; checks them, and gives the
    /// number of the layer's next input too.
    ///
    /// # Errors
    /// If they do not fit; names the input.
    pub fn of(infer: &'a Infer<'a>, attr: &str, first: usize) -> Result<(Self, usize)> {
        let body = infer.attrs.body(attr);
        let network = &*body.0;
        let end = first + network.inputs().len();
        let unfit = || Error::invalid(format!("the layer does not feed the network {attr:?}"));
        let values = end.checked_sub(1).and_then(|last| sizes(infer, last));
        let values = values.ok_or_else(unfit)?;
        let symbols = body.symbols();
        if network.inputs().is_empty() || symbols.len() != values.len() || end > infer.inputs.len() {
            return Err(unfit());
        }
        let sizes = symbols.into_iter().zip(values).collect();
        Ok((Self { network, sizes, infer }, end))
    }

    /// Checks that an input of the body takes an input of the layer, of which it may read slices.
    pub fn check(&self, inner: usize, outer: usize, sliced: bool) -> Result<()> {
        let want = &self.network[self.network.inputs()[inner]];
        let Some(given) = self.infer.optional(outer) else {
            return Err(Error::invalid(format!("input {outer} is missing")).tensor(&want.name));
        };
        if want.ty.dtype == given.dtype && want.ty.rank() + sliced as usize == given.rank() {
            return Ok(());
        }
        Err(Error::dtype("the network inside does not take what the layer gives it")
            .tensor(&want.name)
            .expected(want.ty.describe())
            .got(given.describe()))
    }

    /// A tensor of the body in the words of the network around.
    pub fn known(&self, tensor: TensorId) -> Known {
        let TensorType { dtype, shape, .. } = &self.network[tensor].ty;
        let dim = |dim: &Dim| {
            let ours = dim.symbols().iter().all(|symbol| self.sizes.contains_key(symbol));
            ours.then(|| dim.substitute(&|symbol| self.sizes.get(symbol).cloned()))
        };
        (*dtype, shape.iter().map(dim).collect())
    }

    /// Requires what a step gives to have the shape that it takes, where that is known outside.
    ///
    /// # Errors
    /// If it can't have; names the result.
    pub fn require_kept(&self, inputs: std::ops::Range<usize>, first_result: usize) -> Result<()> {
        for (at, input) in inputs.enumerate() {
            let (taken, result) = (
                self.network.inputs()[input],
                self.network.outputs()[first_result + at].tensor,
            );
            let pairs = self.known(taken).1.into_iter().zip(self.known(result).1);
            for (have, given) in pairs.filter_map(|(have, given)| Some((have?, given?))) {
                self.infer
                    .require_equal(&have, &given, "what goes from step to step keeps its shape")
                    .map_err(|e| e.tensor(&self.network[result].name))?;
            }
        }
        Ok(())
    }

    /// The results of the body in the words of the network around.
    pub fn results(&self) -> Vec<Known> {
        self.network.outputs().iter().map(|o| self.known(o.tensor)).collect()
    }
}

/// The elements of an input that has sizes; there may be more of them than other tensors have values.
fn sizes(infer: &Infer, index: usize) -> Option<Vec<Dim>> {
    let numbers = || Some(infer.constant(index)?.to_i64().into_iter().map(Dim::from).collect());
    infer.value(index).map(<[Dim]>::to_vec).or_else(numbers)
}

/// How many of something an attribute says there are, no more than the layer has inputs.
///
/// # Errors
/// If there are more, or fewer than none.
pub(super) fn count(infer: &Infer, attr: &str) -> Result<usize> {
    let given = infer.attrs.int(attr);
    let fits = usize::try_from(given).ok().filter(|&count| count <= infer.inputs.len());
    fits.ok_or_else(|| Error::invalid(format!("attribute {attr:?} is out of range")).got(given.to_string()))
}

/// Types, with a fresh dimension for each one that is not known.
pub(super) fn typed(infer: &Infer, known: Vec<Known>) -> Vec<TensorType> {
    let mut at = 0;
    let mut dim = |dim: Option<Dim>| {
        at += 1;
        dim.unwrap_or_else(|| infer.counted(at - 1))
    };
    let typed = |(dtype, shape): Known| TensorType::new(dtype, shape.into_iter().map(&mut dim).collect::<Vec<_>>());
    known.into_iter().map(typed).collect()
}

/// What a body captures, with the sizes at the end as its last input takes them.
///
/// # Errors
/// If a size is negative.
pub(super) fn captured(inputs: &[Option<Array>]) -> Result<Vec<Array>> {
    let mut given: Vec<Array> = inputs.iter().flatten().cloned().collect();
    if let Some(last) = given.last_mut() {
        *last = body::sizes(&last.to_i64())?;
    }
    Ok(given)
}

/// The truth value in an array of one element.
pub(super) fn truth(array: &Array) -> Result<bool> {
    match array.bytes() {
        [byte] => Ok(*byte != 0),
        bytes => Err(Error::shape("a condition must be one truth value").got(format!("{} of them", bytes.len()))),
    }
}

/// Arrays of one shape side by side along a new axis; `none` is dtype and shape where there are no arrays.
///
/// # Errors
/// If the shapes differ.
pub(super) fn stacked(parts: Vec<Array>, axis: usize, none: &(DType, Vec<usize>)) -> Result<Array> {
    let mut stack = Stack::of(parts.len(), axis);
    for (at, part) in parts.into_iter().enumerate() {
        // There may be as many as a loop has steps.
        interrupt::poll()?;
        stack.put(at, &part)?;
    }
    stack.array(none)
}

/// Arrays of one shape side by side along a new axis, put there one by one, so that none has to be kept until the last one is there.
pub(super) struct Stack {
    count: usize,
    axis: usize,
    made: Option<Made>,
}

/// What the first array showed.
struct Made {
    dtype: DType,
    /// Of one array.
    shape: Vec<usize>,
    buffer: Buffer,
}

impl Stack {
    /// One for so many arrays.
    pub fn of(count: usize, axis: usize) -> Self {
        Self {
            count,
            axis,
            made: None,
        }
    }

    /// Puts an array to its place.
    ///
    /// # Errors
    /// If another one had another shape, or there is not so much memory.
    pub fn put(&mut self, at: usize, part: &Array) -> Result<()> {
        let (count, axis) = (self.count, self.axis);
        let made = match &mut self.made {
            Some(made) => made,
            none => none.insert(Made {
                dtype: part.dtype(),
                shape: part.shape().to_vec(),
                buffer: Buffer::try_zeroed(part.bytes().len().saturating_mul(count))?,
            }),
        };
        if part.shape() != made.shape {
            return Err(Error::shape("the results of two steps differ in shape")
                .expected(format!("{:?}", made.shape))
                .got(format!("{:?}", part.shape()))
                .hint("results of steps are stacked: give the same shape in each"));
        }
        let inner = made.shape[axis..].iter().product::<usize>() * made.dtype.size();
        let blocks = part.bytes().chunks_exact(inner.max(1)).enumerate();
        for (block, bytes) in blocks {
            let start = (block * count + at) * inner;
            made.buffer.as_mut_slice()[start..start + inner].copy_from_slice(bytes);
        }
        Ok(())
    }

    /// All of them; `none` is dtype and shape where none came.
    ///
    /// # Errors
    /// As [`Array::new`].
    pub fn array(self, none: &(DType, Vec<usize>)) -> Result<Array> {
        let Some(Made {
            dtype,
            mut shape,
            buffer,
        }) = self.made
        else {
            return Array::from_bytes(none.0, none.1.clone(), &[]);
        };
        shape.insert(self.axis, self.count);
        Array::new(dtype, shape, Arc::new(buffer), 0)
    }
}

/// One slice of an array along an axis, which goes away.
///
/// # Errors
/// As [`Array::from_bytes`].
pub(super) fn sliced(array: &Array, axis: usize, at: usize) -> Result<Array> {
    let mut shape = array.shape().to_vec();
    let extent = shape.remove(axis);
    let inner = shape[axis..].iter().product::<usize>() * array.dtype().size();
    let blocks = shape[..axis].iter().product::<usize>();
    let bytes = (0..blocks).map(|block| {
        let start = (block * extent + at) * inner;
        &array.bytes()[start..start + inner]
    });
    Array::from_bytes(array.dtype(), shape, &bytes.collect::<Vec<_>>().concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_stacked_again_are_what_was_sliced() {
        let values: Vec<i64> = (0..24).collect();
        let whole = Array::from_i64(DType::Int64, vec![2, 3, 4], &values).unwrap();
        for axis in 0..3 {
            let count = whole.shape()[axis];
            let parts: Vec<_> = (0..count).map(|at| sliced(&whole, axis, at).unwrap()).collect();
            let again = stacked(parts, axis, &(DType::Int64, vec![])).unwrap();
            assert_eq!((again.shape(), again.to_i64()), (whole.shape(), values.clone()));
        }
    }
}
