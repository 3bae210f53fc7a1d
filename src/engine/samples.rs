//! What a build runs a network on to compare precisions and kernels, where nobody gives arrays: numbers that are what each input
//! stands for, as far as its readers and its name tell.

use crate::engine::slices::FEWEST;
use crate::error::{Error, Result};
use crate::interrupt;
use crate::network::array::{Array, require};
use crate::network::attr::Read;
use crate::network::dim::Binding;
use crate::network::dtype::DType;
use crate::network::op::Movement;
use crate::network::reference::bind;
use crate::network::{Layer, Network, TensorId};
use crate::plan::layout::Layout;
use crate::plan::program::operand;

/// What an input stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    /// Numbers of any sign.
    Features,
    /// What differs little from one place to the next.
    Image,
    /// Rows of a table with so many.
    Ids(i64),
    /// Which elements count: those at the end of a row do not.
    Mask,
    /// 0, 1, 2, ... below a bound.
    Positions(i64),
    /// Steps of a schedule of 1,000.
    Times,
    /// Integers of which nothing is known: they may be sizes or places.
    Unknown,
}

/// Ways to fill the inputs. Where what comes out is not finite, or nothing does, the next one may do better.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// By what each input stands for.
    Roles,
    /// The same with masks that say which elements don't count.
    OtherMasks,
    /// Zeros for all that is no float.
    Zeros,
}

impl Way {
    /// All of them, the best guess first.
    pub const ALL: [Way; 3] = [Way::Roles, Way::OtherMasks, Way::Zeros];
}

/// What `run` makes of arrays of our own at these sizes, several times but at most `most`: what a few numbers are off by says little of
/// what others would be.
///
/// # Errors
/// If nothing runs, or the work is to end.
pub fn several<T>(
    network: &Network,
    binding: &Binding,
    most: usize,
    run: impl Fn(Vec<Array>) -> Result<T>,
    outputs: impl Fn(&T) -> &[Array],
) -> Result<Vec<T>> {
    /// So many elements of a result say how far others are off.
    const ENOUGH: usize = 512;
    const MOST: usize = 8;
    let one = |number| first_finite(network, binding, number, &run, |result| are_finite(outputs(result)));
    let mut found = vec![one(0)?];
    let floats = outputs(&found[0]).iter().filter(|array| array.dtype().is_float());
    let least = floats.map(Array::len).filter(|&elements| elements > 0).min();
    // A slice along the channels has as many elements as there are batches, where these have one row each.
    let wanted = least.map_or(1, |least| ENOUGH.div_ceil(least).max(FEWEST));
    for number in 1..wanted.min(MOST).min(most) {
        found.push(one(number)?);
    }
    Ok(found)
}

/// How often a network of so many operations may run to be looked at more closely: in some ten milliseconds.
pub fn affordable(operations: f64, threads: usize) -> usize {
    const MOST: f64 = 1e9;
    (MOST * threads as f64 / operations.max(1.0)) as usize
}

/// The first result of finite numbers, else the first there is, of the batch of this number.
fn first_finite<T>(
    network: &Network,
    binding: &Binding,
    number: usize,
    run: impl Fn(Vec<Array>) -> Result<T>,
    is_finite: impl Fn(&T) -> bool,
) -> Result<T> {
    let mut ran = None;
    let mut failure = None;
    for way in Way::ALL {
        match sample(network, binding, number, way).and_then(&run) {
            Ok(result) if is_finite(&result) => return Ok(result),
            Ok(result) => ran = ran.or(Some(result)),
            Err(e) => failure = failure.or(Some(e)),
        }
        interrupt::poll()?;
    }
    let failure = failure.unwrap_or_else(|| Error::internal("there is no way to fill the inputs"));
    ran.ok_or(failure)
}

/// Whether all floats are finite.
pub fn are_finite(arrays: &[Array]) -> bool {
    let mut floats = arrays.iter().filter(|array| array.dtype().is_float());
    floats.all(|array| array.f64s().all(f64::is_finite))
}

/// One array per input, of other numbers for each batch.
///
/// # Errors
/// If an input has no shape at these sizes.
pub fn sample(network: &Network, binding: &Binding, number: usize, way: Way) -> Result<Vec<Array>> {
    let mut random = Random::of(number);
    let array = |&tensor: &TensorId| {
        let operand = operand(network, tensor, Layout::Plain, binding)?;
        let role = match (role(network, tensor), way) {
            (Role::Mask, Way::OtherMasks) => Role::Unknown,
            (_, Way::Zeros) if !operand.dtype.is_float() => Role::Unknown,
            (role, _) => role,
        };
        require(operand.elements().saturating_mul(size_of::<f64>()))?;
        let values = values(role, &operand.shape, &mut random);
        Array::from_f64(operand.dtype, operand.shape, &values)
    };
    network.inputs().iter().map(array).collect()
}

/// Checks arrays that somebody gave for the inputs of a network.
///
/// # Errors
/// If a batch has too many arrays or too few, or one of another dtype or shape than its input takes.
pub fn check(network: &Network, batches: &[Vec<Array>]) -> Result<()> {
    let inputs = network.inputs();
    for batch in batches {
        if batch.len() != inputs.len() {
            return Err(
                Error::invalid("a batch to verify on does not have an array for each input")
                    .expected(inputs.len().to_string())
                    .got(batch.len().to_string()),
            );
        }
        for (&input, array) in inputs.iter().zip(batch) {
            let tensor = &network[input];
            if array.dtype() != tensor.ty.dtype {
                return Err(Error::dtype("an array to verify on has another dtype than its input")
                    .tensor(&tensor.name)
                    .expected(tensor.ty.dtype.name())
                    .got(array.dtype().name())
                    .hint("give it as a call takes it"));
            }
        }
        bind(network, &|at| batch[at].shape().to_vec())?;
    }
    Ok(())
}

fn role(network: &Network, tensor: TensorId) -> Role {
    let name = network[tensor].name.to_lowercase();
    let ty = &network[tensor].ty;
    let says = |words: &[&str]| words.iter().any(|word| name.contains(word));
    let channels = |axis: usize| {
        ty.shape[axis]
            .as_const()
            .is_some_and(|extent| matches!(extent, 1 | 3 | 4))
    };
    if ty.dtype == DType::Bool || says(&["mask"]) {
        return Role::Mask;
    }
    if !ty.dtype.is_float() {
        return match rows(network, tensor, DEEPEST) {
            Some(rows) if says(&["pos"]) => Role::Positions(rows),
            Some(rows) => Role::Ids(rows),
            None if says(&["pos"]) && !ty.shape.is_empty() => Role::Positions(i64::MAX),
            None if says(&["time", "step"]) => Role::Times,
            None => Role::Unknown,
        };
    }
    match ty.rank() {
        0 | 1 if says(&["time", "step"]) => Role::Times,
        4 | 5 if channels(1) => Role::Image,
        _ => Role::Features,
    }
}

/// Readers are not followed any further.
const DEEPEST: usize = 4;

/// Whether all that a layer gives are elements of its first input.
fn hands_on(layer: &Layer) -> bool {
    let movement = layer.op.movement;
    let moves = movement.keeps_all() || movement == Movement::Slice && layer.outputs.len() == 1;
    moves || layer.op.name == "Cast"
}

/// The rows of the smallest table that integers are looked up in.
fn rows(network: &Network, tensor: TensorId, deepest: usize) -> Option<i64> {
    let readers = network[tensor].users.iter().map(|&id| &network[id]);
    let found = readers.filter_map(|layer| {
        let at = layer.inputs.iter().position(|&input| input == Some(tensor))?;
        match (layer.op.name, at) {
            ("Gather", 1) => {
                let table = &network[layer.inputs[0]?].ty;
                table.shape[table.axis(layer.attrs.int("axis")).ok()?].as_const()
            }
            (_, 0) if deepest > 0 && hands_on(layer) => rows(network, layer.outputs[0], deepest - 1),
            _ => None,
        }
    });
    found.min().filter(|&rows| rows > 0)
}

fn values(role: Role, shape: &[usize], random: &mut Random) -> Vec<f64> {
    let count: usize = shape.iter().product();
    let length = shape.last().copied().unwrap_or(1).max(1);
    let place = |at: usize| (at / length, at % length);
    let whole = |share: f64, end: i64| (share * end as f64).floor().min((end - 1) as f64);
    let value = |at: usize| match role {
        Role::Features => 2.0 * random.share() - 1.0,
        Role::Image => {
            let (row, column) = place(at);
            let wave = (row as f64 * 0.05).sin() + (column as f64 * 0.031).cos();
            0.7 * wave + random.share() - 0.5
        }
        Role::Ids(rows) => whole(random.share(), rows),
        // The last row is whole, so that a batch of one is.
        Role::Mask => {
            let (row, column) = place(at);
            let last = (row + 1) * length == count;
            f64::from(last || column * 4 < length * 3)
        }
        Role::Positions(rows) => (place(at).1 as i64 % rows) as f64,
        Role::Times => whole(random.share(), 1000),
        Role::Unknown => 0.0,
    };
    (0..count).map(value).collect()
}

/// xorshift64*, so that every build sees the same numbers.
pub(super) struct Random(u64);

impl Default for Random {
    fn default() -> Self {
        Self(0x9e37_79b9_7f4a_7c15)
    }
}

impl Random {
    /// Another one for each number.
    pub fn of(number: usize) -> Self {
        Self(Self::default().0.wrapping_mul(2 * number as u64 + 1))
    }

    /// A number in 0..1.
    pub fn share(&mut self) -> f64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11) as f64 / (1u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::attr::{Attr, attrs};
    use crate::passes::testing::Graph;

    #[test]
    fn inputs_hold_what_they_stand_for() {
        let mut g = Graph::new();
        let table = g.weights(&[50, 8]);
        let few = g.weights(&[6, 8]);
        let ids = g.input_of("input_ids", DType::Int64, "2 16");
        let positions = g.input_of("position_ids", DType::Int64, "2 16");
        let mask = g.input_of("attention_mask", DType::Int64, "2 16");
        let time = g.input_of("timestep", DType::Int64, "1");
        let other = g.input_of("offset", DType::Int64, "1");
        let looked_up = g.op("Gather", &[table, ids]);
        let narrow = g.op_with("Cast", attrs([("to", Attr::Type(DType::Int32))]), &[positions]);
        let placed = g.op("Gather", &[few, narrow]);
        for tensor in [looked_up, placed, mask, time, other] {
            g.output(tensor);
        }
        let found = sample(&g.network, &Binding::new(), 0, Way::Roles).unwrap();
        let ids = found[0].to_i64();
        assert!(ids.iter().all(|id| (0..50).contains(id)) && ids.iter().any(|&id| id > 25));
        assert_eq!(found[1].to_i64()[..8], [0, 1, 2, 3, 4, 5, 0, 1]);
        assert_eq!(found[2].to_i64()[10..20], [1, 1, 0, 0, 0, 0, 1, 1, 1, 1]);
        assert_eq!(found[2].to_i64()[28..], [1, 1, 1, 1]);
        assert!(found[3].to_i64()[0] > 0);
        assert_eq!(found[4].to_i64(), [0]);
        let other = sample(&g.network, &Binding::new(), 0, Way::OtherMasks).unwrap();
        assert_eq!((other[0].to_i64(), other[2].to_i64()), (ids, vec![0; 32]));
    }
}
