//! Finds GroupNormalization in the pieces that exporters write it in.

use super::build::Build;
use super::matching::{either_order, input, is_constant, only_given_by};
use super::simplify::replace;
use super::{Found, Pass, rewrite, rule_if, rule_if_some};
use crate::network::attr::{Attr, Read, attrs};
use crate::network::dim::Dim;
use crate::network::patch::Patch;
use crate::network::{Layer, LayerId, Network, TensorId};

/// See [`Pass::doc`].
pub static PASS: Pass = Pass {
    name: "recognise_group_norm",
    doc: "Reshape to groups -> InstanceNormalization -> Reshape back => GroupNormalization; GroupNormalization -> Mul, \
          Add by constants of one number per channel => GroupNormalization",
    apply: |network, _| rewrite(network, rule),
};

fn rule(network: &Network, id: LayerId) -> Found<'_> {
    let layer = &network[id];
    match layer.op.name {
        "Reshape" => grouped(network, layer),
        "Mul" => affine(network, layer, true),
        "Add" => affine(network, layer, false),
        _ => Ok(None),
    }
}

/// Reshape [N, G, ...] -> InstanceNormalization -> Reshape [N, C, ...] => GroupNormalization.
fn grouped<'n>(network: &'n Network, layer: &Layer) -> Found<'n> {
    rule_if_some!(norm = input(layer, 0).and_then(|t| only_given_by(network, t, "InstanceNormalization")));
    rule_if_some!(inner = input(norm, 0).and_then(|t| only_given_by(network, t, "Reshape")));
    rule_if_some!(x = input(inner, 0));
    let (whole, parts) = (&network[x].ty, &network[inner.outputs[0]].ty.shape);
    rule_if!(whole.rank() >= 3 && parts.len() >= 3 && whole.shape[0] == parts[0]);
    rule_if_some!((channels, groups) = whole.shape[1].as_const().zip(parts[1].as_const()));
    rule_if!(groups > 0 && channels % groups == 0);
    let sides = [1, 2].map(|i| input(norm, i).filter(|&t| is_constant(network, t)));
    let [Some(scale), Some(bias)] = sides else {
        return Ok(None);
    };
    replace(network, layer, |patch| {
        // Each number of a group is that of all its channels.
        let mut each = |side: TensorId| {
            let column = patch.reshape(side, &[groups, 1].map(Dim::from))?;
            let shape = patch.dims(&[groups, channels / groups].map(Dim::from));
            let wide = patch.op("Expand", &[column, shape])?;
            patch.reshape(wide, &[channels.into()])
        };
        let (scale, bias) = (each(scale)?, each(bias)?);
        let epsilon = Attr::Float(norm.attrs.float("epsilon"));
        let given = attrs([("num_groups", Attr::Int(groups)), ("epsilon", epsilon)]);
        patch.op_with("GroupNormalization", given, &[x, scale, bias]).map(Some)
    })
}

/// GroupNormalization -> Mul or Add by one number per channel => GroupNormalization.
fn affine<'n>(network: &'n Network, layer: &Layer, scales: bool) -> Found<'n> {
    let found = either_order(layer)
        .into_iter()
        .find_map(|(y, c)| Some((only_given_by(network, y, "GroupNormalization")?, c)));
    rule_if_some!((norm, constant) = found);
    rule_if!(is_constant(network, constant));
    let [Some(x), Some(scale), Some(bias)] = [0, 1, 2].map(|i| input(norm, i)) else {
        return Ok(None);
    };
    let (shape, rank) = (&network[constant].ty.shape, network[x].ty.rank());
    let channels = &network[x].ty.shape[1];
    // [C, 1, ...], with ones in front or none.
    let lead = rank - 1;
    let own = shape.len().checked_sub(lead).map(|from| &shape[from..]);
    rule_if!(shape.len() <= rank && shape.iter().filter(|d| !d.is(1)).count() <= 1);
    rule_if!(own.is_some_and(|own| own[0] == *channels && own[1..].iter().all(|d| d.is(1))));
    rule_if!(shape.len() == lead || shape[0].is(1));
    replace(network, layer, |patch: &mut Patch| {
        let constant = patch.reshape(constant, std::slice::from_ref(channels))?;
        let (scale, bias) = if scales {
            (
                patch.op("Mul", &[scale, constant])?,
                patch.op("Mul", &[bias, constant])?,
            )
        } else {
            (scale, patch.op("Add", &[bias, constant])?)
        };
        let new = patch.op_with("GroupNormalization", norm.attrs.clone(), &[x, scale, bias])?;
        Ok(Some(new))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::passes::testing::Graph;
    use crate::passes::{Settings, fold_constants, simplify};

    #[test]
    fn the_pieces_become_one_layer() {
        let mut g = Graph::new();
        let x = g.input("x", "n 6 4 5");
        let (scale, bias) = (g.weights(&[2]), g.weights(&[2]));
        let shape = g.ints(&[0, 2, -1]);
        let y = g.op("Reshape", &[x, shape]);
        let y = g.op("InstanceNormalization", &[y, scale, bias]);
        let shape = g.ints(&[-1, 6, 4, 5]);
        let y = g.op("Reshape", &[y, shape]);
        let (scale, bias) = (g.weights(&[6, 1, 1]), g.weights(&[1, 6, 1, 1]));
        let y = g.op("Mul", &[scale, y]);
        let y = g.op("Add", &[y, bias]);
        g.output(y);
        g.becomes_by(
            &[&PASS, &fold_constants::PASS, &simplify::PASS],
            &Settings::default(),
            "%Add: float32[n, 6, 4, 5] = GroupNormalization(%x, float32[6](...), float32[6](...)) \
             {epsilon=0.00001, num_groups=2, stash_type=1}",
        );
    }

    #[test]
    fn what_is_not_of_channels_stays() {
        let mut g = Graph::new();
        let x = g.input("x", "n 6 4 5");
        let (scale, bias) = (g.weights(&[6]), g.weights(&[6]));
        let y = g.op_with(
            "GroupNormalization",
            attrs([("num_groups", Attr::Int(3))]),
            &[x, scale, bias],
        );
        let c = g.weights(&[4, 5]);
        let y = g.op("Mul", &[y, c]);
        g.output(y);
        assert_eq!((PASS.apply)(&mut g.network, &Settings::default()).unwrap(), 0);
    }
}
