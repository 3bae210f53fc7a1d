//! The reference: runs a network op by op in double precision. Slow and exact; folding and tests use it.

use crate::error::{Error, Result};
use crate::network::array::Array;
use crate::network::attr::Attrs;
use crate::network::dim::{Binding, Dim, Symbols};
use crate::network::op::{Evaluate, Infer, OpDef};
use crate::network::{Network, Source, TensorId, constant_type};
use std::collections::HashMap;

/// Evaluates one op on arrays.
///
/// # Errors
/// If the arrays do not fit the op.
pub fn evaluate_op(op: &OpDef, attrs: &Attrs, inputs: &[Option<Array>]) -> Result<Vec<Array>> {
    let types: Vec<_> = inputs.iter().map(|a| a.as_ref().map(constant_type)).collect();
    let infer = Infer {
        layer: op.name,
        attrs,
        inputs: &types,
        constants: inputs,
        symbols: &Symbols::new(),
        guards: Default::default(),
    };
    let outputs = (op.infer)(&infer)?;
    let outputs: Vec<_> = outputs
        .iter()
        .map(|ty| ty.concrete().map(|shape| (ty.dtype, shape)))
        .collect::<Option<_>>()
        .ok_or_else(|| Error::shape("the shape of an output is not determined by these inputs").layer(op.name))?;
    (op.evaluate)(&Evaluate {
        attrs,
        inputs,
        outputs: &outputs,
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
    let binding = bind(network, &|i| inputs[i].shape().to_vec())?;
    let mut values: HashMap<TensorId, Array> = network.inputs().iter().copied().zip(inputs.iter().cloned()).collect();
    for id in network.order()? {
        let layer = &network[id];
        let inputs = layer
            .inputs
            .iter()
            .map(|t| t.map(|t| value_of(network, &binding, &values, t)).transpose());
        let inputs = inputs.collect::<Result<Vec<_>>>()?;
        let outputs = evaluate_op(layer.op, &at(&layer.attrs, &binding)?, &inputs).map_err(|e| e.layer(&layer.name))?;
        values.extend(layer.outputs.iter().copied().zip(outputs));
    }
    network
        .outputs()
        .iter()
        .map(|o| value_of(network, &binding, &values, o.tensor))
        .collect()
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
