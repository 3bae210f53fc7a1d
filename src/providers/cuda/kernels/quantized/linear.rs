//! What follows a product of 8 bits where that is linear but for its last rounding: a residual of 8 bits, Relu, Quantize. Its
//! factors are multiplied once, with those of the product.

use crate::network::Network;
use crate::network::dtype::DType;
use crate::network::quantization::Scheme;
use crate::providers::common::epilogue::{Epilogue, Value};

/// What the types of [`Linear::text`] are.
pub const SOURCE: &str = include_str!("../../../../../kernels/linear.cuh");

/// `code(sum * scale + shift + (residual - zero) * scale)`, each scale divided by that of the result.
#[derive(Debug, Clone, PartialEq)]
pub struct Linear {
    /// What the sums of the product are multiplied by besides: the scale of the result, inverted.
    pub inverse: f64,
    /// What is added.
    pub residual: Option<Scheme>,
    /// The zero point of the result, and between which numbers it lies.
    zero: i32,
    limits: [i32; 2],
}

impl Linear {
    /// What an epilogue does.
    pub fn of(network: &Network, epilogue: &Epilogue) -> Option<Self> {
        let scheme = |step: usize| Scheme::of(network, epilogue.layer(network, step)).filter(Scheme::is_int);
        let last = epilogue
            .steps
            .len()
            .checked_sub(1)
            .filter(|_| epilogue.others().is_empty())?;
        let (mut x, mut residual, mut relu) = (Value::Product, None, false);
        for (number, step) in epilogue.steps[..last].iter().enumerate() {
            match epilogue.layer(network, number).op.name {
                "DequantizeLinear" => {
                    scheme(number)?;
                    continue;
                }
                "Add" if residual.is_none() && !relu => {
                    let Some((_, Value::Step(other))) = step.beside(x) else {
                        return None;
                    };
                    let dequantizes = epilogue.layer(network, other).op.name == "DequantizeLinear";
                    residual = Some(scheme(other).filter(|_| dequantizes)?);
                }
                "Relu" if step.inputs == [Some(x)] => relu = true,
                _ => return None,
            }
            x = Value::Step(number);
        }
        let quantize = epilogue.layer(network, last).op.name == "QuantizeLinear";
        let scheme = scheme(last).filter(|_| quantize && epilogue.steps[last].inputs[0] == Some(x))?;
        let [low, high] = scheme.limits();
        Some(Self {
            inverse: 1.0 / f64::from(scheme.scale),
            residual,
            zero: scheme.zero,
            limits: [if relu { low.max(scheme.zero) } else { low }, high],
        })
    }

    /// What the residual is multiplied by, which is a finite number if [`Linear::of`] is to be of use.
    pub fn numbers(&self) -> Vec<f32> {
        let scale = |residual: &Scheme| (f64::from(residual.scale) * self.inverse) as f32;
        self.residual.iter().map(scale).collect()
    }

    /// The type of `linear.cuh` that it is, and what it is made of; the types of results and residual stand in `Tail`.
    pub fn text(&self) -> [String; 2] {
        let Self { zero, limits, .. } = self;
        let code = format!("Coder<{zero}, {}, {}>", limits[0], limits[1]);
        let Some(residual) = &self.residual else {
            return [format!("Bare<{code}>"), format!("Bare<{code}>{{}}")];
        };
        // Codes are read as if they began at zero.
        let begin = if residual.dtype == DType::Int8 { 128 } else { 0 };
        let ty = format!("WithResidual<{code}, {begin}, {}>", residual.zero + begin);
        [ty.clone(), format!("{ty}{{n.at[0]}}")]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::array::Array;
    use crate::network::attr::{Attr, Attrs, attrs};
    use crate::network::{LayerId, TensorId, ops};

    fn layer(network: &mut Network, op: &str, attrs: Attrs, inputs: &[TensorId]) -> TensorId {
        let inputs: Vec<_> = inputs.iter().copied().map(Some).collect();
        network.add_layer(op, ops::find(op).unwrap(), attrs, &inputs).unwrap()[0]
    }

    /// A scale and a zero point of 8 bits.
    fn parameters(network: &mut Network, scale: f64, zero: f64, dtype: DType) -> [TensorId; 2] {
        let scale = network.add_constant("scale", Array::scalar(DType::Float32, scale));
        [scale, network.add_constant("zero", Array::scalar(dtype, zero))]
    }

    fn quantized(network: &mut Network, x: TensorId, zero: f64, dtype: DType) -> TensorId {
        let [scale, zero] = parameters(network, 0.25, zero, dtype);
        layer(
            network,
            "QuantizeLinear",
            attrs([("to", Attr::Type(dtype))]),
            &[x, scale, zero],
        )
    }

    /// What layers behind an input are, told by the words that make them.
    fn found(words: &str) -> Option<Linear> {
        let mut network = Network::new("test");
        let shape = || vec![4i64.into(), 32i64.into()];
        let x = network.add_input("x", DType::Float32, shape()).unwrap();
        let other = network.add_input("other", DType::UInt8, shape()).unwrap();
        let mut y = x;
        for word in words.split_whitespace() {
            y = match word {
                "residual" => {
                    let [scale, zero] = parameters(&mut network, 0.5, 7.0, DType::UInt8);
                    let numbers = layer(&mut network, "DequantizeLinear", Attrs::new(), &[other, scale, zero]);
                    layer(&mut network, "Add", Attrs::new(), &[y, numbers])
                }
                "same" => layer(&mut network, "Add", Attrs::new(), &[y, y]),
                "int8" => quantized(&mut network, y, -3.0, DType::Int8),
                "uint8" => quantized(&mut network, y, 0.0, DType::UInt8),
                op => layer(&mut network, op, Attrs::new(), &[y]),
            };
        }
        let layers: Vec<LayerId> = network.layers().map(|(id, _)| id).collect();
        Linear::of(&network, &Epilogue::new(&network, x, 1, &layers).unwrap())
    }

    #[test]
    fn residual_relu_and_quantize_are_linear_but_for_the_last_rounding() {
        let bare = found("uint8").unwrap();
        assert_eq!(
            (bare.inverse, bare.residual, bare.zero, bare.limits),
            (4.0, None, 0, [0, 255])
        );
        assert_eq!(found("Relu uint8"), found("uint8"));
        assert_eq!(found("int8").unwrap().limits, [-128, 127]);
        assert_eq!(found("Relu int8").unwrap().limits, [-3, 127]);
        let added = found("residual Relu int8").unwrap();
        assert_eq!(added.numbers(), [2.0]);
        assert_eq!(added.text()[0], "WithResidual<Coder<-3, -3, 127>, 0, 7>");
    }

    #[test]
    fn anything_else_is_done_layer_by_layer() {
        for words in [
            "",
            "Relu",
            "Gelu uint8",
            "Relu residual uint8",
            "residual residual uint8",
            "same uint8",
        ] {
            assert_eq!(found(words), None, "{words}");
        }
    }
}
