//! What an op is: its declaration, and the contexts in which its rules run.

use crate::error::{Error, Result};
use crate::interrupt;
use crate::network::array::{Array, bytes_of, require};
use crate::network::attr::{AttrDef, Attrs, Read};
use crate::network::dim::{self, Binding, Dim, Symbols};
use crate::network::dtype::DType;
use crate::network::least::Least;
use crate::network::patch::Patch;
use crate::network::{LayerId, Network, reference, unsigned};
use serde::{Deserialize, Serialize};
use std::cell::RefCell;

pub use crate::network::facts::{Gives, IntegerRule, Lowering, Movement, Multiplications, Purity, Sizes, Uint64};

/// numpy's own limit; and a shape of so many dimensions is carried as a value.
pub const HIGHEST_RANK: usize = 64;

/// dtype and symbolic shape of a tensor and, for a small integer tensor, its symbolic elements.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TensorType {
    /// The element type.
    pub dtype: DType,
    /// The extent of each dimension.
    pub shape: Vec<Dim>,
    /// The elements, row-major, of an integer tensor whose value the shapes determine.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub value: Option<Vec<Dim>>,
}

impl TensorType {
    /// A type without a known value.
    pub fn new(dtype: DType, shape: impl Into<Vec<Dim>>) -> Self {
        Self {
            dtype,
            shape: shape.into(),
            value: None,
        }
    }

    /// The number of dimensions.
    pub fn rank(&self) -> usize {
        self.shape.len()
    }

    /// `axis` counted from the front.
    ///
    /// # Errors
    /// If the axis is outside `-rank..rank`.
    pub fn axis(&self, axis: i64) -> Result<usize> {
        axis_of(axis, self.rank())
    }

    /// Checks that a tensor can have this shape.
    ///
    /// # Errors
    /// If a dimension is negative, or the tensor has more dimensions or bytes than any may have.
    pub fn check_size(&self) -> Result<()> {
        if self.rank() > HIGHEST_RANK {
            return Err(Error::shape("a tensor has too many dimensions")
                .expected(format!("at most {HIGHEST_RANK}"))
                .got(self.rank().to_string()));
        }
        if self.shape.iter().any(Dim::is_too_long) {
            return Err(dim::too_long());
        }
        if let Some(bad) = self.shape.iter().find(|d| d.as_const().is_some_and(|v| v < 0)) {
            return Err(Error::shape("a dimension is negative").got(format!("{bad} in {}", self.describe())));
        }
        let known = self.shape.iter().filter_map(Dim::as_const);
        // An extent of 0 does not make room for others: numpy has no such array.
        let known: Vec<_> = known.map(|d| d.max(1) as usize).collect();
        bytes_of(self.dtype, &known)
            .map(drop)
            .map_err(|e| e.got(self.describe()))
    }

    /// The shape as numbers, when no symbol is in it.
    pub fn concrete(&self) -> Option<Vec<usize>> {
        self.shape
            .iter()
            .map(|d| d.as_const().and_then(|v| usize::try_from(v).ok()))
            .collect()
    }

    /// Drops the value where a symbol in the shape may make it one of another number of elements.
    fn forget_uncertain_value(&mut self) {
        if self.concrete().is_none() {
            self.value = None;
        }
    }

    /// The number of elements.
    pub fn elements(&self) -> Dim {
        self.shape
            .iter()
            .fold(Dim::from(1i64), |product, d| product * d.clone())
    }

    /// As it is printed: `float32[batch, 3, 224, 224]`.
    pub fn describe(&self) -> String {
        let dims: Vec<_> = self.shape.iter().map(Dim::to_string).collect();
        format!("{}[{}]", self.dtype, dims.join(", "))
    }
}

/// `axis` of so many counted from the front.
///
/// # Errors
/// If the axis is outside `-rank..rank`.
pub fn axis_of(axis: i64, rank: usize) -> Result<usize> {
    let rank = rank as i64;
    let counted = if axis < 0 { axis + rank } else { axis };
    if (0..rank).contains(&counted) {
        return Ok(counted as usize);
    }
    Err(Error::shape("axis is out of range")
        .expected_index(rank)
        .got(axis.to_string()))
}

/// A relation between dimensions that could not be decided at build time and is checked at run time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Guard {
    /// One side.
    pub left: Dim,
    /// The other side.
    pub right: Dim,
    /// Whether `left` may also be 1 (it is broadcast then).
    pub or_one: bool,
    /// The layer that needs it, and why.
    pub reason: String,
}

impl Guard {
    /// What it says, whoever needs it.
    pub fn relation(&self) -> (Dim, Dim, bool) {
        (self.left.clone(), self.right.clone(), self.or_one)
    }

    /// Checks the relation at these sizes.
    ///
    /// # Errors
    /// If it does not hold; names both sides.
    pub fn check(&self, binding: &Binding) -> Result<()> {
        let (left, right) = (self.left.eval(binding)?, self.right.eval(binding)?);
        if left == right || (self.or_one && left == 1) {
            return Ok(());
        }
        let error = Error::shape(format!("the shapes of the inputs do not go together ({})", self.reason));
        let operands = self.right.operands();
        if operands.len() == 1 {
            let expected = format!("{} = {}", self.left, self.right);
            return Err(error.expected(expected).got(format!("{left} and {right}")));
        }
        let sizes = operands
            .iter()
            .map(|dim| dim.eval(binding))
            .collect::<Result<Vec<_>>>()?;
        let joined = |words: Vec<String>| words.join(" and ");
        Err(error
            .expected(format!(
                "{} that are equal or 1",
                joined(operands.iter().map(Dim::to_string).collect())
            ))
            .got(joined(sizes.iter().map(i64::to_string).collect())))
    }
}

/// What a shape and type rule sees.
pub struct Infer<'a> {
    /// The name of the layer, for fresh symbols and messages.
    pub layer: &'a str,
    /// The attributes, complete.
    pub attrs: &'a Attrs,
    /// The type of each input; `None` for an optional one that is left out.
    pub inputs: &'a [Option<TensorType>],
    /// Constant inputs.
    pub constants: &'a [Option<Array>],
    /// The symbols and their ranges.
    pub symbols: &'a Symbols,
    /// Whether symbols that meet in a broadcast are taken to be equal.
    pub equal_broadcasts: bool,
    /// Relations that the rule had to assume.
    pub guards: RefCell<Vec<Guard>>,
}

impl Infer<'_> {
    /// The type of a required input.
    pub fn input(&self, index: usize) -> Result<&TensorType> {
        self.optional(index)
            .ok_or_else(|| Error::invalid(format!("input {index} is missing")))
    }

    /// The type of an optional input.
    pub fn optional(&self, index: usize) -> Option<&TensorType> {
        self.inputs.get(index).and_then(Option::as_ref)
    }

    /// The elements of an integer input, where they are known symbolically.
    pub fn value(&self, index: usize) -> Option<&[Dim]> {
        self.optional(index)?.value.as_deref()
    }

    /// The elements of an integer input that must be known as numbers.
    ///
    /// # Errors
    /// If the input is not known when the network is built.
    pub fn numbers(&self, index: usize) -> Result<Vec<i64>> {
        self.value(index)
            .and_then(|v| v.iter().map(Dim::as_const).collect())
            .ok_or_else(|| {
                Error::unsupported(format!("input {index} must be known when the network is built"))
                    .expected("a constant, or integers that the shapes determine")
            })
    }

    /// A constant input.
    pub fn constant(&self, index: usize) -> Option<&Array> {
        self.constants.get(index).and_then(Option::as_ref)
    }

    /// Takes `left == right` for granted: refuses what is known to differ, records what can't be decided.
    pub fn require_equal(&self, left: &Dim, right: &Dim, why: &str) -> Result<()> {
        match (left.clone() - right.clone()).as_const() {
            Some(0) => Ok(()),
            Some(_) => Err(Error::shape(why).expected(left.to_string()).got(right.to_string())),
            None => {
                self.guard(left, right, false, why);
                Ok(())
            }
        }
    }

    /// Takes `left <= right` for granted, as [`Infer::require_equal`] does.
    pub fn require_at_most(&self, left: &Dim, right: &Dim, why: &str) -> Result<()> {
        match (right.clone() - left.clone()).as_const() {
            Some(0..) => Ok(()),
            Some(_) => Err(Error::shape(why)
                .expected(format!("at most {right}"))
                .got(left.to_string())),
            None => {
                self.guard(&left.least(right), left, false, why);
                Ok(())
            }
        }
    }

    pub(super) fn guard(&self, left: &Dim, right: &Dim, or_one: bool, why: &str) {
        let reason = format!("{}: {why}", self.layer);
        self.guards.borrow_mut().push(Guard {
            left: left.clone(),
            right: right.clone(),
            or_one,
            reason,
        });
    }

    /// A fresh dimension that the elements of the inputs tell; the same name at every run of the rule.
    pub fn fresh(&self, index: usize) -> Dim {
        Dim::symbol(format!("{}.{index}", self.layer))
    }

    /// A fresh dimension that only the evaluation tells: how many elements there are that something holds of.
    pub fn counted(&self, index: usize) -> Dim {
        Dim::symbol(format!("{}#{index}", self.layer))
    }
}

/// Whether a symbol that depends on data is one that [`Infer::counted`] made.
pub fn is_counted(symbol: &str) -> bool {
    symbol.contains('#')
}

/// What a reference evaluation sees: dense arrays in, and the dtypes and shapes that the rule gave for them.
pub struct Evaluate<'a> {
    /// The attributes, complete.
    pub attrs: &'a Attrs,
    /// The inputs; `None` for an optional one that is left out.
    pub inputs: &'a [Option<Array>],
    /// dtype and shape of each output.
    pub outputs: &'a [(DType, Vec<usize>)],
    /// What runs the networks that the layer holds; the reference itself where there is nothing.
    pub runner: Option<&'a dyn Runner>,
}

/// Runs the networks that a layer holds.
pub trait Runner {
    /// Gives the results of the network that an attribute holds.
    ///
    /// # Errors
    /// If the arrays do not fit its inputs.
    fn run(&self, attr: &str, inputs: &[Array]) -> Result<Vec<Array>>;
}

impl Evaluate<'_> {
    /// A required input.
    pub fn input(&self, index: usize) -> Result<&Array> {
        self.optional(index)
            .ok_or_else(|| Error::invalid(format!("input {index} is missing")))
    }

    /// An optional input.
    pub fn optional(&self, index: usize) -> Option<&Array> {
        self.inputs.get(index).and_then(Option::as_ref)
    }

    /// Runs the network that an attribute holds.
    ///
    /// # Errors
    /// As that network, and if the caller ends the work.
    pub fn run(&self, attr: &str, inputs: &[Array]) -> Result<Vec<Array>> {
        interrupt::poll()?;
        match self.runner {
            Some(runner) => runner.run(attr, inputs),
            None => reference::evaluate(&self.attrs.body(attr).0, inputs),
        }
    }

    /// The only output, from f64 values.
    pub fn output(&self, values: &[f64]) -> Result<Vec<Array>> {
        let (dtype, shape) = &self.outputs[0];
        Ok(vec![Array::from_f64(*dtype, shape.clone(), values)?])
    }
}

/// How a pointwise op acts on one element of each input.
#[derive(Clone, Copy)]
pub struct Pointwise {
    /// On numbers, in double precision.
    pub float: fn(&Attrs, &[f64]) -> f64,
    /// On integers, exactly; without it integers go through `float`.
    pub int: Option<fn(&Attrs, &[i64]) -> i64>,
}

/// The declaration of an op. One op, one file; the list of all is [`crate::network::ops::OPS`].
pub struct OpDef {
    /// Its name: ONNX's where ONNX has the op.
    pub name: &'static str,
    /// What it computes, and where it is specified.
    pub doc: &'static str,
    /// Names of the inputs; `x?` may be left out, `x*` (last) may repeat.
    pub inputs: &'static [&'static str],
    /// The attributes.
    pub attrs: &'static [AttrDef],
    /// The shape and type rule.
    pub infer: fn(&Infer) -> Result<Vec<TensorType>>,
    /// The reference: slow, exact, in double precision.
    pub evaluate: fn(&Evaluate) -> Result<Vec<Array>>,
    /// How one element is computed, for an op that works element by element with broadcasting.
    pub pointwise: Option<Pointwise>,
    /// What becomes of it where a network computes in floats of 16 bits.
    pub lowering: Lowering,
    /// Where its elements come from, if it only moves them.
    pub movement: Movement,
    /// Whether it may be folded and merged.
    pub purity: Purity,
    /// Whether it takes and gives uint64.
    pub uint64: Uint64,
    /// Whether it takes and gives dtypes of 8 bits and fewer that are only stored, as ONNX's type constraints say.
    pub narrow: bool,
    /// Whether the axes of its first input behind batch and channels are those of an image, a sound or a volume.
    pub spatial: bool,
    /// The least number that it gives.
    pub least: Least,
    /// How many multiplications it takes, if it sums products; else it works once on each element that it gives.
    pub multiplications: Option<Multiplications>,
    /// Whether and how it is given by smaller ops.
    pub decomposition: Decomposition,
}

/// Writes a layer in smaller ops.
pub type Decompose = for<'n> fn(&'n Network, LayerId) -> Result<Patch<'n>>;

/// Whether and how an op is given by smaller ops.
#[derive(Clone, Copy)]
pub enum Decomposition {
    /// It is primitive.
    None,
    /// It is another way to write smaller ops, and always replaced by them.
    Always(Decompose),
    /// Every provider runs it without a kernel of its own; one that has a kernel keeps it whole.
    WithoutKernel(Decompose),
}

impl PartialEq for OpDef {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl std::fmt::Debug for OpDef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

impl OpDef {
    /// What holds of an op that says nothing else. Name, doc, inputs and rules are each op's own.
    pub const PLAIN: Self = Self {
        name: "",
        doc: "",
        inputs: &[],
        attrs: &[],
        infer: |_| Err(Error::internal("an op has no shape and type rule")),
        evaluate: |_| Err(Error::internal("an op has no reference")),
        pointwise: None,
        lowering: Lowering::WIDE,
        movement: Movement::None,
        purity: Purity::Pure,
        uint64: Uint64::Moved,
        narrow: false,
        spatial: false,
        least: Least::Unknown,
        multiplications: None,
        decomposition: Decomposition::None,
    };

    /// Whether it only moves elements.
    pub fn moves(&self) -> bool {
        self.movement != Movement::None
    }

    /// The types of the outputs, by the op's rule.
    ///
    /// # Errors
    /// As the rule; or if a dtype is too narrow for the op, or an output larger than any tensor may be.
    pub fn types(&self, infer: &Infer) -> Result<Vec<TensorType>> {
        let taken = |ty: &&TensorType| self.narrow || ty.dtype.narrow().is_none();
        let refuse = |what: &str, ty: &TensorType| {
            Err(
                Error::dtype(format!("{} does not {what} tensors of {}", self.name, ty.dtype))
                    .expected("a dtype that is computed with, such as float32 or int8")
                    .got(ty.describe())
                    .hint("insert a Cast or a DequantizeLinear: few ops work on dtypes that are only stored"),
            )
        };
        if let Some(ty) = infer.inputs.iter().flatten().find(|ty| !taken(ty)) {
            return refuse("take", ty);
        }
        let mut outputs = (self.infer)(infer)?;
        outputs.iter_mut().for_each(TensorType::forget_uncertain_value);
        for ty in &mut outputs {
            // Elements that no expression holds are computed at run time, as those that depend on data are.
            ty.value = ty.value.take().filter(|value| !value.iter().any(Dim::is_too_long));
            ty.check_size()?;
        }
        let guards = infer.guards.borrow();
        if guards
            .iter()
            .any(|guard| guard.left.is_too_long() || guard.right.is_too_long())
        {
            return Err(dim::too_long());
        }
        if let Some(ty) = outputs.iter().find(|ty| !taken(ty)) {
            return refuse("give", ty);
        }
        unsigned::check(self, infer.attrs, infer.inputs.iter().flatten().chain(&outputs))?;
        Ok(outputs)
    }

    /// What the reference gives.
    ///
    /// # Errors
    /// As the op; or if there is not so much memory as the doubles take that it works in.
    pub fn evaluated(&self, e: &Evaluate) -> Result<Vec<Array>> {
        if self.pointwise.is_none() {
            let given = e.inputs.iter().flatten().map(Array::len).sum::<usize>();
            let made = e.outputs.iter().map(|(_, shape)| shape.iter().product::<usize>()).sum();
            // Doubles and places of all elements, twice where they are reordered, and a list of those that go together.
            let all = given.saturating_add(made).saturating_mul(2);
            let together = given.max(made).saturating_mul(3);
            require(all.saturating_add(together).saturating_mul(size_of::<f64>()))?;
        }
        (self.evaluate)(e)
    }

    /// Checks how many inputs there are and that required ones are there.
    pub fn check_inputs(&self, present: &[bool]) -> Result<()> {
        let variadic = self.inputs.last().is_some_and(|name| name.ends_with('*'));
        let fits = variadic || present.len() <= self.inputs.len();
        let missing = self
            .inputs
            .iter()
            .enumerate()
            .find(|(i, name)| !name.ends_with('?') && !present.get(*i).copied().unwrap_or(false));
        match missing {
            None if fits => Ok(()),
            Some((_, name)) => Err(Error::invalid(format!("{} lacks its input {name:?}", self.name))
                .expected(self.inputs.join(", "))
                .got(format!("{} inputs", present.len()))),
            None => Err(Error::invalid(format!("{} has too many inputs", self.name))
                .expected(self.inputs.join(", "))
                .got(format!("{} inputs", present.len()))),
        }
    }
}
