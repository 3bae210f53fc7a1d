//! What LSTM, GRU and RNN share: attributes, the shape rule, where rows lie, and the reference.

use crate::error::{Error, Result};
use crate::network::array::{Array, try_vec};
use crate::network::attr::{AttrDef, Attrs, Preset, Read, attr};
use crate::network::dim::Dim;
use crate::network::dtype::DType;
use crate::network::op::{Evaluate, Infer, Sizes, TensorType};
use crate::network::ops::activation::Activation;
use crate::network::ops::pointwise;

/// `activations`.
pub const ACTIVATIONS: AttrDef = attr(
    "activations",
    Preset::Text(""),
    "names of the functions, all of one direction after the other, separated by commas; empty: ONNX's",
);
/// `activation_alpha`.
pub const ALPHA: AttrDef = attr(
    "activation_alpha",
    Preset::Floats(&[]),
    "alpha of the functions that have one, in their order",
);
/// `activation_beta`.
pub const BETA: AttrDef = attr(
    "activation_beta",
    Preset::Floats(&[]),
    "beta of the functions that have one, in their order",
);
/// `clip`.
pub const CLIP: AttrDef = attr(
    "clip",
    Preset::Float(0.0),
    "what goes into a function is clipped to -clip..clip; 0: it is not",
);
/// `direction`.
pub const DIRECTION: AttrDef = attr(
    "direction",
    Preset::Text("forward"),
    "forward, reverse or bidirectional",
);
/// `hidden_size`.
pub const HIDDEN_SIZE: AttrDef = attr(
    "hidden_size",
    Preset::Int(0),
    "extent of the state; 0: as the weights have it",
);
/// `input_forget`.
pub const INPUT_FORGET: AttrDef = attr(
    "input_forget",
    Preset::Int(0),
    "what is not taken in is what is forgotten",
);
/// `layout`.
pub const LAYOUT: AttrDef = attr("layout", Preset::Int(0), "0: steps come first; 1: the batch does");

/// Which of the ops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Kind {
    Lstm,
    Gru,
    Rnn,
}

impl Kind {
    /// The op of this name.
    pub fn of(op: &str) -> Option<Self> {
        match op {
            "LSTM" => Some(Kind::Lstm),
            "GRU" => Some(Kind::Gru),
            "RNN" => Some(Kind::Rnn),
            _ => None,
        }
    }

    /// Gates, which the weights have one after the other.
    pub fn gates(self) -> usize {
        match self {
            Kind::Lstm => 4,
            Kind::Gru => 3,
            Kind::Rnn => 1,
        }
    }

    /// The functions of one direction when none are given.
    fn functions(self) -> &'static [&'static str] {
        match self {
            Kind::Lstm => &["Sigmoid", "Tanh", "Tanh"],
            Kind::Gru => &["Sigmoid", "Tanh"],
            Kind::Rnn => &["Tanh"],
        }
    }
}

/// What the attributes say.
#[derive(Debug, Clone, PartialEq)]
pub struct Spec {
    /// Which op.
    pub kind: Kind,
    /// For each direction whether it runs from the end.
    pub reverse: Vec<bool>,
    /// The functions of each direction.
    pub activations: Vec<Vec<Activation>>,
    /// The bound of what goes into a function; infinite where there is none.
    pub clip: f64,
    /// Whether the batch is the first axis.
    pub batch_first: bool,
    /// GRU: the product with the state comes before it is reset.
    pub linear_before_reset: bool,
    /// LSTM: what is not taken in is what is forgotten.
    pub input_forget: bool,
}

impl Spec {
    /// Reads the attributes.
    ///
    /// # Errors
    /// If one is unknown or does not fit.
    pub fn read(kind: Kind, attrs: &Attrs) -> Result<Self> {
        let reverse = match attrs.text("direction") {
            "forward" => vec![false],
            "reverse" => vec![true],
            "bidirectional" => vec![false, true],
            other => {
                return Err(Error::invalid("attribute \"direction\" is unknown")
                    .expected("forward, reverse or bidirectional")
                    .got(other));
            }
        };
        if attrs.float("clip") < 0.0 || !(0..=1).contains(&attrs.int("layout")) {
            return Err(Error::invalid("attribute \"clip\" or \"layout\" is out of range")
                .expected("a clip that is not negative, and layout 0 or 1")
                .got(format!("{} and {}", attrs.float("clip"), attrs.int("layout"))));
        }
        let names: Vec<&str> = match attrs.text("activations") {
            "" => kind.functions().repeat(reverse.len()),
            names => names.split(',').collect(),
        };
        let each = kind.functions().len();
        if names.len() != each * reverse.len() {
            return Err(Error::invalid("attribute \"activations\" has another length")
                .expected(format!("{each} names for each of {} directions", reverse.len()))
                .got(names.join(", ")));
        }
        let all = Activation::read(
            &names,
            attrs.floats("activation_alpha"),
            attrs.floats("activation_beta"),
        )?;
        Ok(Self {
            kind,
            activations: all.chunks(each).map(<[_]>::to_vec).collect(),
            reverse,
            clip: match attrs.float("clip") {
                0.0 => f64::INFINITY,
                clip => clip,
            },
            batch_first: attrs.int("layout") == 1,
            linear_before_reset: kind == Kind::Gru && attrs.flag("linear_before_reset"),
            input_forget: kind == Kind::Lstm && attrs.flag("input_forget"),
        })
    }
}

/// Extents, and where rows lie.
#[derive(Debug, Clone, Copy)]
#[allow(missing_docs)]
pub struct Extents {
    pub steps: usize,
    pub batch: usize,
    pub input: usize,
    pub hidden: usize,
    pub directions: usize,
    batch_first: bool,
}

impl Extents {
    /// Those of a layer with an input and recurrent weights of these shapes.
    pub fn new(spec: &Spec, x: &[usize], r: &[usize]) -> Self {
        let (steps, batch) = if spec.batch_first { (x[1], x[0]) } else { (x[0], x[1]) };
        Self {
            steps,
            batch,
            input: x[2],
            hidden: r[2],
            directions: spec.reverse.len(),
            batch_first: spec.batch_first,
        }
    }

    /// The row of the input at a step.
    pub fn x_row(&self, step: usize, n: usize) -> usize {
        if self.batch_first {
            n * self.steps + step
        } else {
            step * self.batch + n
        }
    }

    /// The row of the first output at a step.
    pub fn y_row(&self, step: usize, direction: usize, n: usize) -> usize {
        if self.batch_first {
            (n * self.steps + step) * self.directions + direction
        } else {
            (step * self.directions + direction) * self.batch + n
        }
    }

    /// The row of a state.
    pub fn state_row(&self, direction: usize, n: usize) -> usize {
        if self.batch_first {
            n * self.directions + direction
        } else {
            direction * self.batch + n
        }
    }

    /// The step of the input that a sequence of this length takes at its `count`-th step.
    pub fn step(&self, reverse: bool, length: usize, count: usize) -> usize {
        if reverse { length - 1 - count } else { count }
    }

    /// Lengths of the sequences as the input says them.
    ///
    /// # Errors
    /// If one is out of range.
    pub fn lengths(&self, given: &[i64]) -> Result<Vec<usize>> {
        let length = |&l: &i64| usize::try_from(l).ok().filter(|&l| l <= self.steps);
        let lengths: Option<Vec<_>> = given.iter().map(length).collect();
        lengths.ok_or_else(|| {
            Error::shape("a sequence length is out of range")
                .expected(format!("0..={}", self.steps))
                .got(format!("{given:?}"))
        })
    }
}

fn refuse(what: &str, expected: &[Dim], got: &TensorType) -> Error {
    let dims: Vec<_> = expected.iter().map(Dim::to_string).collect();
    Error::shape(format!("{what} does not fit"))
        .expected(format!("[{}]", dims.join(", ")))
        .got(got.describe())
}

/// Each step of each sequence meets the weights of the input and those of the state.
pub(super) fn multiplications(sizes: &Sizes) -> Option<f64> {
    let steps = sizes.input(0)?.get(..2)?.iter().product::<f64>();
    Some(steps * (sizes.product(1, 0)? + sizes.product(2, 0)?))
}

/// The rule.
pub fn infer(infer: &Infer, kind: Kind) -> Result<Vec<TensorType>> {
    let spec = Spec::read(kind, infer.attrs)?;
    let (x, w, r) = (infer.input(0)?, infer.input(1)?, infer.input(2)?);
    pointwise::same_dtype(&[x, w, r])?;
    if x.rank() != 3 || w.rank() != 3 || r.rank() != 3 || !x.dtype.is_float() {
        return Err(Error::shape("the input or the weights do not fit")
            .expected("floating-point x, W and R of rank 3")
            .got(format!("{}, {} and {}", x.describe(), w.describe(), r.describe())));
    }
    let hidden = r.shape[2].clone();
    let asked = infer.attrs.int("hidden_size");
    if asked != 0 {
        infer.require_equal(&asked.into(), &hidden, "hidden_size and R differ")?;
    }
    let (steps, batch) = match spec.batch_first {
        true => (x.shape[1].clone(), x.shape[0].clone()),
        false => (x.shape[0].clone(), x.shape[1].clone()),
    };
    let directions = Dim::from(spec.reverse.len() as i64);
    let rows = hidden.clone() * (kind.gates() as i64).into();
    let states = match spec.batch_first {
        true => vec![batch.clone(), directions.clone(), hidden.clone()],
        false => vec![directions.clone(), batch.clone(), hidden.clone()],
    };
    let mut wanted = vec![
        (1, "W", vec![directions.clone(), rows.clone(), x.shape[2].clone()]),
        (2, "R", vec![directions.clone(), rows.clone(), hidden.clone()]),
        (3, "B", vec![directions.clone(), rows * 2i64.into()]),
        (4, "sequence_lens", vec![batch.clone()]),
        (5, "initial_h", states.clone()),
    ];
    if kind == Kind::Lstm {
        wanted.push((6, "initial_c", states.clone()));
        wanted.push((7, "P", vec![directions.clone(), hidden.clone() * 3i64.into()]));
    }
    for (index, what, shape) in wanted {
        let Some(ty) = infer.optional(index) else { continue };
        let dtype = if index == 4 { DType::Int32 } else { x.dtype };
        if ty.dtype != dtype {
            return Err(Error::dtype(format!("{what} has another dtype"))
                .expected(dtype.name())
                .got(ty.dtype.name()));
        }
        if ty.rank() != shape.len() {
            return Err(refuse(what, &shape, ty));
        }
        for (have, want) in ty.shape.iter().zip(&shape) {
            infer
                .require_equal(have, want, what)
                .map_err(|_| refuse(what, &shape, ty))?;
        }
    }
    let y = match spec.batch_first {
        true => vec![batch, steps, directions, hidden],
        false => vec![steps, directions, batch, hidden],
    };
    let mut outputs = vec![TensorType::new(x.dtype, y), TensorType::new(x.dtype, states.clone())];
    if kind == Kind::Lstm {
        outputs.push(TensorType::new(x.dtype, states));
    }
    Ok(outputs)
}

/// What becomes of a state before it meets its weights.
pub(super) type Round = fn(&mut [f64]);

/// The weights and the state of one direction, in double precision.
struct Direction<'a> {
    spec: &'a Spec,
    round: Round,
    activations: &'a [Activation],
    w: &'a [f64],
    r: &'a [f64],
    bias: &'a [f64],
    peepholes: &'a [f64],
    h: Vec<f64>,
    c: Vec<f64>,
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

impl Direction<'_> {
    fn apply(&self, function: usize, x: f64) -> f64 {
        self.activations[function].apply(x.clamp(-self.spec.clip, self.spec.clip))
    }

    /// Rows `gate * hidden..` of the product with the input, with its bias.
    fn input(&self, gate: usize, j: usize, x: &[f64]) -> f64 {
        let row = gate * self.h.len() + j;
        dot(&self.w[row * x.len()..][..x.len()], x) + self.bias[row]
    }

    /// The same of the product with a state.
    fn state(&self, gate: usize, j: usize, h: &[f64]) -> f64 {
        let row = gate * h.len() + j;
        dot(&self.r[row * h.len()..][..h.len()], h) + self.bias[self.spec.kind.gates() * h.len() + row]
    }

    fn sum(&self, gate: usize, j: usize, x: &[f64]) -> f64 {
        self.input(gate, j, x) + self.state(gate, j, &self.h)
    }

    fn step(&mut self, x: &[f64]) {
        let each = 0..self.h.len();
        self.h = match self.spec.kind {
            Kind::Rnn => each.map(|j| self.apply(0, self.sum(0, j, x))).collect(),
            Kind::Gru => {
                let reset: Vec<_> = each.clone().map(|j| self.apply(0, self.sum(1, j, x))).collect();
                let kept: Vec<_> = reset.iter().zip(&self.h).map(|(r, h)| r * h).collect();
                let element = |j: usize| {
                    let update = self.apply(0, self.sum(0, j, x));
                    let state = match self.spec.linear_before_reset {
                        true => reset[j] * self.state(2, j, &self.h),
                        false => self.state(2, j, &kept),
                    };
                    let fresh = self.apply(1, self.input(2, j, x) + state);
                    (1.0 - update) * fresh + update * self.h[j]
                };
                each.map(element).collect()
            }
            Kind::Lstm => {
                let hidden = self.h.len();
                // Nothing but its product reads the state.
                (self.round)(&mut self.h);
                let peephole = |gate: usize, j: usize| self.peepholes[gate * hidden + j];
                let cell = |j: usize| {
                    let take = self.apply(0, self.sum(0, j, x) + peephole(0, j) * self.c[j]);
                    let keep = match self.spec.input_forget {
                        true => 1.0 - take,
                        false => self.apply(0, self.sum(2, j, x) + peephole(2, j) * self.c[j]),
                    };
                    keep * self.c[j] + take * self.apply(1, self.sum(3, j, x))
                };
                let cells: Vec<_> = each.clone().map(cell).collect();
                let element = |j: usize| {
                    let give = self.apply(0, self.sum(1, j, x) + peephole(1, j) * cells[j]);
                    give * self.apply(2, cells[j])
                };
                let h = each.map(element).collect();
                self.c = cells;
                h
            }
        };
    }
}

/// The reference.
pub fn evaluate(e: &Evaluate, kind: Kind) -> Result<Vec<Array>> {
    evaluate_rounding(e, kind, |_| ())
}

/// The reference, where each state of an LSTM is rounded before it meets its weights.
pub(super) fn evaluate_rounding(e: &Evaluate, kind: Kind, round: Round) -> Result<Vec<Array>> {
    let spec = Spec::read(kind, e.attrs)?;
    let (x, r) = (e.input(0)?, e.input(2)?);
    let at = Extents::new(&spec, x.shape(), r.shape());
    let (hidden, rows) = (at.hidden, kind.gates() * at.hidden);
    let lengths = match e.optional(4) {
        Some(lengths) => at.lengths(&lengths.to_i64())?,
        None => try_vec(at.batch, at.steps)?,
    };
    let numbers = |index: usize, count: usize| e.optional(index).map_or(vec![0.0; count], Array::to_f64);
    let states = at.directions * at.batch * hidden;
    let (xs, ws, rs) = (x.to_f64(), e.input(1)?.to_f64(), r.to_f64());
    let bias = numbers(3, at.directions * 2 * rows);
    let (mut h, mut c) = (numbers(5, states), numbers(6, states));
    let peepholes = numbers(7, at.directions * 3 * hidden);
    let mut y = vec![0.0; at.steps * states];
    for (d, &reverse) in spec.reverse.iter().enumerate() {
        for (n, &length) in lengths.iter().enumerate() {
            let state = at.state_row(d, n) * hidden;
            let mut direction = Direction {
                spec: &spec,
                round,
                activations: &spec.activations[d],
                w: &ws[d * rows * at.input..][..rows * at.input],
                r: &rs[d * rows * hidden..][..rows * hidden],
                bias: &bias[d * 2 * rows..][..2 * rows],
                peepholes: &peepholes[d * 3 * hidden..][..3 * hidden],
                h: h[state..state + hidden].to_vec(),
                c: c[state..state + hidden].to_vec(),
            };
            for count in 0..length {
                let step = at.step(reverse, length, count);
                direction.step(&xs[at.x_row(step, n) * at.input..][..at.input]);
                y[at.y_row(step, d, n) * hidden..][..hidden].copy_from_slice(&direction.h);
            }
            h[state..state + hidden].copy_from_slice(&direction.h);
            c[state..state + hidden].copy_from_slice(&direction.c);
        }
    }
    let results = [y, h, c];
    let outputs = e.outputs.iter().zip(&results);
    outputs
        .map(|((dtype, shape), values)| Array::from_f64(*dtype, shape.clone(), values))
        .collect()
}
