//! The least numbers that tensors can have, as far as it follows from the ops that give them, whatever the inputs are.

use crate::network::attr::Read;
use crate::network::least::Least;
use crate::network::ops::resize;
use crate::network::{Layer, Network, TensorId};

/// So many layers are looked through.
const DEEPEST: usize = 8;

/// The least number that a tensor can have, 0 where it is more; `None` where that does not follow from the layers in front of it.
pub fn least(network: &Network, tensor: TensorId) -> Option<f64> {
    within(network, tensor, DEEPEST)
}

fn within(network: &Network, tensor: TensorId, depth: usize) -> Option<f64> {
    let (_, layer) = network.producer(tensor).filter(|_| depth > 0)?;
    let of = |input: &Option<TensorId>| within(network, (*input)?, depth - 1);
    let first = || layer.inputs.first().and_then(of);
    let all = || layer.inputs.iter().map(of).collect::<Option<Vec<f64>>>();
    let found = match layer.op.least {
        Least::Unknown => first().filter(|_| layer.op.movement.keeps_all()),
        Least::At(least) => Some(least),
        Least::Negative(name) => Some(-layer.attrs.float(name)),
        Least::Second => second(network, layer),
        Least::First => first().filter(|_| !overshoots(layer)),
        Least::OfAll => all().map(|found| found.into_iter().fold(0.0, f64::min)),
        Least::Sum => all().map(|found| found.into_iter().sum()),
        Least::Product => all()
            .filter(|found| found.iter().all(|&least| least == 0.0))
            .map(|_| 0.0),
    };
    found.filter(|least| least.is_finite()).map(|least| least.min(0.0))
}

fn second(network: &Network, layer: &Layer) -> Option<f64> {
    let bound = layer.inputs.get(1).copied().flatten()?;
    network[bound].constant()?.uniform()
}

/// Whether what stands between numbers can be less than both.
fn overshoots(layer: &Layer) -> bool {
    *layer.op == resize::DEF && layer.attrs.text("mode") == "cubic"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::array::Array;
    use crate::network::attr::{Attr, attrs};
    use crate::passes::testing::Graph;

    #[test]
    fn it_follows_from_ops_and_through_what_moves_picks_and_adds() {
        let mut g = Graph::new();
        let x = g.input("x", "n 4 6 6");
        let (relu, silu) = (g.op("Relu", &[x]), g.op("Silu", &[x]));
        let elu = g.op_with("Elu", attrs([("alpha", Attr::Float(0.5))]), &[x]);
        let pooled = g.op_with("MaxPool", attrs([("kernel_shape", Attr::Ints(vec![2, 2]))]), &[silu]);
        let turned = g.op_with("Transpose", attrs([("perm", Attr::Ints(vec![0, 2, 3, 1]))]), &[relu]);
        let flat = g.network.add_constant("flat", Array::ints(&[0, -1]));
        let flat = g.op("Reshape", &[turned, flat]);
        let joined = g.op_with("Concat", attrs([("axis", Attr::Int(1))]), &[relu, elu]);
        let sum = g.op("Add", &[elu, elu]);
        let (squares, other) = (g.op("Mul", &[relu, relu]), g.op("Mul", &[relu, silu]));
        let (low, high) = (g.scalar(-0.25), g.scalar(3.0));
        let clipped = g.op("Clip", &[x, low, high]);
        let unknown = g.op("Add", &[relu, x]);
        let found = [
            relu, elu, turned, flat, joined, sum, squares, other, clipped, unknown, x,
        ]
        .map(|t| least(&g.network, t));
        let want = [
            Some(0.0),
            Some(-0.5),
            Some(0.0),
            Some(0.0),
            Some(-0.5),
            Some(-1.0),
            Some(0.0),
            None,
            Some(-0.25),
            None,
            None,
        ];
        assert_eq!(found, want);
        assert!(least(&g.network, pooled).is_some_and(|least| (-0.2785..-0.2784).contains(&least)));
    }

    #[test]
    fn it_holds_for_every_op_that_says_a_number() {
        let x: Vec<f64> = (-4000..4000).map(|at| f64::from(at) / 256.0).collect();
        let mut said = 0;
        for op in crate::network::ops::OPS {
            let (Least::At(bound), Some(rule)) = (op.least, op.pointwise) else {
                continue;
            };
            let mut g = Graph::new();
            let input = g.input("x", "n");
            let y = g.op(op.name, &[input]);
            let layer = g.network.producer(y).unwrap().1;
            let numbers = x.iter().map(|&v| (rule.float)(&layer.attrs, &[v]));
            let found = numbers.fold(f64::INFINITY, f64::min);
            assert!(
                (bound..bound + 1e-3).contains(&found),
                "{}: {found}, not {bound}",
                op.name
            );
            said += 1;
        }
        assert!(said >= 9);
    }
}
