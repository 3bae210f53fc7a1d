//! The name that somebody meant: hints of errors say it.

use crate::error::Error;

/// Words in lower case that mean the same; each is taken for any other of its row that is there to be named.
const SYNONYMS: [&[&str]; 12] = [
    &["tensorrt", "trt", "tensorrtexecutionprovider"],
    &["cuda", "gpu", "nvidia", "cudaexecutionprovider"],
    &["cpu", "host", "processor", "cpuexecutionprovider"],
    &["fp32", "float32", "f32", "float", "single", "full", "32"],
    &["tf32", "tensorfloat32"],
    &["bf16", "bfloat16"],
    &["fp16", "float16", "f16", "half", "16"],
    &["int8", "i8", "8"],
    &["fp8", "float8", "float8e4m3fn"],
    &["calibration", "calibrator", "calib", "int8calibrator"],
    &["optimizationlevel", "optlevel", "builderoptimizationlevel"],
    &["refittable", "refit"],
];

/// Bytes of names that somebody may have typed; comparing longer ones takes long.
const LONGEST: usize = 256;

impl Error {
    /// Hints at the one of `names` that is meant by `name`, if one is.
    pub fn nearest<'a>(self, name: &str, names: impl IntoIterator<Item = &'a str>) -> Self {
        match nearest(name, names) {
            Some(near) => self.hint(format!("the nearest name is {near:?}")),
            None => self,
        }
    }
}

/// The one of `names` that is meant by `name`: the same in other letters, a synonym, one that is a few typing errors away,
/// one of more or fewer words, or a longer or shorter form; `None` where it is none of these.
pub fn nearest<'a>(name: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let names: Vec<&str> = names.into_iter().collect();
    let wanted = plain(name);
    if let Some(same) = names.iter().find(|other| plain(other) == wanted) {
        return Some(same);
    }
    if name.len() > LONGEST {
        return None;
    }
    // A word that is known to mean something else is no typing error of a third one.
    if let Some(row) = SYNONYMS.iter().find(|row| row.contains(&wanted.as_str())) {
        return names.into_iter().find(|other| row.contains(&plain(other).as_str()));
    }
    let apart = |other: &&str| distance(&name.to_lowercase(), &other.to_lowercase());
    let mistyped = |other: &&str| other.len() <= 2 * LONGEST && apart(other) <= tolerance(name, other);
    let more_words = |other: &&str| share_words(name, other);
    let longer = |other: &&str| shortens(&wanted, &plain(other));
    let found = names.iter().copied().filter(mistyped).min_by_key(apart);
    let found = found.or_else(|| names.iter().copied().filter(more_words).min_by_key(apart));
    found.or_else(|| names.iter().copied().filter(longer).min_by_key(apart))
}

/// Letters and digits alone, in lower case.
fn plain(name: &str) -> String {
    name.to_lowercase().chars().filter(|c| c.is_alphanumeric()).collect()
}

/// Typing errors that may lie between two names: one in five of their letters.
fn tolerance(a: &str, b: &str) -> usize {
    ((a.chars().count() + b.chars().count()) / 5).max(1)
}

/// Whether all words of one name, which dots and underscores part, are words of the other.
fn share_words(a: &str, b: &str) -> bool {
    let words = |name: &str| -> Vec<String> {
        let parts = name.split(|c: char| !c.is_alphanumeric()).filter(|part| part.len() > 2);
        parts.map(str::to_lowercase).collect()
    };
    let (a, b) = (words(a), words(b));
    let within = |few: &[String], many: &[String]| !few.is_empty() && few.iter().all(|word| many.contains(word));
    within(&a, &b) || within(&b, &a)
}

/// Whether one name is a short form of the other: a third of its letters in order, the first two at its beginning.
fn shortens(a: &str, b: &str) -> bool {
    let (short, long) = if a.len() < b.len() { (a, b) } else { (b, a) };
    let mut letters = long.chars();
    let same = short.chars().zip(long.chars()).take_while(|(x, y)| x == y).count();
    same >= 2
        && short.len() >= 3
        && short.len() * 3 >= long.len()
        && short.chars().all(|letter| letters.any(|other| other == letter))
}

/// Letters to insert, leave out, replace, or swap with the next one.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let (mut before, mut last) = (vec![], (0..=b.len()).collect::<Vec<_>>());
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let replaced = last[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut least = replaced.min(last[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                least = least.min(before[j - 2] + 1);
            }
            row.push(least);
        }
        before = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn typing_errors_are_found_and_other_words_are_not() {
        assert_eq!(nearest("Conf", ["Cos", "Conv", "ConstantOfShape"]), Some("Conv"));
        assert_eq!(nearest("precison", ["providers", "precision"]), Some("precision"));
        assert_eq!(nearest("strides", ["dilation_nd", "stride_nd"]), Some("stride_nd"));
        assert_eq!(nearest("fp61", ["fp32", "fp16"]), Some("fp16"));
        for (name, other) in [
            ("openvino", "tensorrt"),
            ("StringNormalizer", "RandomNormalLike"),
            ("Foo", "Cos"),
            ("Foo", "Floor"),
        ] {
            assert_eq!(nearest(name, [other]), None, "{name}");
        }
        assert_eq!(nearest("x", []), None);
    }

    #[test]
    fn synonyms_and_spellings_mean_the_same() {
        let precisions = ["fp32", "bf16", "fp16"];
        for (word, meant) in [
            ("float16", "fp16"),
            ("HALF", "fp16"),
            ("FP32", "fp32"),
            ("bfloat16", "bf16"),
        ] {
            assert_eq!(nearest(word, precisions), Some(meant), "{word}");
        }
        assert_eq!(nearest("gpu", ["cpu", "cuda"]), Some("cuda"));
        // It is one letter from it, and means something else.
        assert_eq!(nearest("gpu", ["cpu"]), None);
        assert_eq!(nearest("TimingCache", ["timing_cache"]), Some("timing_cache"));
    }

    #[test]
    fn rows_of_synonyms_share_no_word() {
        let mut words: Vec<_> = SYNONYMS.iter().flat_map(|row| row.iter()).collect();
        let count = words.len();
        words.sort();
        words.dedup();
        assert_eq!(words.len(), count);
        assert!(words.iter().all(|word| plain(word) == **word));
    }

    #[test]
    fn short_and_long_forms_are_found() {
        assert_eq!(nearest("Convolution2d", ["Conv1d", "Conv2d"]), Some("Conv2d"));
        assert_eq!(nearest("prec", ["progress", "precision"]), Some("precision"));
        assert_eq!(nearest("img", ["mask", "image"]), Some("image"));
        assert_eq!(nearest("StringSplit", ["Split"]), None);
    }

    #[test]
    fn more_or_fewer_words_of_the_same() {
        let names = ["workspace_size", "threads", "progress"];
        assert_eq!(nearest("max_workspace_size", names), Some("workspace_size"));
        assert_eq!(nearest("num_threads", names), Some("threads"));
        assert_eq!(
            nearest("model.stem.weight", ["head.weight", "stem.weight"]),
            Some("stem.weight")
        );
    }
}
