//! Slices of a part of a result along its axes, each judged by itself: what is wrong in a channel of small numbers is not seen
//! beside channels of large ones.

use crate::error::Result;

/// A slice of fewer elements says too little.
pub const FEWEST: usize = 8;
/// A slice may be off by so many times what the whole may: what roundings do differs that much from channel to channel.
const TIMES: f64 = 2.0;

/// Asks how far roundings in front would move each element, if anything says.
pub type Ask<'a> = &'a dyn Fn() -> Result<Option<Vec<f64>>>;

/// The error of a part as a whole or of a slice, beside what is allowed.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Deviation {
    /// The error: root mean square, relative or not.
    pub error: f64,
    /// How much was allowed.
    pub allowed: f64,
    /// Which slice, if one: the axis, and where on it.
    pub slice: Option<(usize, usize)>,
}

impl Deviation {
    /// The error as a share of what is allowed.
    pub fn excess(&self) -> f64 {
        match self.error > 0.0 {
            true => self.error / self.allowed,
            false => 0.0,
        }
    }

    /// The one of two that is worse beside what is allowed.
    #[must_use]
    pub fn or_worse(self, other: Self) -> Self {
        match other.excess() > self.excess() {
            true => other,
            false => self,
        }
    }
}

/// Numbers of a part, what they should be, and what errors of them are measured by.
#[derive(Clone, Copy)]
pub struct Judged<'j> {
    /// What came.
    pub got: &'j [f64],
    /// What was wanted.
    pub want: &'j [f64],
    /// Whether an error is beside the numbers, or as it is.
    pub is_relative: bool,
    /// What all of them may be off by.
    pub allowed: f64,
}

/// Where the slices of a part lie.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Slices {
    /// Along which axis.
    pub axis: usize,
    /// How many.
    pub count: usize,
    /// How many elements lie between two of them.
    stride: usize,
}

/// Sums over a slice.
#[derive(Clone, Copy, Default)]
struct Sums {
    elements: usize,
    error: f64,
    size: f64,
    noise: f64,
}

impl Slices {
    /// Those of numbers of a shape along an axis.
    pub fn of(shape: &[usize], axis: usize) -> Self {
        Self {
            axis,
            count: shape[axis],
            stride: shape[axis + 1..].iter().product::<usize>().max(1),
        }
    }

    fn sums(self, judged: &Judged<'_>, noise: Option<&[f64]>) -> Vec<Sums> {
        let mut sums = vec![Sums::default(); self.count];
        let pairs = judged.got.iter().zip(judged.want).enumerate();
        for (at, (got, want)) in pairs.filter(|(_, (_, want))| want.is_finite()) {
            let sum = &mut sums[at / self.stride % self.count];
            sum.elements += 1;
            sum.error += (got - want) * (got - want);
            sum.size += want * want;
            sum.noise += noise.map_or(0.0, |noise| noise[at] * noise[at]);
        }
        sums
    }
}

impl Judged<'_> {
    /// Whether a number is not finite as it should be.
    pub fn is_broken(&self) -> bool {
        let mut pairs = self.got.iter().zip(self.want);
        pairs.any(|(got, want)| !got.is_finite() && want.is_finite())
    }

    /// All numbers as one.
    pub fn whole(&self) -> Deviation {
        self.deviation(self.all(), 0.0, self.allowed)
    }

    /// The worst of `count` batches of as many numbers each, beside the numbers of all of them.
    pub fn worst_batch(&self, count: usize) -> Deviation {
        let length = (self.want.len() / count.max(1)).max(1);
        let batches = self.got.chunks(length).zip(self.want.chunks(length));
        let usual = self.all().mean_size();
        let batches = batches.map(|(got, want)| {
            let sum = Judged { got, want, ..*self }.all();
            self.deviation(sum, usual, self.allowed)
        });
        batches.fold(Deviation::default(), Deviation::or_worse)
    }

    fn all(&self) -> Sums {
        let everything = Slices {
            axis: 0,
            count: 1,
            stride: 1,
        };
        everything.sums(self, None)[0]
    }

    /// The slice that is worst. Where one departs, `noise` says what explains it.
    ///
    /// # Errors
    /// Those of `noise`.
    pub fn worst_slice(&self, slices: &[Slices], noise: Ask<'_>) -> Result<Deviation> {
        let worst = |noise: Option<&[f64]>, most| {
            let found = slices.iter().map(|&along| self.worst_along(along, noise, most));
            found.fold(Deviation::default(), Deviation::or_worse)
        };
        let found = worst(None, 0.0);
        Ok(match found.excess() > 1.0 && self.is_relative {
            true => worst(noise()?.as_deref(), self.all().mean_size()),
            false => found,
        })
    }

    /// The worst slice along an axis. A few elements may be off by more than many: a mean of `n` squares varies by a share of
    /// `1 / sqrt(n)`. With `noise`, which says how far roundings in front would move each element, a slice is beside that where it
    /// is more than its numbers, up to what all numbers are: their mean square is `most`.
    fn worst_along(&self, slices: Slices, noise: Option<&[f64]>, most: f64) -> Deviation {
        let sums = slices.sums(self, noise).into_iter().enumerate();
        let found = sums.filter(|(_, sum)| sum.elements >= FEWEST).map(|(at, sum)| {
            let elements = sum.elements as f64;
            let times = if self.is_relative { TIMES } else { 1.0 } * (1.0 + 3.0 / elements.sqrt());
            Deviation {
                slice: Some((slices.axis, at)),
                ..self.deviation(sum, most.min(sum.noise / elements), self.allowed * times)
            }
        });
        found.fold(Deviation::default(), Deviation::or_worse)
    }

    /// The error of some numbers, beside `least` (a mean square) where they are smaller.
    fn deviation(&self, sum: Sums, least: f64, allowed: f64) -> Deviation {
        let elements = sum.elements.max(1) as f64;
        let size = match self.is_relative {
            true => sum.size.max(least * elements),
            false => elements,
        };
        Deviation {
            error: (sum.error / if size > 0.0 { size } else { 1.0 }).sqrt(),
            allowed,
            slice: None,
        }
    }
}

impl Sums {
    fn mean_size(self) -> f64 {
        self.size / self.elements.max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged<'j>(got: &'j [f64], want: &'j [f64]) -> Judged<'j> {
        Judged {
            got,
            want,
            is_relative: true,
            allowed: 0.1,
        }
    }

    fn worst(got: &[f64], want: &[f64], shape: [usize; 2], noise: Option<&[f64]>) -> Deviation {
        let slices = Slices::of(&shape, 1);
        judged(got, want)
            .worst_slice(&[slices], &|| Ok(noise.map(Vec::from)))
            .unwrap()
    }

    #[test]
    fn a_channel_of_small_numbers_is_judged_by_itself() {
        let (want, got) = ([100.0, 1.0].repeat(9), [100.0, 2.0, 100.0, 0.0, 100.0, 2.0].repeat(3));
        assert!(judged(&got, &want).whole().excess() < 0.2);
        let found = worst(&got, &want, [9, 2], None);
        assert_eq!((found.slice, found.error, found.allowed), (Some((1, 1)), 1.0, 0.4));
        // What would have to be of hundreds to explain it.
        assert_eq!(worst(&got, &want, [9, 2], Some(&[1.0; 18])).excess(), 2.5);
    }

    #[test]
    fn what_is_left_of_large_terms_may_be_off_by_a_share_of_them() {
        let (want, got) = ([1.0, 0.01].repeat(8), [1.02, 0.03].repeat(8));
        let of = |noise: Option<&[f64]>| worst(&got, &want, [8, 2], noise).excess();
        assert!(of(None) > 1.0 && of(Some(&[1.0; 16])) < 0.3);
        // But by no more than all numbers may.
        let (mut want, mut got) = ([1.0; 256], [1.0; 256]);
        (0..8).for_each(|row| (want[row * 32], got[row * 32]) = (0.01, 0.61));
        let found = worst(&got, &want, [8, 32], Some(&[9.0; 256]));
        assert!(found.slice == Some((1, 0)) && found.excess() > 1.0);
    }

    #[test]
    fn few_elements_say_nothing() {
        let (got, want) = ([0.0; 6], [1.0; 6]);
        assert_eq!(worst(&got, &want, [3, 2], None), Deviation::default());
        assert_eq!(judged(&got, &want).whole().error, 1.0);
    }

    #[test]
    fn a_batch_is_beside_the_numbers_of_all() {
        let (got, want) = ([0.02, 1.0, 1.0, 1.2], [0.01, 1.0, 1.0, 1.0]);
        let found = judged(&got, &want).worst_batch(4);
        assert!(
            (found.error - 0.2).abs() < 1e-9,
            "the first one is off by as much as it is: {found:?}"
        );
    }
}
