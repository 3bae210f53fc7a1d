//! Deferred.

use crate::error::{Error, Result};
use crate::network::array::Array;
use crate::network::attr::{self, Attr, Attrs, Preset, Read, attr};
use crate::network::op::{Evaluate, Infer, Lowering, OpDef, TensorType, Uint64};
use crate::network::ops;

/// A layer with an attribute that only its run tells.
pub static DEF: OpDef = OpDef {
    name: "Deferred",
    doc: "Another op, one of whose attributes is the elements of the first input: the axes of a reduction, the scales of a \
          Resize, where they are computed. It runs on the reference evaluation, since nothing can be planned for it",
    inputs: &["values", "x*"],
    attrs: &[
        attr("op", Preset::Text(""), "the op"),
        attr("into", Preset::Text(""), "its attribute that the first input gives"),
        attr("attrs", Preset::RequiredAttrs, "its other attributes"),
    ],
    infer,
    evaluate,
    lowering: Lowering::WIDE,
    uint64: Uint64::Exact,
    ..OpDef::PLAIN
};

/// The op, and its attributes with these values.
fn inner(attrs: &Attrs, values: Attr) -> Result<(&'static OpDef, Attrs)> {
    let op = ops::find(attrs.text("op"))?;
    let mut inner = match attrs.get("attrs") {
        Some(Attr::Attrs(inner)) => inner.clone(),
        _ => Attrs::new(),
    };
    inner.insert(attrs.text("into").into(), values);
    Ok((op, attr::complete(op.attrs, inner)?))
}

fn attr_of(values: &Array) -> Attr {
    if values.dtype().is_float() {
        Attr::Floats(values.to_f64())
    } else {
        Attr::Ints(values.to_i64())
    }
}

fn infer(infer: &Infer) -> Result<Vec<TensorType>> {
    let values = infer.input(0)?;
    if let Some(values) = infer.constant(0) {
        return inside(infer, attr_of(values));
    }
    let count = values.concrete().filter(|_| values.rank() <= 1).ok_or_else(|| {
        Error::unsupported("the number of values must be known when the network is built").got(values.describe())
    })?;
    let count = count.iter().product::<usize>();
    let mut types = if values.dtype.is_float() {
        inside(infer, Attr::Floats(vec![1.0; count]))?
    } else {
        any_axes(infer, count)?
    };
    let sizes = types.iter_mut().flat_map(|ty| &mut ty.shape);
    sizes.enumerate().for_each(|(at, dim)| *dim = infer.counted(at));
    types.iter_mut().for_each(|ty| ty.value = None);
    Ok(types)
}

/// What the rule of the op gives for some axes that it takes: any tell dtypes and ranks.
fn any_axes(infer: &Infer, count: usize) -> Result<Vec<TensorType>> {
    let chosen = (0u32..1 << MOST_AXES).filter(|set| set.count_ones() as usize == count);
    let axes = |set: u32| Attr::Ints((0..MOST_AXES).filter(|axis| set >> axis & 1 == 1).collect());
    let mut refusal = Error::unsupported("there are too many values").got(count.to_string());
    for set in chosen {
        match inside(infer, axes(set)) {
            Ok(types) => return Ok(types),
            Err(error) => refusal = error,
        }
    }
    Err(refusal)
}

/// Axes are looked for among so many.
const MOST_AXES: i64 = 8;

/// What the rule of the op gives for these values.
fn inside(infer: &Infer, values: Attr) -> Result<Vec<TensorType>> {
    let (op, attrs) = inner(infer.attrs, values)?;
    let rule = Infer {
        layer: infer.layer,
        attrs: &attrs,
        inputs: &infer.inputs[1..],
        constants: &infer.constants[1..],
        symbols: infer.symbols,
        equal_broadcasts: infer.equal_broadcasts,
        guards: Default::default(),
    };
    (op.infer)(&rule)
}

fn evaluate(e: &Evaluate) -> Result<Vec<Array>> {
    let (op, attrs) = inner(e.attrs, attr_of(e.input(0)?))?;
    op.evaluated(&Evaluate {
        attrs: &attrs,
        inputs: &e.inputs[1..],
        ..*e
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::Network;
    use crate::network::attr::attrs;
    use crate::network::dtype::DType;
    use crate::network::reference::evaluate;

    #[test]
    fn the_axes_of_a_reduction_come_with_the_call() {
        let mut network = Network::new("");
        let x = network
            .add_input("x", DType::Float32, vec![2i64.into(), 3i64.into()])
            .unwrap();
        let axes = network.add_input("axes", DType::Int64, vec![1i64.into()]).unwrap();
        let given = attrs([
            ("op", Attr::Text("ReduceSum".into())),
            ("into", Attr::Text("axes".into())),
            ("attrs", Attr::Attrs(attrs([("keepdims", Attr::Int(0))]))),
        ]);
        let y = network.add_layer("sum", &DEF, given, &[Some(axes), Some(x)]).unwrap()[0];
        assert_eq!(network[y].ty.rank(), 1);
        network.mark_output(y, "y").unwrap();
        let x = Array::from_f64(DType::Float32, vec![2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]).unwrap();
        for (axis, want) in [(0, vec![5.0, 7.0, 9.0]), (-1, vec![6.0, 15.0])] {
            let y = evaluate(&network, &[x.clone(), Array::ints(&[axis])]).unwrap();
            assert_eq!(y[0].to_f64(), want);
        }
    }
}
