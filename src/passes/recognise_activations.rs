//! Finds activations in the pieces that exporters write them in.

use super::build::Build;
use super::matching::{
    Product, clip_bounds, either_order, given_by, input, near, only_given_by, product, scaled, shifted, uniform,
};
use super::simplify::replace;
use super::{Found, Pass, rewrite, rule_if, rule_if_some};
use crate::network::attr::{Attr, Attrs, Read, attrs};
use crate::network::dtype::DType;
use crate::network::{Layer, LayerId, Network, TensorId};

/// See [`Pass::doc`].
pub static PASS: Pass = Pass {
    name: "recognise_activations",
    doc: "Clip(x+b, 0, h) * 1/h, Clip(a*x+b, 0, 1) => HardSigmoid; x*HardSigmoid(x), x*Clip(x+3, 0, 6)/6 => HardSwish; \
          x*Sigmoid(x) => Silu; x*Tanh(Softplus(x)) => Mish; x/2 * (1 + Erf(x/sqrt(2))), \
          x/2 * (1 + Tanh(sqrt(2/pi) * (x + 0.044715*x**3))) => Gelu; the numbers in any order of factors",
    apply: |network, _| rewrite(network, rule),
};

fn rule(network: &Network, id: LayerId) -> Found<'_> {
    let layer = &network[id];
    rule_if!(network[layer.outputs[0]].ty.dtype.is_float());
    match layer.op.name {
        "Clip" => hard_sigmoid(network, layer),
        "Mul" | "Div" => match gated(network, layer)? {
            None => scaled_clip(network, layer),
            found => Ok(found),
        },
        _ => Ok(None),
    }
}

fn hard_sigmoid_attrs(alpha: f64, beta: f64) -> Attrs {
    attrs([("alpha", Attr::Float(alpha)), ("beta", Attr::Float(beta))])
}

/// Clip(a*x + b, 0, 1) => HardSigmoid.
fn hard_sigmoid<'n>(network: &'n Network, layer: &Layer) -> Found<'n> {
    rule_if!(clip_bounds(network, layer) == Some((0.0, 1.0)));
    rule_if_some!(sum = input(layer, 0).and_then(|t| network.sole_user(t).and(network.producer(t))));
    rule_if_some!((ax, beta) = shifted(network, sum.1));
    let factor = network.sole_user(ax).and(network.producer(ax));
    rule_if_some!((x, alpha) = factor.and_then(|(_, inner)| scaled(network, inner)));
    // A sum with a large number rounds what it is added to, and so may be meant.
    rule_if!((-1.0..=1.0).contains(&beta));
    replace(network, layer, |patch| {
        patch
            .op_with("HardSigmoid", hard_sigmoid_attrs(alpha, beta), &[x])
            .map(Some)
    })
}

/// Clip(x + b, 0, h) / h => HardSigmoid.
fn scaled_clip<'n>(network: &'n Network, layer: &Layer) -> Found<'n> {
    rule_if_some!((clip, factor) = scaled(network, layer));
    rule_if_some!((x, shift, high) = shifted_clip(network, clip));
    rule_if!(near(factor * high, 1.0, network[x].ty.dtype));
    replace(network, layer, |patch| {
        patch
            .op_with("HardSigmoid", hard_sigmoid_attrs(1.0 / high, shift / high), &[x])
            .map(Some)
    })
}

/// Clip(x + b, 0, h): gives x, b and h.
fn shifted_clip(network: &Network, clip: TensorId) -> Option<(TensorId, f64, f64)> {
    let clip = only_given_by(network, clip, "Clip")?;
    let (low, high) = clip_bounds(network, clip)?;
    let sum = input(clip, 0)?;
    let (_, sum) = network.sole_user(sum).and(network.producer(sum))?;
    let (x, shift) = shifted(network, sum)?;
    // The shift is divided before it is added then: of one as large as the numbers that are left, that is the same rounding.
    (low == 0.0 && high.is_finite() && shift.abs() <= high).then_some((x, shift, high))
}

/// x times a gate of x => the activation.
fn gated<'n>(network: &'n Network, layer: &Layer) -> Found<'n> {
    let Product { terms, factor } = product(network, layer);
    let [a, b] = terms[..] else { return Ok(None) };
    let found = [(a, b), (b, a)]
        .into_iter()
        .find_map(|(x, gate)| Some((x, activation(network, x, gate, factor)?)));
    rule_if_some!((x, (op, attrs)) = found);
    replace(network, layer, |patch| patch.op_with(op, attrs, &[x]).map(Some))
}

fn activation(network: &Network, x: TensorId, gate: TensorId, factor: f64) -> Option<(&'static str, Attrs)> {
    network.sole_user(gate)?;
    let (_, layer) = network.producer(gate)?;
    let dtype = network[x].ty.dtype;
    let reads_x = input(layer, 0) == Some(x);
    let is = |value, want| near(value, want, dtype);
    match layer.op.name {
        "Sigmoid" if reads_x && is(factor, 1.0) => Some(("Silu", Attrs::new())),
        "HardSigmoid" if reads_x && is(factor, 1.0) => {
            let fits = is(layer.attrs.float("alpha"), 1.0 / 6.0) && is(layer.attrs.float("beta"), 0.5);
            fits.then(|| ("HardSwish", Attrs::new()))
        }
        "Clip" if is(factor, 1.0 / 6.0) => {
            let (inner, shift, high) = shifted_clip(network, gate)?;
            (inner == x && shift == 3.0 && high == 6.0).then(|| ("HardSwish", Attrs::new()))
        }
        "Tanh" if is(factor, 1.0) => {
            let softplus = only_given_by(network, input(layer, 0)?, "Softplus")?;
            (input(softplus, 0) == Some(x)).then(|| ("Mish", Attrs::new()))
        }
        "Add" if is(factor, 0.5) => gelu(network, x, layer, dtype),
        _ => None,
    }
}

/// 1 + Erf(x / sqrt(2)) or 1 + Tanh(sqrt(2/pi) * (x + 0.044715 * x**3)) as the gate of x / 2.
fn gelu(network: &Network, x: TensorId, gate: &Layer, dtype: DType) -> Option<(&'static str, Attrs)> {
    let (inner, one) = shifted(network, gate)?;
    let found = |form: &str| Some(("Gelu", attrs([("approximate", Attr::Text(form.into()))])));
    if one != 1.0 {
        return None;
    }
    if let Some(erf) = only_given_by(network, inner, "Erf") {
        let (_, argument) = network.producer(input(erf, 0)?)?;
        let (of, factor) = scaled(network, argument)?;
        let fits = of == x && near(factor, 0.5f64.sqrt(), dtype);
        return if fits { found("none") } else { None };
    }
    let tanh = only_given_by(network, inner, "Tanh")?;
    let (_, argument) = network.producer(input(tanh, 0)?)?;
    let Product { terms, factor } = product(network, argument);
    let fits = near(factor, (2.0 / std::f64::consts::PI).sqrt(), dtype)
        && match terms[..] {
            [sum] => is_cubic(network, sum, x, dtype),
            [a, b] => (a == x && is_quadratic(network, b, x, dtype)) || (b == x && is_quadratic(network, a, x, dtype)),
            _ => false,
        };
    if fits { found("tanh") } else { None }
}

const CUBIC: f64 = 0.044715;

/// x + 0.044715 * x**3.
fn is_cubic(network: &Network, sum: TensorId, x: TensorId, dtype: DType) -> bool {
    let is_cube = |t: TensorId| {
        network
            .producer(t)
            .and_then(|(_, layer)| powers(network, layer, x))
            .is_some_and(|(power, factor)| power == 3.0 && near(factor, CUBIC, dtype))
    };
    given_by(network, sum, "Add").is_some_and(|sum| either_order(sum).iter().any(|&(a, b)| a == x && is_cube(b)))
}

/// 1 + 0.044715 * x**2.
fn is_quadratic(network: &Network, sum: TensorId, x: TensorId, dtype: DType) -> bool {
    let inner = given_by(network, sum, "Add").and_then(|sum| shifted(network, sum));
    inner.is_some_and(|(t, one)| {
        let square = network.producer(t).and_then(|(_, layer)| powers(network, layer, x));
        one == 1.0 && square.is_some_and(|(power, factor)| power == 2.0 && near(factor, CUBIC, dtype))
    })
}

/// The exponent and the factor of a product of powers of x alone.
fn powers(network: &Network, layer: &Layer, x: TensorId) -> Option<(f64, f64)> {
    if let Some(power) = power(network, layer, x) {
        return Some((power, 1.0));
    }
    let Product { terms, factor } = product(network, layer);
    let exponents = terms.iter().map(|&t| match network.producer(t) {
        _ if t == x => Some(1.0),
        Some((_, layer)) => power(network, layer, x),
        None => None,
    });
    Some((exponents.sum::<Option<f64>>()?, factor))
        .filter(|_| scaled(network, layer).is_some() || layer.op.name == "Mul")
}

fn power(network: &Network, layer: &Layer, x: TensorId) -> Option<f64> {
    let exponent = input(layer, 1).filter(|_| layer.op.name == "Pow" && input(layer, 0) == Some(x))?;
    uniform(network, exponent)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::passes::testing::Graph;
    use crate::passes::{Settings, fold_constants, simplify};

    /// Recognised as they are written, and also when the arithmetic was simplified before.
    fn recognised(build: impl Fn(&mut Graph, TensorId) -> TensorId, layer: &str) {
        for simplified in [false, true] {
            let mut g = Graph::new();
            let x = g.input("x", "n 2");
            let x = g.op("Tanh", &[x]);
            let y = build(&mut g, x);
            g.output(y);
            if simplified {
                (simplify::PASS.apply)(&mut g.network, &Settings::default()).unwrap();
                (fold_constants::PASS.apply)(&mut g.network, &Settings::default()).unwrap();
            }
            let before = g.network.clone();
            (PASS.apply)(&mut g.network, &Settings::default()).unwrap();
            g.network.verify().unwrap();
            let text = crate::passes::testing::layers_of(&g.network);
            let (_, last) = text.rsplit_once(" = ").unwrap();
            assert_eq!((g.network.layer_count(), last), (2, layer), "{before}\n{}", g.network);
            crate::passes::testing::assert_same(&before, &g.network);
        }
    }

    fn binary(g: &mut Graph, op: &str, x: TensorId, value: f64) -> TensorId {
        let c = g.scalar(value);
        g.op(op, &[x, c])
    }

    fn clip(g: &mut Graph, x: TensorId, high: f64) -> TensorId {
        let (low, high) = (g.scalar(0.0), g.scalar(high));
        g.op("Clip", &[x, low, high])
    }

    #[test]
    fn silu_and_mish() {
        let silu = |g: &mut Graph, x| {
            let s = g.op("Sigmoid", &[x]);
            g.op("Mul", &[s, x])
        };
        recognised(silu, "Silu(%Tanh)");
        let mish = |g: &mut Graph, x| {
            let s = g.op("Softplus", &[x]);
            let t = g.op("Tanh", &[s]);
            g.op("Mul", &[x, t])
        };
        recognised(mish, "Mish(%Tanh)");
    }

    #[test]
    fn a_gate_that_is_divided_is_none() {
        let mut g = Graph::new();
        let x = g.input("x", "n 4");
        let s = g.op("Sigmoid", &[x]);
        let y = g.op("Div", &[s, x]);
        g.output(y);
        g.becomes(
            &PASS,
            "
            %Sigmoid: float32[n, 4] = Sigmoid(%x)
            %Div: float32[n, 4] = Div(%Sigmoid, %x)",
        );
    }

    #[test]
    fn hard_swish_in_every_order() {
        let gate = |g: &mut Graph, x| {
            let s = binary(g, "Add", x, 3.0);
            clip(g, s, 6.0)
        };
        // As Paddle writes it.
        recognised(
            |g, x| {
                let c = gate(g, x);
                let y = g.op("Mul", &[x, c]);
                binary(g, "Div", y, 6.0)
            },
            "HardSwish(%Tanh)",
        );
        recognised(
            |g, x| {
                let c = gate(g, x);
                let c = binary(g, "Div", c, 6.0);
                g.op("Mul", &[c, x])
            },
            "HardSwish(%Tanh)",
        );
        recognised(
            |g, x| {
                let c = gate(g, x);
                let half = binary(g, "Mul", x, 1.0 / 6.0);
                g.op("Mul", &[half, c])
            },
            "HardSwish(%Tanh)",
        );
        recognised(
            |g, x| {
                let s = g.op_with("HardSigmoid", hard_sigmoid_attrs(1.0 / 6.0, 0.5), &[x]);
                g.op("Mul", &[x, s])
            },
            "HardSwish(%Tanh)",
        );
    }

    #[test]
    fn hard_sigmoid_in_both_forms() {
        recognised(
            |g, x| {
                let s = binary(g, "Add", x, 3.0);
                let c = clip(g, s, 6.0);
                binary(g, "Div", c, 6.0)
            },
            "HardSigmoid(%Tanh) {alpha=0.16666666666666666, beta=0.5}",
        );
        recognised(
            |g, x| {
                let s = binary(g, "Mul", x, 0.25);
                let s = binary(g, "Add", s, 0.5);
                clip(g, s, 1.0)
            },
            "HardSigmoid(%Tanh) {alpha=0.25, beta=0.5}",
        );
    }

    #[test]
    fn gelu_by_erf_in_every_order() {
        for order in 0..3 {
            let build = move |g: &mut Graph, x| {
                let e = binary(g, "Div", x, 2f64.sqrt());
                let e = g.op("Erf", &[e]);
                let e = binary(g, "Add", e, 1.0);
                match order {
                    0 => {
                        let y = g.op("Mul", &[x, e]);
                        binary(g, "Mul", y, 0.5)
                    }
                    1 => {
                        let h = binary(g, "Mul", x, 0.5);
                        g.op("Mul", &[h, e])
                    }
                    _ => {
                        let h = binary(g, "Mul", e, 0.5);
                        g.op("Mul", &[x, h])
                    }
                }
            };
            recognised(build, "Gelu(%Tanh) {approximate=none}");
        }
    }

    #[test]
    fn gelu_by_tanh_in_both_forms() {
        let finish = |g: &mut Graph, x, u| {
            let t = g.op("Tanh", &[u]);
            let t = binary(g, "Add", t, 1.0);
            let h = binary(g, "Mul", x, 0.5);
            g.op("Mul", &[h, t])
        };
        recognised(
            |g, x| {
                let cube = binary(g, "Pow", x, 3.0);
                let cube = binary(g, "Mul", cube, CUBIC);
                let sum = g.op("Add", &[x, cube]);
                let u = binary(g, "Mul", sum, 0.7978845608);
                finish(g, x, u)
            },
            "Gelu(%Tanh) {approximate=tanh}",
        );
        recognised(
            |g, x| {
                let q = binary(g, "Mul", x, CUBIC);
                let q = g.op("Mul", &[q, x]);
                let q = binary(g, "Add", q, 1.0);
                let u = binary(g, "Mul", x, 0.7978845608);
                let u = g.op("Mul", &[u, q]);
                finish(g, x, u)
            },
            "Gelu(%Tanh) {approximate=tanh}",
        );
    }

    #[test]
    fn other_numbers_and_shared_gates_stay() {
        let mut g = Graph::new();
        let x = g.input("x", "n 2");
        let s = binary(&mut g, "Add", x, 2.0);
        let c = clip(&mut g, s, 6.0);
        let y = g.op("Mul", &[x, c]);
        let y = binary(&mut g, "Div", y, 6.0);
        let s = g.op("Sigmoid", &[x]);
        let z = g.op("Mul", &[x, s]);
        g.output(y);
        g.output(s);
        g.output(z);
        assert_eq!((PASS.apply)(&mut g.network, &Settings::default()).unwrap(), 0);
    }
}
