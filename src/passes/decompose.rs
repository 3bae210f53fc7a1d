//! Replaces ops that are another way to write smaller ones.

use super::{Found, Pass, rewrite, rewrite_with};
use crate::error::Result;
use crate::network::op::Decomposition;
use crate::network::patch::Patch;
use crate::network::{LayerId, Network};

/// See [`Pass::doc`].
pub static PASS: Pass = Pass {
    name: "decompose",
    doc: "an op that is another way to write smaller ops (Gemm, Flatten, Identity, ...) => those ops",
    apply: |network, _| rewrite(network, rule),
};

fn rule(network: &Network, id: LayerId) -> Found<'_> {
    match network[id].op.decomposition {
        Decomposition::Always(decompose) => decompose(network, id).map(Some),
        _ => Ok(None),
    }
}

/// Replaces also those layers whose op can be written in smaller ones and for which nobody has a kernel.
/// Gives the number of layers that were replaced.
///
/// # Errors
/// If a decomposition fails.
pub fn without_kernel(network: &mut Network, has_kernel: &dyn Fn(&Network, LayerId) -> bool) -> Result<usize> {
    rewrite_with(network, |network, id| match network[id].op.decomposition {
        Decomposition::WithoutKernel(decompose) if !has_kernel(network, id) => {
            decompose(network, id).map(|patch| Some(Patch::finish(patch)))
        }
        _ => Ok(rule(network, id)?.map(Patch::finish)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::attr::{Attr, attrs};
    use crate::passes::testing::Graph;

    #[test]
    fn gemm_becomes_matmul_and_add() {
        let mut g = Graph::new();
        let x = g.input("x", "n 4");
        let (w, b) = (g.weights(&[5, 4]), g.weights(&[5]));
        let y = g.op_with("Gemm", attrs([("transB", Attr::Int(1))]), &[x, w, b]);
        g.output(y);
        g.becomes(
            &PASS,
            "
            %Gemm: float32[n, 5] = MatMul(%x, float32[5, 4](...)) {transA=0, transB=1}
            %Gemm~1: float32[n, 5] = Add(%Gemm, float32[5](...))",
        );
    }

    #[test]
    fn composite_ops_stay_until_nobody_has_a_kernel() {
        let mut g = Graph::new();
        let x = g.input("x", "n 4");
        let y = g.op("Silu", &[x]);
        g.output(y);
        assert_eq!((PASS.apply)(&mut g.network.clone(), &Default::default()).unwrap(), 0);
        let before = g.network.clone();
        assert_eq!(without_kernel(&mut g.network, &|_, _| false).unwrap(), 1);
        assert!(g.network.layers().all(|(_, l)| l.op.name != "Silu"));
        crate::passes::testing::assert_same(&before, &g.network);
    }

    #[test]
    fn tokens_get_the_same_scales_by_smaller_ops() {
        let mut g = Graph::new();
        let x = g.input("x", "n 3 7");
        for output in g.op_full("DynamicQuantizePerToken", Default::default(), &[Some(x)]) {
            g.output(output);
        }
        let before = g.network.clone();
        assert_eq!(without_kernel(&mut g.network, &|_, _| false).unwrap(), 1);
        assert!(g.network.layers().all(|(_, l)| l.op.name != "DynamicQuantizePerToken"));
        crate::passes::testing::assert_same(&before, &g.network);
    }
}
