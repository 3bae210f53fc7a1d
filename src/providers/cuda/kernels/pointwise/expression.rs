//! What a layer computes of one element of each input, as an expression.

use super::code::{element, literal};
use super::convert;
use crate::network::attr::Read;
use crate::network::dtype::DType;
use crate::network::narrow::PLAIN;
use crate::network::quantization::Scheme;
use crate::network::{Layer, Network};

/// A layer with what stands for its inputs.
struct Terms<'a> {
    network: &'a Network,
    layer: &'a Layer,
    arguments: &'a [Option<String>],
    /// The dtypes of the first input and of the output.
    input: DType,
    output: DType,
}

/// What a layer computes of its arguments, in the type that its output is computed in.
pub fn expression(network: &Network, layer: &Layer, arguments: &[Option<String>]) -> Option<String> {
    let terms = Terms {
        network,
        layer,
        arguments,
        input: network[layer.inputs.first().copied().flatten()?].ty.dtype,
        output: network[*layer.outputs.first()?].ty.dtype,
    };
    let of_type = |terms: &Terms| match terms.input {
        dtype if dtype.is_int() => terms.integer(),
        dtype if dtype.is_float() => terms.floating(),
        _ => None,
    };
    terms.any_type().or_else(|| of_type(&terms))
}

impl Terms<'_> {
    fn argument(&self, index: usize) -> Option<&String> {
        self.arguments.get(index).and_then(Option::as_ref)
    }

    /// The dtype of an input.
    fn dtype(&self, index: usize) -> Option<DType> {
        let tensor = self.layer.inputs.get(index).copied().flatten()?;
        Some(self.network[tensor].ty.dtype)
    }

    /// Whether the result is rounded to 16 bits, or to 8 by a Quantize layer that alone reads it.
    fn rounds(&self) -> bool {
        match self.output {
            DType::Float16 | DType::BFloat16 => true,
            DType::Float32 => self.is_quantized(),
            _ => false,
        }
    }

    fn is_quantized(&self) -> bool {
        let user = self.network.sole_user(self.layer.outputs[0]);
        let user = user.map(|id| &self.network[id]);
        user.is_some_and(|user| user.op.name == "QuantizeLinear" && Scheme::of(self.network, user).is_some())
    }

    /// Ops that take any type, or give another one.
    fn any_type(&self) -> Option<String> {
        let x = self.argument(0)?;
        let (attrs, arguments) = (&self.layer.attrs, [0, 1, 2].map(|i| self.argument(i)));
        let two = |operator: &str| Some(format!("{x} {operator} {}", arguments[1]?));
        match self.layer.op.name {
            "Identity" => Some(x.clone()),
            "Cast" => convert::cast(x, self.input, self.output, attrs),
            "QuantizeLinear" => convert::quantize(arguments, self.dtype(1)?, attrs),
            "DequantizeLinear" => convert::dequantize(arguments, self.input, self.dtype(1)?),
            "Where" => Some(format!("{x} ? {} : {}", arguments[1]?, arguments[2]?)),
            "Equal" => two("=="),
            "Less" => two("<"),
            "LessOrEqual" => two("<="),
            "Greater" => two(">"),
            "GreaterOrEqual" => two(">="),
            "And" => two("&&"),
            "Or" => two("||"),
            "Xor" => two("!="),
            "Not" => Some(format!("!{x}")),
            "IsNaN" => Some(format!("{x} != {x}")),
            "IsInf" => {
                let [below, above] = ["detect_negative", "detect_positive"].map(|name| attrs.flag(name));
                Some(format!("f_is_infinite({x}, {below}, {above})"))
            }
            "Clip" if self.input != DType::Bool => {
                let low = arguments[1].map_or(x.clone(), |low| format!("f_at_least({x}, {low})"));
                Some(arguments[2].map_or(low.clone(), |high| format!("f_at_most({low}, {high})")))
            }
            _ => None,
        }
    }

    fn floating(&self) -> Option<String> {
        let (x, attrs) = (self.argument(0)?, &self.layer.attrs);
        let number = |name: &str| literal(attrs.float(name), self.input);
        let named = |known: &[(&str, &'static str)]| {
            let found = known.iter().find(|(op, _)| *op == self.layer.op.name);
            found.map(|(_, function)| *function)
        };
        let fast = named(FAST).filter(|_| self.rounds());
        if let Some(function) = fast.or_else(|| named(FUNCTIONS)) {
            return Some(format!("{function}({x})"));
        }
        let two = |function: &str| Some(format!("{function}({x}, {})", self.argument(1)?));
        let between = |operator: &str| Some(format!("{x} {operator} {}", self.argument(1)?));
        match self.layer.op.name {
            "Neg" => Some(format!("-{x}")),
            "Add" => between("+"),
            "Sub" => between("-"),
            // Of 16 bits it may go on wider, and be one step with a sum behind it.
            "Mul" if self.rounds() => between("*"),
            "Mul" => two("f_product"),
            "Div" => between("/"),
            "Max" => two("f_max"),
            "Min" => two("f_min"),
            "Mod" if attrs.flag("fmod") => two("fmod"),
            "Mod" => two("f_modulo"),
            "PRelu" => two("f_leaky_relu"),
            "LeakyRelu" => Some(format!("f_leaky_relu({x}, {})", number("alpha"))),
            "ThresholdedRelu" => Some(format!("f_thresholded_relu({x}, {})", number("alpha"))),
            "Elu" => Some(format!("f_elu({x}, {})", number("alpha"))),
            "Celu" => Some(format!("f_celu({x}, {})", number("alpha"))),
            "Selu" => Some(format!("f_selu({x}, {}, {})", number("alpha"), number("gamma"))),
            "HardSigmoid" => Some(format!("f_hard_sigmoid({x}, {}, {})", number("alpha"), number("beta"))),
            "Shrink" => Some(format!("f_shrink({x}, {}, {})", number("lambd"), number("bias"))),
            "Gelu" => {
                let by_tanh = attrs.text("approximate") == "tanh";
                let function = match (by_tanh, self.rounds()) {
                    (false, false) => "f_gelu",
                    (false, true) => "f_fast_gelu",
                    (true, false) => "f_gelu_tanh",
                    (true, true) => "f_fast_gelu_tanh",
                };
                Some(format!("{function}({x})"))
            }
            "Pow" => self.power(),
            _ => None,
        }
    }

    /// Arithmetic of integers, which wraps.
    fn integer(&self) -> Option<String> {
        let (x, y) = (self.argument(0)?, self.argument(1));
        let ty = element(self.input)?;
        let wrapped = |operator: &str| Some(format!("({ty})((uint64){x} {operator} (uint64){})", y?));
        let two = |function: &str| Some(format!("{function}({x}, {})", y?));
        let attrs = &self.layer.attrs;
        match self.layer.op.name {
            "Add" => wrapped("+"),
            "Sub" => wrapped("-"),
            "Mul" => wrapped("*"),
            "Div" => two("i_divide"),
            "Mod" => Some(format!("i_modulo({x}, {}, {})", y?, attrs.flag("fmod"))),
            "Pow" => self.integer_power(),
            "Max" => two("f_max"),
            "Min" => two("f_min"),
            "Neg" => Some(format!("({ty})(0 - (uint64){x})")),
            "Abs" => Some(format!("({ty})({x} < 0 ? 0 - (uint64){x} : (uint64){x})")),
            "Sign" => Some(format!("f_sign({x})")),
            "Relu" => Some(format!("f_relu({x})")),
            "PRelu" => Some(format!("({x} < 0 ? ({ty})((uint64){x} * (uint64){}) : {x})", y?)),
            "BitShift" if attrs.text("direction") == "LEFT" => two("i_shift_left"),
            "BitShift" => two("i_shift_right"),
            "BitwiseAnd" => Some(format!("({ty})({x} & {})", y?)),
            "BitwiseOr" => Some(format!("({ty})({x} | {})", y?)),
            "BitwiseXor" => Some(format!("({ty})({x} ^ {})", y?)),
            "BitwiseNot" => Some(format!("({ty})(~{x})")),
            _ => None,
        }
    }

    /// The exponent of a Pow, if it is the same everywhere and known.
    fn exponent(&self) -> Option<f64> {
        let tensor = self.layer.inputs.get(1).copied().flatten()?;
        self.network[tensor].constant()?.uniform()
    }

    fn power(&self) -> Option<String> {
        let (x, exponent) = (self.argument(0)?, self.argument(1)?);
        Some(match self.exponent() {
            Some(1.0) => x.clone(),
            Some(2.0) => format!("f_product({x}, {x})"),
            Some(3.0) => format!("f_product(f_product({x}, {x}), {x})"),
            Some(0.5) => format!("f_power_of_half({x})"),
            Some(-0.5) => format!("f_reciprocal(f_power_of_half({x}))"),
            Some(-1.0) => format!("f_reciprocal({x})"),
            // A float does not hold every such exponent.
            _ if self.dtype(1)?.size() > 4 => format!("pow((double){x}, (double){exponent})"),
            _ if self.input == DType::Float64 => format!("pow({x}, (double){exponent})"),
            _ => format!("pow({x}, (float){exponent})"),
        })
    }

    fn integer_power(&self) -> Option<String> {
        let (x, exponent, ty) = (self.argument(0)?, self.argument(1)?, element(self.input)?);
        if !self.dtype(1)?.is_int() {
            let power = format!("pow((double){x}, (double){exponent})");
            return Some(convert::converted(&power, DType::Float64, self.input, PLAIN));
        }
        Some(match self.exponent() {
            Some(1.0) => x.clone(),
            Some(2.0) => format!("({ty})((uint64){x} * (uint64){x})"),
            // It takes the bits of either for int64.
            _ if [self.input, self.dtype(1)?].contains(&DType::UInt64) => return None,
            _ => format!("({ty})i_power((int64){x}, (int64){exponent})"),
        })
    }
}

/// Ops that are one function of one floating-point number.
const FUNCTIONS: &[(&str, &str)] = &[
    ("Abs", "fabs"),
    ("Sqrt", "sqrt"),
    ("Exp", "exp"),
    ("Log", "log"),
    ("Sin", "sin"),
    ("Cos", "cos"),
    ("Tan", "tan"),
    ("Asin", "asin"),
    ("Acos", "acos"),
    ("Atan", "atan"),
    ("Sinh", "sinh"),
    ("Cosh", "cosh"),
    ("Asinh", "asinh"),
    ("Acosh", "acosh"),
    ("Atanh", "atanh"),
    ("Tanh", "tanh"),
    ("Erf", "erf"),
    ("Floor", "floor"),
    ("Ceil", "ceil"),
    ("Round", "rint"),
    ("Sign", "f_sign"),
    ("Reciprocal", "f_reciprocal"),
    ("Relu", "f_relu"),
    ("Sigmoid", "f_sigmoid"),
    ("Silu", "f_silu"),
    ("HardSwish", "f_hard_swish"),
    ("Mish", "f_mish"),
    ("Softplus", "f_softplus"),
    ("Softsign", "f_softsign"),
];

/// Those that are done in fewer steps where the result is rounded to 16 bits or fewer.
const FAST: &[(&str, &str)] = &[
    ("Exp", "__expf"),
    ("Tanh", "f_fast_tanh"),
    ("Sigmoid", "f_fast_sigmoid"),
    ("Silu", "f_fast_silu"),
    ("Mish", "f_fast_mish"),
    ("Softplus", "f_fast_softplus"),
];
