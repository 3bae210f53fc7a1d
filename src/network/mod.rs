//! The Network: a typed, symbolic graph of layers. Importers build it, passes rewrite it, providers read it.

pub mod array;
pub mod attr;
pub mod body;
mod broadcast;
pub mod buffer;
pub mod dim;
pub mod document;
pub mod dtype;
mod dump;
mod edit;
mod ends;
mod equal;
mod facts;
mod free_memory;
pub mod graph;
pub mod guard_pages;
pub mod least;
pub mod narrow;
pub mod op;
pub mod ops;
pub mod part;
pub mod patch;
pub mod plugin;
pub mod precision;
pub mod quantization;
pub mod reference;
pub(crate) mod unsigned;
mod verify;

use crate::error::{Error, Result};
use array::Array;
use attr::{Attr, Attrs};
use body::Body;
use dim::{Dim, Range, Symbols};
use dtype::DType;
use op::{Guard, Infer, OpDef, TensorType};
use precision::LayerPrecision;
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Names a tensor of one network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
pub struct TensorId(pub u32);

/// Names a layer of one network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
pub struct LayerId(pub u32);

/// Where a tensor comes from.
#[derive(Debug, Clone)]
pub enum Source {
    /// The caller gives it.
    Input,
    /// It never changes.
    Constant(Arc<Constant>),
    /// The shapes determine it (`ty.value` holds its elements); nothing computes it.
    Symbolic,
    /// An output of a layer.
    Layer(LayerId, usize),
}

/// A constant and, when it was folded, how it follows from the original weights.
#[derive(Debug)]
pub struct Constant {
    /// The elements.
    pub array: Array,
    /// The name in the source model; empty for a value that has none.
    pub name: String,
    /// How it was computed; `None` for an original.
    pub recipe: Option<Recipe>,
}

/// How a folded constant follows from others, so that a refit by original names replays it.
#[derive(Debug)]
pub struct Recipe {
    /// The op.
    pub op: &'static OpDef,
    /// Its attributes.
    pub attrs: Attrs,
    /// Its inputs.
    pub inputs: Vec<Option<Arc<Constant>>>,
    /// Which of its outputs this is.
    pub output: usize,
}

impl Constant {
    /// Computes the array again after `replace` gave new arrays for original names.
    ///
    /// # Errors
    /// As the reference evaluation of the ops in the recipe.
    pub fn replay(&self, replace: &dyn Fn(&str) -> Option<Array>) -> Result<Array> {
        let Some(recipe) = &self.recipe else {
            return Ok(replace(&self.name).unwrap_or_else(|| self.array.clone()));
        };
        let inputs = recipe
            .inputs
            .iter()
            .map(|c| c.as_ref().map(|c| c.replay(replace)).transpose());
        let inputs = inputs.collect::<Result<Vec<_>>>()?;
        let mut outputs = reference::evaluate_op(recipe.op, &recipe.attrs, &inputs)?;
        Ok(outputs.swap_remove(recipe.output))
    }
}

/// A tensor: its type, and where it comes from.
#[derive(Debug, Clone)]
pub struct Tensor {
    /// Unique among the tensors that are in use.
    pub name: String,
    /// dtype, symbolic shape and, perhaps, symbolic value.
    pub ty: TensorType,
    /// Where it comes from.
    pub source: Source,
    /// The layers that read it, once per use.
    pub users: Vec<LayerId>,
}

impl Tensor {
    /// The array of a constant.
    pub fn constant(&self) -> Option<&Array> {
        match &self.source {
            Source::Constant(constant) => Some(&constant.array),
            _ => None,
        }
    }
}

/// A layer: an op with attributes, reading and giving tensors.
#[derive(Debug, Clone)]
pub struct Layer {
    /// Unique in the network.
    pub name: String,
    /// Names of the nodes of the source model that it stands for.
    pub sources: Vec<String>,
    /// The op.
    pub op: &'static OpDef,
    /// The attributes, complete.
    pub attrs: Attrs,
    /// The inputs; `None` for an optional one that is left out.
    pub inputs: Vec<Option<TensorId>>,
    /// The outputs.
    pub outputs: Vec<TensorId>,
    /// What it computes in, and why; `None` where nothing was decided.
    pub precision: Option<LayerPrecision>,
}

impl Layer {
    /// The networks that it holds, by attribute.
    pub fn bodies(&self) -> impl Iterator<Item = (&str, &Body)> {
        self.attrs.iter().filter_map(|(name, attr)| match attr {
            Attr::Body(body) => Some((name.as_str(), body)),
            _ => None,
        })
    }
}

/// A named result of the network.
#[derive(Debug, Clone)]
pub struct Output {
    /// The name that callers see; it stays through every rewrite.
    pub name: String,
    /// The tensor.
    pub tensor: TensorId,
}

/// A typed, symbolic graph of layers.
#[derive(Debug, Clone, Default)]
pub struct Network {
    /// The name of the model.
    pub name: String,
    /// Symbols of its shapes, with their ranges.
    pub symbols: Symbols,
    /// Relations between dimensions that are checked at run time.
    pub guards: Vec<Guard>,
    /// Whether symbols that meet in a broadcast are taken to be equal, which a guard says, rather than that each may be 1.
    equal_broadcasts: bool,
    tensors: Vec<Tensor>,
    layers: BTreeMap<LayerId, Layer>,
    next_layer: u32,
    inputs: Vec<TensorId>,
    outputs: Vec<Output>,
    names: HashSet<String>,
    revision: u64,
}

impl Network {
    /// An empty network.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            ..Self::default()
        }
    }

    /// Adds an input. Symbols that are new get the default range.
    ///
    /// # Errors
    /// If the name is taken, a dimension is negative, or there are [`MOST_PORTS`].
    pub fn add_input(&mut self, name: &str, dtype: DType, shape: Vec<Dim>) -> Result<TensorId> {
        require_port(self.inputs.len(), name)?;
        if self.inputs.iter().any(|&t| self[t].name == name) {
            return Err(Error::invalid("two inputs have the same name")
                .tensor(name)
                .hint("name each input differently"));
        }
        let ty = TensorType::new(dtype, shape);
        ty.check_size().map_err(|e| e.tensor(name))?;
        for dim in &ty.shape {
            dim.visit_symbols(&mut |symbol| {
                self.symbols.entry(symbol.clone()).or_default();
            });
        }
        let id = self.push_tensor(name, ty, Source::Input);
        self.inputs.push(id);
        Ok(id)
    }

    /// Adds a constant.
    pub fn add_constant(&mut self, name: &str, array: Array) -> TensorId {
        // Elsewhere weights lie in the caller's arrays, or in a file.
        let fenced = guard_pages::placement().and_then(|_| array.copied().ok());
        let array = fenced.unwrap_or(array);
        let constant = Constant {
            array,
            name: name.into(),
            recipe: None,
        };
        let ty = constant_type(&constant.array);
        self.push_tensor(name, ty, Source::Constant(Arc::new(constant)))
    }

    /// Adds a layer and gives its outputs, typed by the op's rule.
    ///
    /// # Errors
    /// If the op does not take these inputs or attributes; the error names the layer.
    pub fn add_layer(
        &mut self,
        name: &str,
        op: &'static OpDef,
        attrs: Attrs,
        inputs: &[Option<TensorId>],
    ) -> Result<Vec<TensorId>> {
        // Sizes that depend on data are named after the layer: its name must be its own from the start.
        let name = self.free(name);
        let mut patch = patch::Patch::new(self);
        let outputs = patch.add_named(&name, op, attrs, inputs)?;
        let change = patch.finish();
        change.apply(self);
        Ok(outputs)
    }

    /// Marks a tensor as a result under `name`.
    ///
    /// # Errors
    /// If the name is taken by another result, or there are [`MOST_PORTS`].
    pub fn mark_output(&mut self, tensor: TensorId, name: &str) -> Result<()> {
        require_port(self.outputs.len(), name)?;
        if self.outputs.iter().any(|o| o.name == name) {
            return Err(Error::invalid("two outputs have the same name").tensor(name));
        }
        self.outputs.push(Output {
            name: name.into(),
            tensor,
        });
        Ok(())
    }

    /// Says what is known of a symbol.
    ///
    /// # Errors
    /// Unless 0 <= min <= opt <= max.
    pub fn set_range(&mut self, symbol: &str, range: Range) -> Result<()> {
        if !(0 <= range.min && range.min <= range.opt && range.opt <= range.max) {
            return Err(
                Error::shape(format!("the range of dimension {symbol:?} is not ordered"))
                    .expected("0 <= min <= opt <= max")
                    .got(format!("min {}, opt {}, max {}", range.min, range.opt, range.max)),
            );
        }
        self.symbols.insert(symbol.into(), range);
        Ok(())
    }

    /// A number that changes whenever layers come, go, or read something else. Networks with one number have the same
    /// layers in the same places.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    fn changed(&mut self) {
        static LAST: AtomicU64 = AtomicU64::new(0);
        self.revision = LAST.fetch_add(1, Ordering::Relaxed) + 1;
    }

    /// The inputs, in order.
    pub fn inputs(&self) -> &[TensorId] {
        &self.inputs
    }

    /// The results, in order.
    pub fn outputs(&self) -> &[Output] {
        &self.outputs
    }

    /// The layers, by id (not in order of execution).
    pub fn layers(&self) -> impl Iterator<Item = (LayerId, &Layer)> {
        self.layers.iter().map(|(&id, layer)| (id, layer))
    }

    /// The number of layers.
    pub fn layer_count(&self) -> usize {
        self.layers.len()
    }

    /// A layer that may have been removed meanwhile.
    pub fn get_layer(&self, id: LayerId) -> Option<&Layer> {
        self.layers.get(&id)
    }

    /// The tensors, by id; removed ones included, which nothing produces or reads any more.
    pub fn tensors(&self) -> impl Iterator<Item = (TensorId, &Tensor)> {
        self.tensors
            .iter()
            .enumerate()
            .map(|(i, tensor)| (TensorId(i as u32), tensor))
    }

    /// The layer that gives a tensor.
    pub fn producer(&self, tensor: TensorId) -> Option<(LayerId, &Layer)> {
        match self[tensor].source {
            Source::Layer(id, _) => self.layers.get(&id).map(|layer| (id, layer)),
            _ => None,
        }
    }

    /// Whether a tensor is a result of the network.
    pub fn is_output(&self, tensor: TensorId) -> bool {
        self.outputs.iter().any(|o| o.tensor == tensor)
    }

    /// The layer that reads a tensor, when just one does, once, and it is no result.
    pub fn sole_user(&self, tensor: TensorId) -> Option<LayerId> {
        match self[tensor].users.as_slice() {
            [user] if !self.is_output(tensor) => Some(*user),
            _ => None,
        }
    }

    /// A dimension of a layer's outputs whose size is known only when the layer has run.
    pub fn unknown_size(&self, layer: LayerId) -> Option<&Dim> {
        let known = |dim: &Dim| dim.symbols().iter().all(|symbol| self.symbols.contains_key(symbol));
        let mut dims = self[layer].outputs.iter().flat_map(|&t| &self[t].ty.shape);
        dims.find(|dim| !known(dim))
    }

    /// The sizes that show first in a layer's outputs: they depend on its data.
    pub fn new_sizes(&self, layer: LayerId) -> Vec<Arc<str>> {
        let symbols_of = |tensor: TensorId| {
            let ty = &self[tensor].ty;
            ty.shape.iter().chain(ty.value.iter().flatten()).flat_map(Dim::symbols)
        };
        let (layer, dims) = (&self[layer], |attr: &Attr| match attr {
            Attr::Dims(dims) => dims.iter().flat_map(Dim::symbols).collect(),
            _ => vec![],
        });
        let inputs = layer.inputs.iter().flatten().flat_map(|&t| symbols_of(t));
        let old: HashSet<Arc<str>> = inputs.chain(layer.attrs.values().flat_map(dims)).collect();
        let mut new: Vec<_> = layer.outputs.iter().flat_map(|&t| symbols_of(t)).collect();
        new.retain(|symbol| !old.contains(symbol));
        new.sort();
        new.dedup();
        new
    }

    /// The layers in an order in which each comes after those that it reads; ties by id.
    ///
    /// # Errors
    /// If the layers form a cycle.
    pub fn order(&self) -> Result<Vec<LayerId>> {
        let mut waiting: HashMap<LayerId, usize> = HashMap::with_capacity(self.layers.len());
        let mut ready = VecDeque::new();
        for (id, layer) in self.layers() {
            let computed = layer
                .inputs
                .iter()
                .flatten()
                .filter(|&&t| self.producer(t).is_some())
                .count();
            match computed {
                0 => ready.push_back(id),
                count => _ = waiting.insert(id, count),
            }
        }
        let mut order = Vec::with_capacity(self.layers.len());
        while let Some(id) = ready.pop_front() {
            order.push(id);
            for user in self[id].outputs.iter().flat_map(|&t| &self[t].users) {
                if let Some(count) = waiting.get_mut(user) {
                    *count -= 1;
                    if *count == 0 {
                        ready.push_back(*user);
                    }
                }
            }
        }
        if order.len() == self.layers.len() {
            return Ok(order);
        }
        let stuck = self.layers().find(|(id, _)| waiting.get(id).is_some_and(|&c| c > 0));
        Err(Error::invalid("the layers form a cycle").layer(stuck.map_or("", |(_, l)| &l.name)))
    }

    /// Checks the relations between dimensions at these sizes.
    ///
    /// # Errors
    /// If one does not hold; names both sides.
    pub fn check_guards(&self, binding: &dim::Binding) -> Result<()> {
        self.guards.iter().try_for_each(|guard| guard.check(binding))
    }

    /// Runs the op's rule for a layer as it stands.
    pub(crate) fn infer(
        &self,
        layer: &str,
        op: &OpDef,
        attrs: &Attrs,
        inputs: &[Option<&Tensor>],
    ) -> Result<(Vec<TensorType>, Vec<Guard>)> {
        let types: Vec<_> = inputs.iter().map(|t| t.map(|t| t.ty.clone())).collect();
        let constants: Vec<_> = inputs.iter().map(|t| t.and_then(|t| t.constant().cloned())).collect();
        let context = Infer {
            layer,
            attrs,
            inputs: &types,
            constants: &constants,
            symbols: &self.symbols,
            equal_broadcasts: self.equal_broadcasts,
            guards: Default::default(),
        };
        let outputs = op.types(&context)?;
        Ok((outputs, context.guards.into_inner()))
    }
}

/// A network has no more inputs, and no more outputs: they are looked for one by one.
pub const MOST_PORTS: usize = 1 << 14;

fn require_port(before: usize, name: &str) -> Result<()> {
    if before < MOST_PORTS {
        return Ok(());
    }
    Err(Error::invalid("the network has too many inputs or outputs")
        .tensor(name)
        .expected(format!("at most {MOST_PORTS} of each")))
}

/// Longer integer arrays are data, not shapes: they carry no symbolic value.
pub(crate) const LONGEST_VALUE: usize = 64;

/// The type of a constant; a small integer array carries its value.
pub(crate) fn constant_type(array: &Array) -> TensorType {
    let shape: Vec<Dim> = array.shape().iter().map(|&d| d.into()).collect();
    let is_value = array.dtype().is_int() && array.len() <= LONGEST_VALUE;
    let value = is_value.then(|| array.to_i64().into_iter().map(Dim::from).collect());
    TensorType {
        dtype: array.dtype(),
        shape,
        value,
    }
}

impl std::ops::Index<TensorId> for Network {
    type Output = Tensor;
    fn index(&self, id: TensorId) -> &Tensor {
        &self.tensors[id.0 as usize]
    }
}

impl std::ops::IndexMut<TensorId> for Network {
    fn index_mut(&mut self, id: TensorId) -> &mut Tensor {
        &mut self.tensors[id.0 as usize]
    }
}

impl std::ops::Index<LayerId> for Network {
    type Output = Layer;
    fn index(&self, id: LayerId) -> &Layer {
        &self.layers[&id]
    }
}
