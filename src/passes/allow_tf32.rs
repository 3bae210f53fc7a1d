//! Lets products of float32 round what they multiply to tf32, where that was asked for.

use super::{Found, Pass, rewrite, rule_if};
use crate::network::attr::{Attr, Read};
use crate::network::dim::Dim;
use crate::network::dtype::DType;
use crate::network::ops::tf32::{self, TF32};
use crate::network::patch::Patch;
use crate::network::{Layer, LayerId, Network, TensorId};

/// See [`Pass::doc`].
pub static PASS: Pass = Pass {
    name: "allow_tf32",
    doc: "float32 layer of products (Conv, MatMul, LSTM, ...) => the same with leave to round what it multiplies to tf32, \
          if Settings::tf32 is set; not a Conv of an image's few channels",
    apply: |network, settings| {
        if !settings.tf32 {
            return Ok(0);
        }
        rewrite(network, rule)
    },
};

fn rule(network: &Network, id: LayerId) -> Found<'_> {
    let layer = &network[id];
    rule_if!(tf32::applies(layer) && !tf32::is_allowed(layer));
    rule_if!(network[layer.outputs[0]].ty.dtype == DType::Float32);
    rule_if!(!sees_an_image(network, layer));
    let mut attrs = layer.attrs.clone();
    attrs.insert(TF32.name.into(), Attr::Int(1));
    let mut patch = Patch::new(network);
    let outputs = patch.add_named("", layer.op, attrs, &layer.inputs)?;
    for (&old, new) in layer.outputs.iter().zip(outputs) {
        patch.shunt(old, new)?;
    }
    Ok(Some(patch))
}

/// Whether a layer is a convolution of few channels through a small window, of which tensor cores would mostly multiply padding. What
/// such a layer rounds is all of an image, the same for every channel that follows: those errors do not cancel on the way.
fn sees_an_image(network: &Network, layer: &Layer) -> bool {
    /// What an instruction for tf32 sums at once.
    const STEP: i64 = 8;
    /// Where this many numbers are summed, tensor cores pay.
    const LONG: i64 = 256;
    let extents = |tensor: TensorId| {
        network[tensor].ty.shape[1..]
            .iter()
            .map(Dim::as_const)
            .collect::<Option<Vec<_>>>()
    };
    let weights = || layer.inputs.get(1).copied().flatten().and_then(extents);
    let is_small = |extents: Vec<i64>| extents[0] < STEP && extents.iter().product::<i64>() < LONG;
    layer.op.name == "Conv" && layer.attrs.int("group") == 1 && weights().is_some_and(is_small)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::attr::attrs;
    use crate::passes::testing::Graph;
    use crate::passes::{Settings, decompose, run, tidy};

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
        let x = g.input("x", "n 4");
        let w = g.weights(&[5, 4]);
        let y = g.op_with("Gemm", attrs([("transB", Attr::Int(1))]), &[x, w]);
        let wide = g.input_of("wide", DType::Float64, "n 4");
        let z = g.op_with("MatMul", attrs([("transA", Attr::Int(1))]), &[wide, wide]);
        g.output(y);
        g.output(z);
        let mut strict = g.network.clone();
        run(&mut strict, &Settings::default()).unwrap();
        assert_eq!(allowed(&strict), [("MatMul", false), ("Gemm", false)]);
        g.becomes_by(
            &[&decompose::PASS, &PASS],
            &settings(),
            "
            %MatMul: float64[4, 4] = MatMul(%wide, %wide) {transA=1, transB=0}
            %Gemm: float32[n, 5] = MatMul(%x, float32[5, 4](...)) {tf32=1, transA=0, transB=1}",
        );
    }

    #[test]
    fn a_convolution_of_an_image_stays_exact() {
        let mut g = Graph::new();
        let image = g.input("image", "1 3 32 32");
        let (stem, deep, patches) = (
            g.weights(&[64, 3, 7, 7]),
            g.weights(&[8, 64, 1, 1]),
            g.weights(&[8, 3, 16, 16]),
        );
        let x = g.op("Conv", &[image, stem]);
        let x = g.op("Conv", &[x, deep]);
        let y = g.op("Conv", &[image, patches]);
        g.output(x);
        g.output(y);
        run(&mut g.network, &settings()).unwrap();
        let leave = allowed(&g.network).into_iter().map(|(_, leave)| leave);
        assert_eq!(leave.collect::<Vec<_>>(), [false, true, true]);
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
        decompose::without_kernel(&mut g.network, &|_, _| false).unwrap();
        tidy(&mut g.network, &settings()).unwrap();
        let found = allowed(&g.network);
        assert!(
            found.iter().any(|(name, _)| name.starts_with("MatMulInteger")),
            "{found:?}"
        );
        for (name, leave) in found {
            assert_eq!(leave, name.starts_with("Einsum"), "{name}");
        }
    }
}
