//! Marks float32 products as TF32-eligible, where the precision plan says so.

use super::matching::{input, is_constant};
use super::{Found, Pass, rewrite_with, rule_if};
use crate::error::Result;
use crate::network::attr::{Attr, Read};
use crate::network::dim::Dim;
use crate::network::dtype::DType;
use crate::network::ops::tf32::{self, TF32};
use crate::network::ops::{conv, matmul};
use crate::network::patch::Patch;
use crate::network::precision::{LayerPrecision, Reason};
use crate::network::{Layer, LayerId, Network};

/// See [`Pass::doc`].
pub static PASS: Pass = Pass {
    name: "allow_tf32",
    doc: "float32 layer of products (Conv, MatMul, LSTM, ...) whose plan is tf32 => the same, marked as TF32-eligible",
    apply: |network, _| rewrite_with(network, |network, id| Ok(rule(network, id)?.map(Patch::finish))),
};

/// Marks every layer that can be, whatever its plan.
///
/// # Errors
/// If a layer can't be made.
pub fn everywhere(network: &mut Network) -> Result<usize> {
    rewrite_with(network, |network, id| Ok(marked(network, id)?.map(Patch::finish)))
}

fn rule(network: &Network, id: LayerId) -> Found<'_> {
    rule_if!(network[id].precision.is_some_and(|planned| planned.tf32));
    marked(network, id)
}

fn marked(network: &Network, id: LayerId) -> Found<'_> {
    let layer = &network[id];
    rule_if!(tf32::applies(layer) && !tf32::is_allowed(layer));
    Patch::with_attr(network, id, TF32.name, Attr::Int(1)).map(Some)
}

/// What a float32 layer of products computes in where tf32 was asked for: that, but where it gains little. `None` for others.
pub fn plan(network: &Network, layer: &Layer) -> Option<LayerPrecision> {
    let is_wide = network[layer.outputs[0]].ty.dtype == DType::Float32;
    (is_wide && tf32::applies(layer)).then(|| match gains_little(network, layer) {
        true => LayerPrecision::full(Reason::GainsLittle),
        false => LayerPrecision {
            tf32: true,
            ..LayerPrecision::full(Reason::Asked)
        },
    })
}

/// Whether a layer is a small part of the work, while what it rounds goes through sums to the end. Libraries multiply such ones in
/// float32 on an H100, too, whatever they are allowed.
fn gains_little(network: &Network, layer: &Layer) -> bool {
    match layer.op.name {
        "Conv" => conv_gains_little(network, layer),
        "MatMul" => product_gains_little(network, layer),
        _ => false,
    }
}

/// MatMul of short sums, of few rows, or of two activations whose rows aren't read 16 bytes at a time.
fn product_gains_little(network: &Network, layer: &Layer) -> bool {
    /// Terms of a sum whose results take longer to write than to sum.
    const SHORT: i64 = 32;
    /// Rows for which reading the weights takes longer than multiplying them.
    const FEW: f64 = 16.0;
    /// Elements of 16 bytes.
    const PACK: i64 = 4;
    let (Some(left), Some(right)) = (input(layer, 0), input(layer, 1)) else {
        return false;
    };
    let shapes = [left, right].map(|operand| &network[operand].ty.shape);
    let from_end = |shape: &[Dim], places: usize| shape.get(shape.len().checked_sub(places)?)?.as_const();
    let inner = matmul::inner_from_end(&layer.attrs);
    let terms = from_end(shapes[0], inner);
    let columns = from_end(shapes[1], 1 + usize::from(layer.attrs.flag("transB")));
    if terms.is_some_and(|terms| terms < SHORT) {
        return true;
    }
    if is_constant(network, right) {
        let lengths = network[layer.outputs[0]].ty.shape.iter().rev().skip(1);
        let rows: Option<f64> = lengths.map(|length| length.as_const().map(|n| n as f64)).product();
        return rows.is_some_and(|rows| rows <= FEW);
    }
    [terms, columns].into_iter().flatten().any(|extent| extent % PACK != 0)
}

/// Conv of narrow groups; 3x3 of few channels with a stride, by which networks begin; 1x1 that reads some places and no others, as
/// where a residual network halves the image, or a product of groups.
fn conv_gains_little(network: &Network, layer: &Layer) -> bool {
    /// Channels of a group that tensor cores are not filled by.
    const NARROW: i64 = 16;
    /// Channels at the beginning of a network.
    const EARLY: i64 = 64;
    /// With more channels float32 takes a third longer for the whole of a ResNet-50.
    const FEW: i64 = 256;
    let Some(weights) = input(layer, 1) else {
        return false;
    };
    let shape = &network[weights].ty.shape;
    let Ok(window) = conv::window(&layer.attrs, shape) else {
        return false;
    };
    let fewer = |than: i64| shape[1].as_const().is_some_and(|channels| channels < than);
    let skips = window.strides.iter().any(|&stride| stride > 1);
    let grouped = layer.attrs.int("group") > 1;
    match window.kernel.iter().copied().max() {
        None | Some(1) => grouped || (fewer(FEW) && skips),
        Some(2..=3) => grouped && fewer(NARROW) || fewer(EARLY) && skips,
        Some(_) => grouped && fewer(NARROW),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::attr::attrs;
    use crate::passes::testing::Graph;
    use crate::passes::{Settings, decompose, lower, plan_precision, run};

    fn settings() -> Settings {
        Settings {
            tf32: true,
            ..Settings::default()
        }
    }

    fn allowed(network: &Network) -> Vec<(&str, bool)> {
        let products = network.layers().filter(|(_, layer)| tf32::applies(layer));
        products
            .map(|(_, layer)| (layer.name.as_str(), tf32::is_allowed(layer)))
            .collect()
    }

    #[test]
    fn products_of_float32_get_leave_if_it_was_asked_for() {
        let mut g = Graph::new();
        let x = g.input("x", "n 40");
        let w = g.weights(&[5, 40]);
        let y = g.op_with("Gemm", attrs([("transB", Attr::Int(1))]), &[x, w]);
        let wide = g.input_of("wide", DType::Float64, "n 4");
        let z = g.op_with("MatMul", attrs([("transA", Attr::Int(1))]), &[wide, wide]);
        g.output(y);
        g.output(z);
        let mut strict = g.network.clone();
        run(&mut strict, &Settings::default()).unwrap();
        assert_eq!(allowed(&strict), [("MatMul", false), ("Gemm", false)]);
        g.becomes_by(
            &[&decompose::PASS, &plan_precision::PASS, &PASS],
            &settings(),
            "
            %MatMul: float64[4, 4] = MatMul(%wide, %wide) {transA=1, transB=0}
            %Gemm: float32[n, 5] = MatMul(%x, float32[5, 40](...)) {tf32=1, transA=0, transB=1}",
        );
    }

    #[test]
    fn products_that_gain_little_stay_exact() {
        for (left, right, turned, expected) in [
            ("b 9 31", "b 31 8", 0, false),
            ("b 9 32", "b 32 8", 0, true),
            ("b 16 40", "b 16 8", 1, false),
            ("b 9 32", "b 32 7", 0, false),
            ("b 9 49", "b 49 8", 0, false),
            ("9 49", "weights", 0, false),
            ("b 49", "weights", 0, true),
            ("2 8 49", "weights", 0, false),
            ("2 9 49", "weights", 0, true),
        ] {
            let mut g = Graph::new();
            let x = g.input("x", left);
            let y = match right {
                "weights" => g.weights(&[49, 7]),
                shape => g.input("y", shape),
            };
            let z = g.op_with("MatMul", attrs([("transA", Attr::Int(turned))]), &[x, y]);
            g.output(z);
            (plan_precision::PASS.apply)(&mut g.network, &settings()).unwrap();
            (PASS.apply)(&mut g.network, &settings()).unwrap();
            assert_eq!(allowed(&g.network)[0].1, expected, "{left} by {right}");
            everywhere(&mut g.network).unwrap();
            assert!(allowed(&g.network)[0].1);
        }
    }

    #[test]
    fn what_gains_little_stays_exact() {
        let cases: [([i64; 4], bool); 12] = [
            ([64, 1, 2, 1], false),
            ([64, 1, 1, 1], true),
            ([64, 3, 2, 1], true),
            ([256, 1, 2, 1], true),
            ([3, 7, 2, 1], true),
            ([3, 3, 2, 1], false),
            ([64, 7, 2, 8], false),
            ([64, 1, 1, 4], false),
            ([64, 3, 1, 4], true),
            ([64, 3, 1, 8], false),
            ([32, 3, 2, 1], false),
            ([32, 3, 1, 1], true),
        ];
        let mut g = Graph::new();
        for ([channels, kernel, stride, group], _) in cases {
            let x = g.input(
                &format!("x{channels}{kernel}{stride}{group}"),
                &format!("n {channels} 8 8"),
            );
            let w = g.weights(&[16, channels / group, kernel, kernel].map(|n| n as usize));
            let attrs = attrs([("strides", Attr::Ints(vec![stride; 2])), ("group", Attr::Int(group))]);
            let y = g.op_with("Conv", attrs, &[x, w]);
            g.output(y);
        }
        (plan_precision::PASS.apply)(&mut g.network, &settings()).unwrap();
        (PASS.apply)(&mut g.network, &settings()).unwrap();
        let layers = g.network.outputs().iter().filter_map(|o| g.network.producer(o.tensor));
        for ((_, layer), (case, expected)) in layers.zip(cases) {
            assert_eq!(tf32::is_allowed(layer), expected, "{case:?}");
        }
    }

    #[test]
    fn products_of_integers_stay_exact() {
        let mut g = Graph::new();
        let x = g.input_of("x", DType::Int8, "n 64");
        let w = g.input_of("w", DType::Int8, "64 8");
        let sums = g.op("MatMulInteger", &[x, w]);
        g.output(sums);
        let (a, b) = (g.input("a", "n 64"), g.input("b", "64 8"));
        let equation = attrs([("equation", Attr::Text("ij,jk->ik".into()))]);
        let mixed = g.op_with("Einsum", equation, &[a, b]);
        g.output(mixed);
        run(&mut g.network, &settings()).unwrap();
        lower(&mut g.network, &settings(), &|_, _| false).unwrap();
        let found = allowed(&g.network);
        assert!(
            found.iter().any(|(name, _)| name.starts_with("MatMulInteger")),
            "{found:?}"
        );
        for (name, eligible) in found {
            assert_eq!(eligible, name.starts_with("Einsum"), "{name}");
        }
    }
}
