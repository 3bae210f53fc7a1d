//! Arithmetic in its simplest form.

use super::build::Build;
use super::matching::{clip_bounds, given_by, input, is_constant, only_given_by, output_type, padded, uniform};
use super::{Found, Pass, rewrite, rule_if, rule_if_some};
use crate::network::dtype::has_exact_inverse;
use crate::network::patch::Patch;
use crate::network::{Layer, LayerId, Network, TensorId};

/// See [`Pass::doc`]. All of it is exact, for every float: NaN, infinities and zeros of either sign.
pub static PASS: Pass = Pass {
    name: "simplify",
    doc: "x*1, x/1, x**1, x+(-0), x-0, sum of products + 0 => x; c+x => x+c; x-c => x+(-c); x/c => x*(1/c) where c is a \
          power of two; x**2 => x*x; x**-1 => Reciprocal; of integers also (x*a)*b => x*(a*b), (x+a)+b => x+(a+b); Where of \
          a constant condition => x or y; Relu, Clip of Relu, Clip => one; Neg(Neg(x)) => x",
    apply: |network, _| rewrite(network, rule),
};

fn rule(network: &Network, id: LayerId) -> Found<'_> {
    let layer = &network[id];
    match layer.op.name {
        "Add" | "Mul" => match neutral(network, id)? {
            None => constants_last(network, layer),
            found => Ok(found),
        },
        "Sub" => match neutral(network, id)? {
            None => subtraction(network, layer),
            found => Ok(found),
        },
        "Div" => match neutral(network, id)? {
            None => division(network, layer),
            found => Ok(found),
        },
        "Pow" => power(network, id),
        "Relu" | "Clip" => clips(network, layer),
        "Where" => decided(network, layer),
        "Neg" => {
            rule_if_some!(inner = given_by(network, layer.inputs[0].unwrap_or(layer.outputs[0]), "Neg"));
            replace(network, layer, |_| Ok(input(inner, 0)))
        }
        _ => Ok(None),
    }
}

/// A patch in which the only output of a layer is another tensor, if that has the same type.
pub(super) fn replace<'n>(
    network: &'n Network,
    layer: &Layer,
    build: impl FnOnce(&mut Patch<'n>) -> crate::error::Result<Option<TensorId>>,
) -> Found<'n> {
    let mut patch = Patch::new(network);
    rule_if_some!(new = build(&mut patch)?);
    let (old_type, new_type) = (&network[layer.outputs[0]].ty, patch.ty(new));
    rule_if!(old_type.dtype == new_type.dtype && old_type.shape == new_type.shape);
    patch.shunt(layer.outputs[0], new)?;
    Ok(Some(patch))
}

/// x*1, 1*x, x/1, x-0, and x+0 where it adds nothing to a zero either => x, where that has the shape already.
fn neutral(network: &Network, id: LayerId) -> Found<'_> {
    let layer = &network[id];
    let commutes = ["Add", "Mul"].contains(&layer.op.name);
    let (a, b) = (input(layer, 0), input(layer, 1));
    let changes_nothing = |constant: Option<TensorId>, x: Option<TensorId>| {
        let (constant, x) = constant.zip(x)?;
        let value = uniform(network, constant)?;
        // -0 + 0 is 0.
        Some(match layer.op.name {
            "Add" => value == 0.0 && (value.is_sign_negative() || !may_be_negative_zero(network, x)),
            "Sub" => value == 0.0 && (value.is_sign_positive() || !may_be_negative_zero(network, x)),
            _ => value == 1.0,
        })
    };
    let rest = if changes_nothing(b, a) == Some(true) {
        a
    } else if commutes && changes_nothing(a, b) == Some(true) {
        b
    } else {
        None
    };
    replace(network, layer, |_| Ok(rest))
}

/// Integers have one zero, and sums of products that begin with 0 give no other.
fn may_be_negative_zero(network: &Network, x: TensorId) -> bool {
    let sums = ["Conv", "ConvTranspose", "MatMul"];
    let is_sum = network
        .producer(x)
        .is_some_and(|(_, layer)| sums.contains(&layer.op.name));
    network[x].ty.dtype.is_float() && !is_sum
}

/// Where(true, x, y) => x, Where(false, x, y) => y, where that has the shape already.
fn decided<'n>(network: &'n Network, layer: &Layer) -> Found<'n> {
    rule_if_some!(condition = input(layer, 0).and_then(|t| uniform(network, t)));
    let chosen = input(layer, if condition != 0.0 { 1 } else { 2 });
    replace(network, layer, |_| Ok(chosen))
}

/// c+x => x+c; of integers (x+a)+b => x+(a+b); the same for products. Floats of these round after each step.
fn constants_last<'n>(network: &'n Network, layer: &Layer) -> Found<'n> {
    rule_if_some!((a, b) = input(layer, 0).zip(input(layer, 1)));
    rule_if!(is_constant(network, a) != is_constant(network, b));
    if is_constant(network, a) {
        return replace(network, layer, |patch| {
            patch.add(layer.op, layer.attrs.clone(), &[b, a]).map(Some)
        });
    }
    rule_if!(!network[a].ty.dtype.is_float());
    rule_if_some!(inner = only_given_by(network, a, layer.op.name));
    rule_if_some!((x, c) = input(inner, 0).zip(input(inner, 1)));
    rule_if!(is_constant(network, c) && !is_constant(network, x));
    replace(network, layer, |patch| {
        let both = patch.add(layer.op, layer.attrs.clone(), &[c, b])?;
        patch.add(layer.op, layer.attrs.clone(), &[x, both]).map(Some)
    })
}

/// x-c => x+(-c), exactly.
fn subtraction<'n>(network: &'n Network, layer: &Layer) -> Found<'n> {
    rule_if_some!((x, c) = input(layer, 0).zip(input(layer, 1)));
    rule_if!(is_constant(network, c) && !is_constant(network, x) && network[x].ty.dtype.is_float());
    replace(network, layer, |patch| {
        let negative = patch.op("Neg", &[c])?;
        patch.op("Add", &[x, negative]).map(Some)
    })
}

/// x/c => x*(1/c), where c is a power of two: other numbers have an inverse that is rounded.
fn division<'n>(network: &'n Network, layer: &Layer) -> Found<'n> {
    rule_if_some!((x, c) = input(layer, 0).zip(input(layer, 1)));
    rule_if!(!is_constant(network, x));
    rule_if_some!(divisor = network[c].constant());
    let dtype = divisor.dtype();
    let exact = |v: f64| has_exact_inverse(v, dtype);
    rule_if!(dtype.is_float() && divisor.f64s().all(exact));
    replace(network, layer, |patch| {
        let one = patch.scalar(dtype, 1.0);
        let inverse = patch.op("Div", &[one, c])?;
        patch.op("Mul", &[x, inverse]).map(Some)
    })
}

/// x**1 => x; x**2 => x*x; x**3 => x*x*x, which is what libraries compute; x**-1 => 1/x. Not x**0.5 => Sqrt(x): it is
/// infinite for minus infinity, where there is no root.
fn power(network: &Network, id: LayerId) -> Found<'_> {
    let layer = &network[id];
    rule_if_some!((x, exponent) = input(layer, 0).zip(input(layer, 1)));
    rule_if_some!(exponent = uniform(network, exponent));
    rule_if!(output_type(network, id).shape == network[x].ty.shape && network[x].ty.dtype.is_float());
    replace(network, layer, |patch| {
        Ok(Some(match exponent {
            1.0 => x,
            2.0 => patch.op("Mul", &[x, x])?,
            3.0 => {
                let square = patch.op("Mul", &[x, x])?;
                patch.op("Mul", &[square, x])?
            }
            -1.0 => patch.op("Reciprocal", &[x])?,
            _ => return Ok(None),
        }))
    })
}

/// Clip(Clip(x)) => Clip(x); Clip from 0 on => Relu; Clip without bounds => x.
fn clips<'n>(network: &'n Network, layer: &Layer) -> Found<'n> {
    rule_if_some!(outer = clip_bounds(network, layer));
    rule_if_some!(x = input(layer, 0));
    rule_if!(network[x].ty.dtype.is_float());
    let open = (f64::NEG_INFINITY, f64::INFINITY);
    let inner = ["Relu", "Clip"]
        .iter()
        .find_map(|op| only_given_by(network, x, op))
        .and_then(|inner| Some((input(inner, 0)?, clip_bounds(network, inner)?)));
    match inner {
        Some((x, inner)) => {
            let bound = |v: f64| v.max(outer.0).min(outer.1);
            let both = (bound(inner.0), bound(inner.1));
            replace(network, layer, |patch| patch.clip(x, both).map(Some))
        }
        None if outer == open => replace(network, layer, |_| Ok(Some(x))),
        None if outer == (0.0, f64::INFINITY) && layer.op.name == "Clip" => {
            replace(network, layer, |patch| patch.clip(x, outer).map(Some))
        }
        None => Ok(None),
    }
}

/// Whether a constant has this shape when ones are put in front of it.
pub(super) fn has_shape(network: &Network, constant: TensorId, rank: usize, wanted: impl Fn(usize) -> bool) -> bool {
    let shape = padded(&network[constant].ty.shape, rank);
    shape.len() == rank && shape.iter().enumerate().all(|(axis, dim)| dim.is(1) || wanted(axis))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::array::Array;
    use crate::network::attr::Attrs;
    use crate::network::dtype::DType;
    use crate::passes::fold_constants;
    use crate::passes::testing::Graph;

    fn simplified(build: impl Fn(&mut Graph, TensorId) -> TensorId, layers: &str) {
        let mut g = Graph::new();
        let x = g.input("x", "n 2");
        let x = g.op("Sigmoid", &[x]);
        let y = build(&mut g, x);
        g.output(y);
        let layers = format!("%Sigmoid: float32[n, 2] = Sigmoid(%x)\n{layers}");
        g.becomes_by(&[&PASS, &fold_constants::PASS], &Default::default(), &layers);
    }

    #[test]
    fn a_decided_choice_vanishes() {
        for (truth, left) in [(0.0, "y"), (1.0, "x")] {
            let mut g = Graph::new();
            let (x, y) = (g.input("x", "n 3"), g.input("y", "n 3"));
            let array = Array::from_f64(DType::Bool, vec![1, 1], &[truth]).unwrap();
            let condition = g.network.add_constant("c", array);
            let z = g.op("Where", &[condition, x, y]);
            let z = g.op("Relu", &[z]);
            g.output(z);
            g.becomes(&PASS, &format!("%Relu: float32[n, 3] = Relu(%{left})"));
        }
    }

    #[test]
    fn neutral_elements_vanish() {
        for (op, value) in [("Add", -0.0), ("Sub", 0.0), ("Mul", 1.0), ("Div", 1.0), ("Pow", 1.0)] {
            simplified(
                |g, x| {
                    let c = g.scalar(value);
                    g.op(op, &[x, c])
                },
                "",
            );
        }
    }

    #[test]
    fn a_neutral_element_that_widens_the_shape_stays() {
        simplified(
            |g, x| {
                let one = g.network.add_constant(
                    "one",
                    crate::network::array::Array::from_f64(DType::Float32, vec![3, 1, 1], &[1.0; 3]).unwrap(),
                );
                g.op("Mul", &[x, one])
            },
            "%Mul: float32[3, n, 2] = Mul(%Sigmoid, float32[3, 1, 1](...))",
        );
    }

    #[test]
    fn a_zero_that_may_change_a_sign_stays_but_behind_a_product() {
        simplified(
            |g, x| {
                let zero = g.scalar(0.0);
                g.op("Add", &[x, zero])
            },
            "%Add: float32[n, 2] = Add(%Sigmoid, float32[](0))",
        );
        simplified(
            |g, x| {
                let (w, zero) = (g.weights(&[2, 2]), g.scalar(0.0));
                let y = g.op("MatMul", &[x, w]);
                g.op("Add", &[y, zero])
            },
            "%MatMul: float32[n, 2] = MatMul(%Sigmoid, float32[2, 2](...)) {transA=0, transB=0}",
        );
    }

    #[test]
    fn floats_round_after_each_step() {
        // Rounds to integers: 12,582,912 is 1.5 times 2 to the power of 23.
        simplified(
            |g, x| {
                let magic = g.scalar(12_582_912.0);
                let y = g.op("Add", &[x, magic]);
                g.op("Sub", &[y, magic])
            },
            "%Add: float32[n, 2] = Add(%Sigmoid, float32[](12582912))
             %Sub: float32[n, 2] = Add(%Add, float32[](-12582912))",
        );
        simplified(
            |g, x| {
                let (two, three) = (g.scalar(2.0), g.scalar(3.0));
                let y = g.op("Mul", &[two, x]);
                g.op("Div", &[y, three])
            },
            "%Mul: float32[n, 2] = Mul(%Sigmoid, float32[](2))
             %Div: float32[n, 2] = Div(%Mul, float32[](3))",
        );
    }

    #[test]
    fn powers_of_two_are_divided_by_as_multiplied() {
        simplified(
            |g, x| {
                let eight = g.scalar(8.0);
                g.op("Div", &[x, eight])
            },
            "%Div: float32[n, 2] = Mul(%Sigmoid, float32[](0.125))",
        );
    }

    #[test]
    fn constants_of_integers_come_together() {
        let mut g = Graph::new();
        let x = g.input_of("x", DType::Int64, "n");
        let (one, two) = (g.ints(&[1]), g.ints(&[2]));
        let y = g.op("Add", &[x, one]);
        let y = g.op("Add", &[two, y]);
        g.output(y);
        let layers = "%Add: int64[n] = Add(%x, int64[1](3))";
        g.becomes_by(&[&PASS, &fold_constants::PASS], &Default::default(), layers);
    }

    #[test]
    fn powers_become_products_and_not_roots() {
        for (exponent, layers) in [
            (2.0, "%Pow: float32[n, 2] = Mul(%Sigmoid, %Sigmoid)"),
            (0.5, "%Pow: float32[n, 2] = Pow(%Sigmoid, float32[](0.5))"),
            (-1.0, "%Pow: float32[n, 2] = Reciprocal(%Sigmoid)"),
        ] {
            let build = |g: &mut Graph, x| {
                let c = g.scalar(exponent);
                g.op("Pow", &[x, c])
            };
            simplified(build, layers);
        }
    }

    #[test]
    fn clips_become_one() {
        let clip = |g: &mut Graph, x, low: Option<f64>, high: Option<f64>| {
            let low = low.map(|v| g.scalar(v));
            let high = high.map(|v| g.scalar(v));
            g.op_full("Clip", Attrs::new(), &[Some(x), low, high])[0]
        };
        simplified(
            |g, x| {
                let y = g.op("Relu", &[x]);
                let y = g.op("Relu", &[y]);
                clip(g, y, None, Some(0.7))
            },
            "%Clip: float32[n, 2] = Clip(%Sigmoid, float32[](0), float32[](0.699999988079071))",
        );
        simplified(
            |g, x| clip(g, x, Some(0.0), None),
            "%Clip: float32[n, 2] = Relu(%Sigmoid)",
        );
        simplified(|g, x| clip(g, x, None, None), "");
    }

    #[test]
    fn what_others_read_is_not_merged_away() {
        let mut g = Graph::new();
        let x = g.input("x", "n 2");
        let (a, b) = (g.scalar(2.0), g.scalar(3.0));
        let y = g.op("Mul", &[x, a]);
        let z = g.op("Mul", &[y, b]);
        g.output(y);
        g.output(z);
        g.becomes(
            &PASS,
            "
            %Mul: float32[n, 2] = Mul(%x, float32[](2))
            %Mul~1: float32[n, 2] = Mul(%Mul, float32[](3))",
        );
    }
}
