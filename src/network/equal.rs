//! Networks in which symbols that meet in a broadcast are equal.
//!
//! Whether one of them is 1 shows in a call alone. Layers of equal shapes are what passes and kernels are best at, so an engine is
//! planned for equal symbols, and keeps the network as it came for calls where they are not.

use crate::error::Result;
use crate::network::attr::Attr;
use crate::network::body::Body;
use crate::network::broadcast::TAKEN_TO_BE_EQUAL;
use crate::network::dim::{Binding, Dim};
use crate::network::op::{Guard, TensorType};
use crate::network::{Network, Source};
use std::collections::HashSet;
use std::sync::Arc;

impl Network {
    /// Whether no two symbols that meet in a broadcast may differ: they are taken to be equal, or there are none.
    pub fn takes_broadcasts_equal(&self) -> bool {
        self.equal_broadcasts || !self.has_broadcasts()
    }

    /// As [`Network::check_guards`], of the relations between sizes that the binding knows.
    ///
    /// # Errors
    /// If one does not hold; names both sides.
    pub fn check_known_guards(&self, binding: &Binding) -> Result<()> {
        let known = |dim: &Dim| dim.symbols().iter().all(|symbol| binding.contains_key(symbol));
        let mut guards = self
            .guards
            .iter()
            .filter(|guard| known(&guard.left) && known(&guard.right));
        guards.try_for_each(|guard| guard.check(binding))
    }

    /// Whether extents stand in it that are those of one of several dimensions.
    fn has_broadcasts(&self) -> bool {
        let own = |dim: &Dim| *dim != dim.with_equal_broadcasts();
        let mut types = self.tensors.iter().map(|tensor| &tensor.ty);
        let mut bodies = self.layers.values().flat_map(|layer| layer.bodies());
        types.any(|ty| ty.shape.iter().chain(ty.value.iter().flatten()).any(own))
            || bodies.any(|(_, body)| body.0.has_broadcasts())
    }

    /// The network with symbols equal that meet in a broadcast, which guards say; `None` where none do, or where a size that depended
    /// on data would no longer, while values were derived from its name.
    ///
    /// # Errors
    /// If a layer does not take such shapes; names it.
    pub fn with_equal_broadcasts(&self) -> Result<Option<Self>> {
        if self.takes_broadcasts_equal() {
            return Ok(None);
        }
        let made = self.equal()?;
        Ok(made.knows_its_symbols().then_some(made))
    }

    /// Whether each symbol that a value is derived from is that of an input, or shows in what a layer gives.
    fn knows_its_symbols(&self) -> bool {
        let layers = self.layers.values();
        let shown = layers.flat_map(|layer| layer.outputs.iter().flat_map(|&t| &self[t].ty.shape));
        let shown: HashSet<_> = shown.flat_map(Dim::symbols).collect();
        let is_known = |symbol: &Arc<str>| self.symbols.contains_key(symbol) || shown.contains(symbol);
        let derived = self
            .tensors
            .iter()
            .filter(|t| matches!(t.source, Source::Symbolic) && !t.users.is_empty());
        let mut derived = derived.flat_map(|tensor| tensor.ty.value.iter().flatten());
        derived.all(|dim| dim.symbols().iter().all(is_known))
    }

    fn equal(&self) -> Result<Self> {
        let mut made = self.clone();
        made.equal_broadcasts = true;
        for tensor in &mut made.tensors {
            if !matches!(tensor.source, Source::Layer(..)) {
                equal_type(&mut tensor.ty);
            }
        }
        for attr in made.layers.values_mut().flat_map(|layer| layer.attrs.values_mut()) {
            match attr {
                Attr::Body(body) => *body = Body(Arc::new(body.0.equal()?)),
                Attr::Dims(dims) => dims.iter_mut().for_each(|dim| *dim = dim.with_equal_broadcasts()),
                _ => {}
            }
        }
        made.guards = self.guards.iter().filter_map(equal_guard).collect();
        made.infer_again()?;
        made.take_guards_of_bodies();
        made.changed();
        Ok(made)
    }

    /// Types what layers give by their rules.
    fn infer_again(&mut self) -> Result<()> {
        let mut known: HashSet<_> = self.guards.iter().map(Guard::relation).collect();
        for id in self.order()? {
            let layer = &self.layers[&id];
            let inputs: Vec<_> = layer.inputs.iter().map(|t| t.map(|t| &self[t])).collect();
            let inferred = self.infer(&layer.name, layer.op, &layer.attrs, &inputs);
            let (types, guards) = inferred.map_err(|e| e.layer(&layer.name))?;
            for (tensor, ty) in layer.outputs.clone().into_iter().zip(types) {
                self[tensor].ty = ty;
            }
            self.guards
                .extend(guards.into_iter().filter(|guard| known.insert(guard.relation())));
        }
        Ok(())
    }

    /// What the networks in its layers take to be equal is known here before they run, where it is of sizes of inputs.
    fn take_guards_of_bodies(&mut self) {
        let bodies = self.layers.values().flat_map(|layer| layer.bodies());
        let guards = bodies.flat_map(|(_, body)| &body.0.guards);
        let assumed = guards.filter(|guard| guard.reason.ends_with(TAKEN_TO_BE_EQUAL));
        let known = |dim: &Dim| dim.symbols().iter().all(|symbol| self.symbols.contains_key(symbol));
        let known: Vec<_> = assumed
            .filter(|guard| known(&guard.left) && known(&guard.right))
            .cloned()
            .collect();
        self.guards.extend(known);
    }
}

fn equal_type(ty: &mut TensorType) {
    let dims = ty.shape.iter_mut().chain(ty.value.iter_mut().flatten());
    dims.for_each(|dim| *dim = dim.with_equal_broadcasts());
}

/// What a guard says then; nothing where both sides are one dimension.
fn equal_guard(guard: &Guard) -> Option<Guard> {
    let broadcast = guard.or_one && guard.right.operands().len() > 1;
    let layer = guard.reason.split_once(": ").map_or("", |(layer, _)| layer);
    let made = Guard {
        left: guard.left.with_equal_broadcasts(),
        right: guard.right.with_equal_broadcasts(),
        or_one: guard.or_one && !broadcast,
        reason: match broadcast {
            true => format!("{layer}: {TAKEN_TO_BE_EQUAL}"),
            false => guard.reason.clone(),
        },
    };
    (made.left != made.right).then_some(made)
}
