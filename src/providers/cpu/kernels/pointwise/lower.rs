//! From layers to the register program.

use super::fetch::Class;
use super::program::{Binary, Feed, Instr, IntBinary, Op, Program, Unary, Value};
use crate::network::array::Array;
use crate::network::attr::{Attrs, Read};
use crate::network::dtype::DType;
use crate::network::narrow::{Narrow, PLAIN};
use crate::network::ops::{cast, max, min, quantize_linear};
use crate::network::{Layer, LayerId, Network, TensorId, unsigned};
use std::collections::HashMap;
use std::sync::Arc;

/// Constants up to this many elements are kept by the kernel; larger ones are operands like any other.
const MOST_KEPT: usize = 1 << 14;

/// Whether a pointwise program can hold a layer.
pub fn is_pointwise(network: &Network, layer: &Layer) -> bool {
    let known = layer.op.pointwise.is_some() || matches!(layer.op.name, "Cast" | "Where");
    let classed = |&t: &TensorId| Class::of(network[t].ty.dtype).is_some();
    let dtype = |t: Option<&TensorId>| t.map(|&t| network[t].ty.dtype);
    let [x, y] = [0, 1].map(|i| dtype(layer.inputs.get(i).and_then(Option::as_ref)));
    // f32 does not tell whether a large integer lies above a power of two.
    let rounds_twice = x.is_some_and(DType::is_int) && dtype(layer.outputs.first()) == Some(DType::Float8E8M0);
    // A register holds all 64 bits: the highest would move in from the left.
    let shifts_a_sign = layer.op.name == "BitShift" && dtype(layer.outputs.first()) == Some(DType::UInt64);
    // f32 does not hold every integer of more bits, nor an integer register a float: what mixes them is in `power_of`.
    let mixes_wide = layer.op.name == "Pow" && {
        let wide = |dtype: Option<DType>| dtype.is_some_and(|dtype| dtype.is_int() && dtype.size() >= 4);
        let mixed = x.map(DType::is_int) != y.map(DType::is_int);
        // The rule of integers takes the bits of both for int64.
        let unsigned = x.is_some_and(DType::is_int) && [x, y].contains(&Some(DType::UInt64));
        unsigned || mixed && (x.is_some_and(DType::is_int) || wide(y)) && scalar(network, layer, 1).is_none()
    };
    known
        && !rounds_twice
        && !mixes_wide
        && !shifts_a_sign
        && layer.inputs.len() <= 3
        && layer.outputs.len() == 1
        && layer.inputs.iter().flatten().chain(&layer.outputs).all(classed)
}

/// Whether a dtype is a float of 16 bits, which is computed in 32.
fn is_short(dtype: DType) -> bool {
    matches!(dtype, DType::Float16 | DType::BFloat16)
}

/// Whether a dtype has integers of which f32 holds every difference.
fn is_exact_in_f32(dtype: DType) -> bool {
    matches!(dtype, DType::Int8 | DType::UInt8 | DType::Int16 | DType::UInt16)
}

/// A program with the tensors that it reads.
pub struct Lowered {
    /// The program.
    pub program: Program,
    /// The tensors of its inputs.
    pub inputs: Vec<TensorId>,
}

/// The program of these layers, which come in an order of execution, giving these tensors.
pub fn lower(network: &Network, layers: &[LayerId], outputs: &[TensorId]) -> Lowered {
    let mut lowering = Lowering {
        network,
        program: Program::default(),
        inputs: vec![],
        values: HashMap::new(),
        floats: HashMap::new(),
    };
    for &id in layers {
        let layer = &network[id];
        let output = layer.outputs[0];
        let value = lowering.layer(layer);
        let as_float = is_exact_in_f32(network[output].ty.dtype) && lowering.program.class(value) == Class::Float;
        let known = if as_float {
            &mut lowering.floats
        } else {
            &mut lowering.values
        };
        known.insert(output, value);
    }
    for tensor in outputs {
        let value = lowering.values.get(tensor).unwrap_or_else(|| &lowering.floats[tensor]);
        let value = match *value {
            value @ Value::Result(_) if !lowering.program.outputs.contains(&value) => value,
            given_on => lowering.copy(given_on),
        };
        lowering.program.outputs.push(value);
        lowering.round_once(value, network[*tensor].ty.dtype);
    }
    Lowered {
        program: lowering.program,
        inputs: lowering.inputs,
    }
}

struct Lowering<'a> {
    network: &'a Network,
    program: Program,
    inputs: Vec<TensorId>,
    values: HashMap<TensorId, Value>,
    /// What integers are as f32, where that is exact and was asked for.
    floats: HashMap<TensorId, Value>,
}

impl Lowering<'_> {
    fn push(&mut self, op: Op, args: &[Value]) -> Value {
        self.program.instrs.push(Instr {
            op,
            args: args.to_vec(),
        });
        Value::Result(self.program.instrs.len() - 1)
    }

    fn feed(&mut self, feed: Feed, class: Class) -> Value {
        self.program.feeds.push(feed);
        self.program.classes.push(class);
        Value::Operand(self.program.feeds.len() - 1)
    }

    /// Each output is the result of an instruction of its own; an operand that is given on is copied.
    fn copy(&mut self, value: Value) -> Value {
        match self.program.class(value) {
            Class::Float => self.push(Op::Unary(Unary::Copy), &[value]),
            Class::Int => self.push(Op::Wrap(DType::Int64), &[value]),
        }
    }

    fn tensor(&mut self, tensor: TensorId) -> Value {
        if let Some(&value) = self.values.get(&tensor) {
            return value;
        }
        let dtype = self.network[tensor].ty.dtype;
        let value = match self.floats.get(&tensor) {
            Some(&float) => self.push(Op::ToInt(dtype), &[float]),
            None => self.operand(tensor, Class::of(dtype).unwrap_or(Class::Float)),
        };
        self.values.insert(tensor, value);
        value
    }

    /// A tensor as f32. Integers of few bits are read as such: registers of integers are twice as wide.
    fn float(&mut self, tensor: TensorId) -> Value {
        if let Some(&value) = self.floats.get(&tensor) {
            return value;
        }
        let read_so = is_exact_in_f32(self.network[tensor].ty.dtype) && !self.values.contains_key(&tensor);
        let value = match read_so {
            true => self.operand(tensor, Class::Float),
            false => {
                let value = self.tensor(tensor);
                self.as_class(value, Class::Float)
            }
        };
        self.floats.insert(tensor, value);
        value
    }

    fn operand(&mut self, tensor: TensorId, class: Class) -> Value {
        match self.network[tensor].constant().filter(|array| array.len() <= MOST_KEPT) {
            Some(array) => self.feed(Feed::Constant(array.clone()), class),
            None => {
                self.inputs.push(tensor);
                self.feed(Feed::Input(self.inputs.len() - 1), class)
            }
        }
    }

    fn as_class(&mut self, value: Value, class: Class) -> Value {
        match (self.program.class(value), class) {
            (Class::Int, Class::Float) => self.push(Op::ToFloat, &[value]),
            (Class::Float, Class::Int) => self.push(Op::ToInt(DType::Int64), &[value]),
            _ => value,
        }
    }

    fn layer(&mut self, layer: &Layer) -> Value {
        let to = self.network[layer.outputs[0]].ty.dtype;
        match layer.op.name {
            "QuantizeLinear" => return self.quantize(layer, to),
            "DequantizeLinear" => return self.dequantize(layer),
            _ => {}
        }
        let mut args: Vec<Option<Value>> = layer.inputs.iter().map(|t| t.map(|t| self.tensor(t))).collect();
        args.resize(args.len().max(layer.op.inputs.len()), None);
        let present: Vec<Value> = args.iter().flatten().copied().collect();
        let int = !present.is_empty() && present.iter().all(|&v| self.program.class(v) == Class::Int);
        match layer.op.name {
            "Cast" => self.cast(present[0], to, layer),
            "Where" => {
                let op = match self.program.class(present[1]) {
                    Class::Int => Op::SelectInt,
                    Class::Float => Op::Select,
                };
                self.push(op, &present)
            }
            _ if int => self.int_layer(layer, to, &args, &present),
            "Pow" if to.is_int() => self.power_of(layer, to, present[0]),
            _ => self.float_layer(layer, &args, &present),
        }
    }

    /// An integer to the power of a float that is the same everywhere (`is_pointwise` lets no other in): in double
    /// precision, as the reference does.
    fn power_of(&mut self, layer: &Layer, to: DType, x: Value) -> Value {
        let exponent = scalar(self.network, layer, 1).unwrap_or(f64::NAN);
        let bits = self.feed(Feed::Constant(Array::ints(&[exponent.to_bits() as i64])), Class::Int);
        let rule = |_: &Attrs, v: &[i64]| (v[0] as f64).powf(f64::from_bits(v[1] as u64)) as i64;
        self.push(Op::Int(rule, Arc::new(layer.attrs.clone()), to), &[x, bits])
    }

    fn cast(&mut self, value: Value, to: DType, layer: &Layer) -> Value {
        let Some(from) = layer.inputs.iter().flatten().map(|&t| self.network[t].ty.dtype).next() else {
            return value;
        };
        let value = self.as_rounded(value, from, layer);
        let value = match to.is_float() || to.narrow().is_some_and(|narrow| !narrow.is_int()) {
            true => self.as_float(value, from, to),
            false => value,
        };
        if to.narrow().is_some() {
            return self.narrow(value, to, layer);
        }
        let cast = self.converted(value, to);
        self.as_rounded(cast, to, layer)
    }

    /// A value that is to be a float of this dtype, which may have fewer digits than f32.
    fn as_float(&mut self, value: Value, from: DType, to: DType) -> Value {
        let op = match (from == DType::UInt64, to.size() >= 4) {
            _ if self.program.class(value) == Class::Float => return value,
            (false, true) => Op::ToFloat,
            (false, false) => Op::ToOdd,
            (true, true) => Op::UnsignedToFloat,
            (true, false) => Op::UnsignedToOdd,
        };
        self.push(op, &[value])
    }

    /// What a Cast of the model takes or gives, rounded where it has 16 bits; memory holds it so.
    fn as_rounded(&mut self, value: Value, dtype: DType, layer: &Layer) -> Value {
        let computed = matches!(value, Value::Result(_)) || self.network[layer.outputs[0]].ty.dtype == dtype;
        if !is_short(dtype) || !computed || !cast::rounds(&layer.attrs) {
            return value;
        }
        self.push(Op::Narrow(dtype, PLAIN), &[value])
    }

    /// A rounding right before a result is stored, which rounds it, need not be done by itself.
    fn round_once(&mut self, output: Value, dtype: DType) {
        let Value::Result(at) = output else { return };
        let rounds = matches!(self.program.instrs[at].op, Op::Narrow(to, _) if to == dtype && is_short(dtype));
        if rounds && self.program.last_read(output).is_none() {
            self.program.instrs[at].op = Op::Unary(Unary::Copy);
        }
    }

    fn converted(&mut self, value: Value, to: DType) -> Value {
        match (self.program.class(value), to) {
            (Class::Float, DType::Bool) => self.push(Op::Unary(Unary::Truth), &[value]),
            (Class::Int, DType::Bool) => self.push(Op::IntTruth, &[value]),
            (Class::Float, DType::UInt64) => self.push(Op::ToUnsigned, &[value]),
            (Class::Float, to) if to.is_int() => self.push(Op::ToInt(to), &[value]),
            (Class::Int, to) if to.is_int() => self.push(Op::Wrap(to), &[value]),
            _ => value,
        }
    }

    /// The numbers that a narrow dtype holds in place of these, as f32.
    fn narrow(&mut self, value: Value, to: DType, layer: &Layer) -> Value {
        if to.narrow().is_some_and(Narrow::is_int) {
            let cut = match self.program.class(value) {
                Class::Float => Op::ToInt(to),
                Class::Int => Op::Wrap(to),
            };
            let cut = self.push(cut, &[value]);
            return self.push(Op::ToFloat, &[cut]);
        }
        let value = self.as_class(value, Class::Float);
        // The type rule lets no other rounding in.
        let rounding = cast::rounding(&layer.attrs).unwrap_or(PLAIN);
        self.push(Op::Narrow(to, rounding), &[value])
    }

    /// A true division: by the inverse of the scale, numbers halfway between two integers would go astray.
    fn quantize(&mut self, layer: &Layer, to: DType) -> Value {
        let mut args: Vec<_> = layer.inputs.iter().flatten().map(|&t| self.float(t)).collect();
        if to.narrow().is_some_and(|narrow| !narrow.is_int()) {
            let quotient = self.push(Op::Binary(Binary::Div), &args[..2]);
            let moved = args
                .get(2)
                .map(|&zero| self.push(Op::Binary(Binary::Add), &[quotient, zero]));
            return self.narrow(moved.unwrap_or(quotient), to, layer);
        }
        if args.len() < 3 {
            args.push(self.feed(Feed::Constant(Array::scalar(DType::Float32, 0.0)), Class::Float));
        }
        // Its type rule lets no other dtype in.
        let (low, high) = quantize_linear::range(to).unwrap_or_default();
        let held = self.push(Op::Quantize(low as f32, high as f32), &args);
        match to.narrow() {
            Some(_) => self.narrow(held, to, layer),
            None => held,
        }
    }

    fn dequantize(&mut self, layer: &Layer) -> Value {
        let exact = |&t: &TensorId| is_exact_in_f32(self.network[t].ty.dtype);
        let [x, zero] = [0, 2].map(|i| layer.inputs.get(i).copied().flatten());
        let narrow = x.iter().chain(&zero).all(exact);
        let args: Vec<_> = layer
            .inputs
            .iter()
            .flatten()
            .map(|&t| if narrow { self.float(t) } else { self.tensor(t) })
            .collect();
        let centred = match args.get(2) {
            Some(&zero) => {
                let subtract = match self.program.class(args[0]) {
                    Class::Int => Op::IntBinary(IntBinary::Sub, DType::Int64),
                    Class::Float => Op::Binary(Binary::Sub),
                };
                self.push(subtract, &[args[0], zero])
            }
            None => args[0],
        };
        let centred = self.as_class(centred, Class::Float);
        self.push(Op::Binary(Binary::Mul), &[centred, args[1]])
    }

    fn int_layer(&mut self, layer: &Layer, to: DType, args: &[Option<Value>], present: &[Value]) -> Value {
        let simple = match layer.op.name {
            "Add" => Some(Op::IntBinary(IntBinary::Add, to)),
            "Sub" => Some(Op::IntBinary(IntBinary::Sub, to)),
            "Mul" => Some(Op::IntBinary(IntBinary::Mul, to)),
            "Max" => Some(Op::IntBinary(IntBinary::Max, to)),
            "Min" => Some(Op::IntBinary(IntBinary::Min, to)),
            "Equal" => Some(Op::IntCompare(Binary::Equal)),
            "Less" => Some(Op::IntCompare(Binary::Less)),
            "LessOrEqual" => Some(Op::IntCompare(Binary::LessOrEqual)),
            _ => None,
        };
        let first = layer.inputs.first().copied().flatten();
        let unsigned = first.is_some_and(|t| self.network[t].ty.dtype == DType::UInt64);
        if unsigned && layer.op.name == "Clip" {
            return self.unsigned_clip(layer, to, args, present[0]);
        }
        if let Some(rule) = unsigned::rule(layer.op).filter(|_| unsigned) {
            return self.push(Op::Int(rule, Arc::new(layer.attrs.clone()), to), present);
        }
        match (simple, layer.op.name, layer.op.pointwise.and_then(|rule| rule.int)) {
            (Some(op), ..) => self.push(op, present),
            (_, "Greater", _) => self.push(Op::IntCompare(Binary::Less), &[present[1], present[0]]),
            (_, "GreaterOrEqual", _) => self.push(Op::IntCompare(Binary::LessOrEqual), &[present[1], present[0]]),
            (_, _, Some(rule)) => {
                let missing = Array::ints(&[i64::MIN]);
                let args = self.complete(args, missing, Class::Int);
                self.push(Op::Int(rule, Arc::new(layer.attrs.clone()), to), &args)
            }
            _ => {
                let result = self.float_layer(layer, args, present);
                if to.is_int() {
                    self.push(Op::ToInt(to), &[result])
                } else {
                    result
                }
            }
        }
    }

    /// No number of 64 bits stands for a bound that is left out: there is no step for it.
    fn unsigned_clip(&mut self, layer: &Layer, to: DType, args: &[Option<Value>], x: Value) -> Value {
        let bounds = [&max::DEF, &min::DEF].into_iter().zip(&args[1..]);
        bounds.fold(x, |value, (op, bound)| match (bound, unsigned::rule(op)) {
            (Some(bound), Some(rule)) => self.push(Op::Int(rule, Arc::new(layer.attrs.clone()), to), &[value, *bound]),
            _ => value,
        })
    }

    /// All arguments, those that are left out as a constant.
    fn complete(&mut self, args: &[Option<Value>], missing: Array, class: Class) -> Vec<Value> {
        let lacks = args.iter().any(Option::is_none);
        let fill = lacks.then(|| self.feed(Feed::Constant(missing), class));
        args.iter().filter_map(|arg| arg.or(fill)).collect()
    }

    fn float_layer(&mut self, layer: &Layer, args: &[Option<Value>], present: &[Value]) -> Value {
        let present: Vec<Value> = present.iter().map(|&v| self.as_class(v, Class::Float)).collect();
        if let Some(op) = unary(self.network, layer) {
            return self.push(Op::Unary(op), &present[..1]);
        }
        if let Some((op, swap)) = binary(layer.op.name).filter(|_| present.len() == 2) {
            let order = if swap {
                [present[1], present[0]]
            } else {
                [present[0], present[1]]
            };
            return self.push(Op::Binary(op), &order);
        }
        match (layer.op.name, layer.op.pointwise) {
            ("Pow", _) if scalar(self.network, layer, 1) == Some(3.0) => {
                let square = self.push(Op::Unary(Unary::Square), &present[..1]);
                self.push(Op::Binary(Binary::Mul), &[square, present[0]])
            }
            (_, Some(rule)) => {
                let args: Vec<_> = args.iter().map(|v| v.map(|v| self.as_class(v, Class::Float))).collect();
                let missing = Array::scalar(DType::Float32, f64::NAN);
                let args = self.complete(&args, missing, Class::Float);
                self.push(Op::Float(rule, Arc::new(layer.attrs.clone())), &args)
            }
            // `is_pointwise` lets nothing else in.
            (_, None) => self.push(Op::Unary(Unary::Copy), &present[..1]),
        }
    }
}

/// The value of an input that is a constant of one value.
fn scalar(network: &Network, layer: &Layer, index: usize) -> Option<f64> {
    let tensor = layer.inputs.get(index).copied().flatten()?;
    network[tensor].constant()?.uniform()
}

/// The function of one number that a layer is, if it is one (attributes and constant inputs taken in).
pub fn unary(network: &Network, layer: &Layer) -> Option<Unary> {
    let a = |name: &str| layer.attrs.float(name) as f32;
    let elu = |alpha: f32, gamma: f32, inner: f32| Unary::Elu { alpha, gamma, inner };
    Some(match layer.op.name {
        "Identity" => Unary::Copy,
        "Neg" => Unary::Neg,
        "Abs" => Unary::Abs,
        "Sqrt" => Unary::Sqrt,
        "Reciprocal" => Unary::Reciprocal,
        "Exp" => Unary::Exp,
        "Log" => Unary::Log,
        "Sin" => Unary::Sin,
        "Cos" => Unary::Cos,
        "Tanh" => Unary::Tanh,
        "Sigmoid" => Unary::Sigmoid,
        "Erf" => Unary::Erf,
        "Relu" => Unary::Relu,
        "Silu" => Unary::Silu,
        "HardSwish" => Unary::HardSwish,
        "HardSigmoid" => Unary::HardSigmoid(a("alpha"), a("beta")),
        "LeakyRelu" => Unary::LeakyRelu(a("alpha")),
        "Elu" => elu(a("alpha"), 1.0, 1.0),
        "Selu" => elu(a("alpha"), a("gamma"), 1.0),
        "Celu" => elu(a("alpha"), 1.0, 1.0 / a("alpha")),
        "Gelu" if layer.attrs.text("approximate") == "tanh" => Unary::GeluTanh,
        "Gelu" => Unary::Gelu,
        "Mish" => Unary::Mish,
        "Softplus" => Unary::Softplus,
        "Softsign" => Unary::Softsign,
        "ThresholdedRelu" => Unary::ThresholdedRelu(a("alpha")),
        "Floor" => Unary::Floor,
        "Ceil" => Unary::Ceil,
        "Round" => Unary::Round,
        "Sign" => Unary::Sign,
        "Not" => Unary::Not,
        "Clip" => {
            let bound = |index: usize, none: f32| match layer.inputs.get(index).copied().flatten() {
                Some(_) => scalar(network, layer, index).map(|v| v as f32),
                None => Some(none),
            };
            Unary::Clip(bound(1, f32::NEG_INFINITY)?, bound(2, f32::INFINITY)?)
        }
        "Pow" => match scalar(network, layer, 1)? {
            1.0 => Unary::Copy,
            2.0 => Unary::Square,
            0.5 => Unary::PowHalf,
            -0.5 => Unary::PowMinusHalf,
            -1.0 => Unary::Reciprocal,
            _ => return None,
        },
        _ => return None,
    })
}

/// The function of two numbers of an op, and whether its arguments change places.
fn binary(op: &str) -> Option<(Binary, bool)> {
    Some(match op {
        "Add" => (Binary::Add, false),
        "Sub" => (Binary::Sub, false),
        "Mul" => (Binary::Mul, false),
        "Div" => (Binary::Div, false),
        "Max" => (Binary::Max, false),
        "Min" => (Binary::Min, false),
        "Less" => (Binary::Less, false),
        "LessOrEqual" => (Binary::LessOrEqual, false),
        "Greater" => (Binary::Less, true),
        "GreaterOrEqual" => (Binary::LessOrEqual, true),
        "Equal" => (Binary::Equal, false),
        "And" => (Binary::And, false),
        "Or" => (Binary::Or, false),
        "Xor" => (Binary::Xor, false),
        "PRelu" => (Binary::PRelu, false),
        _ => return None,
    })
}
