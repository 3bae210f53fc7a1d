//! A network for TensorRT beside the one that is planned: composite ops that TensorRT has no layer for are in smaller ones there,
//! and stay whole for everybody else.

use super::keeps_whole;
use crate::error::Result;
use crate::network::op::Decomposition;
use crate::network::{LayerId, Network, TensorId};
use std::collections::{HashMap, HashSet, VecDeque};

/// The pieces of a network.
pub struct Pieces {
    /// The network in pieces.
    pub network: Network,
    /// The layer that a new one is a piece of.
    origins: HashMap<LayerId, LayerId>,
    /// The tensor that stands for one of the original network.
    heirs: HashMap<TensorId, TensorId>,
}

impl Pieces {
    /// Takes these layers of a network to pieces, where TensorRT does not take them whole.
    ///
    /// # Errors
    /// If the layers form a cycle.
    pub fn of(network: &Network, layers: &HashSet<LayerId>) -> Result<Self> {
        let mut this = Self {
            network: network.clone(),
            origins: HashMap::new(),
            heirs: HashMap::new(),
        };
        let order = network.order()?.into_iter().filter(|id| layers.contains(id));
        let mut pending: VecDeque<LayerId> = order.collect();
        while let Some(id) = pending.pop_front() {
            pending.extend(this.take_apart(id));
        }
        Ok(this)
    }

    /// The layer of the original network that a layer is a piece of; itself where nothing was done to it.
    pub fn origin(&self, piece: LayerId) -> LayerId {
        self.origins.get(&piece).copied().unwrap_or(piece)
    }

    /// What stands for a tensor of the original network.
    pub fn tensor(&self, original: TensorId) -> TensorId {
        self.heirs.get(&original).copied().unwrap_or(original)
    }

    /// The pieces of some layers of the original network.
    pub fn of_layers(&self, layers: &HashSet<LayerId>) -> HashSet<LayerId> {
        let ids = self.network.layers().map(|(id, _)| id);
        ids.filter(|&id| layers.contains(&self.origin(id))).collect()
    }

    /// Replaces a layer by smaller ones, and gives them. One that can't be stays, to be refused.
    fn take_apart(&mut self, id: LayerId) -> Vec<LayerId> {
        let network = &self.network;
        if network.get_layer(id).is_none() || keeps_whole(network, id) || !network.new_sizes(id).is_empty() {
            return vec![];
        }
        let (Decomposition::Always(decompose) | Decomposition::WithoutKernel(decompose)) = network[id].op.decomposition
        else {
            return vec![];
        };
        let Ok(patch) = decompose(network, id) else {
            return vec![];
        };
        let change = patch.finish();
        let outputs = network[id].outputs.clone();
        let readers: Vec<_> = outputs.iter().map(|&tensor| self.reader(tensor)).collect();
        let last = self.network.layers().last().map(|(id, _)| id);
        change.apply(&mut self.network);
        let new: Vec<LayerId> = self
            .network
            .layers()
            .map(|(id, _)| id)
            .filter(|&id| Some(id) > last)
            .collect();
        let origin = self.origin(id);
        self.origins.extend(new.iter().map(|&piece| (piece, origin)));
        for (old, reader) in outputs.into_iter().zip(readers) {
            let Some(heir) = reader.map(|reader| self.read(reader)) else {
                continue;
            };
            self.heirs
                .values_mut()
                .filter(|known| **known == old)
                .for_each(|known| *known = heir);
            self.heirs.entry(old).or_insert(heir);
        }
        new
    }

    /// Somebody who reads a tensor: an input of a layer, or a result of the network.
    fn reader(&self, tensor: TensorId) -> Option<Reader> {
        let network = &self.network;
        let result = network.outputs().iter().position(|output| output.tensor == tensor);
        result.map(Reader::Result).or_else(|| {
            let &user = network[tensor].users.first()?;
            let at = network[user].inputs.iter().position(|&input| input == Some(tensor))?;
            Some(Reader::Layer(user, at))
        })
    }

    fn read(&self, reader: Reader) -> TensorId {
        match reader {
            Reader::Result(at) => self.network.outputs()[at].tensor,
            Reader::Layer(id, at) => self.network[id].inputs[at].unwrap_or(TensorId(0)),
        }
    }
}

enum Reader {
    Result(usize),
    Layer(LayerId, usize),
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::array::Array;
    use crate::network::attr::attrs;
    use crate::network::dtype::DType;
    use crate::network::{ops, reference};

    #[test]
    fn what_is_in_pieces_computes_the_same_and_knows_its_origin() {
        let mut network = Network::new("");
        let x = network
            .add_input("x", DType::Float32, vec![2i64.into(), 3i64.into()])
            .unwrap();
        let find = |op| ops::find(op).unwrap();
        let scale = network.add_constant(
            "scale",
            Array::from_f64(DType::Float32, vec![3], &[1.0, 2.0, 3.0]).unwrap(),
        );
        let a = network.add_layer("a", find("Relu"), attrs([]), &[Some(x)]).unwrap()[0];
        let norm = find("RMSNormalization");
        let b = network
            .add_layer("b", norm, attrs([]), &[Some(a), Some(scale)])
            .unwrap()[0];
        let c = network
            .add_layer("c", find("LpNormalization"), attrs([]), &[Some(b)])
            .unwrap()[0];
        network.mark_output(c, "y").unwrap();
        network.mark_output(b, "z").unwrap();
        let layers: HashSet<LayerId> = network.layers().map(|(id, _)| id).collect();
        let pieces = Pieces::of(&network, &layers).unwrap();
        assert!(
            pieces.network.layers().all(|(id, _)| keeps_whole(&pieces.network, id)),
            "{}",
            pieces.network
        );
        for (id, layer) in network.layers() {
            let own = pieces.of_layers(&HashSet::from([id]));
            assert_eq!(own.len() > 1, layer.name != "a", "{}", layer.name);
        }
        let outputs: Vec<TensorId> = pieces.network.outputs().iter().map(|output| output.tensor).collect();
        assert_eq!([c, b].map(|tensor| pieces.tensor(tensor)).to_vec(), outputs);
        assert_eq!(pieces.tensor(a), a);
        let x = Array::from_f64(DType::Float32, vec![2, 3], &[1.0, 2.0, -3.0, 4.0, 5.0, 6.0]).unwrap();
        let run = |network: &Network| reference::evaluate(network, std::slice::from_ref(&x)).unwrap();
        for (got, want) in run(&pieces.network).iter().zip(&run(&network)) {
            let far = got
                .to_f64()
                .iter()
                .zip(want.to_f64())
                .any(|(g, w)| (g - w).abs() > 1e-5);
            assert!(!far, "{got:?} {want:?}");
        }
    }
}
