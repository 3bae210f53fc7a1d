//! How a network changes: what the Network's own calls and finished patches do to it.

use crate::error::{Error, Result};
use crate::network::array::Array;
use crate::network::dtype::DType;
use crate::network::op::TensorType;
use crate::network::precision::LayerPrecision;
use crate::network::{Constant, Layer, LayerId, Network, Source, Tensor, TensorId};
use std::collections::HashMap;
use std::sync::Arc;

/// That a layer, by name, reads a tensor as its input of this number.
pub type Read = (String, usize, TensorId);

impl Network {
    /// Lets layers read other tensors, and results, by name, be other tensors. Inputs that are left out may be given. Constants that
    /// nobody reads any more are dropped.
    ///
    /// # Errors
    /// If there is no such layer or result, or a layer can't read the tensor, or gives another type with it. The network is of no use
    /// then.
    pub fn rewire(&mut self, reads: &[Read], results: &[(String, TensorId)]) -> Result<()> {
        let ids: HashMap<String, LayerId> = self.layers().map(|(id, layer)| (layer.name.clone(), id)).collect();
        for (name, at, tensor) in reads {
            let &id = ids
                .get(name)
                .ok_or_else(|| Error::invalid("there is no layer of this name").layer(name))?;
            self.set_input(id, *at, *tensor);
        }
        for (name, tensor) in results {
            let at = self.outputs.iter().position(|output| output.name == *name);
            let at = at.ok_or_else(|| Error::invalid("there is no output of this name").tensor(name))?;
            self.set_output(at, *tensor);
        }
        self.drop_unused_constants();
        self.verify()
    }

    fn set_input(&mut self, id: LayerId, at: usize, tensor: TensorId) {
        self.changed();
        let Some(layer) = self.layers.get_mut(&id) else { return };
        if layer.inputs.len() <= at {
            layer.inputs.resize(at + 1, None);
        }
        let old = layer.inputs[at].replace(tensor);
        if let Some(old) = old {
            self.forget_user(old, id);
        }
        self[tensor].users.push(id);
    }

    /// Removes a layer whose outputs nobody reads.
    pub(crate) fn remove_layer(&mut self, id: LayerId) {
        let Some(layer) = self.layers.remove(&id) else { return };
        self.changed();
        debug_assert!(
            layer
                .outputs
                .iter()
                .all(|&t| self[t].users.is_empty() && !self.is_output(t))
        );
        for input in layer.inputs.into_iter().flatten() {
            self.forget_user(input, id);
        }
        for output in layer.outputs {
            let name = std::mem::take(&mut self[output].name);
            self.names.remove(&name);
            self[output].source = Source::Symbolic;
        }
        self.names.remove(&layer.name);
    }

    /// Replaces every use of `old`, results included, by `new`.
    pub(crate) fn replace_uses(&mut self, old: TensorId, new: TensorId) {
        self.changed();
        let users = std::mem::take(&mut self[old].users);
        for &user in &users {
            if let Some(layer) = self.layers.get_mut(&user) {
                layer
                    .inputs
                    .iter_mut()
                    .filter(|input| **input == Some(old))
                    .for_each(|input| *input = Some(new));
            }
        }
        self[new].users.extend(users);
        self.outputs
            .iter_mut()
            .filter(|o| o.tensor == old)
            .for_each(|o| o.tensor = new);
    }

    /// Lets an input have another dtype. Gives those who read it, who wait for [`Self::hand_over`].
    pub(crate) fn retype_input(&mut self, input: TensorId, dtype: DType) -> Vec<LayerId> {
        self.changed();
        self[input].ty.dtype = dtype;
        std::mem::take(&mut self[input].users)
    }

    /// Lets `users` of a tensor, and the results that it is, be those of another one.
    pub(crate) fn hand_over(&mut self, users: Vec<LayerId>, old: TensorId, new: TensorId) {
        let staying = std::mem::replace(&mut self[old].users, users);
        self.replace_uses(old, new);
        self[old].users = staying;
    }

    /// Lets a result be another tensor, under the same name.
    pub(crate) fn set_output(&mut self, at: usize, tensor: TensorId) {
        self.changed();
        self.outputs[at].tensor = tensor;
    }

    /// Says which nodes of the source model the layer that gives `output` stands for.
    pub(crate) fn set_sources(&mut self, output: TensorId, sources: Vec<String>) {
        if let Source::Layer(id, _) = self[output].source
            && let Some(layer) = self.layers.get_mut(&id)
        {
            layer.sources = sources;
        }
    }

    /// Decides what the layer that gives `output` computes in.
    pub(crate) fn set_precision(&mut self, output: TensorId, precision: Option<LayerPrecision>) {
        if let Source::Layer(id, _) = self[output].source
            && let Some(layer) = self.layers.get_mut(&id)
        {
            layer.precision = precision;
        }
    }

    /// Layers that took the place of removed ones stand for these sources too; the last one gets the plain name.
    pub(crate) fn inherit(&mut self, heirs: &[LayerId], sources: &[String]) {
        for id in heirs.iter().rev() {
            let Some(layer) = self.layers.get_mut(id) else { continue };
            for source in sources {
                if !layer.sources.contains(source) {
                    layer.sources.push(source.clone());
                }
            }
            let (old, outputs) = (std::mem::take(&mut layer.name), layer.outputs.clone());
            self.names.remove(&old);
            let name = self.unique(plain(&old));
            for output in outputs {
                let suffix = self[output]
                    .name
                    .rfind(':')
                    .map_or(":out", |at| &self[output].name[at..]);
                let wanted = format!("{name}{}", plain(suffix));
                let taken = std::mem::take(&mut self[output].name);
                self.names.remove(&taken);
                self[output].name = self.unique(&wanted);
            }
            if let Some(layer) = self.layers.get_mut(id) {
                layer.name = name;
            }
        }
    }

    /// Forgets constants that nobody reads, so that their memory goes with the last recipe that needs them.
    pub(crate) fn drop_unused_constants(&mut self) {
        for at in 0..self.tensors.len() {
            let id = TensorId(at as u32);
            let unused = self.tensors[at].users.is_empty() && !self.is_output(id);
            if unused && matches!(self.tensors[at].source, Source::Constant(_)) {
                self.tensors[at].source = Source::Symbolic;
                let name = std::mem::take(&mut self.tensors[at].name);
                self.names.remove(&name);
            }
        }
    }

    fn forget_user(&mut self, tensor: TensorId, user: LayerId) {
        let users = &mut self[tensor].users;
        if let Some(at) = users.iter().position(|&u| u == user) {
            users.swap_remove(at);
        }
    }

    /// Puts another array of the same dtype and shape in the place of a constant.
    pub(crate) fn set_constant(&mut self, id: TensorId, array: Array) {
        let constant = Constant {
            array,
            name: self[id].name.clone(),
            recipe: None,
        };
        self[id].source = Source::Constant(Arc::new(constant));
    }

    /// The network without its results.
    pub fn without_outputs(&self) -> Self {
        Self {
            outputs: vec![],
            ..self.clone()
        }
    }

    pub(crate) fn push_tensor(&mut self, name: &str, ty: TensorType, source: Source) -> TensorId {
        let name = self.unique(name);
        self.tensors.push(Tensor {
            name,
            ty,
            source,
            users: vec![],
        });
        TensorId(self.tensors.len() as u32 - 1)
    }

    pub(crate) fn push_layer(&mut self, mut layer: Layer) -> LayerId {
        let id = LayerId(self.next_layer);
        self.next_layer += 1;
        layer.name = self.unique(&layer.name);
        for input in layer.inputs.iter().flatten() {
            self[*input].users.push(id);
        }
        self.layers.insert(id, layer);
        self.changed();
        id
    }

    fn unique(&mut self, name: &str) -> String {
        let free = self.free(name);
        self.names.insert(free.clone());
        free
    }

    /// `name`, with a number behind it if it is taken. Layers and tensors share one space of names.
    pub(super) fn free(&self, name: &str) -> String {
        if !name.is_empty() && !self.names.contains(name) {
            return name.into();
        }
        let base = if name.is_empty() { "unnamed" } else { plain(name) };
        let numbered = |count: usize| {
            if count == 0 {
                base.into()
            } else {
                format!("{base}~{}", self.names.len() + count - 1)
            }
        };
        let mut candidates = (0..).map(numbered);
        candidates
            .find(|candidate: &String| !self.names.contains(candidate))
            .unwrap_or_default()
    }
}

/// A name without the number that [`Network::unique`] put behind it.
fn plain(name: &str) -> &str {
    match name.rsplit_once('~') {
        Some((base, number)) if !base.is_empty() && number.bytes().all(|b| b.is_ascii_digit()) => base,
        _ => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::attr::Attrs;
    use crate::network::ops;

    #[test]
    fn layers_and_results_read_other_tensors() {
        let mut network = Network::new("");
        let shape = ["n", "4", "6", "6"].map(|d| d.parse().unwrap()).to_vec();
        let x = network.add_input("x", DType::Float32, shape).unwrap();
        let mut constant = |name: &str, shape: &[usize]| {
            let ones = vec![1.0; shape.iter().product()];
            network.add_constant(name, Array::from_f64(DType::Float32, shape.to_vec(), &ones).unwrap())
        };
        let (v, w, b) = (
            constant("v", &[4, 4, 1, 1]),
            constant("w", &[4, 4, 1, 1]),
            constant("b", &[4]),
        );
        let mut layer = |op: &str, inputs: &[TensorId]| {
            let inputs: Vec<_> = inputs.iter().copied().map(Some).collect();
            network
                .add_layer(op, ops::find(op).unwrap(), Attrs::new(), &inputs)
                .unwrap()[0]
        };
        let y = layer("Conv", &[x, v]);
        let z = layer("Relu", &[y]);
        network.mark_output(y, "y").unwrap();
        let read = |at: usize, tensor: TensorId| ("Conv".to_string(), at, tensor);
        network.rewire(&[read(1, w), read(2, b)], &[("y".into(), z)]).unwrap();
        let inputs = &network.producer(y).unwrap().1.inputs;
        assert_eq!(inputs.as_slice(), [Some(x), Some(w), Some(b)]);
        assert!(network.is_output(z) && network[v].users.is_empty());
        // A bias of another length.
        assert!(network.rewire(&[read(2, w)], &[]).is_err());
        assert!(network.rewire(&[("nothing".into(), 0, w)], &[]).is_err());
    }
}
