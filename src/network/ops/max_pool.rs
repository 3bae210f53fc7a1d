//! MaxPool.

use crate::network::least::Least;
use crate::network::op::{Lowering, OpDef};
use crate::network::ops::{pointwise, pool, spatial};

/// The greatest element of each window (ONNX MaxPool, without its second output).
pub static DEF: OpDef = OpDef {
    name: "MaxPool",
    doc: "The greatest element of each window of x [N, C, spatial...], NaN if one is (ONNX MaxPool; the output Indices \
          is not there)",
    inputs: &["x"],
    attrs: &[
        pool::KERNEL_SHAPE,
        spatial::STRIDES,
        spatial::DILATIONS,
        spatial::PADS,
        spatial::AUTO_PAD,
        pool::CEIL_MODE,
    ],
    infer: pool::infer,
    evaluate: |e| {
        pool::evaluate(e, |_, v, _| {
            v.iter().copied().fold(f64::NEG_INFINITY, pointwise::greater)
        })
    },
    lowering: Lowering::COMPUTES,
    spatial: true,
    least: Least::First,
    ..OpDef::PLAIN
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::Network;
    use crate::network::attr::{Attr, attrs};
    use crate::network::dtype::DType;

    #[test]
    fn ceil_mode_drops_windows_that_start_in_the_padding() {
        let mut network = Network::new("");
        let shape = ["n", "3", "h", "7"].map(|d| d.parse().unwrap()).to_vec();
        let x = network.add_input("x", DType::Float32, shape).unwrap();
        let attrs = attrs([
            ("kernel_shape", Attr::Ints(vec![2, 2])),
            ("strides", Attr::Ints(vec![2, 3])),
            ("pads", Attr::Ints(vec![0, 1, 0, 1])),
            ("ceil_mode", Attr::Int(1)),
        ]);
        let out = network.add_layer("p", &DEF, attrs, &[Some(x)]).unwrap()[0];
        assert_eq!(network[out].ty.describe(), "float32[n, 3, floordiv(h + 1, 2), 3]");
    }
}
