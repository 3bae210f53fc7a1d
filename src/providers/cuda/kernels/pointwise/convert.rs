//! Conversions: Cast, QuantizeLinear and DequantizeLinear.

use super::code::{element, wide};
use crate::network::attr::{Attrs, Read};
use crate::network::dtype::DType;
use crate::network::narrow::{Mode, Narrow, PLAIN, Rounding};
use crate::network::ops::{cast, quantize_linear};

/// A value of one dtype as another: from floating point to a narrow integer through 64 bits, whose lowest ones stay.
pub fn converted(x: &str, from: DType, to: DType, rounding: Rounding) -> String {
    let floating = wide(from) == "float" || wide(from) == "double";
    if from == to {
        return x.into();
    }
    if let Some(narrow) = to.narrow() {
        return rounded(x, from, to, narrow, rounding);
    }
    let ty = wide(to);
    match to {
        DType::Bool => format!("{x} != 0"),
        DType::UInt64 if floating => format!("f_to_uint64({x})"),
        _ if to.is_int() && floating => format!("({ty})f_to_int64({x})"),
        // What has more digits than a float would be rounded twice on its way to 16 bits.
        DType::Float16 | DType::BFloat16 => match from {
            DType::Float64 => format!("f_odd({x})"),
            DType::UInt64 => format!("f_odd({x})"),
            _ if from.is_int() && from.size() >= 4 => format!("f_odd((int64){x})"),
            _ => format!("({ty}){x}"),
        },
        _ => format!("({ty}){x}"),
    }
}

/// The number that a narrow dtype holds in the place of another one.
fn rounded(x: &str, from: DType, to: DType, narrow: Narrow, Rounding { saturate, mode }: Rounding) -> String {
    let (ty, floating) = (
        element(to).unwrap_or_default(),
        wide(from) == "float" || wide(from) == "double",
    );
    if narrow.is_int() {
        return match floating {
            true => format!("{ty}::cut(f_to_int64({x}))"),
            false => format!("{ty}::cut((int64){x})"),
        };
    }
    if to == DType::Float8E8M0 {
        let way = match mode {
            Mode::Up => 0,
            Mode::Down => 1,
            Mode::Nearest => 2,
        };
        return format!("{ty}::of((double){x}, {saturate}, {way}).number()");
    }
    let value = match wide(from) {
        "float" | "bool" => format!("(float){x}"),
        "double" => format!("f_odd({x})"),
        "uint64" => format!("f_odd({x})"),
        _ => format!("f_odd((int64){x})"),
    };
    format!("{ty}::of({value}, {saturate}).number()")
}

/// Cast. One of the model's own rounds to the 16 bits that it takes or gives, though they are computed in float32.
pub fn cast(x: &str, from: DType, to: DType, attrs: &Attrs) -> Option<String> {
    let rounds = |dtype| matches!(dtype, DType::Float16 | DType::BFloat16) && cast::rounds(attrs);
    let rounded = |x: String, dtype: DType| match element(dtype).filter(|_| rounds(dtype)) {
        Some(ty) => format!("f_round<{ty}>({x})"),
        None => x,
    };
    let x = rounded(x.into(), from);
    Some(rounded(converted(&x, from, to, cast::rounding(attrs).ok()?), to))
}

/// QuantizeLinear; the division is one of float32 unless the scale is a double.
pub fn quantize(arguments: [Option<&String>; 3], scale: DType, attrs: &Attrs) -> Option<String> {
    let [x, by, zero] = arguments;
    let to = attrs.dtype("to");
    let ty = if scale == DType::Float64 { "double" } else { "float" };
    let quotient = format!("({ty}){} / ({ty}){}", x?, by?);
    let (low, high) = quantize_linear::range(to)?;
    if let Some(narrow) = to.narrow().filter(|narrow| !narrow.is_int()) {
        let rounding = Rounding {
            saturate: attrs.flag("saturate"),
            ..PLAIN
        };
        let (from, value) = match zero {
            Some(zero) => (DType::Float64, format!("((double)({quotient}) + (double){zero})")),
            None if scale == DType::Float64 => (DType::Float64, format!("({quotient})")),
            None => (DType::Float32, format!("({quotient})")),
        };
        return Some(rounded(&value, from, to, narrow, rounding));
    }
    let shift = zero.map_or(String::new(), |zero| format!(" + ({ty}){zero}"));
    let held = format!("f_clip(rint({quotient}){shift}, ({ty}){low}, ({ty}){high})");
    Some(format!("({})f_to_int64({held})", wide(to)))
}

/// DequantizeLinear, in the type of the scale.
pub fn dequantize(arguments: [Option<&String>; 3], from: DType, scale: DType) -> Option<String> {
    let [x, by, zero] = arguments;
    let (x, by, ty) = (x?, by?, wide(scale));
    let whole = wide(from) != "float";
    let centred = match zero {
        Some(zero) if whole => format!("((int64){x} - (int64){zero})"),
        Some(zero) => format!("(({ty}){x} - ({ty}){zero})"),
        None => x.clone(),
    };
    Some(match scale {
        DType::Float32 | DType::Float64 => format!("f_product(({ty}){centred}, {by})"),
        _ => format!("({ty}){centred} * {by}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::attr::{Attr, attrs, complete};

    #[test]
    fn casts_of_the_model_round_and_ours_need_not() {
        let own = complete(cast::DEF.attrs, attrs([("to", Attr::Type(DType::BFloat16))])).unwrap();
        let ours = complete(cast::DEF.attrs, cast::elidable(DType::BFloat16)).unwrap();
        let text = |attrs| cast("x", DType::Float32, DType::BFloat16, attrs).unwrap();
        assert_eq!(text(&own), "f_round<bfloat16>((float)x)");
        assert_eq!(text(&ours), "(float)x");
        let back = complete(cast::DEF.attrs, attrs([("to", Attr::Type(DType::Float32))])).unwrap();
        let text = cast("x", DType::Float16, DType::Float32, &back).unwrap();
        assert_eq!(text, "(float)f_round<float16>(x)");
    }

    #[test]
    fn what_has_more_digits_than_a_float_is_rounded_once() {
        let plain = |from, to| converted("x", from, to, PLAIN);
        assert_eq!(plain(DType::Float64, DType::Float16), "f_odd(x)");
        assert_eq!(plain(DType::Int32, DType::BFloat16), "f_odd((int64)x)");
        assert_eq!(plain(DType::Int16, DType::BFloat16), "(float)x");
        assert_eq!(plain(DType::Float32, DType::Float16), "(float)x");
        assert_eq!(plain(DType::Float16, DType::Int8), "(int8)f_to_int64(x)");
        assert_eq!(plain(DType::Int64, DType::Int4), "signed4::cut((int64)x)");
    }
}
