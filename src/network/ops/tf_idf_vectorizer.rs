//! TfIdfVectorizer.

use crate::error::{Error, Result};
use crate::network::array::Array;
use crate::network::attr::{Attrs, Preset, Read, attr};
use crate::network::dim::Dim;
use crate::network::dtype::DType;
use crate::network::op::{Evaluate, Infer, Lowering, OpDef, TensorType};
use std::collections::HashMap;

/// How often known runs of tokens stand in rows of tokens (ONNX TfIdfVectorizer).
pub static DEF: OpDef = OpDef {
    name: "TfIdfVectorizer",
    doc: "For each row of tokens, how often each n-gram of a pool stands in it, perhaps with tokens left out, and \
          perhaps weighted (ONNX TfIdfVectorizer of integers)",
    inputs: &["x"],
    attrs: &[
        attr(
            "mode",
            Preset::Text("TF"),
            "TF (counts), IDF (the weight where the count is not 0) or TFIDF (count * weight)",
        ),
        attr("pool_int64s", Preset::RequiredInts, "all n-grams, the short ones first"),
        attr(
            "ngram_counts",
            Preset::RequiredInts,
            "where in the pool those of 1, 2, ... tokens begin",
        ),
        attr(
            "ngram_indexes",
            Preset::RequiredInts,
            "for each n-gram its place in the output",
        ),
        attr(
            "weights",
            Preset::Floats(&[]),
            "for each place of the output its weight; none: 1",
        ),
        attr(
            "min_gram_length",
            Preset::RequiredInt,
            "the shortest n-grams that count",
        ),
        attr("max_gram_length", Preset::RequiredInt, "the longest n-grams that count"),
        attr(
            "max_skip_count",
            Preset::RequiredInt,
            "at most how many tokens are left out between two of an n-gram",
        ),
    ],
    infer,
    evaluate,
    lowering: Lowering::WIDE,
    ..OpDef::PLAIN
};

/// The n-grams that count, and where.
#[derive(Debug, Clone)]
pub struct Pool {
    places: HashMap<Box<[i64]>, usize>,
    lengths: (usize, usize),
    /// The greatest distance between two tokens of an n-gram.
    distance: usize,
    width: usize,
    counts: bool,
    weights: Vec<f64>,
}

impl Pool {
    /// The pool of a layer.
    ///
    /// # Errors
    /// If its attributes do not fit together.
    pub fn new(attrs: &Attrs) -> Result<Self> {
        let (pool, starts, places) = (
            attrs.ints("pool_int64s"),
            attrs.ints("ngram_counts"),
            attrs.ints("ngram_indexes"),
        );
        let [shortest, longest, skips] =
            ["min_gram_length", "max_gram_length", "max_skip_count"].map(|name| attrs.int(name));
        if !(1 <= shortest && shortest <= longest && skips >= 0) {
            return Err(Error::invalid("the lengths of n-grams are out of order")
                .expected("1 <= min_gram_length <= max_gram_length and 0 <= max_skip_count")
                .got(format!("{shortest}, {longest} and {skips}")));
        }
        let width = places.iter().copied().max().unwrap_or(-1) + 1;
        let weights = attrs.floats("weights");
        if places.iter().any(|&p| p < 0) || (!weights.is_empty() && (weights.len() as i64) < width) {
            return Err(Error::invalid("ngram_indexes does not fit")
                .expected("places that are not negative, each with a weight if there are weights")
                .got(format!("{width} places and {} weights", weights.len())));
        }
        let mode = attrs.text("mode");
        if !matches!(mode, "TF" | "IDF" | "TFIDF") {
            return Err(Error::invalid("attribute \"mode\" is unknown")
                .expected("TF, IDF or TFIDF")
                .got(mode));
        }
        Ok(Self {
            places: collected(pool, starts, places, shortest..=longest)?,
            lengths: (shortest as usize, longest as usize),
            distance: skips as usize + 1,
            width: width as usize,
            counts: mode != "IDF",
            weights: if mode == "TF" { vec![] } else { weights.to_vec() },
        })
    }

    /// The length of the output of a row.
    pub fn width(&self) -> usize {
        self.width
    }

    /// The output of a row of tokens, into `y`, which is 0.
    pub fn apply(&self, row: &[i64], y: &mut [f64]) {
        let (shortest, longest) = self.lengths;
        let mut gram = Vec::with_capacity(longest.min(row.len()));
        for distance in 1..=self.distance.min(row.len()) {
            // Single tokens have nothing between them: they count once.
            let shortest = if distance > 1 { shortest.max(2) } else { shortest };
            for start in 0..row.len() {
                gram.clear();
                for &token in row[start..].iter().step_by(distance).take(longest) {
                    gram.push(token);
                    if gram.len() >= shortest
                        && let Some(&place) = self.places.get(gram.as_slice())
                    {
                        y[place] += 1.0;
                    }
                }
            }
        }
        for (i, y) in y.iter_mut().enumerate() {
            let count = if self.counts { *y } else { f64::from(*y > 0.0) };
            *y = count * self.weights.get(i).copied().unwrap_or(1.0);
        }
    }
}

/// The n-grams of these lengths, with their places.
fn collected(
    pool: &[i64],
    starts: &[i64],
    places: &[i64],
    lengths: std::ops::RangeInclusive<i64>,
) -> Result<HashMap<Box<[i64]>, usize>> {
    let damaged = || {
        Error::invalid("ngram_counts does not fit the pool")
            .expected(format!("ascending places in a pool of {}", pool.len()))
            .got(format!("{starts:?} and {} ngram_indexes", places.len()))
    };
    let mut found = HashMap::new();
    let mut next = places.iter();
    for (i, &start) in starts.iter().enumerate() {
        let end = starts.get(i + 1).map_or(pool.len() as i64, |&end| end);
        let range = usize::try_from(start).ok().zip(usize::try_from(end).ok());
        let grams = range
            .and_then(|(start, end)| pool.get(start..end))
            .ok_or_else(damaged)?;
        for gram in grams.chunks_exact(i + 1) {
            let place = next.next().ok_or_else(damaged)?;
            if lengths.contains(&(i as i64 + 1)) {
                found.insert(gram.into(), *place as usize);
            }
        }
    }
    Ok(found)
}

fn infer(infer: &Infer) -> Result<Vec<TensorType>> {
    let (x, pool) = (infer.input(0)?, Pool::new(infer.attrs)?);
    if !matches!(x.dtype, DType::Int32 | DType::Int64) || x.rank() > 2 {
        return Err(Error::dtype("tokens are rows of integers")
            .expected("int32 or int64 of rank 1 or 2")
            .got(x.describe()));
    }
    let rows = &x.shape[..x.rank().saturating_sub(1)];
    let shape = [rows, &[Dim::from(pool.width())]].concat();
    Ok(vec![TensorType::new(DType::Float32, shape)])
}

fn evaluate(e: &Evaluate) -> Result<Vec<Array>> {
    let (x, pool) = (e.input(0)?, Pool::new(e.attrs)?);
    let length = x.shape().last().copied().unwrap_or(1);
    let mut y = vec![0.0; e.outputs[0].1.iter().product()];
    if length > 0 && pool.width() > 0 {
        let tokens = x.to_i64();
        let rows = tokens.chunks(length).zip(y.chunks_mut(pool.width()));
        rows.for_each(|(row, y)| pool.apply(row, y));
    }
    e.output(&y)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::attr::{Attr, attrs, complete};
    use crate::network::reference::evaluate_op;

    fn counted(mode: &str, tokens: &[i64], skips: i64, counts: &[i64]) -> Result<Vec<f64>> {
        let how = attrs([
            ("mode", Attr::Text(mode.into())),
            ("pool_int64s", Attr::Ints(vec![1, 2, 1, 2, 2, 3])),
            ("ngram_counts", Attr::Ints(counts.to_vec())),
            ("ngram_indexes", Attr::Ints(vec![0, 1, 3, 2])),
            ("min_gram_length", Attr::Int(1)),
            ("max_gram_length", Attr::Int(2)),
            ("max_skip_count", Attr::Int(skips)),
        ]);
        let how = complete(DEF.attrs, how)?;
        Ok(evaluate_op(&DEF, &how, &[Some(Array::ints(tokens))])?[0].to_f64())
    }

    #[test]
    fn grams_by_hand() {
        let tokens = [1, 2, 3, 2, 2, 3];
        assert_eq!(counted("TF", &tokens, 0, &[0, 2]).unwrap(), [1.0, 3.0, 2.0, 1.0]);
        // With one token left out also 2 . 3 once; 1 and 2 alone count as before.
        assert_eq!(counted("TF", &tokens, 1, &[0, 2]).unwrap(), [1.0, 3.0, 3.0, 1.0]);
        assert_eq!(counted("IDF", &tokens, 0, &[0, 2]).unwrap(), [1.0; 4]);
        assert!(counted("TF", &tokens, 0, &[0, 9]).is_err() && counted("TF", &tokens, 0, &[-1, 2]).is_err());
    }
}
