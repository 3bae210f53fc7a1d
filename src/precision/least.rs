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
    let of = |input: &Option<TensorId>| {
        let tensor = (*input)?;
        let constant = ends(network, tensor).map(|(least, _)| least);
        constant.or_else(|| within(network, tensor, depth - 1))
    };
    let first = || layer.inputs.first().and_then(of);
    let all = || layer.inputs.iter().map(of).collect::<Option<Vec<f64>>>();
    let found = match layer.op.least {
        Least::Unknown => first().filter(|_| layer.op.movement.keeps_all()),
        Least::At(least) => Some(least),
        Least::Unit => Some(0.0),
        // A negative one turns the function over.
        Least::Negative(name) => Some(-layer.attrs.float(name)).filter(|&least| least < 0.0),
        Least::Bounds => bounds(network, layer),
        Least::First => first().filter(|_| !goes_below(layer)),
        Least::OfAll => all().map(|found| found.into_iter().fold(0.0, f64::min)),
        Least::Sum => all().map(|found| found.into_iter().sum()),
        Least::Product => all().and_then(|found| product(network, layer, &found)),
    };
    found.filter(|least| least.is_finite()).map(|least| least.min(0.0))
}

/// The least and the greatest number of a constant.
fn ends(network: &Network, tensor: TensorId) -> Option<(f64, f64)> {
    let numbers = network[tensor].constant()?.f64s();
    let (least, most) = numbers.fold((f64::INFINITY, f64::NEG_INFINITY), |(least, most), number| {
        (least.min(number), most.max(number))
    });
    (least <= most).then_some((least, most))
}

/// The least product of factors that have these least numbers: that of the only negative one, times the greatest that the others can be.
fn product(network: &Network, layer: &Layer, least: &[f64]) -> Option<f64> {
    let mut negative = (0..least.len()).filter(|&at| least[at] < 0.0);
    let Some(at) = negative.next() else { return Some(0.0) };
    if negative.next().is_some() {
        return None;
    }
    let others = layer.inputs.iter().enumerate().filter(|(other, _)| *other != at);
    let mut most = others.map(|(_, input)| greatest(network, (*input)?));
    most.try_fold(least[at], |product, most| Some(product * most?))
}

/// The greatest number that a tensor can have, as far as it is a constant or of an op that gives none above one.
fn greatest(network: &Network, tensor: TensorId) -> Option<f64> {
    if let Some((_, most)) = ends(network, tensor) {
        return Some(most);
    }
    let (_, layer) = network.producer(tensor)?;
    (layer.op.least == Least::Unit).then_some(1.0)
}

/// The lower bound, or an upper one that is less.
fn bounds(network: &Network, layer: &Layer) -> Option<f64> {
    let bound = |at: usize| layer.inputs.get(at).copied().flatten();
    let number = |tensor: TensorId| network[tensor].constant()?.uniform();
    let lower = number(bound(1)?)?;
    bound(2).map_or(Some(lower), |upper| Some(lower.min(number(upper)?)))
}

/// Whether what stands between numbers can be less than both, or something else be filled in.
fn goes_below(layer: &Layer) -> bool {
    let is = |name: &str, value: &str| layer.attrs.text(name) == value;
    let fills = || is("coordinate_transformation_mode", "tf_crop_and_resize");
    *layer.op == resize::DEF && (is("mode", "cubic") || fills())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::array::Array;
    use crate::network::attr::{Attr, attrs};
    use crate::network::dtype::DType;
    use crate::passes::testing::Graph;

    /// Two numbers along the channels of an image.
    fn numbers(values: &[f64; 2]) -> Array {
        Array::from_f64(DType::Float32, vec![2, 1, 1], values).unwrap()
    }

    #[test]
    fn it_follows_from_ops_and_through_what_moves_picks_and_adds() {
        let mut g = Graph::new();
        let x = g.input("x", "n 2 6 6");
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
        let (crossed, upper) = (g.op("Clip", &[relu, high, low]), g.input("upper", ""));
        let open = g.op("Clip", &[x, low, upper]);
        let turned_elu = g.op_with("Celu", attrs([("alpha", Attr::Float(-1.0))]), &[x]);
        let factors = g.network.add_constant("factors", numbers(&[2.0, 0.5]));
        let offsets = g.network.add_constant("offsets", numbers(&[0.25, -1.0]));
        let mixed = g.network.add_constant("mixed", numbers(&[2.0, -0.5]));
        let scaled = g.op("Mul", &[elu, factors]);
        let (shifted, turned_over) = (g.op("Add", &[scaled, offsets]), g.op("Mul", &[elu, mixed]));
        let (gate, both) = (g.op("HardSigmoid", &[x]), g.op("Mul", &[elu, elu]));
        let gated = g.op("Mul", &[gate, elu]);
        let found = [
            relu,
            elu,
            turned,
            flat,
            joined,
            sum,
            squares,
            other,
            clipped,
            unknown,
            x,
            scaled,
            shifted,
            turned_over,
            gated,
            both,
            crossed,
            open,
            turned_elu,
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
            Some(-1.0),
            Some(-2.0),
            None,
            Some(-0.5),
            None,
            Some(-0.25),
            None,
            None,
        ];
        assert_eq!(found, want);
        assert!(least(&g.network, pooled).is_some_and(|least| (-0.2785..-0.2784).contains(&least)));
    }

    #[test]
    fn a_resize_that_fills_in_says_nothing() {
        for (mode, want) in [("half_pixel", Some(0.0)), ("tf_crop_and_resize", None)] {
            let mut g = Graph::new();
            let x = g.input("x", "1 1 4 4");
            let relu = g.op("Relu", &[x]);
            let mut constant = |name: &str, values: &[f64]| {
                let array = Array::from_f64(DType::Float32, vec![values.len()], values).unwrap();
                g.network.add_constant(name, array)
            };
            let region = constant("region", &[0.0, 0.0, -1.0, -1.0, 1.0, 1.0, 2.0, 2.0]);
            let scales = constant("scales", &[1.0, 1.0, 2.0, 2.0]);
            let given = attrs(
                [("mode", "linear"), ("coordinate_transformation_mode", mode)]
                    .map(|(name, text)| (name, Attr::Text(text.into()))),
            );
            let y = g.op_with("Resize", given, &[relu, region, scales]);
            assert_eq!(least(&g.network, y), want, "{mode}");
        }
    }

    #[test]
    fn it_holds_for_every_op_that_says_a_number() {
        let x: Vec<f64> = (-4000..4000).map(|at| f64::from(at) / 256.0).collect();
        let mut said = 0;
        for op in crate::network::ops::OPS {
            let (bound, most) = match op.least {
                Least::At(bound) => (bound, f64::INFINITY),
                Least::Unit => (0.0, 1.0),
                _ => continue,
            };
            let Some(rule) = op.pointwise else { continue };
            let mut g = Graph::new();
            let input = g.input("x", "n");
            let y = g.op(op.name, &[input]);
            let layer = g.network.producer(y).unwrap().1;
            let numbers = x.iter().map(|&v| (rule.float)(&layer.attrs, &[v]));
            let numbers: Vec<f64> = numbers.collect();
            assert!(numbers.iter().all(|number| *number <= most), "{}", op.name);
            let found = numbers.into_iter().fold(f64::INFINITY, f64::min);
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
