//! Ops element by element, with broadcasting: TensorRT wants operands of one rank.

use super::Family;
use crate::error::{Error, Result};
use crate::network::Layer;
use crate::network::attr::Read;
use crate::network::dtype::DType;
use crate::providers::tensorrt::handle::{Spec, Tensor};
use crate::providers::tensorrt::writer::Writer;

/// Ops that are one of TensorRT's unary operations, and its names for them.
const UNARIES: [(&str, &str); 24] = [
    ("Exp", "EXP"),
    ("Log", "LOG"),
    ("Sqrt", "SQRT"),
    ("Reciprocal", "RECIP"),
    ("Abs", "ABS"),
    ("Neg", "NEG"),
    ("Sin", "SIN"),
    ("Cos", "COS"),
    ("Tan", "TAN"),
    ("Sinh", "SINH"),
    ("Cosh", "COSH"),
    ("Asin", "ASIN"),
    ("Acos", "ACOS"),
    ("Atan", "ATAN"),
    ("Asinh", "ASINH"),
    ("Acosh", "ACOSH"),
    ("Atanh", "ATANH"),
    ("Ceil", "CEIL"),
    ("Floor", "FLOOR"),
    ("Erf", "ERF"),
    ("Not", "NOT"),
    ("Sign", "SIGN"),
    ("Round", "ROUND"),
    ("IsNaN", "ISNAN"),
];
/// Ops that are one of its operations on two tensors.
const BINARIES: [(&str, &str); 11] = [
    ("Add", "SUM"),
    ("Sub", "SUB"),
    ("Mul", "PROD"),
    ("Div", "DIV"),
    ("Pow", "POW"),
    ("And", "AND"),
    ("Or", "OR"),
    ("Xor", "XOR"),
    ("Equal", "EQUAL"),
    ("Greater", "GREATER"),
    ("Less", "LESS"),
];
/// The same for any number of tensors.
const VARIADIC: [(&str, &str); 2] = [("Max", "MAX"), ("Min", "MIN")];

/// See [`super::FAMILIES`].
pub const UNARY: Family = Family {
    ops: &first(&UNARIES),
    write: unary,
};
/// See [`super::FAMILIES`].
pub const BINARY: Family = Family {
    ops: &first(&BINARIES),
    write: binary,
};
/// See [`super::FAMILIES`].
pub const MANY: Family = Family {
    ops: &first(&VARIADIC),
    write: many,
};
/// See [`super::FAMILIES`].
pub const OTHER: Family = Family {
    ops: &["GreaterOrEqual", "LessOrEqual", "Mod", "Where", "Cast", "IsInf"],
    write: other,
};

const fn first<const N: usize>(pairs: &[(&'static str, &'static str); N]) -> [&'static str; N] {
    let mut names = [""; N];
    let mut at = 0;
    while at < N {
        names[at] = pairs[at].0;
        at += 1;
    }
    names
}

fn named(pairs: &[(&'static str, &'static str)], op: &str) -> Result<&'static str> {
    let found = pairs.iter().find(|(ours, _)| *ours == op);
    found
        .map(|(_, theirs)| *theirs)
        .ok_or_else(|| Error::internal(format!("{op} has no operation")))
}

/// The rank of the output, which all operands get.
fn rank(w: &Writer, layer: &Layer) -> usize {
    w.network[layer.outputs[0]].ty.rank()
}

/// The first two operands, of one rank.
fn pair(w: &mut Writer, layer: &Layer) -> Result<(Tensor, Tensor)> {
    let rank = rank(w, layer);
    Ok((w.raised(layer, 0, rank)?, w.raised(layer, 1, rank)?))
}

fn unary(w: &mut Writer, layer: &Layer) -> Result<Vec<Tensor>> {
    let x = w.input(layer, 0)?;
    Ok(vec![w.unary(named(&UNARIES, layer.op.name)?, x)?])
}

fn binary(w: &mut Writer, layer: &Layer) -> Result<Vec<Tensor>> {
    let (a, mut b) = pair(w, layer)?;
    let (left, right) = (w.ty(layer, 0)?.dtype, w.ty(layer, 1)?.dtype);
    if layer.op.name == "Pow" {
        b = w.cast(b, right, left)?;
    }
    Ok(vec![w.elementwise(named(&BINARIES, layer.op.name)?, a, b)?])
}

fn many(w: &mut Writer, layer: &Layer) -> Result<Vec<Tensor>> {
    let (operation, rank) = (named(&VARIADIC, layer.op.name)?, rank(w, layer));
    let mut sum = w.raised(layer, 0, rank)?;
    for index in 1..layer.inputs.len() {
        let next = w.raised(layer, index, rank)?;
        sum = w.elementwise(operation, sum, next)?;
    }
    Ok(vec![sum])
}

fn other(w: &mut Writer, layer: &Layer) -> Result<Vec<Tensor>> {
    Ok(vec![match layer.op.name {
        "GreaterOrEqual" => or_equal(w, layer, "GREATER")?,
        "LessOrEqual" => or_equal(w, layer, "LESS")?,
        "Mod" => modulo(w, layer)?,
        "Where" => {
            let rank = rank(w, layer);
            let parts = [0, 1, 2].map(|index| w.raised(layer, index, rank));
            let [condition, yes, no] = parts;
            w.one(Spec::new("Select").input(condition?).input(yes?).input(no?))?
        }
        "Cast" => {
            let x = w.input(layer, 0)?;
            w.cast(x, w.ty(layer, 0)?.dtype, layer.attrs.dtype("to"))?
        }
        _ if layer.attrs.flag("detect_negative") && layer.attrs.flag("detect_positive") => {
            let x = w.input(layer, 0)?;
            w.unary("ISINF", x)?
        }
        _ => return Err(Error::unsupported("TensorRT's IsInf tells no signs apart")),
    }])
}

/// Not the negation of the opposite: that holds of NaN.
fn or_equal(w: &mut Writer, layer: &Layer, operation: &str) -> Result<Tensor> {
    let (a, b) = pair(w, layer)?;
    let strictly = w.elementwise(operation, a, b)?;
    let equal = w.elementwise("EQUAL", a, b)?;
    w.elementwise("OR", strictly, equal)
}

fn modulo(w: &mut Writer, layer: &Layer) -> Result<Tensor> {
    let (a, b) = pair(w, layer)?;
    let dtype = w.ty(layer, 0)?.dtype;
    let quotient = match (layer.attrs.flag("fmod"), dtype) {
        (false, _) => w.elementwise("FLOOR_DIV", a, b)?,
        // Division of integers truncates.
        (true, DType::Int32 | DType::Int64) => w.elementwise("DIV", a, b)?,
        _ => return Err(Error::unsupported("TensorRT has no fmod of floats")),
    };
    let whole = w.elementwise("PROD", quotient, b)?;
    w.elementwise("SUB", a, whole)
}
