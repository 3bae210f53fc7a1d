//! Slices of a part of a result along its channels, each judged by itself: what is wrong in a channel of small numbers is not
//! seen beside channels of large ones.

use crate::error::Result;

/// A slice of fewer elements says too little.
const FEWEST: usize = 4;
/// A slice may be off by so many times what the whole may: what roundings do differs that much from channel to channel.
const TIMES: f64 = 2.0;

/// Asks how far roundings in front would move each element, if anything says.
pub type Ask<'a> = &'a dyn Fn() -> Result<Option<Vec<f64>>>;

/// The error of a part as a whole or of a slice, beside what is allowed.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Error {
    /// The error: root mean square, relative or not.
    pub error: f64,
    /// How much was allowed.
    pub allowed: f64,
    /// Which slice, if one.
    pub channel: Option<usize>,
}

impl Error {
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

/// Where the channels of a part lie.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Channels {
    /// How many.
    pub count: usize,
    /// How many elements lie between two of them.
    pub stride: usize,
}

/// Sums over a slice.
#[derive(Clone, Copy, Default)]
struct Sums {
    elements: usize,
    error: f64,
    size: f64,
    noise: f64,
}

impl Channels {
    /// Those of numbers of a shape.
    pub fn of(shape: &[usize], axis: usize) -> Self {
        Self {
            count: shape.get(axis).copied().unwrap_or(1),
            stride: shape.iter().skip(axis + 1).product::<usize>().max(1),
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
    /// All numbers as one.
    pub fn whole(&self) -> Error {
        Error {
            allowed: self.allowed,
            ..self.error(self.all(), 0.0)
        }
    }

    fn all(&self) -> Sums {
        Channels { count: 1, stride: 1 }.sums(self, None)[0]
    }

    /// The worse of the whole and of the slices. Where a slice departs, `noise` says what explains it.
    ///
    /// # Errors
    /// Those of `noise`.
    pub fn worst(&self, channels: Channels, noise: Ask<'_>) -> Result<Error> {
        let whole = self.whole();
        let slice = match self.worst_slice(channels, None, 0.0) {
            Some(slice) if slice.excess() > 1.0 && self.is_relative => {
                self.worst_slice(channels, noise()?.as_deref(), self.all().mean_size())
            }
            slice => slice,
        };
        Ok(slice.map_or(whole, |slice| whole.or_worse(slice)))
    }

    /// The slice that departs most, if there are several. A few elements may be off by more than many: a mean of `n` squares
    /// varies by a share of `1 / sqrt(n)`. With `noise`, which says how far roundings in front would move each element, a slice is
    /// beside that where it is more than its numbers, up to what all numbers are: their mean square is `most`.
    fn worst_slice(&self, channels: Channels, noise: Option<&[f64]>, most: f64) -> Option<Error> {
        if channels.count < 2 {
            return None;
        }
        let sums = channels.sums(self, noise).into_iter().enumerate();
        let found = sums
            .filter(|(_, sum)| sum.elements >= FEWEST)
            .map(|(channel, sum)| Error {
                channel: Some(channel),
                ..self.error(sum, most.min(sum.noise / sum.elements as f64))
            });
        found.max_by(|a, b| a.excess().total_cmp(&b.excess()))
    }

    /// The error of some numbers, beside `least` (a mean square) where they are smaller.
    fn error(&self, sum: Sums, least: f64) -> Error {
        let elements = sum.elements.max(1) as f64;
        let size = match self.is_relative {
            true => sum.size.max(least * elements),
            false => elements,
        };
        Error {
            error: (sum.error / if size > 0.0 { size } else { 1.0 }).sqrt(),
            allowed: self.allowed * TIMES * (1.0 + 3.0 / elements.sqrt()),
            channel: None,
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

    fn worst(got: &[f64], want: &[f64], channels: Channels, noise: Option<&[f64]>) -> Error {
        let judged = Judged {
            got,
            want,
            is_relative: true,
            allowed: 0.1,
        };
        judged.worst(channels, &|| Ok(noise.map(Vec::from))).unwrap()
    }

    #[test]
    fn a_channel_of_small_numbers_is_judged_by_itself() {
        let want = [100.0, 1.0, 100.0, 1.0, 100.0, 1.0, 100.0, 1.0];
        let got = [100.0, 2.0, 100.0, 0.0, 100.0, 2.0, 100.0, 0.0];
        let found = worst(&got, &want, Channels::of(&[4, 2], 1), None);
        assert_eq!((found.channel, found.error, found.allowed), (Some(1), 1.0, 0.5));
        // What would have to be of hundreds to explain it.
        let found = worst(&got, &want, Channels::of(&[4, 2], 1), Some(&[1.0; 8]));
        assert_eq!(found.channel, Some(1));
        assert!(worst(&got, &want, Channels::of(&[2, 4], 0), None).excess() < 0.1);
    }

    #[test]
    fn what_is_left_of_large_terms_may_be_off_by_a_share_of_them() {
        let (want, got) = ([1.0, 0.01].repeat(4), [1.02, 0.03].repeat(4));
        let of = |noise: Option<&[f64]>| worst(&got, &want, Channels::of(&[4, 2], 1), noise).excess();
        assert!(of(None) > 1.0 && of(Some(&[1.0; 8])) < 0.3);
        // But by no more than all numbers may.
        let (mut want, mut got) = ([1.0; 256], [1.0; 256]);
        (0..4).for_each(|row| (want[row * 64], got[row * 64]) = (0.01, 0.61));
        let found = worst(&got, &want, Channels::of(&[4, 64], 1), Some(&[9.0; 256]));
        assert!(found.channel == Some(0) && found.excess() > 1.0);
    }

    #[test]
    fn few_elements_and_one_slice_say_nothing() {
        let (got, want) = ([0.0; 6], [1.0; 6]);
        for shape in [[3, 2], [6, 1]] {
            let found = worst(&got, &want, Channels::of(&shape, 1), None);
            assert_eq!((found.error, found.allowed, found.channel), (1.0, 0.1, None));
        }
    }
}
