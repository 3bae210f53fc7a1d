//! The neighbours of each element along an axis, as many for each.

use crate::error::{Error, Result};
use crate::network::ops::resize::Weights;

/// For each element of the output along an axis, the elements of the input that it is made of.
#[derive(Clone)]
pub struct Table {
    /// Neighbours of each element: 1, 2 or 4; a greater power of two under a wide filter.
    pub taps: usize,
    /// Extent of the output.
    pub out: usize,
    /// Neighbour `k` of element `i` is at `k * out + i`.
    pub places: Vec<u32>,
    /// Their weights, in the same order.
    pub weights: Vec<f32>,
}

impl Table {
    /// The table of what the op gives.
    ///
    /// # Errors
    /// If an element lies outside of the input.
    pub fn new(elements: &[Option<Weights>]) -> Result<Table> {
        let merged: Option<Vec<Weights>> = elements.iter().map(|e| e.as_ref().map(|e| merge(e))).collect();
        let merged = merged.ok_or_else(|| Error::internal("an element of Resize lies outside of its input"))?;
        let most = merged.iter().map(Vec::len).max().unwrap_or(1);
        let (taps, out) = (most.next_power_of_two(), elements.len());
        let mut table = Table {
            taps,
            out,
            places: vec![0; taps * out],
            weights: vec![0.0; taps * out],
        };
        for (i, element) in merged.iter().enumerate() {
            for k in 0..taps {
                let missing = (element[element.len() - 1].0, 0.0);
                let (place, weight) = element.get(k).copied().unwrap_or(missing);
                table.places[k * out + i] = place as u32;
                table.weights[k * out + i] = weight as f32;
            }
        }
        Ok(table)
    }

    /// The table that leaves an axis as it is.
    pub fn identity(size: usize) -> Table {
        Table {
            taps: 1,
            out: size,
            places: (0..size as u32).collect(),
            weights: vec![1.0; size],
        }
    }

    /// Whether it leaves an axis of this extent as it is.
    pub fn is_identity(&self, size: usize) -> bool {
        self.taps == 1 && self.out == size && self.places.iter().enumerate().all(|(i, &place)| i == place as usize)
    }

    /// Neighbour `k` of element `i`, and its weight.
    pub fn tap(&self, i: usize, k: usize) -> (usize, f32) {
        let at = k * self.out + i;
        (self.places[at] as usize, self.weights[at])
    }
}

/// Neighbours without those of no weight, and each only once; at least one.
fn merge(neighbours: &[(usize, f64)]) -> Weights {
    let mut merged: Weights = vec![];
    for &(place, weight) in neighbours.iter().filter(|(_, weight)| *weight != 0.0) {
        match merged.last_mut().filter(|last| last.0 == place) {
            Some(last) => last.1 += weight,
            None => merged.push((place, weight)),
        }
    }
    if merged.is_empty() {
        merged.extend(neighbours.first());
    }
    merged
}
