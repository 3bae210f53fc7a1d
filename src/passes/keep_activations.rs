//! Keeps activations as they are where no kernel rounds them, though a model lets them be rounded.

use super::{Found, Pass, Settings, rewrite_with, rule_if};
use crate::error::Result;
use crate::network::attr::{Attr, Read};
use crate::network::patch::Patch;
use crate::network::{LayerId, Network};

/// See [`Pass::doc`].
pub static PASS: Pass = Pass {
    name: "keep_activations",
    doc: "MatMulNBits of accuracy_level 4, by which activations may be rounded to 8 bits => the same of level 0, with \
          Settings::exact_activations",
    apply,
};

fn apply(network: &mut Network, settings: &Settings) -> Result<usize> {
    if !settings.exact_activations {
        return Ok(0);
    }
    rewrite_with(network, |network, id| Ok(rule(network, id)?.map(Patch::finish)))
}

fn rule(network: &Network, id: LayerId) -> Found<'_> {
    const LEVEL: &str = "accuracy_level";
    let layer = &network[id];
    rule_if!(layer.op.name == "MatMulNBits" && layer.attrs.int(LEVEL) == 4);
    Patch::with_attr(network, id, LEVEL, Attr::Int(0)).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::array::Array;
    use crate::network::attr::attrs;
    use crate::network::dtype::DType;
    use crate::passes::testing::Graph;

    #[test]
    fn rounding_is_left_to_who_does_it() {
        let mut g = Graph::new();
        let x = g.input("x", "m 32");
        let bytes = Array::from_bytes(DType::UInt8, vec![2, 1, 16], &[7; 32]).unwrap();
        let b = g.network.add_constant("b", bytes);
        let scales = g.weights(&[2]);
        let numbers = [("K", 32), ("N", 2), ("block_size", 32), ("accuracy_level", 4)];
        let numbers = attrs(numbers.map(|(name, value)| (name, Attr::Int(value))));
        let y = g.op_with("MatMulNBits", numbers, &[x, b, scales]);
        g.output(y);
        let level = |g: &Graph| {
            g.network
                .layers()
                .next()
                .map(|(_, layer)| layer.attrs.int("accuracy_level"))
        };
        assert_eq!((PASS.apply)(&mut g.network, &Settings::default()).unwrap(), 0);
        assert_eq!(level(&g), Some(4));
        let settings = Settings {
            exact_activations: true,
            ..Settings::default()
        };
        assert_eq!((PASS.apply)(&mut g.network, &settings).unwrap(), 1);
        assert_eq!((PASS.apply)(&mut g.network, &settings).unwrap(), 0);
        assert_eq!(level(&g), Some(0));
    }
}
