//! How often numbers of each size come in a tensor, gathered in one pass, and the ranges that follow.

use crate::error::{Error, Result};
use crate::network::ops::histogram::{BINS, Counted, LEAST, MOST, NOT_FINITE};

/// How many times the least squared error a range by entropy may have. One outlier of 64 among 100,000 normal numbers, which it
/// shall cut off, makes 2.6.
const MOST_ERROR: f64 = 4.0;
/// One in so many ranges is looked at for the least squared error.
const NEIGHBOURS: usize = 16;

/// Counts of magnitudes in [`BINS`] bins of equal width. Its range is a power of two and doubles when a larger number comes, two
/// bins becoming one: what it holds depends on the numbers alone, not on how they were batched or on who counted them.
#[derive(Debug, Clone)]
pub struct Histogram {
    counts: Vec<u64>,
    /// The bins cover 0 to `2^exponent`.
    exponent: i32,
    least: f32,
    greatest: f32,
    elements: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self {
            counts: vec![0; BINS],
            exponent: i32::MIN,
            least: f32::INFINITY,
            greatest: f32::NEG_INFINITY,
            elements: 0,
        }
    }
}

fn not_finite() -> Error {
    Error::invalid("a tensor holds numbers that are not finite: no range holds them")
}

/// How a range follows from a histogram.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Method {
    /// Of the ranges, the one whose 8 bits lose least information (Kullback-Leibler divergence), as TensorRT's entropy calibrator.
    Entropy,
    /// The greatest magnitude.
    MinMax,
    /// So many percent of the magnitudes are within.
    Percentile(f64),
    /// The least mean squared error.
    Mse,
}

impl Histogram {
    /// Counts numbers.
    ///
    /// # Errors
    /// If one is not finite: no range holds it.
    pub fn add(&mut self, values: &[f32]) -> Result<()> {
        let Counted { counts, exponent, ends } = Counted::of(values).ok_or_else(not_finite)?;
        self.join(&counts, exponent, ends)
    }

    /// Adds what the op Histogram gives.
    ///
    /// # Errors
    /// If a number was not finite, or the op gives no such counts.
    pub fn join(&mut self, counts: &[u64], exponent: i32, [least, greatest]: [f32; 2]) -> Result<()> {
        if exponent == NOT_FINITE {
            return Err(not_finite());
        }
        if counts.len() != BINS || !(LEAST..=MOST).contains(&exponent) {
            return Err(Error::invalid("these are no counts of a Histogram")
                .expected(format!("{BINS} of a range from 2^{LEAST} to 2^{MOST}"))
                .got(format!("{} of a range to 2^{exponent}", counts.len())));
        }
        let elements: u64 = counts.iter().sum();
        if elements == 0 {
            return Ok(());
        }
        let wider = self.exponent.max(exponent);
        if self.elements > 0 {
            let narrow = std::mem::replace(&mut self.counts, vec![0; BINS]);
            self.gather(&narrow, wider - self.exponent);
        }
        self.gather(counts, wider - exponent);
        self.exponent = wider;
        self.least = self.least.min(least);
        self.greatest = self.greatest.max(greatest);
        self.elements += elements;
        Ok(())
    }

    /// Adds counts over a range that is so many times half as wide.
    fn gather(&mut self, counts: &[u64], halvings: i32) {
        for (bin, count) in counts.iter().enumerate() {
            self.counts[bin >> halvings.min(BINS.ilog2() as i32)] += count;
        }
    }

    /// The greatest magnitude; 0 where there was none.
    pub fn magnitude(&self) -> f32 {
        self.greatest.max(-self.least).max(0.0)
    }

    /// The least and the greatest number.
    pub fn ends(&self) -> (f32, f32) {
        (self.least, self.greatest)
    }

    /// How many numbers were counted.
    pub fn elements(&self) -> u64 {
        self.elements
    }

    /// The magnitude that the outermost of `levels` steps should stand for: 128 steps of a sign, or 255 without.
    ///
    /// # Errors
    /// If nothing was counted, or the percentile is none.
    pub fn range(&self, method: Method, levels: usize) -> Result<f32> {
        if self.elements == 0 {
            return Err(Error::invalid("no numbers were counted").hint("give at least one batch"));
        }
        let most = f64::from(self.magnitude());
        if most == 0.0 {
            return Ok(0.0);
        }
        let width = 2f64.powi(self.exponent) / BINS as f64;
        let bins = match method {
            Method::MinMax => return Ok(most as f32),
            Method::Percentile(percent) => self.within(percent)?,
            Method::Entropy => self.least_divergence(levels),
            Method::Mse => self.least_error(levels),
        };
        Ok((bins as f64 * width).min(most) as f32)
    }

    fn within(&self, percent: f64) -> Result<usize> {
        if !(percent > 0.0 && percent <= 100.0) {
            return Err(Error::invalid("a percentile is between 0 and 100").got(percent.to_string()));
        }
        let wanted = percent / 100.0 * self.elements as f64;
        let mut sum = 0;
        for (at, count) in self.counts.iter().enumerate() {
            sum += count;
            if sum as f64 >= wanted {
                return Ok(at + 1);
            }
        }
        Ok(BINS)
    }

    /// The bins in use, from the first one on.
    fn used(&self) -> usize {
        self.counts.iter().rposition(|&count| count > 0).map_or(0, |at| at + 1)
    }

    /// Of the ranges of at least `levels` bins, the one for which the counts, with all beyond it put into the last bin, diverge least
    /// from the same in `levels` steps. Zeros, of which a ReLU makes many, are in every step alike and do not count. Ranges whose
    /// squared error is far above the least are left out: the divergence does not say how far off the numbers are that are cut off,
    /// and where they gather in two places (at both bounds of a Clip) or are few it may cut off many.
    fn least_divergence(&self, levels: usize) -> usize {
        let mut counts: Vec<f64> = self.counts.iter().map(|&count| count as f64).collect();
        counts[0] = counts[1];
        let used = self.used();
        if used <= levels {
            return used;
        }
        let total: f64 = counts.iter().sum();
        let mut sums = vec![0.0; used + 1];
        let mut filled = vec![0usize; used + 1];
        for at in 0..used {
            sums[at + 1] = sums[at] + counts[at];
            filled[at + 1] = filled[at] + (counts[at] > 0.0) as usize;
        }
        let ends = levels..=used;
        // One of many neighbours tells the least error well enough.
        let some = ends.clone().step_by(NEIGHBOURS).chain([used]);
        let least = some.map(|end| self.error(end, levels)).fold(f64::INFINITY, f64::min);
        let mut found: Vec<(f64, usize)> = ends
            .map(|end| (divergence(&counts, &sums, &filled, end, levels, total), end))
            .collect();
        found.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut best = found.into_iter().map(|(_, end)| end);
        best.find(|&end| self.error(end, levels) <= MOST_ERROR * least)
            .unwrap_or(used)
    }

    fn least_error(&self, levels: usize) -> usize {
        let used = self.used();
        let ends = (levels.min(used)..=used).map(|end| (self.error(end, levels), end));
        ends.min_by(|a, b| a.0.total_cmp(&b.0)).map_or(used, |(_, end)| end)
    }

    /// The squared error, in bins, of all numbers in `levels` steps of a range of `end` bins.
    fn error(&self, end: usize, levels: usize) -> f64 {
        let step = end as f64 / levels as f64;
        let counted = self.counts.iter().enumerate().filter(|(_, count)| **count > 0);
        let squared = |(at, &count): (usize, &u64)| {
            let value = at as f64 + 0.5;
            let rounded = (value / step).round().min(levels as f64) * step;
            // Within a step much narrower than a bin, numbers are off by what uniform ones are.
            let within = if value < end as f64 {
                (step * step).min(1.0) / 12.0
            } else {
                0.0
            };
            count as f64 * ((value - rounded).powi(2) + within)
        };
        counted.map(squared).sum()
    }
}

/// The Kullback-Leibler divergence of the first `end` bins, into the last of which all beyond fall, from the same bins when the
/// counts of each of `levels` steps are spread over those of its bins that are not empty.
fn divergence(counts: &[f64], sums: &[f64], filled: &[usize], end: usize, levels: usize, total: f64) -> f64 {
    let outliers = total - sums[end];
    let (mut sum, mut covered) = (0.0, 0.0);
    for level in 0..levels {
        let (from, to) = (level * end / levels, (level + 1) * end / levels);
        let bins = filled[to] - filled[from];
        if bins == 0 {
            continue;
        }
        let spread = (sums[to] - sums[from]) / bins as f64 / total;
        for (at, &count) in counts.iter().enumerate().take(to).skip(from) {
            let last = if at + 1 == end { outliers } else { 0.0 };
            let share = (count + last) / total;
            if count > 0.0 {
                covered += share;
                sum += share * (share / spread).ln();
            }
        }
    }
    // What falls into an empty last bin is where the steps have nothing, but for next to nothing.
    let missing = (1.0 - covered).max(0.0);
    let lost = if missing > 1e-9 {
        missing * (missing * 1e9).ln()
    } else {
        0.0
    };
    // The steps hold less than all: so the divergence counts what they lack, and never is negative.
    sum + lost - 1.0 + sums[end] / total
}

#[cfg(test)]
mod tests {
    use super::*;

    fn normal(count: usize) -> Vec<f32> {
        let mut state = 9u64;
        let mut uniform = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            ((state >> 40) as f64 + 0.5) / (1u64 << 24) as f64
        };
        let mut one = || (-2.0 * uniform().ln()).sqrt() * (std::f64::consts::TAU * uniform()).cos();
        (0..count).map(|_| one() as f32).collect()
    }

    #[test]
    fn batches_and_their_order_change_nothing() {
        let values = normal(10_000);
        let mut whole = Histogram::default();
        whole.add(&values).unwrap();
        let mut parts = Histogram::default();
        for part in values.chunks(97).rev() {
            parts.add(part).unwrap();
        }
        assert_eq!((&whole.counts, whole.exponent), (&parts.counts, parts.exponent));
        assert_eq!(whole.ends(), parts.ends());
    }

    #[test]
    fn ranges_leave_out_an_outlier_but_for_the_greatest() {
        let mut values = normal(100_000);
        values.push(64.0);
        let mut histogram = Histogram::default();
        histogram.add(&values).unwrap();
        let range = |method| histogram.range(method, 128).unwrap();
        assert_eq!(range(Method::MinMax), 64.0);
        for method in [Method::Entropy, Method::Percentile(99.99)] {
            assert!((2.5..8.0).contains(&range(method)), "{method:?} {}", range(method));
        }
        // Of the squared error, one number so far out is a large part.
        assert!((20.0..60.0).contains(&range(Method::Mse)), "{}", range(Method::Mse));
    }

    #[test]
    fn few_values_far_apart_are_not_cut_off() {
        let values: Vec<f32> = (0..1000).map(|i| (i % 17) as f32 / 8.0 - 1.0).collect();
        let mut histogram = Histogram::default();
        histogram.add(&values).unwrap();
        for method in [Method::Entropy, Method::Mse, Method::Percentile(99.99)] {
            let range = histogram.range(method, 128).unwrap();
            assert!(range > 0.99, "{method:?} {range}");
        }
    }

    #[test]
    fn numbers_that_gather_at_two_bounds_are_not_cut_off() {
        let values: Vec<f32> = normal(20_000).into_iter().map(|value| value.clamp(-0.7, 1.3)).collect();
        let mut histogram = Histogram::default();
        histogram.add(&values).unwrap();
        let range = histogram.range(Method::Entropy, 128).unwrap();
        assert!(range > 1.25, "{range}");
    }

    #[test]
    fn the_range_of_least_error_has_the_least_error() {
        let values = normal(50_000);
        let mut histogram = Histogram::default();
        histogram.add(&values).unwrap();
        let error = |range: f32| -> f64 {
            let step = f64::from(range) / 127.0;
            let of = |&v: &f32| (f64::from(v) - (f64::from(v) / step).round().clamp(-128.0, 127.0) * step).powi(2);
            values.iter().map(of).sum()
        };
        let found = error(histogram.range(Method::Mse, 127).unwrap());
        let least = (10..60).map(|i| error(i as f32 * 0.1)).fold(f64::INFINITY, f64::min);
        assert!(found <= 1.05 * least, "{found} {least}");
    }

    #[test]
    fn what_the_op_counts_is_joined_and_nothing_else() {
        let values = normal(5000);
        let mut whole = Histogram::default();
        whole.add(&values).unwrap();
        let mut joined = Histogram::default();
        for part in values.chunks(701) {
            let Counted { counts, exponent, ends } = Counted::of(part).unwrap();
            joined.join(&counts, exponent, ends).unwrap();
        }
        assert_eq!((&whole.counts, whole.exponent), (&joined.counts, joined.exponent));
        let counts = vec![1; BINS];
        for (counts, exponent) in [
            (&counts[1..], 0),
            (&counts[..], LEAST - 1),
            (&counts[..], i32::MIN),
            (&counts[..], 128),
        ] {
            assert!(joined.join(counts, exponent, [0.0, 1.0]).is_err());
        }
        assert!(joined.join(&counts, NOT_FINITE, [0.0, 1.0]).is_err());
    }

    #[test]
    fn what_has_no_range_is_refused() {
        let mut histogram = Histogram::default();
        assert!(histogram.range(Method::Entropy, 128).is_err());
        assert!(histogram.add(&[1.0, f32::NAN]).is_err());
        assert!(histogram.add(&[f32::INFINITY]).is_err());
        let mut zeros = Histogram::default();
        zeros.add(&[0.0; 5]).unwrap();
        assert_eq!(zeros.range(Method::Entropy, 128).unwrap(), 0.0);
        assert!(zeros.clone().range(Method::Percentile(101.0), 128).is_ok());
        zeros.add(&[1e-30, 3.0]).unwrap();
        assert!(zeros.range(Method::Percentile(101.0), 128).is_err());
    }
}
