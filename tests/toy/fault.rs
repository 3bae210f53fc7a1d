//! What is wrong with a planted kernel.

use neurenix::error::Result;
use neurenix::network::array::Array;

/// What a planted kernel does wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// All elements are off by a part of themselves.
    Scaled,
    /// Everything lies one element further.
    Shifted,
    /// The last elements are not written.
    LostTail,
    /// The second half is that of the first.
    RepeatedHalf,
    /// One element is not a number.
    NotANumber,
    /// What it computes is left out: it gives its first input.
    Skipped,
    /// Values are rounded as bfloat16 are.
    WrongCast,
    /// Elements of neighbouring channels are swapped.
    Swapped,
    /// As [`Fault::Scaled`], and there is no other form.
    InEveryForm,
}

impl Fault {
    /// A float32 result with the fault.
    pub fn applied(self, result: &Array, inputs: &[Option<Array>]) -> Result<Array> {
        let mut values = result.to_f64();
        let count = values.len();
        match self {
            Fault::Scaled | Fault::InEveryForm => values.iter_mut().for_each(|v| *v *= 1.03),
            Fault::Shifted => values.rotate_right(1),
            Fault::LostTail => values[count - count.div_ceil(8)..].fill(0.0),
            Fault::RepeatedHalf => values.copy_within(..count / 2, count - count / 2),
            Fault::NotANumber => values[count / 2] = f64::NAN,
            Fault::Skipped => values = inputs[0].as_ref().map_or(values, Array::to_f64),
            Fault::WrongCast => values
                .iter_mut()
                .for_each(|v| *v = f64::from(f32::from_bits((*v as f32).to_bits() & 0xffff_0000))),
            Fault::Swapped => values.chunks_exact_mut(2).for_each(|pair| pair.swap(0, 1)),
        }
        values.resize(count, 0.0);
        Array::from_f64(result.dtype(), result.shape().to_vec(), &values)
    }
}
