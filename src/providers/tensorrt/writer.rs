//! What writes layers of TensorRT: our tensors there, constants, shapes that come with a call, and steps that many ops share.

use super::handle::{ConditionalId, LoopId, Session, Spec, Tensor};
use crate::error::{Error, Result};
use crate::network::array::Array;
use crate::network::dim::Dim;
use crate::network::dim::build::{Algebra, BinaryOp};
use crate::network::dtype::DType;
use crate::network::op::TensorType;
use crate::network::{Layer, Network, Source, TensorId};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// Writes layers of one network.
pub struct Writer<'n> {
    /// What is written.
    pub network: &'n Network,
    /// Where to.
    pub session: &'n mut Session,
    tensors: HashMap<TensorId, Tensor>,
    /// For each symbol a tensor and the axis whose extent it is.
    symbols: HashMap<Arc<str>, (Tensor, usize)>,
    /// Dimensions that were computed, each as one integer of rank 1.
    dims: HashMap<Dim, Tensor>,
    /// The names of the network's constants that no layer has read yet, by where they are.
    names: HashMap<usize, String>,
    /// What stands in front of the names of layers: those of another network have the same.
    prefix: String,
    /// The layer that is written now, what it stands for, and how many layers of TensorRT it has.
    name: String,
    sources: String,
    parts: usize,
}

/// A shape for a layer of TensorRT.
pub enum Extents {
    /// Numbers, of which one may be -1: what is left.
    Known(Vec<i64>),
    /// Integers that are computed at each call.
    Computed(Tensor),
}

impl<'n> Writer<'n> {
    /// A writer into an empty session.
    pub fn new(network: &'n Network, session: &'n mut Session) -> Self {
        Self {
            names: weights(network).collect(),
            prefix: String::new(),
            sources: String::new(),
            network,
            session,
            tensors: HashMap::new(),
            symbols: HashMap::new(),
            dims: HashMap::new(),
            name: String::new(),
            parts: 0,
        }
    }

    /// A writer of a network that the layer which is written now holds under this attribute. `sizes` says what symbols of
    /// that network are.
    pub fn inside<'b>(&'b mut self, network: &'b Network, attr: &str, sizes: HashMap<Dim, Tensor>) -> Writer<'b> {
        let around: HashSet<usize> = weights(self.network).map(|(address, _)| address).collect();
        let prefix = format!("{}/{attr}/", self.name);
        let mut inside = Writer::new(network, self.session);
        // What comes from around has its name there.
        inside.names.retain(|address, _| !around.contains(address));
        Writer {
            prefix,
            dims: sizes,
            ..inside
        }
    }

    /// Begins what is part of no layer: layers of TensorRT bear this name.
    pub fn begin(&mut self, name: &str) {
        self.name = format!("{}{name}", self.prefix);
        self.sources.clear();
        self.parts = 0;
    }

    /// Begins a layer: those of TensorRT bear its name, and what it stands for.
    pub fn begin_layer(&mut self, layer: &Layer) {
        self.begin(&layer.name);
        self.sources = layer.sources.join(", ");
    }

    /// Lets a tensor of the network come from outside.
    ///
    /// # Errors
    /// If TensorRT has no such tensors.
    pub fn feed(&mut self, id: TensorId) -> Result<()> {
        let tensor = &self.network[id];
        let shape: Vec<i64> = tensor.ty.shape.iter().map(|dim| dim.as_const().unwrap_or(-1)).collect();
        let fed = self.session.input(&tensor.name, tensor.ty.dtype, &shape)?;
        self.put(id, fed);
        Ok(())
    }

    /// Says what a tensor of the network is in TensorRT. Sizes that show there first, because they come with a call or depend
    /// on data, are its extents from then on.
    pub fn put(&mut self, id: TensorId, tensor: Tensor) {
        self.tensors.insert(id, tensor);
        for (axis, dim) in self.network[id].ty.shape.iter().enumerate() {
            if let Some(symbol) = dim.as_symbol() {
                self.symbols.entry(symbol.clone()).or_insert((tensor, axis));
            }
        }
    }

    /// A loop under the name of the layer that is written now.
    ///
    /// # Errors
    /// If TensorRT gives none.
    pub fn add_loop(&mut self) -> Result<LoopId> {
        self.session.add_loop(&self.name)
    }

    /// A conditional under the name of the layer that is written now.
    ///
    /// # Errors
    /// If TensorRT gives none.
    pub fn add_conditional(&mut self) -> Result<ConditionalId> {
        self.session.add_conditional(&self.name)
    }

    /// Adds layers of TensorRT; gives all outputs.
    ///
    /// # Errors
    /// If TensorRT refuses.
    pub fn add(&mut self, mut spec: Spec) -> Result<Vec<Tensor>> {
        self.parts += 1;
        spec.name_weights(|address| self.names.remove(&address));
        let name = match self.parts {
            1 => self.name.clone(),
            part => format!("{}#{part}", self.name),
        };
        self.session.add(&name, &self.sources, spec)
    }

    /// The same for a layer with one output.
    ///
    /// # Errors
    /// If TensorRT refuses.
    pub fn one(&mut self, spec: Spec) -> Result<Tensor> {
        let outputs = self.add(spec)?;
        outputs
            .first()
            .copied()
            .ok_or_else(|| Error::internal("a layer of TensorRT has no output"))
    }

    /// A required input of a layer.
    ///
    /// # Errors
    /// If it is missing, or TensorRT can't have it.
    pub fn input(&mut self, layer: &Layer, index: usize) -> Result<Tensor> {
        self.tensor(required(layer, index)?)
    }

    /// The type of a required input.
    ///
    /// # Errors
    /// If it is missing.
    pub fn ty(&self, layer: &Layer, index: usize) -> Result<&'n TensorType> {
        Ok(&self.network[required(layer, index)?].ty)
    }

    /// A constant input.
    pub fn constant_of(&self, layer: &Layer, index: usize) -> Option<&'n Array> {
        let id = (*layer.inputs.get(index)?)?;
        self.network[id].constant()
    }

    /// The elements of an integer input, where they are known symbolically.
    pub fn value(&self, layer: &Layer, index: usize) -> Option<&'n [Dim]> {
        let id = (*layer.inputs.get(index)?)?;
        self.network[id].ty.value.as_deref()
    }

    /// A tensor of the network.
    ///
    /// # Errors
    /// If it comes from a layer that TensorRT does not take, or has a dtype that it does not have.
    pub fn tensor(&mut self, id: TensorId) -> Result<Tensor> {
        if let Some(&known) = self.tensors.get(&id) {
            return Ok(known);
        }
        let tensor = &self.network[id];
        let made = match &tensor.source {
            Source::Constant(constant) => self.constant(&constant.array)?,
            Source::Symbolic => self.symbolic(&tensor.ty)?,
            Source::Input | Source::Layer(..) => {
                return Err(Error::unsupported("it reads a tensor that is not in TensorRT").tensor(&tensor.name));
            }
        };
        self.tensors.insert(id, made);
        Ok(made)
    }

    /// A tensor that the shapes determine.
    fn symbolic(&mut self, ty: &TensorType) -> Result<Tensor> {
        let value = ty.value.as_deref().unwrap_or_default();
        let known: Option<Vec<i64>> = value.iter().map(Dim::as_const).collect();
        let shape = ty
            .concrete()
            .ok_or_else(|| Error::unsupported("a shape of a shape comes with a call"))?;
        if let Some(known) = known {
            return self.constant(&Array::from_i64(ty.dtype, shape, &known)?);
        }
        let flat = self.dims(value)?;
        let flat = self.cast(flat, DType::Int64, ty.dtype)?;
        match shape.len() {
            1 => Ok(flat),
            _ => self.one(Spec::new("Shuffle").input(flat).ints("shape", signed(&shape))),
        }
    }

    /// A constant.
    ///
    /// # Errors
    /// If TensorRT has no such dtype.
    pub fn constant(&mut self, array: &Array) -> Result<Tensor> {
        self.one(
            Spec::new("Constant")
                .ints("shape", signed(array.shape()))
                .weights(array)?,
        )
    }

    /// Integers of rank 1.
    ///
    /// # Errors
    /// As [`Writer::constant`].
    pub fn ints(&mut self, values: &[i64]) -> Result<Tensor> {
        self.constant(&Array::ints(values))
    }

    /// One number as a tensor of so many dimensions.
    ///
    /// # Errors
    /// As [`Writer::constant`].
    pub fn number(&mut self, dtype: DType, value: f64, rank: usize) -> Result<Tensor> {
        self.constant(&Array::from_f64(dtype, vec![1; rank], &[value])?)
    }

    /// `operation` on two tensors of one rank.
    ///
    /// # Errors
    /// If TensorRT refuses.
    pub fn elementwise(&mut self, operation: &str, left: Tensor, right: Tensor) -> Result<Tensor> {
        self.one(
            Spec::new("ElementWise")
                .input(left)
                .input(right)
                .word("operation", operation),
        )
    }

    /// `operation` on one tensor.
    ///
    /// # Errors
    /// If TensorRT refuses.
    pub fn unary(&mut self, operation: &str, x: Tensor) -> Result<Tensor> {
        self.one(Spec::new("Unary").input(x).word("operation", operation))
    }

    /// An activation without numbers.
    ///
    /// # Errors
    /// If TensorRT refuses.
    pub fn activation(&mut self, kind: &str, x: Tensor) -> Result<Tensor> {
        self.one(Spec::new("Activation").input(x).word("type", kind))
    }

    /// The sum or the like along some axes.
    ///
    /// # Errors
    /// If TensorRT refuses.
    pub fn reduce(&mut self, operation: &str, x: Tensor, axes: &[usize], keep: bool) -> Result<Tensor> {
        let spec = Spec::new("Reduce").input(x).word("operation", operation);
        self.one(spec.ints("axes", signed(axes)).int("keep_dimensions", keep))
    }

    /// The same numbers in another dtype.
    ///
    /// # Errors
    /// If TensorRT has no such dtype.
    pub fn cast(&mut self, x: Tensor, from: DType, to: DType) -> Result<Tensor> {
        if from == to {
            return Ok(x);
        }
        self.one(Spec::new("Cast").input(x).word("to", super::handle::dtype_name(to)?))
    }

    /// The same elements in another shape.
    ///
    /// # Errors
    /// If the shape can't be told at a call.
    pub fn reshape(&mut self, x: Tensor, shape: &[Dim]) -> Result<Tensor> {
        let spec = Spec::new("Shuffle").input(x);
        match self.extents(shape, true)? {
            Extents::Known(known) => self.one(spec.ints("shape", known)),
            Extents::Computed(computed) => self.one(spec.input(computed)),
        }
    }

    /// An input of a layer with 1 in front of its shape, so that it has so many dimensions.
    ///
    /// # Errors
    /// If it is missing, or TensorRT refuses.
    pub fn raised(&mut self, layer: &Layer, index: usize, rank: usize) -> Result<Tensor> {
        let id = required(layer, index)?;
        let tensor = self.tensor(id)?;
        self.raise(tensor, &self.network[id].ty.shape, rank)
    }

    /// A tensor of this shape with 1 in front.
    ///
    /// # Errors
    /// If TensorRT refuses.
    pub fn raise(&mut self, tensor: Tensor, shape: &[Dim], rank: usize) -> Result<Tensor> {
        if shape.len() >= rank {
            return Ok(tensor);
        }
        let ones = std::iter::repeat_n(Dim::from(1i64), rank - shape.len());
        let raised: Vec<Dim> = ones.chain(shape.iter().cloned()).collect();
        self.reshape(tensor, &raised)
    }

    /// A shape for a layer: numbers where it can be. `left` lets one extent be what is left.
    ///
    /// # Errors
    /// If an extent can't be told at a call.
    pub fn extents(&mut self, shape: &[Dim], left: bool) -> Result<Extents> {
        let unknown = shape.iter().filter(|dim| dim.as_const().is_none()).count();
        let empty = shape.iter().any(|dim| dim.is(0));
        if unknown == 0 || (left && unknown == 1 && !empty) {
            return Ok(Extents::Known(
                shape.iter().map(|dim| dim.as_const().unwrap_or(-1)).collect(),
            ));
        }
        Ok(Extents::Computed(self.dims(shape)?))
    }

    /// Dimensions as integers of rank 1, computed at each call.
    ///
    /// # Errors
    /// If one can't be told at a call.
    pub fn dims(&mut self, dims: &[Dim]) -> Result<Tensor> {
        let mut parts = vec![];
        let mut known = vec![];
        for dim in dims {
            match dim.as_const() {
                Some(value) => known.push(value),
                None => {
                    if !known.is_empty() {
                        parts.push(self.ints(&std::mem::take(&mut known))?);
                    }
                    parts.push(self.dim(dim)?);
                }
            }
        }
        if !known.is_empty() {
            parts.push(self.ints(&known)?);
        }
        match parts[..] {
            [part] => Ok(part),
            _ => {
                let spec = parts.into_iter().fold(Spec::new("Concatenation"), Spec::input);
                self.one(spec.int("axis", 0))
            }
        }
    }

    /// One dimension as an integer of rank 1.
    ///
    /// # Errors
    /// If it can't be told at a call.
    pub fn dim(&mut self, dim: &Dim) -> Result<Tensor> {
        if let Some(&known) = self.dims.get(dim) {
            return Ok(known);
        }
        let made = dim.build(self)?;
        self.dims.insert(dim.clone(), made);
        Ok(made)
    }

    /// Marks the results.
    ///
    /// # Errors
    /// If one is not in TensorRT.
    pub fn finish(&mut self, outputs: &[(TensorId, String)]) -> Result<()> {
        self.begin("outputs");
        let mut marked: Vec<Tensor> = vec![];
        for (id, name) in outputs {
            let mut tensor = self.tensor(*id)?;
            let is_given = matches!(self.network[*id].source, Source::Layer(..)) && !marked.contains(&tensor);
            // An input, a constant or what is a result already can't bear another name.
            if !is_given {
                tensor = self.one(Spec::new("Identity").input(tensor))?;
            }
            marked.push(tensor);
            self.session.output(tensor, name)?;
        }
        Ok(())
    }
}

impl Algebra for Writer<'_> {
    type Value = Tensor;

    fn number(&mut self, value: i64) -> Result<Tensor> {
        self.ints(&[value])
    }

    fn symbol(&mut self, name: &str) -> Result<Tensor> {
        let dim = Dim::symbol(name);
        if let Some(&known) = self.dims.get(&dim) {
            return Ok(known);
        }
        let &(input, axis) = self
            .symbols
            .get(name)
            .ok_or_else(|| Error::unsupported(format!("the size {name:?} is no extent of a tensor in TensorRT")))?;
        let shape = self.one(Spec::new("Shape").input(input))?;
        let slice = Spec::new("Slice").input(shape).word("mode", "STRICT_BOUNDS");
        let slice = slice.int("start", axis as i64).int("size", 1).int("stride", 1);
        let made = self.one(slice)?;
        self.dims.insert(dim, made);
        Ok(made)
    }

    fn binary(&mut self, op: BinaryOp, left: Tensor, right: Tensor) -> Result<Tensor> {
        let operation = match op {
            BinaryOp::Add => "SUM",
            BinaryOp::Multiply => "PROD",
            BinaryOp::FloorDivide => "FLOOR_DIV",
            BinaryOp::Min => "MIN",
            BinaryOp::Max => "MAX",
            BinaryOp::CeilDivide => {
                // ceil(a / b) is -floor(-a / b).
                let minus = self.ints(&[-1])?;
                let negated = self.elementwise("PROD", left, minus)?;
                let quotient = self.elementwise("FLOOR_DIV", negated, right)?;
                return self.elementwise("PROD", quotient, minus);
            }
        };
        self.elementwise(operation, left, right)
    }
}

/// The constants of a network, by where they are, and their names.
fn weights(network: &Network) -> impl Iterator<Item = (usize, String)> {
    network.tensors().filter_map(|(_, tensor)| {
        let array = tensor.constant()?;
        Some((array.bytes().as_ptr() as usize, tensor.name.clone()))
    })
}

fn required(layer: &Layer, index: usize) -> Result<TensorId> {
    let found = layer.inputs.get(index).copied().flatten();
    found.ok_or_else(|| Error::invalid(format!("input {index} is missing")))
}

/// Extents or axes as TensorRT takes them.
pub fn signed(values: &[usize]) -> Vec<i64> {
    values.iter().map(|&value| value as i64).collect()
}
