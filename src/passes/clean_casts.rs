//! Removes casts that change nothing, and brings those together that follow one another.

use super::matching::{given_by, input, is_pointwise};
use super::simplify::replace;
use super::{Found, Pass, rewrite, rule_if, rule_if_some};
use crate::error::Result;
use crate::network::attr::Read;
use crate::network::dtype::DType;
use crate::network::narrow::Format;
use crate::network::ops::cast;
use crate::network::ops::values::lowest;
use crate::network::patch::Patch;
use crate::network::{Layer, LayerId, Network, TensorId};

/// See [`Pass::doc`].
pub static PASS: Pass = Pass {
    name: "clean_casts",
    doc: "Cast to the dtype that is there => nothing; Cast to a dtype that holds every value -> Cast => Cast or nothing",
    apply: |network, _| rewrite(network, rule),
};

fn rule(network: &Network, id: LayerId) -> Found<'_> {
    let layer = &network[id];
    rule_if!(layer.op.name == "Cast");
    rule_if_some!(x = input(layer, 0));
    let to = network[layer.outputs[0]].ty.dtype;
    if network[x].ty.dtype == to {
        return replace(network, layer, |_| Ok(Some(x)));
    }
    rule_if_some!(inner = given_by(network, x, "Cast"));
    rule_if_some!(source = input(inner, 0));
    rule_if!(holds(network[x].ty.dtype, network[source].ty.dtype));
    // A kernel may have computed it in more digits than it has, and what the model casts has no more.
    let rounds = [layer, inner].iter().all(|cast| cast::rounds(&cast.attrs));
    rule_if!(!rounds || network[source].ty.dtype != to || is_rounded(network, source));
    replace(network, layer, |patch| recast(patch, layer, inner, source).map(Some))
}

/// Whether a tensor holds just what its dtype does, also within the kernel that gives it.
fn is_rounded(network: &Network, tensor: TensorId) -> bool {
    let dtype = network[tensor].ty.dtype;
    match network.producer(tensor) {
        Some((_, layer)) if layer.op.name == "Cast" => cast::rounds(&layer.attrs),
        Some((_, layer)) => !is_pointwise(layer) || !dtype.is_float() || dtype.size() >= 4,
        None => true,
    }
}

/// Two Casts as one, with the last one's way of rounding, of what the first one takes; that tensor if it has the dtype.
pub fn recast(patch: &mut Patch<'_>, layer: &Layer, inner: &Layer, x: TensorId) -> Result<TensorId> {
    if patch.ty(x).dtype == layer.attrs.dtype("to") {
        return Ok(x);
    }
    let attrs = match cast::rounds(&inner.attrs) {
        true => cast::rounding_always(layer.attrs.clone()),
        false => layer.attrs.clone(),
    };
    patch.add(layer.op, attrs, &[x])
}

/// Whether a dtype holds every value of another.
fn holds(wide: DType, narrow: DType) -> bool {
    use DType::*;
    let signed = |d| matches!(d, Int8 | Int16 | Int32 | Int64);
    if let Some(stored) = narrow.narrow() {
        return match stored.format {
            _ if wide == narrow => true,
            Format::Int { .. } if wide.is_int() => lowest(wide) as f64 <= stored.range().0,
            Format::Power => wide.is_float() && wide != Float16,
            _ => wide.is_float(),
        };
    }
    match (wide, narrow) {
        _ if wide.narrow().is_some() => false,
        (a, b) if a == b => true,
        (_, Bool) => true,
        (Bool, _) => false,
        (Float64, b) if b.is_float() => true,
        (Float32, Float16 | BFloat16) => true,
        (a, b) if a.is_float() && b.is_int() => b.bits() - u32::from(signed(b)) <= a.significant_bits(),
        (a, b) if a.is_int() && b.is_int() => {
            (signed(a) == signed(b) && a.size() >= b.size()) || (signed(a) && a.size() > b.size())
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::TensorId;
    use crate::network::attr::{Attr, attrs};
    use crate::passes::testing::Graph;

    fn cast(g: &mut Graph, x: TensorId, to: DType) -> TensorId {
        g.op_with("Cast", attrs([("to", Attr::Type(to))]), &[x])
    }

    #[test]
    fn a_wide_detour_vanishes() {
        let mut g = Graph::new();
        let x = g.input_of("x", DType::BFloat16, "n");
        let y = cast(&mut g, x, DType::BFloat16);
        let y = cast(&mut g, y, DType::Float32);
        let y = cast(&mut g, y, DType::BFloat16);
        let y = g.op("Relu", &[y]);
        g.output(y);
        g.becomes(&PASS, "%Relu: bfloat16[n] = Relu(%x)");
    }

    #[test]
    fn a_detour_that_the_model_makes_rounds_what_a_kernel_computed() {
        for (own, left) in [(true, 4), (false, 2)] {
            let mut g = Graph::new();
            let x = g.input_of("x", DType::BFloat16, "n");
            let y = g.op("Sigmoid", &[x]);
            let go = |g: &mut Graph, x, to| match own {
                true => cast(g, x, to),
                false => g.op_with("Cast", cast::elidable(to), &[x]),
            };
            let y = go(&mut g, y, DType::Float32);
            let y = go(&mut g, y, DType::BFloat16);
            let y = g.op("Tanh", &[y]);
            g.output(y);
            (PASS.apply)(&mut g.network, &Default::default()).unwrap();
            assert_eq!(g.network.layer_count(), left);
        }
    }

    #[test]
    fn a_cast_that_rounds_stays() {
        let mut g = Graph::new();
        let x = g.input("x", "n");
        let y = cast(&mut g, x, DType::Float16);
        let y = cast(&mut g, y, DType::Float32);
        g.output(y);
        assert_eq!((PASS.apply)(&mut g.network, &Default::default()).unwrap(), 0);
    }

    #[test]
    fn only_dtypes_that_hold_every_value_are_a_detour() {
        for (wide, narrow, want) in [
            (DType::Float32, DType::Int16, true),
            (DType::Float32, DType::Int32, false),
            (DType::Float64, DType::Int32, true),
            (DType::Int64, DType::UInt32, true),
            (DType::UInt64, DType::Int8, false),
            (DType::Float16, DType::BFloat16, false),
            (DType::Int8, DType::Bool, true),
            (DType::Bool, DType::Int8, false),
            (DType::Float16, DType::Float8E5M2, true),
            (DType::Float16, DType::Float8E8M0, false),
            (DType::Float32, DType::Float8E8M0, true),
            (DType::UInt8, DType::Int4, false),
            (DType::Int8, DType::UInt4, true),
            (DType::Float8E5M2, DType::Float4E2M1, false),
            (DType::Float8E5M2, DType::Bool, false),
        ] {
            assert_eq!(holds(wide, narrow), want, "{wide} {narrow}");
        }
    }
}
