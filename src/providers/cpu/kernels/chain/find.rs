//! The links that the steps of an epilogue are.

use super::{Bias, End, Link};
use crate::network::dtype::{DType, has_exact_inverse};
use crate::network::ops::cast;
use crate::network::quantization::Scheme;
use crate::network::{Layer, LayerId, Network, TensorId};
use crate::providers::common::epilogue::{Broadcast, Epilogue, Value};
use crate::providers::cpu::handle::{Binary, Desc, Eltwise, Matmul, Options};
use crate::providers::cpu::kernels::pointwise::{Unary, unary};
use std::sync::OnceLock;

/// More links than this never paid.
const LONGEST: usize = 8;

/// Whether a layer of floats may be a link.
pub fn is_link(network: &Network, id: LayerId) -> bool {
    let layer = &network[id];
    let two_sided = matches!(layer.op.name, "Add" | "Sub" | "Mul" | "Div" | "Max" | "Min");
    two_sided || widens(network, layer) || unary(network, layer).and_then(eltwise).is_some()
}

/// Whether a layer gives floats of 16 bits as float32, to which sums need not be rounded in between.
fn widens(network: &Network, layer: &Layer) -> bool {
    let dtype = |t: Option<TensorId>| t.map(|t| network[t].ty.dtype);
    layer.op.name == "Cast"
        && !cast::rounds(&layer.attrs)
        && dtype(layer.inputs[0]).is_some_and(is_short)
        && dtype(layer.outputs.first().copied()) == Some(DType::Float32)
}

fn is_short(dtype: DType) -> bool {
    matches!(dtype, DType::Float16 | DType::BFloat16)
}

/// The links of an epilogue as they are found, and how the result is stored.
pub struct Found<'a> {
    network: &'a Network,
    epilogue: &'a Epilogue,
    /// Whether they are behind sums of products of 8 bits.
    pub of_8_bits: bool,
    pub links: Vec<Link>,
    pub end: Option<End>,
}

impl<'a> Found<'a> {
    /// The links that all steps of an epilogue are; none if one of them is no link, or there is another result.
    pub fn of(network: &'a Network, epilogue: &'a Epilogue, of_8_bits: bool) -> Option<Self> {
        if !epilogue.others().is_empty() {
            return None;
        }
        let mut found = Self {
            network,
            epilogue,
            of_8_bits,
            links: vec![],
            end: None,
        };
        let (mut x, mut number) = (Value::Product, 0);
        while number < epilogue.steps.len() {
            if found.is_in_front(number) {
                number += 1;
                continue;
            }
            number += found.take(x, number)?;
            x = Value::Step(number - 1);
        }
        (found.links.len() <= LONGEST).then_some(found)
    }

    fn is(&self, step: usize, name: &str) -> bool {
        self.epilogue.layer(self.network, step).op.name == name
    }

    /// Whether a step dequantizes an operand of the next one.
    fn is_in_front(&self, step: usize) -> bool {
        let reads = self.epilogue.steps[step].inputs[0];
        self.is(step, "DequantizeLinear") && matches!(reads, Some(Value::Operand(_)))
    }

    /// Takes steps from this number on that work on `x`; says how many.
    fn take(&mut self, x: Value, number: usize) -> Option<usize> {
        let step = &self.epilogue.steps[number];
        if self.epilogue.uses(x) != 1 {
            let (eltwise, steps) = self.gated(x, number)?;
            self.links.push(Link::Eltwise(eltwise));
            return Some(steps);
        }
        if step.inputs[0] == Some(x) {
            if let Some(scheme) = self.rounded(number) {
                self.links.push(Link::Rounded(scheme));
                return Some(2);
            }
            // What is rounded and quantized at once is multiplied by the quotient of two scales, which is rounded too: halves would go astray.
            let rounded = matches!(self.links.last(), Some(Link::Rounded(_)));
            let last = number + 1 == self.epilogue.steps.len() && !rounded;
            self.end = End::of(self.network, step.layer, self.of_8_bits).filter(|_| last);
            if self.end.is_some() {
                return Some(1);
            }
        }
        let layer = &self.network[step.layer];
        let dtype = self.network[self.epilogue.product].ty.dtype;
        let function = || unary(self.network, layer).and_then(eltwise);
        let first = step.inputs[0] == Some(x) && self.network[layer.outputs[0]].ty.dtype == dtype;
        self.links.push(match first.then(function).flatten() {
            Some(eltwise) => Link::Eltwise(eltwise),
            None => self.two_sided(x, number)?,
        });
        Some(1)
    }

    /// The scheme by which a step quantizes and the next one dequantizes.
    fn rounded(&self, number: usize) -> Option<Scheme> {
        let scheme = |step: usize| Scheme::of(self.network, self.epilogue.layer(self.network, step));
        let next = self.epilogue.steps.get(number + 1)?;
        let both = self.is(number, "QuantizeLinear") && self.is(number + 1, "DequantizeLinear");
        let alone = next.inputs[0] == Some(Value::Step(number)) && self.epilogue.uses(Value::Step(number)) == 1;
        let found = scheme(number).filter(|found| both && alone && found.is_int())?;
        (scheme(number + 1) == Some(found)).then_some(found)
    }

    /// `x * f(x)`, where f is a Sigmoid, perhaps of a multiple of x, or a HardSigmoid; with how many steps it is.
    fn gated(&self, x: Value, number: usize) -> Option<(Eltwise, usize)> {
        let steps = &self.epilogue.steps;
        let (mut alpha, mut gate, mut read) = (1.0, number, x);
        if self.is(number, "Mul") {
            let (_, factor) = steps[number].beside(x)?;
            alpha = self.epilogue.operand(factor)?.uniform? as f32;
            (gate, read) = (number + 1, Value::Step(number));
        }
        let alone = |value: Value| value == x || self.epilogue.uses(value) == 1;
        let (of_gate, product) = (steps.get(gate)?, steps.get(gate + 1)?);
        let given = Value::Step(gate);
        let both = product.beside(x).is_some_and(|(_, other)| other == given) && self.is(gate + 1, "Mul");
        if !both || of_gate.inputs[0] != Some(read) || !alone(read) || !alone(given) || self.epilogue.uses(x) != 2 {
            return None;
        }
        let eltwise = match unary(self.network, self.epilogue.layer(self.network, gate))? {
            Unary::Sigmoid => Eltwise::Swish { alpha },
            Unary::HardSigmoid(alpha, beta) if gate == number => Eltwise::HardSwish { alpha, beta },
            _ => return None,
        };
        Some((eltwise, gate + 2 - number))
    }

    fn two_sided(&self, x: Value, number: usize) -> Option<Link> {
        let (network, epilogue) = (self.network, self.epilogue);
        let name = epilogue.layer(network, number).op.name;
        let (first, other) = epilogue.steps[number].beside(x)?;
        if let Some(number) = epilogue.operand(other).and_then(|operand| operand.uniform) {
            return linear(name, first, number as f32).map(Link::Eltwise);
        }
        let binary = match name {
            "Add" => Binary::Add,
            "Mul" => Binary::Mul,
            "Sub" if first => Binary::Sub,
            "Div" if first => Binary::Div,
            _ => return None,
        };
        if let Value::Step(number) = other {
            let dequantize = &epilogue.steps[number];
            let added = self.is_in_front(number) && binary == Binary::Add;
            let operand = epilogue.operand(dequantize.inputs[0]?).filter(|_| added)?;
            return Some(Link::Residual(
                operand.tensor,
                Scheme::of(network, &network[dequantize.layer])?,
            ));
        }
        let operand = epilogue.operand(other)?;
        let (ty, whole) = (&network[operand.tensor].ty, &network[epilogue.product].ty);
        if ty.dtype != whole.dtype {
            return None;
        }
        // A single number is one for each channel where there is one channel.
        let channel = whole.shape[epilogue.axis].is(1) && ty.rank() + epilogue.axis >= whole.rank();
        match operand.broadcast {
            Broadcast::Full => Some(Link::Full(binary, operand.tensor)),
            Broadcast::Column => Some(Link::Channel(binary, operand.tensor)),
            // Beside floats oneDNN has its reference implementation alone.
            Broadcast::Row => None,
            Broadcast::Scalar => channel.then_some(Link::Channel(binary, operand.tensor)),
        }
    }

    /// Takes the constant that the first link adds per channel: the bias of a layer that has none.
    pub fn bias(&mut self, constant: impl Fn(TensorId) -> Option<Bias>) -> Option<Bias> {
        match self.links.first() {
            Some(&Link::Channel(Binary::Add, tensor)) => {
                let found = constant(tensor)?;
                self.links.remove(0);
                Some(found)
            }
            _ => None,
        }
    }
}

fn linear(op: &str, first: bool, s: f32) -> Option<Eltwise> {
    let linear = |scale: f32, shift: f32| Eltwise::Linear { scale, shift };
    Some(match (op, first) {
        ("Add", _) => linear(1.0, s),
        ("Sub", true) => linear(1.0, -s),
        ("Sub", false) => linear(-1.0, s),
        // Of a product that is -0, the sum with 0 would be 0.
        ("Mul", _) => linear(s, -0.0),
        // Of other numbers the inverse is rounded, too.
        ("Div", true) if has_exact_inverse(f64::from(s), DType::Float32) => linear(1.0 / s, -0.0),
        ("Max", _) if !s.is_nan() => Eltwise::Clip {
            low: s,
            high: f32::INFINITY,
        },
        ("Min", _) if !s.is_nan() => Eltwise::Clip {
            low: f32::NEG_INFINITY,
            high: s,
        },
        _ => return None,
    })
}

/// oneDNN's name for a function of one number. Not softplus: behind a product of oneDNN 3.2 it is off by 2e-6 where it is next to nothing, and
/// below zero, so that a logarithm of it is NaN.
fn eltwise(function: Unary) -> Option<Eltwise> {
    Some(match function {
        Unary::Relu => Eltwise::Relu { slope: 0.0 },
        Unary::LeakyRelu(slope) => Eltwise::Relu { slope },
        Unary::Clip(low, high) if low <= high => Eltwise::Clip { low, high },
        Unary::Silu => Eltwise::Swish { alpha: 1.0 },
        Unary::HardSwish => Eltwise::HardSwish {
            alpha: 1.0 / 6.0,
            beta: 0.5,
        },
        Unary::HardSigmoid(alpha, beta) => Eltwise::HardSigmoid { alpha, beta },
        Unary::Sigmoid => Eltwise::Sigmoid,
        Unary::Tanh => Eltwise::Tanh,
        Unary::Gelu => Eltwise::GeluErf,
        Unary::GeluTanh => Eltwise::GeluTanh,
        Unary::Mish => Eltwise::Mish,
        Unary::Abs => Eltwise::Abs,
        Unary::Square => Eltwise::Square,
        Unary::Sqrt => Eltwise::Sqrt,
        Unary::Elu {
            alpha,
            gamma: 1.0,
            inner: 1.0,
        } => Eltwise::Elu { alpha },
        _ => return None,
    })
}

impl End {
    /// The end that a layer is, behind products of floats or of 8 bits.
    fn of(network: &Network, id: LayerId, of_8_bits: bool) -> Option<Self> {
        let layer = &network[id];
        let to = network[layer.outputs[0]].ty.dtype;
        match layer.op.name {
            "QuantizeLinear" => Scheme::of(network, layer).filter(Scheme::is_int).map(Self::Quantized),
            "Cast" if of_8_bits => (is_short(to) && stores(to)).then_some(Self::Cast(to)),
            "Cast" => widens(network, layer).then_some(Self::Cast(to)),
            _ => None,
        }
    }
}

/// Whether oneDNN stores sums of integers in a dtype on this processor: it is asked once, for a small product.
fn stores(dtype: DType) -> bool {
    static HALF: OnceLock<bool> = OnceLock::new();
    static BRAIN: OnceLock<bool> = OnceLock::new();
    let small = || {
        let matrix = |dtype| Desc::plain(dtype, &[64, 64]);
        let spec = Matmul {
            a: matrix(DType::UInt8)?,
            b: matrix(DType::Int8)?,
            bias: None,
            dst: matrix(dtype)?,
            pack_b: true,
        };
        spec.create(None, &Options::threads(1))
    };
    let asked = if dtype == DType::Float16 { &HALF } else { &BRAIN };
    *asked.get_or_init(|| small().is_ok_and(|made| made.implementation().contains("brg")))
}
