//! Removes layers that give what they get.

use super::matching::{input, is_pointwise, only_given_by, output_type, uniform};
use super::simplify::replace;
use super::{Found, Pass, rewrite, rule_if, rule_if_some};
use crate::network::attr::Read;
use crate::network::dim::Dim;
use crate::network::patch::Patch;
use crate::network::{Layer, LayerId, Network, TensorId};

/// See [`Pass::doc`].
pub static PASS: Pass = Pass {
    name: "remove_no_ops",
    doc: "Reshape, Expand, Slice, Pad, Tile, Resize, Split that change nothing, Transpose in the same order, Concat of \
          one => their input, or a view of it; Expand -> pointwise that broadcasts anyway => pointwise",
    apply: |network, _| rewrite(network, rule),
};

fn rule(network: &Network, id: LayerId) -> Found<'_> {
    let layer = &network[id];
    if is_pointwise(layer) && layer.inputs.len() > 1 {
        return without_expand(network, id);
    }
    rule_if_some!(x = input(layer, 0));
    rule_if!(layer.outputs.len() == 1 && gives_its_input(network, layer, x));
    if layer.op.name == "Expand" && network[x].ty.shape != network[layer.outputs[0]].ty.shape {
        return view(network, layer, x);
    }
    replace(network, layer, |_| Ok(Some(x)))
}

/// Expand => Reshape, where the extents are equal that are written differently.
fn view<'n>(network: &'n Network, layer: &Layer, x: TensorId) -> Found<'n> {
    let mut patch = Patch::new(network);
    rule_if!(patch.assumed_equal(&network[x].ty.shape, &network[layer.outputs[0]].ty.shape));
    patch.shunt(layer.outputs[0], x)?;
    Ok(Some(patch))
}

/// Whether a layer that keeps the type of its input also keeps the elements. The shapes are compared by `replace`.
fn gives_its_input(network: &Network, layer: &Layer, x: TensorId) -> bool {
    let numbers = |index| {
        let value = input(layer, index).and_then(|t| network[t].ty.value.as_ref());
        value.map(|v| v.iter().map(Dim::as_const).collect::<Option<Vec<_>>>())
    };
    match layer.op.name {
        "Identity" | "Reshape" | "Expand" | "Tile" | "Concat" | "Split" | "Squeeze" | "Unsqueeze" | "Flatten" => true,
        // Whatever runs forward and gives all elements gives them in place.
        "Slice" => match input(layer, 4) {
            None => true,
            Some(_) => numbers(4).flatten().is_some_and(|steps| steps.iter().all(|&s| s == 1)),
        },
        // Padding that adds here and crops there keeps a shape too.
        "Pad" => numbers(1).flatten().is_some_and(|pads| pads.iter().all(|&p| p == 0)),
        "Transpose" => {
            layer
                .attrs
                .ints("perm")
                .iter()
                .enumerate()
                .all(|(i, &axis)| i as i64 == axis)
                && (!layer.attrs.ints("perm").is_empty() || network[x].ty.rank() < 2)
        }
        // Every rule for coordinates but the one that crops maps an axis of scale 1 to itself; a scale near 1 may
        // keep the extent and move the elements.
        "Resize" => {
            let by_scales = input(layer, 2).filter(|&t| !network[t].ty.shape.iter().any(|d| d.is(0)));
            layer.attrs.text("coordinate_transformation_mode") != "tf_crop_and_resize"
                && by_scales.is_none_or(|scales| uniform(network, scales) == Some(1.0))
        }
        _ => false,
    }
}

/// Expand -> pointwise => pointwise, where the other inputs give the shape.
fn without_expand(network: &Network, id: LayerId) -> Found<'_> {
    let layer = &network[id];
    let mut inputs = layer.inputs.clone();
    let expanded = inputs
        .iter()
        .position(|t| t.is_some_and(|t| only_given_by(network, t, "Expand").is_some()));
    rule_if_some!(at = expanded);
    rule_if_some!(inner = inputs[at].and_then(|t| only_given_by(network, t, "Expand")));
    inputs[at] = input(inner, 0);
    // Only numbers: that a symbol may be 1 would be a guess.
    rule_if!(network[inner.outputs[0]].ty.concrete().is_some());
    let mut patch = Patch::new(network);
    // What broadcasts one way refuses a first input that is smaller than the others.
    let Ok(new) = patch.add_named("", layer.op, layer.attrs.clone(), &inputs) else {
        return Ok(None);
    };
    let new = new[0];
    rule_if!(patch.ty(new).shape == output_type(network, id).shape);
    patch.shunt(layer.outputs[0], new)?;
    Ok(Some(patch))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::attr::{Attr, Attrs, attrs};
    use crate::passes::testing::Graph;

    fn vanishes(build: impl Fn(&mut Graph, TensorId) -> TensorId) {
        let mut g = Graph::new();
        let x = g.input("x", "n 3 h 4");
        let x = g.op("Relu", &[x]);
        let y = build(&mut g, x);
        let y = g.op("Sigmoid", &[y]);
        g.output(y);
        g.becomes(
            &PASS,
            "
            %Relu: float32[n, 3, h, 4] = Relu(%x)
            %Sigmoid: float32[n, 3, h, 4] = Sigmoid(%Relu)",
        );
    }

    #[test]
    fn a_slope_does_not_widen_its_input() {
        let mut g = Graph::new();
        let (x, slope, shape) = (g.input("x", "1 1"), g.input("slope", "17 1"), g.ints(&[17, 5]));
        let wide = g.op("Expand", &[x, shape]);
        let y = g.op("PRelu", &[wide, slope]);
        g.output(y);
        g.becomes(
            &PASS,
            "
            %Expand: float32[17, 5] = Expand(%x, int64[2](...))
            %PRelu: float32[17, 5] = PRelu(%Expand, %slope)",
        );
    }

    #[test]
    fn layers_that_change_nothing_vanish() {
        vanishes(|g, x| {
            let shape = g.ints(&[0, 3, -1, 4]);
            g.op("Reshape", &[x, shape])
        });
        vanishes(|g, x| g.op_with("Transpose", attrs([("perm", Attr::Ints(vec![0, 1, 2, 3]))]), &[x]));
        vanishes(|g, x| g.op_with("Concat", attrs([("axis", Attr::Int(1))]), &[x]));
        vanishes(|g, x| {
            let pads = g.ints(&[0; 8]);
            g.op("Pad", &[x, pads])
        });
        vanishes(|g, x| {
            let (start, end, axis) = (g.ints(&[0]), g.ints(&[i64::MAX]), g.ints(&[1]));
            g.op("Slice", &[x, start, end, axis])
        });
        vanishes(|g, x| {
            let shape = g.ints(&[1, 1, 1, 4]);
            g.op("Expand", &[x, shape])
        });
        vanishes(|g, x| {
            let scales = g.network.add_constant(
                "scales",
                crate::network::array::Array::from_f64(crate::network::dtype::DType::Float32, vec![4], &[1.0; 4])
                    .unwrap(),
            );
            g.op_full("Resize", Attrs::new(), &[Some(x), None, Some(scales)])[0]
        });
    }

    #[test]
    fn what_reverses_or_shifts_stays() {
        let mut g = Graph::new();
        let x = g.input("x", "4 4");
        let (start, end, axis, step) = (g.ints(&[-1]), g.ints(&[i64::MIN]), g.ints(&[0]), g.ints(&[-1]));
        let y = g.op("Slice", &[x, start, end, axis, step]);
        let pads = g.ints(&[-1, 0, 1, 0]);
        let y = g.op("Pad", &[y, pads]);
        let y = g.op_with("Transpose", attrs([("perm", Attr::Ints(vec![1, 0]))]), &[y]);
        g.output(y);
        assert_eq!((PASS.apply)(&mut g.network, &Default::default()).unwrap(), 0);
    }

    #[test]
    fn a_broadcast_needs_no_expand() {
        let mut g = Graph::new();
        let (x, c) = (g.input("x", "2 3"), g.input("c", "1 3"));
        let shape = g.ints(&[2, 3]);
        let c = g.op("Expand", &[c, shape]);
        let y = g.op("Add", &[x, c]);
        g.output(y);
        g.becomes(&PASS, "%Add: float32[2, 3] = Add(%x, %c)");
    }
}
