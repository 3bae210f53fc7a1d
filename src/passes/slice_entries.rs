//! Takes one known entry of an axis as a part of the tensor, which can lie in it, where gathering copies.

use super::build::Build;
use super::matching::{input, uniform};
use super::{Found, Pass, rewrite, rule_if, rule_if_some};
use crate::network::attr::Read;
use crate::network::patch::Patch;
use crate::network::{LayerId, Network};

/// See [`Pass::doc`].
pub static PASS: Pass = Pass {
    name: "slice_entries",
    doc: "Gather of one constant index along an axis of known extent => Slice -> Reshape, or Reshape where there is no other entry",
    apply: |network, _| rewrite(network, rule),
};

/// Gather => Slice -> Reshape.
fn rule(network: &Network, id: LayerId) -> Found<'_> {
    let gather = &network[id];
    rule_if!(gather.op.name == "Gather");
    rule_if_some!((x, indices) = input(gather, 0).zip(input(gather, 1)));
    rule_if!(network[indices].ty.shape.iter().all(|d| d.is(1)));
    rule_if_some!(index = uniform(network, indices));
    let axis = network[x].ty.axis(gather.attrs.int("axis"))?;
    // Where the extent is open, a call may find that the index lies outside.
    rule_if_some!(size = network[x].ty.shape[axis].as_const());
    let first = index as i64 + if index < 0.0 { size } else { 0 };
    let mut patch = Patch::new(network);
    let part = match size {
        1 => x,
        _ => {
            let [first, end, axis] = [first, first + 1, axis as i64].map(|number| patch.dims(&[number.into()]));
            patch.op("Slice", &[x, first, end, axis])?
        }
    };
    let new = patch.reshape(part, &network[gather.outputs[0]].ty.shape)?;
    patch.shunt(gather.outputs[0], new)?;
    Ok(Some(patch))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::array::Array;
    use crate::network::attr::{Attr, attrs};
    use crate::network::dtype::DType;
    use crate::passes::testing::Graph;

    fn gathered(shape: &str, axis: i64, indices: &[i64]) -> Graph {
        let mut g = Graph::new();
        let (x, indices) = (g.input("x", shape), g.ints(indices));
        let y = g.op_with("Gather", attrs([("axis", Attr::Int(axis))]), &[x, indices]);
        g.output(y);
        g
    }

    #[test]
    fn one_entry_is_a_part() {
        gathered("3 n 5", 0, &[-1]).becomes(
            &PASS,
            "%Gather: float32[1, n, 5] = Slice(%x, int64[1](2), int64[1](3), int64[1](0))",
        );
    }

    #[test]
    fn the_only_entry_is_the_tensor() {
        let mut g = Graph::new();
        let x = g.input("x", "n 1 5");
        let zero = g.network.add_constant("zero", Array::scalar(DType::Int64, 0.0));
        let y = g.op_with("Gather", attrs([("axis", Attr::Int(1))]), &[x, zero]);
        g.output(y);
        g.becomes(&PASS, "%Gather: float32[n, 5] = Reshape(%x, [n, 5]) {allowzero=1}");
    }

    #[test]
    fn several_entries_and_open_axes_stay() {
        for mut g in [gathered("3 n 5", 0, &[2, 0]), gathered("3 n 5", 1, &[0])] {
            assert_eq!((PASS.apply)(&mut g.network, &Default::default()).unwrap(), 0);
        }
    }
}
