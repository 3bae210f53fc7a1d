//! The reference: runs a network op by op in double precision. Slow and exact; folding and tests use it.

use crate::error::{Error, Result};
use crate::interrupt;
use crate::network::array::{Array, Buffer, bytes_of};
use crate::network::attr::Attrs;
use crate::network::dim::{Binding, Dim, Symbols};
use crate::network::dtype::DType;
use crate::network::op::{Evaluate, Infer, OpDef, Runner, TensorType, is_counted};
use crate::network::ops::plugin;
use crate::network::{LayerId, Network, Source, TensorId, constant_type};
use std::collections::HashMap;

/// Evaluates one op on arrays.
///
/// # Errors
/// If the arrays do not fit the op.
pub fn evaluate_op(op: &OpDef, attrs: &Attrs, inputs: &[Option<Array>]) -> Result<Vec<Array>> {
    evaluate_with(op, attrs, inputs, None)
}

fn evaluate_with(
    op: &OpDef,
    attrs: &Attrs,
    inputs: &[Option<Array>],
    runner: Option<&dyn Runner>,
) -> Result<Vec<Array>> {
    let given: Vec<_> = inputs.iter().map(|a| a.as_ref().map(constant_type)).collect();
    let infer = Infer {
        layer: op.name,
        attrs,
        inputs: &given,
        constants: inputs,
        symbols: &Symbols::new(),
        equal_broadcasts: false,
        guards: Default::default(),
    };
    let types = op.types(&infer)?;
    // What is counted is 0 here; the arrays that come back have its size.
    let size = |dim: &Dim| match dim.as_const() {
        None if dim.symbols().iter().any(|symbol| is_counted(symbol)) => Some(0),
        known => known.and_then(|size| usize::try_from(size).ok()),
    };
    let concrete = |ty: &TensorType| Some((ty.dtype, ty.shape.iter().map(size).collect::<Option<_>>()?));
    let outputs: Vec<(DType, Vec<usize>)> = types
        .iter()
        .map(concrete)
        .collect::<Option<_>>()
        .ok_or_else(|| Error::shape("the shape of an output is not determined by these inputs").layer(op.name))?;
    if types
        .iter()
        .all(|ty| ty.concrete().is_some_and(|shape| shape.contains(&0)))
    {
        let empty = |(dtype, shape): (DType, Vec<usize>)| Array::from_bytes(dtype, shape, &[]);
        return outputs.into_iter().map(empty).collect();
    }
    for (_, shape) in &outputs {
        // The evaluation holds an output in double precision. Asked here, a size that is too large is no crash there.
        Buffer::try_zeroed(bytes_of(DType::Float64, shape)?)?;
    }
    op.evaluated(&Evaluate {
        attrs,
        inputs,
        outputs: &outputs,
        runner,
    })
}

/// Binds the symbols of the inputs' shapes to the shapes that came.
///
/// # Errors
/// If a rank or a fixed dimension differs, or two dimensions of one symbol do.
pub fn bind(network: &Network, shape_of: &dyn Fn(usize) -> Vec<usize>) -> Result<Binding> {
    let mut binding = Binding::new();
    let mut derived = vec![];
    for (i, &input) in network.inputs().iter().enumerate() {
        let (tensor, shape) = (&network[input], shape_of(i));
        let refuse = || {
            Error::shape("input has a shape that the network does not take")
                .tensor(&tensor.name)
                .expected(tensor.ty.describe())
                .got(format!("{shape:?}"))
        };
        if shape.len() != tensor.ty.rank() {
            return Err(refuse().hint("the number of dimensions differs"));
        }
        for (axis, (dim, &size)) in tensor.ty.shape.iter().zip(&shape).enumerate() {
            let size = size as i64;
            match (dim.as_const(), dim.as_symbol()) {
                (Some(value), _) if value != size => return Err(refuse().hint(format!("dimension {axis} is fixed"))),
                (None, Some(symbol)) => {
                    let before = *binding.entry(symbol.clone()).or_insert(size);
                    if before != size {
                        return Err(refuse().hint(format!("dimension {axis}, {symbol:?}, is {before} elsewhere")));
                    }
                }
                (None, None) => derived.push((dim, size, refuse())),
                _ => {}
            }
        }
    }
    for (dim, size, error) in derived {
        if dim.eval(&binding)? != size {
            return Err(error.hint(format!("{dim} is {} here", dim.eval(&binding)?)));
        }
    }
    Ok(binding)
}

/// Runs a whole network on arrays, one per input.
///
/// # Errors
/// If the arrays do not fit the inputs.
pub fn evaluate(network: &Network, inputs: &[Array]) -> Result<Vec<Array>> {
    let mut state = State::new(network, inputs)?;
    network
        .order()?
        .into_iter()
        .try_for_each(|id| state.evaluate(id, None))?;
    state.outputs()
}

/// Tensors that are computed to know a shape have no more elements.
const LARGEST_KNOWN: usize = 64;
/// So many layers back inputs are looked for.
const DEEPEST_KNOWN: usize = 16;

/// The elements of a small tensor, where constants and fixed shapes determine them.
pub fn known(network: &Network, tensor: TensorId) -> Option<Array> {
    known_within(network, tensor, DEEPEST_KNOWN)
}

fn known_within(network: &Network, id: TensorId, depth: usize) -> Option<Array> {
    let tensor = &network[id];
    let shape = tensor.ty.concrete()?;
    if shape.iter().product::<usize>() > LARGEST_KNOWN {
        return None;
    }
    if let Some(array) = tensor.constant() {
        return Some(array.clone());
    }
    if let Some(value) = &tensor.ty.value {
        let numbers = value.iter().map(Dim::as_const).collect::<Option<Vec<_>>>()?;
        return Array::from_i64(tensor.ty.dtype, shape, &numbers).ok();
    }
    let Source::Layer(layer, output) = tensor.source else {
        return None;
    };
    let layer = &network[layer];
    // What is not ours to run is not run to know a shape.
    if depth == 0 || layer.bodies().next().is_some() || plugin::of(layer).is_some() {
        return None;
    }
    let input = |input: &Option<TensorId>| match input {
        Some(input) => known_within(network, *input, depth - 1).map(Some),
        None => Some(None),
    };
    let inputs = layer.inputs.iter().map(input).collect::<Option<Vec<_>>>()?;
    let mut outputs = evaluate_op(layer.op, &layer.attrs, &inputs).ok()?;
    Some(outputs.swap_remove(output))
}

/// A network on its way through an evaluation.
pub struct State<'n> {
    network: &'n Network,
    /// The symbols that are known.
    pub binding: Binding,
    /// The tensors that are known.
    pub values: HashMap<TensorId, Array>,
}

impl<'n> State<'n> {
    /// Before the first layer.
    ///
    /// # Errors
    /// If the arrays do not fit the inputs.
    pub fn new(network: &'n Network, inputs: &[Array]) -> Result<Self> {
        Ok(Self {
            binding: bind(network, &|i| inputs[i].shape().to_vec())?,
            values: network.inputs().iter().copied().zip(inputs.iter().cloned()).collect(),
            network,
        })
    }

    /// Runs a layer; `runner` runs the networks that it holds.
    ///
    /// # Errors
    /// If the inputs do not fit the op; names the layer.
    pub fn evaluate(&mut self, id: LayerId, runner: Option<&dyn Runner>) -> Result<()> {
        interrupt::poll()?;
        let layer = &self.network[id];
        let inputs = self.inputs(id)?;
        let attrs = at(&layer.attrs, &self.binding)?;
        let outputs = evaluate_with(layer.op, &attrs, &inputs, runner).map_err(|e| e.layer(&layer.name))?;
        self.take(id, outputs);
        Ok(())
    }

    /// Takes what a layer gives, and learns the sizes of its outputs.
    pub fn take(&mut self, id: LayerId, outputs: Vec<Array>) {
        let shapes: Vec<_> = outputs.iter().map(|array| array.shape().to_vec()).collect();
        self.values
            .extend(self.network[id].outputs.iter().copied().zip(outputs));
        self.bind_outputs(id, &shapes);
    }

    /// The outputs of the network, once all that they need ran.
    ///
    /// # Errors
    /// If one is not known yet.
    pub fn outputs(&self) -> Result<Vec<Array>> {
        let outputs = self.network.outputs().iter();
        outputs.map(|output| self.value_of(output.tensor)).collect()
    }

    /// Learns the sizes of a layer's outputs from its inputs, without running it.
    ///
    /// # Errors
    /// As [`State::evaluate`].
    pub fn measure(&mut self, id: LayerId) -> Result<()> {
        let layer = &self.network[id];
        let inputs = self.inputs(id)?;
        let types: Vec<_> = inputs.iter().map(|a| a.as_ref().map(constant_type)).collect();
        let infer = Infer {
            layer: &layer.name,
            attrs: &at(&layer.attrs, &self.binding)?,
            inputs: &types,
            constants: &inputs,
            symbols: &Symbols::new(),
            equal_broadcasts: false,
            guards: Default::default(),
        };
        let outputs = layer.op.types(&infer).map_err(|e| e.layer(&layer.name))?;
        let shapes = outputs.iter().map(|ty| {
            ty.concrete()
                .ok_or_else(|| Error::shape("the elements of its inputs do not tell a size"))
        });
        let shapes = shapes.collect::<Result<Vec<_>>>().map_err(|e| e.layer(&layer.name))?;
        self.bind_outputs(id, &shapes);
        Ok(())
    }

    /// The value of a tensor.
    ///
    /// # Errors
    /// If it is not known yet.
    pub fn value_of(&self, tensor: TensorId) -> Result<Array> {
        value_of(self.network, &self.binding, &self.values, tensor)
    }

    fn inputs(&self, id: LayerId) -> Result<Vec<Option<Array>>> {
        let inputs = self.network[id].inputs.iter();
        inputs.map(|t| t.map(|t| self.value_of(t)).transpose()).collect()
    }

    fn bind_outputs(&mut self, id: LayerId, shapes: &[Vec<usize>]) {
        for (&output, shape) in self.network[id].outputs.iter().zip(shapes) {
            for (dim, &size) in self.network[output].ty.shape.iter().zip(shape) {
                if let Some(symbol) = dim.as_symbol() {
                    self.binding.entry(symbol.clone()).or_insert(size as i64);
                }
            }
        }
    }
}

/// Attributes with their symbolic dimensions bound.
fn at(attrs: &Attrs, binding: &Binding) -> Result<Attrs> {
    use crate::network::attr::Attr;
    let bound = attrs.iter().map(|(name, value)| {
        let value = match value {
            Attr::Dims(dims) => Attr::Dims(
                dims.iter()
                    .map(|d| d.eval(binding).map(Dim::from))
                    .collect::<Result<_>>()?,
            ),
            other => other.clone(),
        };
        Ok((name.clone(), value))
    });
    bound.collect()
}

fn value_of(network: &Network, binding: &Binding, values: &HashMap<TensorId, Array>, id: TensorId) -> Result<Array> {
    let tensor = &network[id];
    match &tensor.source {
        Source::Constant(constant) => Ok(constant.array.clone()),
        Source::Symbolic => {
            let value = tensor
                .ty
                .value
                .iter()
                .flatten()
                .map(|d| d.eval(binding))
                .collect::<Result<Vec<_>>>()?;
            let shape = tensor
                .ty
                .concrete()
                .ok_or_else(|| Error::internal("symbolic value of unknown length"))?;
            Array::from_i64(tensor.ty.dtype, shape, &value)
        }
        _ => values
            .get(&id)
            .cloned()
            .ok_or_else(|| Error::internal("a tensor is read before it is computed")),
    }
}
