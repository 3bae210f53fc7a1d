//! The network as a graph to look at: names and texts, which tools draw.

use crate::network::dump::describe;
use crate::network::{LayerId, Network, Source, TensorId};
use serde::Serialize;
use std::collections::BTreeMap;

/// A network without its weights.
#[derive(Debug, Clone, Serialize)]
pub struct Graph {
    /// The name of the model.
    pub name: String,
    /// The layers in an order in which they can run.
    pub layers: Vec<GraphLayer>,
    /// The tensors that layers read and give, by name.
    pub tensors: BTreeMap<String, GraphTensor>,
    /// The inputs.
    pub inputs: Vec<String>,
    /// The results: the name that callers see, and the tensor.
    pub outputs: Vec<(String, String)>,
}

/// A layer of a graph.
#[derive(Debug, Clone, Serialize)]
pub struct GraphLayer {
    /// Its name.
    pub name: String,
    /// The op.
    pub op: &'static str,
    /// The attributes as text.
    pub attrs: BTreeMap<String, String>,
    /// The nodes of the source model that it stands for.
    pub sources: Vec<String>,
    /// The tensors that it reads; none for one that is left out.
    pub inputs: Vec<Option<String>>,
    /// The tensors that it gives.
    pub outputs: Vec<String>,
    /// The number of the kernel that runs it, where that is known.
    pub kernel: Option<usize>,
}

/// A tensor of a graph.
#[derive(Debug, Clone, Serialize)]
pub struct GraphTensor {
    /// The element type.
    pub dtype: String,
    /// The extents, with symbols.
    pub shape: Vec<String>,
    /// `input`, `constant`, `shape` (the shapes determine it) or `layer`.
    pub source: &'static str,
}

impl Graph {
    /// A network as a graph; `kernel` says what runs a layer.
    pub fn of(network: &Network, kernel: &dyn Fn(LayerId) -> Option<usize>) -> Self {
        let order = network
            .order()
            .unwrap_or_else(|_| network.layers().map(|(id, _)| id).collect());
        let name = |&id: &TensorId| network[id].name.clone();
        let layer = |id: LayerId| {
            let layer = &network[id];
            GraphLayer {
                name: layer.name.clone(),
                op: layer.op.name,
                attrs: layer.attrs.iter().map(|(k, v)| (k.clone(), describe(v))).collect(),
                sources: layer.sources.clone(),
                inputs: layer.inputs.iter().map(|t| t.as_ref().map(name)).collect(),
                outputs: layer.outputs.iter().map(name).collect(),
                kernel: kernel(id),
            }
        };
        let ends = network
            .inputs()
            .iter()
            .chain(network.outputs().iter().map(|o| &o.tensor));
        let read = order.iter().flat_map(|&id| network[id].inputs.iter().flatten());
        let given = order.iter().flat_map(|&id| &network[id].outputs);
        Self {
            name: network.name.clone(),
            tensors: ends
                .chain(read)
                .chain(given)
                .map(|id| (name(id), tensor(network, id)))
                .collect(),
            layers: order.iter().copied().map(layer).collect(),
            inputs: network.inputs().iter().map(name).collect(),
            outputs: network
                .outputs()
                .iter()
                .map(|o| (o.name.clone(), name(&o.tensor)))
                .collect(),
        }
    }
}

fn tensor(network: &Network, id: &TensorId) -> GraphTensor {
    let tensor = &network[*id];
    GraphTensor {
        dtype: tensor.ty.dtype.to_string(),
        shape: tensor.ty.shape.iter().map(|dim| dim.to_string()).collect(),
        source: match tensor.source {
            Source::Input => "input",
            Source::Constant(_) => "constant",
            Source::Symbolic => "shape",
            Source::Layer(..) => "layer",
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::array::Array;
    use crate::network::attr::Attrs;
    use crate::network::dim::Dim;
    use crate::network::dtype::DType;
    use crate::network::ops;

    #[test]
    fn names_what_layers_read_and_give() {
        let mut network = Network::new("m");
        let x = network
            .add_input("x", DType::Float32, vec![Dim::symbol("n"), 4i64.into()])
            .unwrap();
        let one = network.add_constant("one", Array::from_f64(DType::Float32, vec![1], &[1.0]).unwrap());
        let sum = network
            .add_layer("sum", ops::find("Add").unwrap(), Attrs::new(), &[Some(x), Some(one)])
            .unwrap()[0];
        network.mark_output(sum, "y").unwrap();
        let graph = Graph::of(&network, &|_| Some(7));
        assert_eq!(graph.layers[0].inputs, [Some("x".into()), Some("one".into())]);
        assert_eq!((graph.layers[0].op, graph.layers[0].kernel), ("Add", Some(7)));
        assert_eq!(graph.outputs, [("y".to_string(), graph.layers[0].outputs[0].clone())]);
        assert_eq!(graph.tensors["one"].source, "constant");
        assert_eq!(graph.tensors["x"].shape, ["n", "4"]);
    }
}
