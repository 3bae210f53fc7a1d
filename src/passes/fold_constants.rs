//! Computes what depends on constants alone, and keeps how, so that a refit can do it again.

use super::{Pass, Settings, rewrite_with, rule_if, rule_if_some};
use crate::error::Result;
use crate::network::array::Array;
use crate::network::attr::Attr;
use crate::network::dim::Dim;
use crate::network::op::{Sizes, TensorType};
use crate::network::patch::{Change, Patch};
use crate::network::{Layer, LayerId, Network, Recipe, Source, reference};

/// See [`Pass::doc`].
pub static PASS: Pass = Pass {
    name: "fold_constants",
    doc: "a layer that reads constants alone => a constant that knows its recipe, within Settings::fold_bytes and fold_work",
    apply: |network, settings| rewrite_with(network, |network, id| rule(network, id, settings)),
};

fn rule(network: &Network, id: LayerId, settings: &Settings) -> Result<Option<Change>> {
    let layer = &network[id];
    rule_if!(layer.op.purity.folds());
    fold(network, layer, settings)
}

/// What a layer gives, where it reads constants alone and that is worth it.
pub(super) fn fold(network: &Network, layer: &Layer, settings: &Settings) -> Result<Option<Change>> {
    rule_if!(layer.inputs.iter().any(Option::is_some));
    rule_if!(layer.attrs.values().all(is_concrete) && layer.bodies().next().is_none());
    let sources = layer
        .inputs
        .iter()
        .map(|input| match input.map(|t| &network[t].source) {
            None => Some(None),
            Some(Source::Constant(constant)) => Some(Some(constant.clone())),
            Some(_) => None,
        });
    rule_if_some!(sources = sources.collect::<Option<Vec<_>>>());
    let inputs: Vec<Option<Array>> = sources.iter().map(|c| c.as_ref().map(|c| c.array.clone())).collect();
    rule_if!(is_worth(network, layer, &inputs, settings));
    let arrays = reference::evaluate_op(layer.op, &layer.attrs, &inputs)?;
    let mut patch = Patch::new(network);
    for (output, (array, &old)) in arrays.into_iter().zip(&layer.outputs).enumerate() {
        let shape: Vec<Dim> = array.shape().iter().map(|&d| d.into()).collect();
        // A size that depends on data has a symbol in the graph until all that reads it is typed anew.
        rule_if!(shape == network[old].ty.shape);
        let recipe = Recipe {
            op: layer.op,
            attrs: layer.attrs.clone(),
            inputs: sources.clone(),
            output,
        };
        let folded = patch.folded(&network[old].name, array, recipe);
        patch.shunt(old, folded)?;
    }
    Ok(Some(patch.finish()))
}

fn is_concrete(attr: &Attr) -> bool {
    match attr {
        Attr::Dims(dims) => dims.iter().all(|d| d.as_const().is_some()),
        _ => true,
    }
}

fn is_worth(network: &Network, layer: &Layer, inputs: &[Option<Array>], settings: &Settings) -> bool {
    let present = || inputs.iter().flatten();
    let read: usize = present().map(|a| a.bytes().len()).sum();
    let types = layer.outputs.iter().map(|&t| &network[t].ty);
    let Some(shapes) = types.clone().map(TensorType::concrete).collect::<Option<Vec<_>>>() else {
        // Sizes that depend on data are bounded by what is read.
        return read <= settings.fold_bytes;
    };
    let counts = || shapes.iter().map(|shape| shape.iter().product::<usize>());
    let bytes: usize = counts()
        .zip(types)
        .map(|(n, ty)| n.saturating_mul(ty.dtype.size()))
        .sum();
    let (given, longest) = (counts().sum::<usize>(), present().map(Array::len).max());
    let products = shapes.first().map(|output| multiplications(layer, inputs, output));
    let work = (given.max(longest.unwrap_or(0)) as u64).max(products.unwrap_or(0));
    bytes <= read.saturating_add(settings.fold_bytes) && work <= settings.fold_work
}

/// How many multiplications the layer takes, 0 if it is no product.
fn multiplications(layer: &Layer, inputs: &[Option<Array>], output: &[usize]) -> u64 {
    let extents = |shape: &[usize]| shape.iter().map(|&extent| extent as f64).collect::<Vec<_>>();
    let inputs: Vec<_> = inputs.iter().map(|a| Some(extents(a.as_ref()?.shape()))).collect();
    let sizes = Sizes {
        attrs: &layer.attrs,
        inputs: &inputs,
        output: &extents(output),
    };
    let count = layer.op.multiplications.and_then(|count| count(&sizes));
    count.unwrap_or(0.0) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::dtype::DType;
    use crate::passes::testing::Graph;

    #[test]
    fn constants_fold_and_remember_how() {
        let mut g = Graph::new();
        let x = g.input("x", "n 2");
        let a = g
            .network
            .add_constant("a", Array::from_f64(DType::Float32, vec![2], &[1.0, 2.0]).unwrap());
        let doubled = g.op("Add", &[a, a]);
        let y = g.op("Mul", &[x, doubled]);
        g.output(y);
        g.becomes(&PASS, "%Mul: float32[n, 2] = Mul(%x, float32[2](...))");
        let (_, mul) = g.network.layers().next().unwrap();
        let Source::Constant(folded) = &g.network[mul.inputs[1].unwrap()].source else {
            panic!("not folded")
        };
        assert_eq!(folded.array.to_f64(), [2.0, 4.0]);
        let refitted = folded.replay(&|name| {
            assert_eq!(name, "a");
            Array::from_f64(DType::Float32, vec![2], &[5.0, 6.0]).ok()
        });
        assert_eq!(refitted.unwrap().to_f64(), [10.0, 12.0]);
    }

    #[test]
    fn what_grows_too_much_or_takes_too_long_stays() {
        let mut g = Graph::new();
        let (one, shape) = (g.scalar(1.0), g.ints(&[64, 64]));
        let y = g.op("Expand", &[one, shape]);
        g.output(y);
        let small = |fold_bytes, fold_work| Settings {
            fold_bytes,
            fold_work,
            ..Settings::default()
        };
        for (settings, count) in [
            (small(1000, 1 << 20), 0),
            (small(1 << 20, 100), 0),
            (small(1 << 20, 1 << 20), 1),
        ] {
            assert_eq!((PASS.apply)(&mut g.network.clone(), &settings).unwrap(), count);
        }
    }
}
