//! A network as a document: what an engine file says of it. Reading one back goes through the Network's own
//! rules, so a document that was tampered with is refused like any wrong call.

use crate::error::{Error, Result};
use crate::network::array::Array;
use crate::network::attr::{Attr, Attrs};
use crate::network::body::Body;
use crate::network::dim::{Dim, Symbols};
use crate::network::dtype::DType;
use crate::network::op::{Guard, TensorType};
use crate::network::precision::LayerPrecision;
use crate::network::{Network, Source, TensorId, ops, plugin};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

/// A network without its weights, which stand beside it by number.
#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Document {
    name: String,
    symbols: Symbols,
    guards: Vec<Guard>,
    /// Older files say nothing: there symbols were always taken to be equal.
    #[serde(default = "yes", skip_serializing_if = "Clone::clone")]
    equal_broadcasts: bool,
    inputs: Vec<Input>,
    constants: Vec<String>,
    symbolic: Vec<Symbolic>,
    layers: Vec<LayerRecord>,
    outputs: Vec<(String, u32)>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Input {
    name: String,
    dtype: DType,
    shape: Vec<Dim>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Symbolic {
    name: String,
    ty: TensorType,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct LayerRecord {
    name: String,
    sources: Vec<String>,
    op: String,
    attrs: Attrs,
    inputs: Vec<Option<u32>>,
    outputs: u32,
    /// From version 5 on.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    precision: Option<LayerPrecision>,
    /// The networks that it holds, by attribute; their constants stand behind those of the network around.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    bodies: BTreeMap<String, Document>,
}

impl Document {
    /// Writes down a network; gives its constants in the order of their numbers.
    ///
    /// # Errors
    /// If the layers form a cycle.
    pub fn write(network: &Network) -> Result<(Self, Vec<Array>)> {
        let mut writer = Writer {
            network,
            numbers: HashMap::new(),
            constants: vec![],
            inner: vec![],
            symbolic: vec![],
        };
        let order = network.order()?;
        let mut read: Vec<TensorId> = order
            .iter()
            .flat_map(|&l| network[l].inputs.iter().flatten().copied())
            .collect();
        read.extend(network.outputs().iter().map(|o| o.tensor));
        // Tensors are numbered by source: inputs, constants, symbolic values, then the outputs of the layers.
        network.inputs().iter().for_each(|&t| writer.number(t));
        let constant = |t: &&TensorId| matches!(network[**t].source, Source::Constant(_));
        let symbolic = |t: &&TensorId| matches!(network[**t].source, Source::Symbolic);
        read.iter().filter(constant).for_each(|&t| writer.number(t));
        read.iter().filter(symbolic).for_each(|&t| writer.number(t));
        let layers = order.iter().map(|&id| writer.layer(id)).collect::<Result<_>>()?;
        let outputs = network
            .outputs()
            .iter()
            .map(|o| (o.name.clone(), writer.numbers[&o.tensor]))
            .collect();
        let input = |&t: &TensorId| {
            let tensor = &network[t];
            Input {
                name: tensor.name.clone(),
                dtype: tensor.ty.dtype,
                shape: tensor.ty.shape.clone(),
            }
        };
        let document = Self {
            name: network.name.clone(),
            symbols: network.symbols.clone(),
            guards: network.guards.clone(),
            equal_broadcasts: network.takes_broadcasts_equal(),
            inputs: network.inputs().iter().map(input).collect(),
            constants: writer.constants.iter().map(|(name, _)| name.clone()).collect(),
            symbolic: writer.symbolic,
            layers,
            outputs,
        };
        let own = writer.constants.into_iter().map(|(_, array)| array);
        Ok((document, own.chain(writer.inner).collect()))
    }

    /// The number of constants that [`Document::read`] wants.
    pub fn constant_count(&self) -> usize {
        let bodies = self.layers.iter().flat_map(|record| record.bodies.values());
        self.constants.len() + bodies.map(Self::constant_count).sum::<usize>()
    }

    /// Whether symbols that meet in a broadcast may each be 1 in it, or in the networks in its layers.
    pub fn has_broadcasts(&self) -> bool {
        let mut bodies = self.layers.iter().flat_map(|record| record.bodies.values());
        !self.equal_broadcasts || bodies.any(Self::has_broadcasts)
    }

    /// Whether it was decided what its layers, or those of the networks in them, compute in.
    pub fn has_precision(&self) -> bool {
        let mut bodies = self.layers.iter().flat_map(|record| record.bodies.values());
        self.layers.iter().any(|record| record.precision.is_some()) || bodies.any(Self::has_precision)
    }

    /// The plugins that its layers, and those of the networks in them, need.
    pub fn plugins(&self) -> Vec<&plugin::Identity> {
        let own = self.layers.iter().flat_map(|record| record.attrs.values());
        let own = own.filter_map(|attr| match attr {
            Attr::Plugin(held) => Some(held.identity()),
            _ => None,
        });
        let bodies = self.layers.iter().flat_map(|record| record.bodies.values());
        own.chain(bodies.flat_map(Self::plugins)).collect()
    }

    /// Builds the network anew.
    ///
    /// # Errors
    /// If the document is not one of a well-formed network, or plugins that it needs are not registered.
    pub fn read(self, constants: Vec<Array>) -> Result<Network> {
        plugin::registry::require(self.plugins().into_iter())?;
        if constants.len() != self.constant_count() {
            return Err(Error::format("the document and its weights differ in number"));
        }
        self.read_from(&mut constants.into_iter())
    }

    fn read_from(self, constants: &mut dyn Iterator<Item = Array>) -> Result<Network> {
        let mut network = Network::new(self.name);
        network.equal_broadcasts = self.equal_broadcasts;
        let mut tensors: Vec<TensorId> = vec![];
        for (symbol, range) in &self.symbols {
            network.set_range(symbol, *range)?;
        }
        for input in self.inputs {
            tensors.push(network.add_input(&input.name, input.dtype, input.shape)?);
        }
        for name in &self.constants {
            let array = constants.next().ok_or_else(damaged)?;
            tensors.push(network.add_constant(name, array));
        }
        for symbolic in self.symbolic {
            symbolic.ty.check_size().map_err(|e| e.tensor(&symbolic.name))?;
            let length: usize = symbolic.ty.concrete().ok_or_else(damaged)?.iter().product();
            if symbolic.ty.value.as_ref().map(Vec::len) != Some(length) || !symbolic.ty.dtype.is_int() {
                return Err(damaged().tensor(&symbolic.name));
            }
            tensors.push(network.push_tensor(&symbolic.name, symbolic.ty, Source::Symbolic));
        }
        for mut record in self.layers {
            let find = |i: &Option<u32>| {
                i.map(|i| tensors.get(i as usize).copied().ok_or_else(damaged))
                    .transpose()
            };
            let inputs = record.inputs.iter().map(find).collect::<Result<Vec<_>>>()?;
            for (attr, body) in record.bodies {
                let body = body.read_from(constants)?;
                record.attrs.insert(attr, Attr::Body(Body(Arc::new(body))));
            }
            let outputs = network.add_layer(&record.name, ops::find(&record.op)?, record.attrs, &inputs)?;
            if outputs.len() != record.outputs as usize {
                return Err(damaged().layer(&record.name));
            }
            network.set_sources(outputs[0], record.sources);
            network.set_precision(outputs[0], record.precision);
            tensors.extend(outputs);
        }
        for (name, tensor) in self.outputs {
            network.mark_output(*tensors.get(tensor as usize).ok_or_else(damaged)?, &name)?;
        }
        // Those of layers that passes removed stand in the file alone. Those of layers that are here hold whatever it says.
        let known: HashSet<_> = network.guards.iter().map(Guard::relation).collect();
        let further: Vec<_> = self
            .guards
            .into_iter()
            .filter(|guard| !known.contains(&guard.relation()))
            .collect();
        network.guards.extend(further);
        network.verify()?;
        Ok(network)
    }
}

fn yes() -> bool {
    true
}

fn damaged() -> Error {
    Error::format("the network in the file is damaged").hint("build and save the engine again")
}

struct Writer<'a> {
    network: &'a Network,
    numbers: HashMap<TensorId, u32>,
    constants: Vec<(String, Array)>,
    /// Those of the networks that layers hold.
    inner: Vec<Array>,
    symbolic: Vec<Symbolic>,
}

impl Writer<'_> {
    fn number(&mut self, id: TensorId) {
        if self.numbers.contains_key(&id) {
            return;
        }
        self.numbers.insert(id, self.numbers.len() as u32);
        let tensor = &self.network[id];
        match &tensor.source {
            Source::Constant(constant) => self.constants.push((tensor.name.clone(), constant.array.clone())),
            Source::Symbolic => self.symbolic.push(Symbolic {
                name: tensor.name.clone(),
                ty: tensor.ty.clone(),
            }),
            Source::Input | Source::Layer(..) => {}
        }
    }

    fn layer(&mut self, id: crate::network::LayerId) -> Result<LayerRecord> {
        let layer = &self.network[id];
        let inputs = layer.inputs.iter().map(|t| t.map(|t| self.numbers[&t])).collect();
        layer.outputs.iter().for_each(|&t| self.number(t));
        let mut bodies = BTreeMap::new();
        for (attr, body) in layer.bodies() {
            let (document, constants) = Document::write(&body.0)?;
            bodies.insert(attr.to_string(), document);
            self.inner.extend(constants);
        }
        let plain = layer.attrs.iter().filter(|(name, _)| !bodies.contains_key(*name));
        Ok(LayerRecord {
            name: layer.name.clone(),
            sources: layer.sources.clone(),
            op: layer.op.name.into(),
            attrs: plain.map(|(name, attr)| (name.clone(), attr.clone())).collect(),
            inputs,
            outputs: layer.outputs.len() as u32,
            precision: layer.precision,
            bodies,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::attr::attrs;

    fn sample() -> Network {
        let mut network = Network::new("sample");
        let x = network
            .add_input("x", DType::Float32, vec!["n".parse().unwrap(), 4i64.into()])
            .unwrap();
        let w = network.add_constant(
            "w",
            Array::from_f64(DType::Float32, vec![4], &[1.0, 2.0, 3.0, 4.0]).unwrap(),
        );
        let y = network
            .add_layer("add", &ops::add::DEF, attrs([]), &[Some(x), Some(w)])
            .unwrap()[0];
        let z = network
            .add_layer("relu", &ops::relu::DEF, attrs([]), &[Some(y)])
            .unwrap()[0];
        network.mark_output(z, "z").unwrap();
        network
    }

    #[test]
    fn a_network_survives_the_round_trip() {
        let network = sample();
        let (document, constants) = Document::write(&network).unwrap();
        let text = serde_json::to_string(&document).unwrap();
        let back = serde_json::from_str::<Document>(&text)
            .unwrap()
            .read(constants)
            .unwrap();
        assert_eq!(network.to_string(), back.to_string());
    }

    #[test]
    fn a_tensor_number_out_of_range_is_refused() {
        let (mut document, constants) = Document::write(&sample()).unwrap();
        document.layers[0].inputs[0] = Some(99);
        assert_eq!(
            document.read(constants).unwrap_err().kind(),
            crate::error::ErrorKind::Format
        );
    }
}
