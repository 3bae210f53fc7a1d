//! Removes what no result needs.

use super::Pass;
use crate::network::patch::sweep;

/// See [`Pass::doc`].
pub static PASS: Pass = Pass {
    name: "dead_layers",
    doc: "layers that no result needs => nothing; constants that nobody reads are let go",
    apply: |network, _| {
        let mut count = 0;
        for id in network.order()?.into_iter().rev() {
            count += sweep(network, id);
        }
        network.drop_unused_constants();
        Ok(count)
    },
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::passes::testing::Graph;

    #[test]
    fn unread_layers_and_constants_go() {
        let mut g = Graph::new();
        let x = g.input("x", "n 2");
        let w = g.weights(&[2]);
        let dead = g.op("Mul", &[x, w]);
        g.op("Relu", &[dead]);
        let y = g.op("Sigmoid", &[x]);
        g.output(y);
        g.becomes(&PASS, "%Sigmoid: float32[n, 2] = Sigmoid(%x)");
        assert!(g.network.tensors().all(|(_, t)| t.constant().is_none()));
    }
}
