//! Lets layers compute in float32 where a dtype has no arithmetic: intermediates may be wider, never narrower.

use super::assign_precision::between_casts;
use super::clean_casts::recast;
use super::matching::{given_by, input};
use super::simplify::replace;
use super::{Found, Pass, Settings, rewrite_with, rule_if, rule_if_some};
use crate::network::dtype::DType;
use crate::network::ops::cast;
use crate::network::patch::Patch;
use crate::network::{LayerId, Network};

/// See [`Pass::doc`].
pub static PASS: Pass = Pass {
    name: "widen",
    doc: "layer in a dtype of Settings::unsupported => Casts -> float32 layer -> Cast; Cast of ours to such a \
          dtype -> Cast to float32 => nothing",
    apply: |network, settings| {
        if settings.unsupported.is_empty() {
            return Ok(0);
        }
        rewrite_with(network, |network, id| {
            Ok(rule(network, id, settings)?.map(Patch::finish))
        })
    },
};

fn rule<'n>(network: &'n Network, id: LayerId, settings: &Settings) -> Found<'n> {
    let layer = &network[id];
    let is_unsupported = |dtype: DType| dtype.is_float() && settings.unsupported.contains(&dtype);
    if layer.op.name == "Cast" {
        rule_if_some!(x = input(layer, 0));
        rule_if!(is_unsupported(network[x].ty.dtype));
        // What the model itself casts is rounded.
        rule_if_some!(inner = given_by(network, x, "Cast").filter(|inner| !cast::rounds(&inner.attrs)));
        rule_if_some!(source = input(inner, 0));
        rule_if!(network[source].ty.dtype == DType::Float32 && !cast::rounds(&layer.attrs));
        return replace(network, layer, |patch| recast(patch, layer, inner, source).map(Some));
    }
    // Its result depends on the width of the elements, and it computes nothing.
    rule_if!(layer.op.name != "BitCast");
    let mut dtypes = layer
        .inputs
        .iter()
        .flatten()
        .chain(&layer.outputs)
        .map(|&t| network[t].ty.dtype);
    rule_if_some!(dtype = dtypes.find(|&d| is_unsupported(d)));
    between_casts(network, layer, dtype, DType::Float32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::passes::testing::Graph;

    #[test]
    fn half_precision_is_computed_in_float32() {
        let mut g = Graph::new();
        let x = g.input_of("x", DType::Float16, "n");
        let y = g.op("Relu", &[x]);
        let y = g.op("Sigmoid", &[y]);
        g.output(y);
        let settings = Settings {
            unsupported: vec![DType::Float16],
            ..Settings::default()
        };
        let before = g.network.clone();
        (PASS.apply)(&mut g.network, &settings).unwrap();
        g.network.verify().unwrap();
        assert_eq!(
            crate::passes::testing::layers_of(&g.network),
            "\
%Relu: float32[n] = Cast(%x) {elidable=1, round_mode=up, saturate=1, to=float32}
%Relu~1: float32[n] = Relu(%Relu)
%Sigmoid: float32[n] = Sigmoid(%Relu~1)
%Sigmoid~1: float16[n] = Cast(%Sigmoid) {elidable=1, round_mode=up, saturate=1, to=float16}"
        );
        crate::passes::testing::assert_same_within(&before, &g.network, 1e-2);
    }
}
