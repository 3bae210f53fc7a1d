//! LSTM, GRU and RNN as loops, one for each direction: the input's products of all steps come before it.

use super::Family;
use super::cell::{Cell, product};
use super::sequence::linspace;
use super::slice::slice;
use super::steps::Steps;
use crate::error::{Error, Result};
use crate::network::Layer;
use crate::network::array::Array;
use crate::network::dim::Dim;
use crate::network::dtype::DType;
use crate::network::ops::recurrent::{Kind, Spec as Recurrent};
use crate::providers::tensorrt::handle::{Spec, Tensor};
use crate::providers::tensorrt::writer::Writer;
use std::ops::Range;

/// See [`super::FAMILIES`].
pub const FAMILY: Family = Family {
    ops: &["LSTM", "GRU", "RNN"],
    write,
};

/// A layer and its extents.
struct Recurrence<'a> {
    layer: &'a Layer,
    spec: Recurrent,
    dtype: DType,
    steps: Dim,
    batch: Dim,
    input: Dim,
    hidden: Dim,
    /// The axis of x along which its steps lie; the other of the first two is the batch.
    time: usize,
    /// The number of steps as a scalar.
    count: Tensor,
    /// For each element of a batch whether its sequence goes on at a step: [steps, batch, 1], in the order of x.
    alive: Option<Tensor>,
}

fn write(w: &mut Writer, layer: &Layer) -> Result<Vec<Tensor>> {
    let recurrence = Recurrence::new(w, layer)?;
    let directions = (0..recurrence.spec.reverse.len()).map(|d| recurrence.direction(w, d));
    let directions = directions.collect::<Result<Vec<_>>>()?;
    (0..layer.outputs.len())
        .map(|output| {
            // The directions stand behind the steps in the first output, and in front of or behind the batch in the others.
            let axis = usize::from(output == 0) + usize::from(recurrence.spec.batch_first);
            let mut parts = directions.iter().map(|parts| parts[output]);
            match (parts.len(), parts.next()) {
                (1, Some(whole)) => Ok(whole),
                (_, first) => {
                    let spec = first
                        .into_iter()
                        .chain(parts)
                        .fold(Spec::new("Concatenation"), Spec::input);
                    w.one(spec.int("axis", axis as i64))
                }
            }
        })
        .collect()
}

impl<'a> Recurrence<'a> {
    fn new(w: &mut Writer, layer: &'a Layer) -> Result<Self> {
        let kind = Kind::of(layer.op.name).ok_or_else(|| Error::internal("the op is not recurrent"))?;
        let spec = Recurrent::read(kind, &layer.attrs)?;
        let (x, r) = (w.ty(layer, 0)?, w.ty(layer, 2)?);
        let time = usize::from(spec.batch_first);
        let steps = x.shape[time].clone();
        let count = w.dim(&steps)?;
        let mut this = Self {
            layer,
            dtype: x.dtype,
            batch: x.shape[1 - time].clone(),
            input: x.shape[2].clone(),
            hidden: r.shape[2].clone(),
            count: w.reshape(count, &[])?,
            alive: None,
            spec,
            steps,
            time,
        };
        this.alive = this.alive(w)?;
        Ok(this)
    }

    /// So many times the hidden extent.
    fn units(&self, count: usize) -> Dim {
        self.hidden.clone() * Dim::from(count)
    }

    fn has(&self, index: usize) -> bool {
        self.layer.inputs.get(index).copied().flatten().is_some()
    }

    /// Extents with that of the steps and that of the batch in the order of x.
    fn ordered(&self, steps: Dim, batch: Dim, last: Dim) -> Vec<Dim> {
        match self.spec.batch_first {
            true => vec![batch, steps, last],
            false => vec![steps, batch, last],
        }
    }

    fn alive(&self, w: &mut Writer) -> Result<Option<Tensor>> {
        if !self.has(4) {
            return Ok(None);
        }
        let one = || Dim::from(1i64);
        let (zero, delta) = (
            w.constant(&Array::from_i64(DType::Int32, vec![], &[0])?)?,
            w.constant(&Array::from_i64(DType::Int32, vec![1], &[1])?)?,
        );
        let numbers = linspace(w, std::slice::from_ref(&self.steps), DType::Int32, zero, delta)?;
        let numbers = w.reshape(numbers, &self.ordered(self.steps.clone(), one(), one()))?;
        let lengths = w.input(self.layer, 4)?;
        let lengths = w.reshape(lengths, &self.ordered(one(), self.batch.clone(), one()))?;
        w.elementwise("LESS", numbers, lengths).map(Some)
    }

    /// A part of a matrix along an axis, in units of the hidden extent; `other` is its extent along the other one.
    fn cut(&self, w: &mut Writer, x: Tensor, axis: usize, other: &Dim, units: Range<usize>) -> Result<Tensor> {
        let [from, count] = [units.start, units.len()].map(|units| self.units(units));
        let (mut start, mut size) = ([0i64.into(), 0i64.into()], [other.clone(), other.clone()]);
        (start[axis], size[axis]) = (from, count);
        slice(w, x, &start, &size, &[1, 1], "STRICT_BOUNDS", None)
    }

    /// The entry of a direction in an input, as a tensor of this shape; `axis` is where the directions stand.
    fn part(&self, w: &mut Writer, index: usize, axis: usize, direction: usize, shape: &[Dim]) -> Result<Tensor> {
        let ty = w.ty(self.layer, index)?;
        let whole = w.input(self.layer, index)?;
        let mut size = ty.shape.to_vec();
        size[axis] = 1i64.into();
        let mut start = vec![Dim::from(0i64); size.len()];
        start[axis] = direction.into();
        let part = match self.spec.reverse.len() {
            1 => whole,
            _ => slice(w, whole, &start, &size, &vec![1; size.len()], "STRICT_BOUNDS", None)?,
        };
        match size == shape {
            true => Ok(part),
            false => w.reshape(part, shape),
        }
    }

    /// The state before the first step: [batch, hidden].
    fn initial(&self, w: &mut Writer, index: usize, direction: usize) -> Result<Tensor> {
        let shape = [self.batch.clone(), self.hidden.clone()];
        if self.has(index) {
            return self.part(w, index, self.time, direction, &shape);
        }
        let zero = w.number(self.dtype, 0.0, 2)?;
        let start = [Dim::from(0i64), Dim::from(0i64)];
        slice(w, zero, &start, &shape, &[0, 0], "STRICT_BOUNDS", None)
    }

    /// The bias [1, gates * hidden] of the input's product, and that of the state's where it can't be added to it.
    fn biases(&self, w: &mut Writer, direction: usize) -> Result<(Option<Tensor>, Option<Tensor>)> {
        if !self.has(3) {
            return Ok((None, None));
        }
        let (gates, one) = (self.spec.kind.gates(), Dim::from(1i64));
        let both = self.part(w, 3, 0, direction, &[one.clone(), self.units(2 * gates)])?;
        let of_input = self.cut(w, both, 1, &one, 0..gates)?;
        let of_state = self.cut(w, both, 1, &one, gates..2 * gates)?;
        match self.spec.linear_before_reset {
            true => Ok((Some(of_input), Some(of_state))),
            false => Ok((Some(w.elementwise("SUM", of_input, of_state)?), None)),
        }
    }

    fn peepholes(&self, w: &mut Writer, direction: usize) -> Result<Option<[Tensor; 3]>> {
        if !self.has(7) {
            return Ok(None);
        }
        let one = Dim::from(1i64);
        let all = self.part(w, 7, 0, direction, &[one.clone(), self.units(3)])?;
        let mut each = |at: usize| self.cut(w, all, 1, &one, at..at + 1);
        Ok(Some([each(0)?, each(1)?, each(2)?]))
    }

    /// Steps from the end on, each sequence from its own.
    fn reversed(&self, w: &mut Writer, x: Tensor) -> Result<Tensor> {
        let lengths = w.input(self.layer, 4)?;
        let spec = Spec::new("ReverseSequence").input(x).input(lengths);
        let spec = spec.int("batch_axis", 1 - self.time as i64);
        w.one(spec.int("time_axis", self.time as i64))
    }

    /// The products of all steps with the weights of the input, and the bias.
    fn products(&self, w: &mut Writer, direction: usize, x: Tensor, bias: Option<Tensor>) -> Result<Tensor> {
        let rows = self.units(self.spec.kind.gates());
        let weights = self.part(w, 1, 0, direction, &[1i64.into(), rows.clone(), self.input.clone()])?;
        let products = product(w, x, weights)?;
        let Some(bias) = bias else {
            return Ok(products);
        };
        let bias = w.reshape(bias, &[1i64.into(), 1i64.into(), rows])?;
        w.elementwise("SUM", products, bias)
    }

    /// The outputs of one direction, each with an axis of extent 1 where the directions stand.
    fn direction(&self, w: &mut Writer, direction: usize) -> Result<Vec<Tensor>> {
        let reverse = self.spec.reverse[direction];
        // A loop counts from the end of all steps, which is that of a sequence only where they are equally long.
        let (turned, backwards) = (reverse && self.alive.is_some(), reverse && self.alive.is_none());
        let mut x = w.input(self.layer, 0)?;
        if turned {
            x = self.reversed(w, x)?;
        }
        let (of_input, bias) = self.biases(w, direction)?;
        let products = self.products(w, direction, x, of_input)?;
        let cell = Cell {
            spec: &self.spec,
            direction,
            dtype: self.dtype,
            weights: {
                let rows = self.units(self.spec.kind.gates());
                self.part(w, 2, 0, direction, &[rows, self.hidden.clone()])?
            },
            bias,
            peepholes: self.peepholes(w, direction)?,
            columns: &|w, x, units| self.cut(w, x, 1, &self.batch, units),
            rows: &|w, x, units| self.cut(w, x, 0, &self.hidden, units),
        };
        let states = match self.spec.kind {
            Kind::Lstm => 2,
            Kind::Gru | Kind::Rnn => 1,
        };
        let initial = (0..states).map(|state| self.initial(w, 5 + state, direction));
        let initial = initial.collect::<Result<Vec<_>>>()?;
        let (y, last) = self.run(w, &cell, products, initial, backwards)?;
        let y = if turned { self.reversed(w, y)? } else { y };
        let one = || Dim::from(1i64);
        let (mut of_steps, mut of_state) = (vec![self.steps.clone()], vec![]);
        for shape in [&mut of_steps, &mut of_state] {
            shape.extend([one(), self.batch.clone(), self.hidden.clone()]);
            if self.spec.batch_first {
                // The batch comes first, the directions stay where they are before the last.
                let batch = shape.len() - 2;
                shape[..=batch].rotate_right(1);
            }
        }
        let mut outputs = vec![w.reshape(y, &of_steps)?];
        for state in last {
            outputs.push(w.reshape(state, &of_state)?);
        }
        Ok(outputs)
    }

    /// Runs the loop: gives what is shown of each step, and the states in the end.
    fn run(
        &self,
        w: &mut Writer,
        cell: &Cell,
        products: Tensor,
        initial: Vec<Tensor>,
        backwards: bool,
    ) -> Result<(Tensor, Vec<Tensor>)> {
        let steps = Steps::new(w)?;
        steps.limit(w, "COUNT", self.count)?;
        let x = steps.slice(w, products, self.time, backwards)?;
        let alive = self.alive.map(|alive| steps.slice(w, alive, self.time, false));
        let states = initial.into_iter().map(|state| steps.carry(w, state));
        let states = states.collect::<Result<Vec<_>>>()?;
        let mut next = cell.step(w, x, &states)?;
        let mut shown = next[0];
        if let Some(alive) = alive.transpose()? {
            let zero = w.number(self.dtype, 0.0, 2)?;
            let mut choose = |a, b| w.one(Spec::new("Select").input(alive).input(a).input(b));
            shown = choose(shown, zero)?;
            for (next, &before) in next.iter_mut().zip(&states) {
                *next = choose(*next, before)?;
            }
        }
        for (&state, &next) in states.iter().zip(&next) {
            steps.next(w, state, next)?;
        }
        let y = steps.stack(w, shown, self.count, self.time, backwards)?;
        let last = states.into_iter().map(|state| steps.last(w, state));
        Ok((y, last.collect::<Result<_>>()?))
    }
}
