//! Element types of 8 bits and fewer: what their codes mean, exactly as ONNX's Cast says.
//!
//! An element fills a byte, its code in the low bits; the bits above it mean nothing when read and are 0 when written.

use crate::network::dtype::DType;
use std::sync::OnceLock;

/// What the codes of a narrow dtype mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Narrow {
    /// How many bits a code has.
    pub bits: u32,
    /// What they say.
    pub format: Format,
}

/// The kinds of narrow dtypes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// An integer; with a sign, in two's complement.
    Int {
        /// Whether it may be below 0.
        signed: bool,
    },
    /// Sign, exponent and mantissa.
    Float {
        /// Bits of the mantissa.
        mantissa: u32,
        /// What is taken from the exponent.
        bias: i32,
        /// The codes that are no finite numbers.
        special: Special,
    },
    /// A power of two from 2^-127 to 2^127, without a sign and without 0; the last code is NaN (float8_e8m0fnu).
    Power,
}

/// Which codes of a narrow float are no finite numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Special {
    /// The greatest exponent: infinity and NaN, as IEEE 754 has it.
    Infinities,
    /// All bits but the sign: NaN.
    Last,
    /// What would be -0: NaN. There is no -0.
    NegativeZero,
    /// None.
    None,
}

/// Where a number goes that lies between the codes or outside of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Rounding {
    /// What is out of range becomes the nearest end; else infinity or NaN, whichever there is.
    pub saturate: bool,
    /// The way of a number between two powers of two.
    pub mode: Mode,
}

/// Which of two powers of two a number between them becomes; all other formats round to nearest, ties to even.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Mode {
    Up,
    Down,
    /// The nearer one, the upper one if both are.
    Nearest,
}

/// As a float of 16 or 32 bits is rounded: what is out of range becomes infinite, or NaN.
pub const PLAIN: Rounding = Rounding {
    saturate: false,
    mode: Mode::Nearest,
};

impl Narrow {
    /// An integer.
    pub const fn int(bits: u32, signed: bool) -> Self {
        let format = Format::Int { signed };
        Self { bits, format }
    }

    /// A float with these many bits of mantissa.
    pub const fn float(bits: u32, mantissa: u32, bias: i32, special: Special) -> Self {
        let format = Format::Float {
            mantissa,
            bias,
            special,
        };
        Self { bits, format }
    }

    /// Whether the codes are integers.
    pub const fn is_int(self) -> bool {
        matches!(self.format, Format::Int { .. })
    }

    /// Least and greatest number.
    pub fn range(self) -> (f64, f64) {
        match self.format {
            Format::Int { signed: false } => (0.0, f64::from((1u32 << self.bits) - 1)),
            Format::Int { signed: true } => {
                let end = f64::from(1u32 << (self.bits - 1));
                (-end, end - 1.0)
            }
            Format::Float { special, .. } => {
                let greatest = self.value(self.last(special));
                (-greatest, greatest)
            }
            Format::Power => (power(-127), power(127)),
        }
    }

    /// The codes of the mask that an integer of any width is cut to.
    pub const fn mask(self) -> u8 {
        (0xffu32 >> (8 - self.bits)) as u8
    }

    /// An integer as an integer dtype of this width has it.
    #[inline(always)]
    pub const fn cut(self, v: i64) -> i64 {
        let rest = 64 - self.bits;
        match self.format {
            Format::Int { signed: false } => ((v as u64) << rest >> rest) as i64,
            _ => v << rest >> rest,
        }
    }

    /// The code of a number.
    #[inline(always)]
    pub fn encode(self, v: f64, rounding: Rounding) -> u8 {
        match self.format {
            Format::Int { .. } => (v as i64) as u8 & self.mask(),
            Format::Float {
                mantissa,
                bias,
                special,
            } => self.encode_float(v, rounding.saturate, (mantissa, bias, special)),
            Format::Power => encode_power(v, rounding),
        }
    }

    #[inline(always)]
    fn encode_float(self, v: f64, saturate: bool, (mantissa, bias, special): (u32, i32, Special)) -> u8 {
        let sign = ((v.to_bits() >> 63) as u32) << (self.bits - 1);
        let a = v.abs();
        // Steps of the exponent above the least one; numbers beyond the range need not be told apart.
        let steps = (exponent(a) - (1 - bias)).clamp(0, 64);
        // A whole number of units in the last place: half of the work of rounding is done by the exponent.
        let units = (a * power(mantissa as i32 - (1 - bias) - steps)).round_ties_even();
        let code = units.min(512.0) as u32 + ((steps as u32) << mantissa);
        let last = self.last(special);
        let beyond = if saturate { last } else { self.beyond(special) };
        let code = if code > last { beyond } else { code };
        let code = if a.is_nan() { self.not_a_number(special) } else { code };
        match special {
            // Neither 0 nor NaN has a sign.
            Special::NegativeZero if code == 0 || code >> (self.bits - 1) != 0 => code as u8,
            _ => (sign | code) as u8,
        }
    }

    /// What encodes f32 in vectors; none where the codes are no floats.
    pub fn encoder(self, saturate: bool) -> Option<Encoder> {
        let Format::Float {
            mantissa,
            bias,
            special,
        } = self.format
        else {
            return None;
        };
        let (shift, last) = (23 - mantissa, self.last(special));
        Some(Encoder {
            shift,
            half: (1 << (shift - 1)) - 1,
            rebase: ((127 - bias) as u32) << mantissa,
            scale: power(mantissa as i32 + bias - 1) as f32,
            least: ((128 - bias) as u32) << 23,
            last,
            beyond: if saturate { last } else { self.beyond(special) },
            nan: self.not_a_number(special),
            top: self.bits - 1,
            bare: special == Special::NegativeZero,
        })
    }

    /// The code of the greatest number.
    const fn last(self, special: Special) -> u32 {
        let all = (1u32 << (self.bits - 1)) - 1;
        match (special, self.format) {
            (Special::Infinities, Format::Float { mantissa, .. }) => all - (1 << mantissa),
            (Special::Last, _) => all - 1,
            _ => all,
        }
    }

    /// The code, without a sign, of what lies beyond the greatest number.
    const fn beyond(self, special: Special) -> u32 {
        match special {
            Special::Infinities => self.last(special) + 1,
            Special::None => self.last(special),
            _ => self.not_a_number(special),
        }
    }

    /// The code of NaN, without a sign. What has none becomes 0.
    const fn not_a_number(self, special: Special) -> u32 {
        match special {
            Special::Infinities => self.last(special) + 3,
            Special::Last => self.last(special) + 1,
            Special::NegativeZero => 1 << (self.bits - 1),
            Special::None => 0,
        }
    }

    /// The number of a code, which f32 holds exactly.
    pub fn decode(self, code: u8) -> f32 {
        let code = u32::from(code & self.mask());
        match self.format {
            Format::Int { signed } => {
                let below = signed && code >> (self.bits - 1) != 0;
                code as f32 - if below { (1u32 << self.bits) as f32 } else { 0.0 }
            }
            Format::Power if code == 255 => f32::NAN,
            Format::Power => power(code as i32 - 127) as f32,
            Format::Float { special, .. } => {
                let half = 1 << (self.bits - 1);
                let (sign, code) = (code & half, code & (half - 1));
                let value = match special {
                    Special::NegativeZero if sign != 0 && code == 0 => return f32::NAN,
                    Special::Infinities if code == self.beyond(special) => f64::INFINITY,
                    Special::Infinities | Special::Last if code > self.last(special) => f64::NAN,
                    _ => self.value(code),
                };
                (if sign != 0 { -value } else { value }) as f32
            }
        }
    }

    /// The finite number of a code without a sign.
    fn value(self, code: u32) -> f64 {
        let Format::Float { mantissa, bias, .. } = self.format else {
            return 0.0;
        };
        let (steps, units) = (code >> mantissa, code & ((1 << mantissa) - 1));
        let units = if steps == 0 { units } else { units | 1 << mantissa };
        f64::from(units) * power(steps.max(1) as i32 - bias - mantissa as i32)
    }
}

/// [`Narrow::encode`] of f32 to a float: all that depends on the dtype is here, and what is left has no branches.
#[derive(Debug, Clone, Copy)]
pub struct Encoder {
    /// Bits of the mantissa that go.
    shift: u32,
    /// Just less than half of the last place that stays.
    half: u32,
    /// The difference of the exponents' biases.
    rebase: u32,
    /// Inverse of the last place below the least exponent.
    scale: f32,
    /// The bits of the least number that has an exponent.
    least: u32,
    last: u32,
    beyond: u32,
    nan: u32,
    /// The place of the sign.
    top: u32,
    /// Neither 0 nor NaN has a sign.
    bare: bool,
}

impl Encoder {
    /// The code of a number.
    #[inline(always)]
    pub fn encode(self, v: f32) -> u8 {
        let bits = v.to_bits() & 0x7fff_ffff;
        // To nearest even on the bits as they are; the carry goes on into the exponent.
        let normal = (bits + self.half + ((bits >> self.shift) & 1)) >> self.shift;
        let normal = normal.wrapping_sub(self.rebase);
        // Below the least exponent the units stay the same: beside 2^23 they are the last place.
        let units = f32::from_bits(bits) * self.scale;
        let few = (units + 8_388_608.0).to_bits().wrapping_sub(8_388_608f32.to_bits());
        let code = if bits < self.least { few } else { normal };
        let code = if code > self.last { self.beyond } else { code };
        let code = if bits > 0x7f80_0000 { self.nan } else { code };
        let sign = (v.to_bits() >> 31) << self.top;
        let bare = self.bare && (code == 0 || code >> self.top != 0);
        (if bare { code } else { sign | code }) as u8
    }
}

/// The numbers of all codes of a narrow dtype.
pub fn numbers(dtype: DType) -> &'static [f32; 256] {
    static ALL: [OnceLock<[f32; 256]>; DType::ALL.len()] = [const { OnceLock::new() }; DType::ALL.len()];
    ALL[dtype as usize].get_or_init(|| {
        let number = |code| dtype.narrow().map_or(0.0, |narrow| narrow.decode(code as u8));
        std::array::from_fn(number)
    })
}

/// 2^e, for exponents of normal numbers.
#[inline(always)]
fn power(e: i32) -> f64 {
    f64::from_bits(((e + 1023) as u64) << 52)
}

/// The exponent of a number that is not below 0, as its bits say it.
#[inline(always)]
fn exponent(a: f64) -> i32 {
    (a.to_bits() >> 52) as i32 - 1023
}

#[inline(always)]
fn encode_power(v: f64, Rounding { saturate, mode }: Rounding) -> u8 {
    const NAN: u8 = 255;
    if v.is_nan() || v < 0.0 {
        return NAN;
    }
    let v = v.abs();
    let below = exponent(v);
    let rest = v.to_bits() & ((1 << 52) - 1);
    let up = match mode {
        Mode::Up => rest != 0,
        Mode::Down => false,
        Mode::Nearest => rest >= 1 << 51,
    };
    let code = below + i32::from(up) + 127;
    match code {
        0..255 => code as u8,
        _ if !saturate => NAN,
        _ => code.clamp(0, 254) as u8,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SATURATED: Rounding = Rounding {
        saturate: true,
        mode: Mode::Up,
    };

    fn narrow() -> impl Iterator<Item = (DType, Narrow)> {
        DType::ALL.into_iter().filter_map(|d| Some((d, d.narrow()?)))
    }

    #[test]
    fn every_code_comes_back() {
        for (dtype, narrow) in narrow() {
            for code in 0..=narrow.mask() {
                let value = narrow.decode(code);
                let back = narrow.encode(f64::from(value), PLAIN);
                assert!(
                    back == code || value.is_nan() && narrow.decode(back).is_nan(),
                    "{dtype} {code}"
                );
                assert_eq!(numbers(dtype)[usize::from(code)].to_bits(), value.to_bits());
            }
        }
    }

    #[test]
    fn between_two_codes_the_nearer_one_is_taken_and_the_even_one_of_two() {
        for (dtype, narrow) in narrow().filter(|(_, n)| matches!(n.format, Format::Float { .. })) {
            let codes: Vec<u8> = (0..=narrow.mask() / 2)
                .filter(|&c| narrow.decode(c).is_finite())
                .collect();
            for pair in codes.windows(2) {
                let (low, high) = (f64::from(narrow.decode(pair[0])), f64::from(narrow.decode(pair[1])));
                let middle = (low + high) / 2.0;
                let even = if pair[0] % 2 == 0 { pair[0] } else { pair[1] };
                assert_eq!(narrow.encode(middle, PLAIN), even, "{dtype} {middle}");
                assert_eq!(narrow.encode(middle.next_up(), PLAIN), pair[1], "{dtype} {middle}");
                assert_eq!(narrow.encode(middle.next_down(), PLAIN), pair[0], "{dtype} {middle}");
            }
        }
    }

    #[test]
    fn both_ways_to_a_code_agree() {
        for (dtype, narrow) in narrow().filter(|(_, n)| matches!(n.format, Format::Float { .. })) {
            for bits in (0..=u32::MAX >> 12).map(|i| (i << 12) | ((i & 1) * 0xfff)) {
                let v = f32::from_bits(bits);
                for saturate in [false, true] {
                    let rounding = Rounding { saturate, ..PLAIN };
                    let one = narrow.encoder(saturate).unwrap().encode(v);
                    let other = narrow.encode(f64::from(v), rounding);
                    assert_eq!(one, other, "{dtype} {v:e} {saturate}");
                }
            }
        }
    }

    #[test]
    fn the_tables_of_cast_hold() {
        let float8 = [
            (DType::Float8E4M3FN, 448.0, f64::NAN),
            (DType::Float8E4M3FNUZ, 240.0, f64::NAN),
            (DType::Float8E5M2, 57344.0, f64::INFINITY),
            (DType::Float8E5M2FNUZ, 57344.0, f64::NAN),
        ];
        for (dtype, greatest, beyond) in float8 {
            let narrow = dtype.narrow().unwrap();
            let cast = |v: f64, rounding| f64::from(narrow.decode(narrow.encode(v, rounding)));
            assert_eq!(narrow.range(), (-greatest, greatest));
            for v in [f64::INFINITY, 1e9, f64::MAX] {
                assert_eq!(cast(v, SATURATED), greatest, "{dtype}");
                assert_eq!(cast(-v, SATURATED), -greatest, "{dtype}");
                assert_eq!(cast(v, PLAIN).to_string(), beyond.to_string(), "{dtype}");
                assert_eq!(cast(-v, PLAIN).abs().to_string(), beyond.to_string(), "{dtype}");
            }
            assert!(cast(f64::NAN, SATURATED).is_nan() && cast(f64::NAN, PLAIN).is_nan());
            assert_eq!(cast(f64::MIN_POSITIVE, SATURATED), 0.0);
            let keeps_sign = !dtype.name().ends_with("uz");
            assert_eq!(cast(-0.0, SATURATED).is_sign_negative(), keeps_sign, "{dtype}");
        }
    }

    #[test]
    fn powers_of_two_round_as_they_are_told() {
        let narrow = DType::Float8E8M0.narrow().unwrap();
        let code = |v: f64, saturate, mode| narrow.encode(v, Rounding { saturate, mode });
        for (v, codes) in [(1.0, [127, 127, 127]), (1.25, [128, 127, 127]), (1.5, [128, 127, 128])] {
            assert_eq!(
                [Mode::Up, Mode::Down, Mode::Nearest].map(|m| code(v, true, m)),
                codes,
                "{v}"
            );
        }
        for v in [f64::INFINITY, 1e39] {
            assert_eq!((code(v, true, Mode::Up), code(v, false, Mode::Nearest)), (254, 255));
        }
        for v in [0.0, 1e-40] {
            assert_eq!((code(v, true, Mode::Up), code(v, false, Mode::Nearest)), (0, 255));
        }
        assert_eq!((code(f64::NAN, true, Mode::Up), code(-1.0, true, Mode::Up)), (255, 255));
    }

    #[test]
    fn integers_are_cut() {
        let cut = |dtype: DType, v: f64| {
            let narrow = dtype.narrow().unwrap();
            narrow.decode(narrow.encode(v, PLAIN))
        };
        assert_eq!(
            [200.0, -9.0, 2.9, -2.9].map(|v| cut(DType::Int4, v)),
            [-8.0, 7.0, 2.0, -2.0]
        );
        assert_eq!([17.0, -1.0].map(|v| cut(DType::UInt4, v)), [1.0, 15.0]);
        assert_eq!([2.0, 3.0, -2.0].map(|v| cut(DType::Int2, v)), [-2.0, -1.0, -2.0]);
        assert_eq!([5.0, -1.0].map(|v| cut(DType::UInt2, v)), [1.0, 3.0]);
    }
}
