//! The ops. One op, one file; [`OPS`] lists them all.

use crate::error::{Error, Result};
use crate::network::dim::Dim;
use crate::network::op::OpDef;

pub mod pointwise;
mod spatial;

pub mod add;
pub mod cast;
pub mod conv;
pub mod relu;
pub mod reshape;
pub mod sigmoid;

/// Every op, by name.
pub static OPS: &[&OpDef] = &[
    &add::DEF,
    &cast::DEF,
    &conv::DEF,
    &relu::DEF,
    &reshape::DEF,
    &sigmoid::DEF,
];

/// The op of a name.
///
/// # Errors
/// If there is none; the nearest name is the hint.
pub fn find(name: &str) -> Result<&'static OpDef> {
    OPS.iter().copied().find(|op| op.name == name).ok_or_else(|| {
        let nearest = OPS
            .iter()
            .min_by_key(|op| distance(name, op.name))
            .map_or("", |op| op.name);
        Error::unsupported(format!("there is no op {name:?}")).hint(format!("the nearest name is {nearest:?}"))
    })
}

/// Levenshtein's edit distance.
pub fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, y) in b.iter().enumerate() {
            let replaced = diagonal + (x != *y) as usize;
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

/// Offsets of all elements of a `shape`, row-major, in a buffer with these element `strides`.
pub fn places(shape: &[usize], strides: &[usize]) -> Vec<usize> {
    let mut places = vec![0];
    for (&size, &stride) in shape.iter().zip(strides) {
        places = places
            .iter()
            .flat_map(|&base| (0..size).map(move |i| base + i * stride))
            .collect();
    }
    places
}

/// Element strides of a dense row-major array.
pub fn strides(shape: &[usize]) -> Vec<usize> {
    let mut strides = vec![1; shape.len()];
    for axis in (1..shape.len()).rev() {
        strides[axis - 1] = strides[axis] * shape[axis];
    }
    strides
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn the_list_and_the_folder_agree() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/network/ops");
        let declares = |text: &str| text.contains("static DEF") || text.contains("unary_float!(");
        let files: BTreeSet<_> = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| !path.ends_with("pointwise.rs") && !path.ends_with("mod.rs"))
            .filter(|path| declares(&std::fs::read_to_string(path).unwrap()))
            .collect();
        assert_eq!(files.len(), OPS.len(), "{files:?}");
    }

    #[test]
    fn names_are_unique_and_nearest_names_are_found() {
        let names: BTreeSet<_> = OPS.iter().map(|op| op.name).collect();
        assert_eq!(names.len(), OPS.len());
        assert!(find("Conf").unwrap_err().to_string().contains("\"Conv\""));
    }
}
