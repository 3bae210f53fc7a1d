//! Rewrites as patches: new layers on top of existing tensors, and which old tensor each result stands for.

use crate::error::{Error, Result};
use crate::network::array::Array;
use crate::network::attr::{self, Attr, Attrs};
use crate::network::dim::Dim;
use crate::network::dtype::DType;
use crate::network::op::{Guard, OpDef, TensorType};
use crate::network::ops::reshape;
use crate::network::{Constant, Layer, LayerId, Network, Recipe, Source, Tensor, TensorId, constant_type};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// A rewrite in the making, on top of a network that it does not touch yet.
pub struct Patch<'n> {
    network: &'n Network,
    change: Change,
}

/// A finished rewrite.
#[derive(Default)]
pub struct Change {
    first_tensor: u32,
    tensors: Vec<Tensor>,
    layers: Vec<Layer>,
    guards: Vec<Guard>,
    shunts: Vec<(TensorId, TensorId)>,
    absorbed: Vec<LayerId>,
    copies: Vec<usize>,
}

impl<'n> Patch<'n> {
    /// A patch that puts the same layer with another attribute in the place of a layer.
    ///
    /// # Errors
    /// If the layer can't be made so.
    pub fn with_attr(network: &'n Network, id: LayerId, name: &str, value: Attr) -> Result<Self> {
        let layer = &network[id];
        let mut attrs = layer.attrs.clone();
        attrs.insert(name.into(), value);
        let mut patch = Self::new(network);
        let outputs = patch.add_named("", layer.op, attrs, &layer.inputs)?;
        for (&old, new) in layer.outputs.iter().zip(outputs) {
            patch.shunt(old, new)?;
        }
        Ok(patch)
    }

    /// An empty patch on a network.
    pub fn new(network: &'n Network) -> Self {
        let first_tensor = network.tensors.len() as u32;
        Self {
            network,
            change: Change {
                first_tensor,
                ..Change::default()
            },
        }
    }

    /// A tensor of the network or of this patch.
    pub fn tensor(&self, id: TensorId) -> &Tensor {
        match id.0.checked_sub(self.change.first_tensor) {
            Some(own) => &self.change.tensors[own as usize],
            None => &self.network[id],
        }
    }

    /// The type of a tensor of the network or of this patch.
    pub fn ty(&self, id: TensorId) -> &TensorType {
        &self.tensor(id).ty
    }

    /// The layer of the network or of this patch that gives a tensor.
    pub fn producer(&self, id: TensorId) -> Option<&Layer> {
        let Source::Layer(layer, _) = self.tensor(id).source else {
            return None;
        };
        match layer.0.checked_sub(self.network.next_layer) {
            Some(own) => self.change.layers.get(own as usize),
            None => self.network.get_layer(layer),
        }
    }

    fn push(&mut self, name: &str, ty: TensorType, source: Source) -> TensorId {
        self.change.tensors.push(Tensor {
            name: name.into(),
            ty,
            source,
            users: vec![],
        });
        TensorId(self.change.first_tensor + self.change.tensors.len() as u32 - 1)
    }

    /// Adds a constant that the rewrite itself brings.
    pub fn constant(&mut self, array: Array) -> TensorId {
        let constant = Constant {
            array,
            name: String::new(),
            recipe: None,
        };
        self.push(
            "constant",
            constant_type(&constant.array),
            Source::Constant(Arc::new(constant)),
        )
    }

    /// Adds a rank-0 constant.
    pub fn scalar(&mut self, dtype: DType, value: f64) -> TensorId {
        self.constant(Array::scalar(dtype, value))
    }

    /// Adds a constant that was computed from others, keeping how.
    pub fn folded(&mut self, name: &str, array: Array, recipe: Recipe) -> TensorId {
        let constant = Constant {
            array,
            name: String::new(),
            recipe: Some(recipe),
        };
        self.push(
            name,
            constant_type(&constant.array),
            Source::Constant(Arc::new(constant)),
        )
    }

    /// Adds an integer tensor whose elements the shapes determine; a constant, when they are numbers.
    pub fn symbolic(&mut self, name: &str, dtype: DType, shape: Vec<Dim>, value: Vec<Dim>) -> TensorId {
        let numbers = value.iter().map(Dim::as_const).collect::<Option<Vec<_>>>();
        let extents = shape.iter().map(|d| d.as_const().and_then(|v| usize::try_from(v).ok()));
        let array = numbers
            .zip(extents.collect::<Option<Vec<_>>>())
            .and_then(|(numbers, extents)| Array::from_i64(dtype, extents, &numbers).ok());
        if let Some(array) = array {
            return self.constant(array);
        }
        self.push(
            name,
            TensorType {
                dtype,
                shape,
                value: Some(value),
            },
            Source::Symbolic,
        )
    }

    /// Adds a layer; its name follows from the layers that the patch replaces.
    pub fn add(&mut self, op: &'static OpDef, attrs: Attrs, inputs: &[TensorId]) -> Result<TensorId> {
        let inputs: Vec<_> = inputs.iter().copied().map(Some).collect();
        Ok(self.add_named("", op, attrs, &inputs)?[0])
    }

    /// Adds a layer under a name (empty: as [`Patch::add`]), with inputs that may be left out, giving all outputs.
    ///
    /// # Errors
    /// If the op does not take these inputs or attributes; the error names the layer.
    pub fn add_named(
        &mut self,
        name: &str,
        op: &'static OpDef,
        attrs: Attrs,
        inputs: &[Option<TensorId>],
    ) -> Result<Vec<TensorId>> {
        self.try_add(name, op, attrs, inputs).map_err(|e| {
            let shown: Vec<_> = inputs
                .iter()
                .map(|t| t.map_or("none".into(), |t| self.ty(t).describe()))
                .collect();
            e.layer(format!("{name} ({}) of {}", op.name, shown.join(", ")))
        })
    }

    fn try_add(
        &mut self,
        name: &str,
        op: &'static OpDef,
        attrs: Attrs,
        inputs: &[Option<TensorId>],
    ) -> Result<Vec<TensorId>> {
        let limit = self.change.first_tensor + self.change.tensors.len() as u32;
        if let Some(bad) = inputs.iter().flatten().find(|t| t.0 >= limit) {
            return Err(Error::invalid("input is no tensor of this network").got(format!("tensor {}", bad.0)));
        }
        op.check_inputs(&inputs.iter().map(Option::is_some).collect::<Vec<_>>())?;
        let attrs = attr::complete(op.attrs, attrs)?;
        let tensors: Vec<_> = inputs.iter().map(|t| t.map(|t| self.tensor(t))).collect();
        let (types, guards) = self.network.infer(name, op, &attrs, &tensors)?;
        self.change.guards.extend(guards);
        let layer = LayerId(self.network.next_layer + self.change.layers.len() as u32);
        let single = types.len() == 1;
        let outputs = types.into_iter().enumerate().map(|(i, ty)| {
            let output = if single {
                format!("{name}:out")
            } else {
                format!("{name}:out{i}")
            };
            self.push(&output, ty, Source::Layer(layer, i))
        });
        let outputs: Vec<_> = outputs.collect();
        self.change.layers.push(Layer {
            name: name.into(),
            sources: if name.is_empty() { vec![] } else { vec![name.into()] },
            op,
            attrs,
            inputs: inputs.to_vec(),
            outputs: outputs.clone(),
            precision: None,
        });
        Ok(outputs)
    }

    /// Adds a layer of the network once more, with other attributes and inputs: it keeps its name, its sources and its precision.
    ///
    /// # Errors
    /// As [`Patch::add_named`].
    pub fn copy(&mut self, id: LayerId, attrs: Attrs, inputs: &[Option<TensorId>]) -> Result<Vec<TensorId>> {
        let layer = &self.network[id];
        let outputs = self.add_named(&layer.name, layer.op, attrs, inputs)?;
        self.change.copies.push(self.change.layers.len() - 1);
        if let Some(copy) = self.change.layers.last_mut() {
            copy.sources = layer.sources.clone();
            copy.precision = layer.precision;
        }
        Ok(outputs)
    }

    /// `new` stands for `old` from now on. The types must agree; where a guard says that two dimensions are equal, one may
    /// stand for the other.
    ///
    /// # Errors
    /// If the dtype or the shape changes.
    pub fn shunt(&mut self, old: TensorId, new: TensorId) -> Result<()> {
        let new = self.shaped_as(old, new)?;
        self.change.shunts.push((old, new));
        if let Some((layer, _)) = self.network.producer(old) {
            self.absorb(layer);
        }
        Ok(())
    }

    /// `new`, or a view of it in the shape of `old` where the two are written differently.
    fn shaped_as(&mut self, old: TensorId, new: TensorId) -> Result<TensorId> {
        let (from, to) = (self.ty(old), self.ty(new));
        if from.dtype == to.dtype && from.shape == to.shape {
            return Ok(new);
        }
        if from.dtype != to.dtype || !self.assumed_equal(&from.shape, &to.shape) {
            return Err(Error::internal("a rewrite changes the type of a tensor")
                .tensor(&self.tensor(old).name)
                .expected(from.describe())
                .got(to.describe()));
        }
        let shape = from.shape.clone();
        let target = self.symbolic("shape", DType::Int64, vec![shape.len().into()], shape);
        let attrs = attr::attrs([("allowzero", attr::Attr::Int(1))]);
        self.add(&reshape::DEF, attrs, &[new, target])
    }

    /// Whether the guards make two shapes the same.
    pub fn assumed_equal(&self, left: &[Dim], right: &[Dim]) -> bool {
        let guards = self.network.guards.iter().chain(&self.change.guards);
        let mut equal: HashMap<&str, &Dim> = HashMap::new();
        for guard in guards.filter(|g| !g.or_one) {
            match (guard.left.as_symbol(), guard.right.as_symbol()) {
                // One of two names, always the same one.
                (Some(a), Some(b)) if a < b => equal.entry(b).or_insert(&guard.left),
                (Some(symbol), _) => equal.entry(symbol).or_insert(&guard.right),
                (None, Some(symbol)) => equal.entry(symbol).or_insert(&guard.left),
                (None, None) => continue,
            };
        }
        /// A name may stand for a name that stands for a number.
        const ROUNDS: usize = 3;
        let resolved = |dim: &Dim| {
            (0..ROUNDS).fold(dim.clone(), |dim, _| {
                dim.substitute(&|symbol| equal.get(symbol).map(|&d| d.clone()))
            })
        };
        let any = |holds: &dyn Fn(&Dim, &Dim) -> bool| {
            let guards = self.network.guards.iter().chain(&self.change.guards);
            let mut equalities = guards.filter(|g| !g.or_one).map(|g| (&g.left, &g.right));
            equalities.any(|(left, right)| holds(left, right) || holds(right, left))
        };
        let said = |l: &Dim, r: &Dim| any(&|left, right| (left, right) == (l, r));
        let said_of = |one: &Dim, dim: &Dim| any(&|left, right| left == one && right.operands().contains(dim));
        // One that is broadcast with dimensions, each of which is broadcast to it, stays as it is.
        let covers = |one: &Dim, whole: &Dim| {
            let operands = whole.operands();
            operands.contains(one) && operands.iter().all(|dim| dim == one || said_of(one, dim))
        };
        let equal =
            |(l, r): (&Dim, &Dim)| l == r || said(l, r) || resolved(l) == resolved(r) || covers(l, r) || covers(r, l);
        left.len() == right.len() && left.iter().zip(right).all(equal)
    }

    /// The new layers stand for this one too (its name and sources), though it may stay for other users.
    pub fn absorb(&mut self, layer: LayerId) {
        if !self.change.absorbed.contains(&layer) {
            self.change.absorbed.push(layer);
        }
    }

    /// The finished rewrite.
    pub fn finish(self) -> Change {
        self.change
    }
}

impl Change {
    /// Applies the rewrite, and removes the layers that nobody reads any more because of it.
    /// Gives the layers around it that see something new.
    pub fn apply(mut self, network: &mut Network) -> Vec<LayerId> {
        debug_assert_eq!(
            self.first_tensor as usize,
            network.tensors.len(),
            "a patch applies to the network it saw"
        );
        let heirs = self.inherit_names(network);
        for tensor in self.tensors {
            network.push_tensor(&tensor.name, tensor.ty, tensor.source);
        }
        let added: Vec<_> = self.layers.into_iter().map(|layer| network.push_layer(layer)).collect();
        for guard in self.guards {
            let same = |g: &Guard| (&g.left, &g.right, g.or_one) == (&guard.left, &guard.right, guard.or_one);
            if !network.guards.iter().any(same) {
                network.guards.push(guard);
            }
        }
        let mut touched = added.clone();
        for &(old, new) in &self.shunts {
            touched.extend(&network[old].users);
            network.replace_uses(old, new);
        }
        let mut removed = Removed::default();
        for &(old, _) in &self.shunts {
            if let Source::Layer(id, _) = network[old].source {
                sweep_into(network, id, &mut removed);
            }
        }
        let [heirs, copies] = [heirs, self.copies].map(|at| at.into_iter().map(|at| added[at]).collect::<Vec<_>>());
        let copied: HashSet<_> = copies.iter().flat_map(|&id| &network[id].sources).cloned().collect();
        removed.sources.retain(|source| !copied.contains(source));
        network.inherit(&heirs, &removed.sources);
        network.inherit(&copies, &[]);
        // A tensor that lost readers may be down to one, which some rule waits for.
        for &input in &removed.inputs {
            touched.extend(network.sole_user(input));
            touched.extend(network.producer(input).map(|(id, _)| id));
        }
        let mut seen = HashSet::new();
        touched.retain(|&id| network.get_layer(id).is_some() && seen.insert(id));
        touched
    }

    /// New layers without a name take that of what they replace; all take over its sources and precision. Gives their places.
    fn inherit_names(&mut self, network: &Network) -> Vec<usize> {
        let Some(last) = self.absorbed.first().map(|&id| &network[id].name) else {
            return vec![];
        };
        let mut sources: Vec<String> = vec![];
        for source in self.absorbed.iter().flat_map(|&id| &network[id].sources) {
            if !sources.contains(source) {
                sources.push(source.clone());
            }
        }
        let precision = self.absorbed.iter().find_map(|&id| network[id].precision);
        let mut heirs = vec![];
        for (at, layer) in self.layers.iter_mut().enumerate().filter(|(_, l)| l.name.is_empty()) {
            heirs.push(at);
            layer.name = last.clone();
            layer.sources = sources.clone();
            layer.precision = precision;
            for &output in &layer.outputs {
                let name = &mut self.tensors[(output.0 - self.first_tensor) as usize].name;
                *name = format!("{last}{name}");
            }
        }
        heirs
    }
}

/// What a sweep took away.
#[derive(Default)]
struct Removed {
    sources: Vec<String>,
    inputs: Vec<TensorId>,
}

/// Removes a layer that nobody reads, and then those that only it read. Gives how many.
pub(crate) fn sweep(network: &mut Network, id: LayerId) -> usize {
    let before = network.layer_count();
    sweep_into(network, id, &mut Removed::default());
    before - network.layer_count()
}

fn sweep_into(network: &mut Network, id: LayerId, removed: &mut Removed) {
    let mut pending = vec![id];
    while let Some(id) = pending.pop() {
        let Some(layer) = network.get_layer(id) else { continue };
        if layer
            .outputs
            .iter()
            .any(|&t| !network[t].users.is_empty() || network.is_output(t))
        {
            continue;
        }
        pending.extend(
            layer
                .inputs
                .iter()
                .flatten()
                .filter_map(|&t| network.producer(t))
                .map(|(id, _)| id),
        );
        removed.sources.extend(layer.sources.iter().cloned());
        removed.inputs.extend(layer.inputs.iter().flatten());
        network.remove_layer(id);
    }
}
