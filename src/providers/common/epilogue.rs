//! What is done with each element of a product before it is stored: the pointwise layers behind a convolution or a matrix product, as a
//! graph that each library and each generator of code takes or refuses.

use super::group;
use super::quantized::{Dequantized, is_added_to_product};
use super::scope::Scope;
use crate::network::{Layer, LayerId, Network, TensorId};

/// More layers than this are not looked at.
const MOST_LAYERS: usize = 16;
/// Nor more operands that are read beside those of the product.
const MOST_OPERANDS: usize = 6;
/// Nor more results.
const MOST_RESULTS: usize = 3;

/// What a step reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Value {
    /// The result of the product.
    Product,
    /// What the step of this number gives.
    Step(usize),
    /// The operand of this number.
    Operand(usize),
}

/// How an operand is indexed for an element of the result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Broadcast {
    /// As the result is: it has the same shape.
    Full,
    /// By column: a row that is broadcast, as a bias is.
    Column,
    /// By row, where columns lie along the last axis and are so many as the network says: a number for each row, as the scale of a token.
    Row,
    /// Not at all: it is a single number.
    Scalar,
}

impl Broadcast {
    /// How a tensor is indexed for a result whose columns lie along an axis; `None` if it broadcasts in another way.
    pub fn of(network: &Network, operand: TensorId, result: TensorId, axis: usize) -> Option<Self> {
        let (ty, whole) = (&network[operand].ty, &network[result].ty);
        let columns = whole.shape.get(axis)?;
        let own = (axis + ty.rank()).checked_sub(whole.rank());
        let last = (axis + 1 == whole.rank()).then_some(axis);
        let rows = last.filter(|&last| {
            ty.rank() == whole.rank() && ty.shape[last].is(1) && ty.shape[..last] == whole.shape[..last]
        });
        if ty.shape == whole.shape {
            Some(Self::Full)
        } else if ty.elements().is(1) {
            Some(Self::Scalar)
        } else if own.and_then(|own| ty.shape.get(own)) == Some(columns) && ty.elements() == *columns {
            Some(Self::Column)
        } else {
            rows.and(columns.as_const()).map(|_| Self::Row)
        }
    }
}

/// What is read beside the product.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Operand {
    /// The tensor.
    pub tensor: TensorId,
    /// How it is indexed.
    pub broadcast: Broadcast,
    /// What each of its elements is, if it is a constant of floats that are all the same.
    pub uniform: Option<f64>,
}

/// A layer, with where each of its inputs comes from.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    /// The layer.
    pub layer: LayerId,
    /// Its inputs.
    pub inputs: Vec<Option<Value>>,
}

impl Step {
    /// Both inputs of a layer that has two, if one of them is a value: whether that comes first, and the other one.
    pub fn beside(&self, value: Value) -> Option<(bool, Value)> {
        match *self.inputs.as_slice() {
            [Some(a), Some(b)] if a == value => Some((true, b)),
            [Some(a), Some(b)] if b == value => Some((false, a)),
            _ => None,
        }
    }
}

/// Steps behind a product.
#[derive(Debug, Clone, PartialEq)]
pub struct Epilogue {
    /// The result of the product.
    pub product: TensorId,
    /// The axis of the product along which its columns lie: its channels.
    pub axis: usize,
    /// The steps in an order of execution.
    pub steps: Vec<Step>,
    /// What they read besides, in the order in which they do.
    pub operands: Vec<Operand>,
    /// What is stored, which others read or the caller: the product, if it is, and what steps give, in their order.
    pub outputs: Vec<TensorId>,
}

impl Epilogue {
    /// The steps that some layers, which come in an order of execution, are behind a product; none if one of them reads what broadcasts
    /// in a way that has no name here.
    pub fn new(network: &Network, product: TensorId, axis: usize, layers: &[LayerId]) -> Option<Self> {
        let mut found = Self {
            product,
            axis,
            steps: vec![],
            operands: vec![],
            outputs: vec![],
        };
        found
            .outputs
            .extend(group::leaves(network, layers, product).then_some(product));
        for &layer in layers {
            let mut inputs = vec![];
            for input in &network[layer].inputs {
                inputs.push(match input {
                    Some(tensor) => Some(found.value(network, *tensor)?),
                    None => None,
                });
            }
            found.steps.push(Step { layer, inputs });
        }
        found.outputs.extend(group::outputs(network, layers));
        Some(found)
    }

    /// What the last step gives, or the product.
    pub fn result(&self) -> TensorId {
        self.outputs.last().copied().unwrap_or(self.product)
    }

    /// What is stored besides.
    pub fn others(&self) -> &[TensorId] {
        self.outputs.split_last().map_or(&[], |(_, others)| others)
    }

    /// The layers of the steps.
    pub fn layers(&self) -> impl Iterator<Item = LayerId> {
        self.steps.iter().map(|step| step.layer)
    }

    /// A layer, which is that of the product, and those of the steps.
    pub fn layers_behind(&self, first: LayerId) -> Vec<LayerId> {
        std::iter::once(first).chain(self.layers()).collect()
    }

    /// The layer of a step.
    pub fn layer<'a>(&self, network: &'a Network, step: usize) -> &'a Layer {
        &network[self.steps[step].layer]
    }

    /// The operands that are no numbers of floats, which code holds by itself.
    pub fn read(&self) -> impl Iterator<Item = &Operand> {
        self.operands.iter().filter(|operand| operand.uniform.is_none())
    }

    /// How often steps read a value.
    pub fn uses(&self, value: Value) -> usize {
        let inputs = self.steps.iter().flat_map(|step| &step.inputs);
        inputs.filter(|input| **input == Some(value)).count()
    }

    /// The operand that a value is.
    pub fn operand(&self, value: Value) -> Option<&Operand> {
        match value {
            Value::Operand(number) => self.operands.get(number),
            _ => None,
        }
    }

    fn value(&mut self, network: &Network, tensor: TensorId) -> Option<Value> {
        if tensor == self.product {
            return Some(Value::Product);
        }
        let gives = |step: &Step| network[step.layer].outputs[0] == tensor;
        if let Some(number) = self.steps.iter().position(gives) {
            return Some(Value::Step(number));
        }
        if let Some(number) = self.operands.iter().position(|operand| operand.tensor == tensor) {
            return Some(Value::Operand(number));
        }
        let floats = network[tensor].ty.dtype.is_float();
        let constant = network[tensor].constant().filter(|_| floats);
        self.operands.push(Operand {
            tensor,
            broadcast: Broadcast::of(network, tensor, self.product, self.axis)?,
            uniform: constant.and_then(|array| array.uniform()),
        });
        Some(Value::Operand(self.operands.len() - 1))
    }
}

/// For names of kernels: `Conv+Relu`.
pub fn name(network: &Network, layers: &[LayerId]) -> String {
    let names: Vec<&str> = layers.iter().map(|&id| network[id].op.name).collect();
    names.join("+")
}

/// Says of a layer whether it may be a step, apart from its shapes.
pub type Takes<'a> = &'a dyn Fn(LayerId) -> bool;

/// All that may follow a product whose columns lie along an axis, in every number of steps that leaves up to three results; the most
/// first, none last.
pub fn behind(scope: &Scope, product: TensorId, axis: usize, takes: Takes) -> Vec<Epilogue> {
    grown(scope, product, axis, takes, &|_| vec![])
}

/// The same behind a product of 8 bits. Another operand of a layer is read in 8 bits where a Dequantize layer stands in front of that
/// layer alone and `reads` says so: it is a step too. None ends with such a layer: who reads what it gives had better read 8 bits.
pub fn behind_8_bits(
    scope: &Scope,
    product: TensorId,
    axis: usize,
    takes: Takes,
    reads: impl Fn(LayerId, &Dequantized) -> bool,
) -> Vec<Epilogue> {
    let network = scope.network;
    let in_front = |layer: LayerId| {
        let inputs = network[layer].inputs.iter().flatten();
        let dequantized = inputs.filter_map(|&input| Dequantized::of(network, input));
        let read = dequantized.filter(|found| reads(layer, found));
        read.map(|found| found.layer).collect()
    };
    let mut found = grown(scope, product, axis, takes, &in_front);
    let dequantizes = |last: LayerId| network[last].op.name == "DequantizeLinear";
    found.retain(|epilogue| !epilogue.layers().last().is_some_and(dequantizes));
    found
}

fn grown(
    scope: &Scope,
    product: TensorId,
    axis: usize,
    takes: Takes,
    in_front: &dyn Fn(LayerId) -> Vec<LayerId>,
) -> Vec<Epilogue> {
    let network = scope.network;
    let mut layers: Vec<LayerId> = vec![];
    let mut found: Vec<Epilogue> = Epilogue::new(network, product, axis, &[]).into_iter().collect();
    while layers.len() < MOST_LAYERS {
        let Some(next) = next(scope, &layers, product, axis, takes) else {
            break;
        };
        let mut before = in_front(next);
        before.retain(|id| !layers.contains(id));
        layers.extend(before);
        layers.push(next);
        let longer = Epilogue::new(network, product, axis, &layers);
        found.extend(longer.filter(|epilogue| {
            epilogue.read().count() <= MOST_OPERANDS
                && epilogue.outputs.len() <= MOST_RESULTS
                && (epilogue.others().is_empty() || !is_circular(scope, epilogue))
        }));
    }
    // What steps further on alone read is better left to be read there.
    found.retain(|epilogue| epilogue.others().iter().all(|&t| group::leaves(network, &layers, t)));
    found.reverse();
    found
}

/// Whether other layers make an operand of one of the results, which a kernel gives all at once.
fn is_circular(scope: &Scope, epilogue: &Epilogue) -> bool {
    let inside = epilogue.layers_behind(scope.layer);
    let producer = |operand: &Operand| scope.network.producer(operand.tensor);
    let producers = epilogue.operands.iter().filter_map(producer).map(|(layer, _)| layer);
    group::depend(scope.network, &scope.positions(), producers.collect(), &inside)
}

/// The first layer in the order of execution that reads the product or what some layers give, and can run with them.
fn next(scope: &Scope, layers: &[LayerId], product: TensorId, axis: usize, takes: Takes) -> Option<LayerId> {
    let network = scope.network;
    let given = |t: TensorId| t == product || layers.iter().any(|&layer| network[layer].outputs[0] == t);
    let fits = |id: &LayerId| {
        let layer = &network[*id];
        let mut inputs = layer.inputs.iter().flatten();
        let added = layer.op.name == "DequantizeLinear" && is_added_to_product(network, *id);
        !added
            && layer.outputs.len() == 1
            && network[layer.outputs[0]].ty.shape == network[product].ty.shape
            && inputs.all(|&t| given(t) || Broadcast::of(network, t, product, axis).is_some())
            && takes(*id)
    };
    let outputs = layers.iter().map(|&layer| network[layer].outputs[0]);
    let mut users: Vec<LayerId> = outputs
        .chain([product])
        .flat_map(|t| network[t].users.iter().copied())
        .filter(|user| !layers.contains(user))
        .collect();
    if users.is_empty() {
        return None;
    }
    let positions = scope.positions();
    users.sort_by_key(|user| positions[user]);
    users.into_iter().find(fits)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::array::Array;
    use crate::network::attr::{Attr, attrs};
    use crate::network::dtype::DType;
    use crate::providers::common::scope::Orders;
    use crate::providers::common::testing::Graph;

    /// A product of four rows of eight.
    fn product(g: &mut Graph) -> TensorId {
        let (x, w) = (g.input("x", "4 8"), g.weights(&[8, 8]));
        g.op("MatMul", &[x, w])
    }

    fn quantized(g: &mut Graph, x: TensorId) -> [TensorId; 3] {
        let scale = g.scalar(0.5);
        let zero = g.network.add_constant("zero", Array::scalar(DType::UInt8, 3.0));
        let to = attrs([("to", Attr::Type(DType::UInt8))]);
        [g.op_with("QuantizeLinear", to, &[x, scale, zero]), scale, zero]
    }

    /// The ops of what `find` finds behind the first product.
    fn found(g: &Graph, find: impl Fn(&Scope) -> Vec<Epilogue>) -> Vec<String> {
        let product = g.network.layers().find(|(_, layer)| layer.op.name == "MatMul");
        let scope = Scope {
            network: &g.network,
            layer: product.unwrap().0,
            orders: &Orders::default(),
        };
        let words = |epilogue: &Epilogue| name(&g.network, &epilogue.layers().collect::<Vec<_>>());
        find(&scope).iter().map(words).collect()
    }

    fn all(g: &Graph, takes: fn(&str) -> bool) -> Vec<String> {
        let takes = |id: LayerId| takes(g.network[id].op.name);
        found(g, |scope| behind(scope, scope.layer().outputs[0], 1, &takes))
    }

    fn all_8_bits(g: &Graph, reads: bool) -> Vec<String> {
        found(g, |scope| {
            behind_8_bits(scope, scope.layer().outputs[0], 1, &|_| true, |_, _| reads)
        })
    }

    #[test]
    fn each_step_says_where_its_inputs_come_from() {
        let mut g = Graph::new();
        let product = product(&mut g);
        let (row, half, skip) = (g.weights(&[8]), g.scalar(0.5), g.input("skip", "4 8"));
        let biased = g.op("Add", &[row, product]);
        let gate = g.op("Mul", &[biased, half]);
        let gated = g.op("Mul", &[biased, gate]);
        let last = g.op("Sub", &[skip, gated]);
        let order = g.network.order().unwrap();
        let found = Epilogue::new(&g.network, product, 1, &order[1..]).unwrap();
        let inputs: Vec<_> = found.steps.iter().map(|step| step.inputs.clone()).collect();
        let [zero, one, two] = [0, 1, 2].map(Value::Operand);
        let step = Value::Step;
        assert_eq!(
            inputs,
            [
                [zero, Value::Product],
                [step(0), one],
                [step(0), step(1)],
                [two, step(2)]
            ]
            .map(|pair| pair.map(Some).to_vec())
        );
        let operand = |tensor, broadcast, uniform| Operand {
            tensor,
            broadcast,
            uniform,
        };
        assert_eq!(
            found.operands,
            [
                operand(row, Broadcast::Column, None),
                operand(half, Broadcast::Scalar, Some(0.5)),
                operand(skip, Broadcast::Full, None)
            ]
        );
        assert_eq!(
            (found.result(), found.uses(step(0)), found.read().count()),
            (last, 2, 2)
        );
        assert_eq!(found.steps[3].beside(step(2)), Some((false, two)));
    }

    #[test]
    fn what_others_read_is_a_result() {
        let mut g = Graph::new();
        let product = product(&mut g);
        let one = g.op("Relu", &[product]);
        let both = g.op("Tanh", &[one]);
        let sum = g.op("Add", &[one, both]);
        let last = g.op("Exp", &[sum]);
        let others = |g: &Graph| {
            let find = |scope: &Scope| {
                let found = behind(scope, product, 1, &|_| true);
                let counts: Vec<_> = found.iter().map(|epilogue| epilogue.others().len()).collect();
                assert_eq!(counts[0], usize::from(g.network.is_output(one)));
                assert!(
                    found
                        .iter()
                        .all(|epilogue| !epilogue.others().contains(&epilogue.result()))
                );
                found
            };
            found(g, find)
        };
        assert_eq!(others(&g), ["Relu+Tanh+Add+Exp", "Relu+Tanh+Add", "Relu", ""]);
        assert_eq!(all(&g, |op| op != "Add"), ["Relu+Tanh", "Relu", ""]);
        g.network.mark_output(one, "one").unwrap();
        g.network.mark_output(last, "last").unwrap();
        assert_eq!(
            others(&g),
            ["Relu+Tanh+Add+Exp", "Relu+Tanh+Add", "Relu+Tanh", "Relu", ""]
        );
    }

    #[test]
    fn an_operand_is_not_made_of_a_result() {
        let mut g = Graph::new();
        let product = product(&mut g);
        let one = g.op("Relu", &[product]);
        let gate = g.op("Softmax", &[one]);
        g.op("Mul", &[one, gate]);
        assert_eq!(all(&g, |op| op != "Softmax"), ["Relu", ""]);
    }

    #[test]
    fn a_number_for_each_row_is_read_and_other_shapes_are_left_to_others() {
        let mut g = Graph::new();
        let product = product(&mut g);
        let column = g.input("column", "4 1");
        let scaled = g.op("Mul", &[product, column]);
        let wider = g.input("wider", "2 4 8");
        g.op("Mul", &[scaled, wider]);
        assert_eq!(all(&g, |_| true), ["Mul", ""]);
        let of = |axis| Broadcast::of(&g.network, column, product, axis);
        assert_eq!((of(1), of(0)), (Some(Broadcast::Row), Some(Broadcast::Column)));
    }

    #[test]
    fn residuals_of_8_bits_are_dequantized_on_the_way() {
        let mut g = Graph::new();
        let product = product(&mut g);
        let skip = g.input_of("skip", DType::UInt8, "4 8");
        let [codes, scale, zero] = quantized(&mut g, product);
        let rounded = g.op("DequantizeLinear", &[codes, scale, zero]);
        let residual = g.op("DequantizeLinear", &[skip, scale, zero]);
        let sum = g.op("Add", &[rounded, residual]);
        quantized(&mut g, sum);
        let [q, dq] = ["QuantizeLinear", "DequantizeLinear"];
        assert_eq!(
            all_8_bits(&g, true),
            [
                format!("{q}+{dq}+{dq}+Add+{q}"),
                format!("{q}+{dq}+{dq}+Add"),
                q.into(),
                String::new()
            ]
        );
        assert_eq!(
            all_8_bits(&g, false)[..2],
            [format!("{q}+{dq}+Add+{q}"), format!("{q}+{dq}+Add")]
        );
    }

    #[test]
    fn what_another_product_adds_is_left_in_8_bits() {
        let mut g = Graph::new();
        let product = product(&mut g);
        let [codes, scale, zero] = quantized(&mut g, product);
        let rounded = g.op("DequantizeLinear", &[codes, scale, zero]);
        let (given, w) = (g.input_of("given", DType::UInt8, "4 8"), g.weights(&[8, 8]));
        let x = g.op("DequantizeLinear", &[given, scale, zero]);
        let other = g.op("MatMul", &[x, w]);
        g.op("Add", &[other, rounded]);
        assert_eq!(all_8_bits(&g, true), ["QuantizeLinear", ""]);
    }
}
