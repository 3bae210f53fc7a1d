//! Element types of tensors.

use crate::error::{Error, Result};
use crate::network::narrow::{Format, Narrow, Special};
use serde::{Deserialize, Serialize};
use std::fmt;

/// The element type of a tensor; its name is numpy's (and ml_dtypes') name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[allow(missing_docs)]
#[serde(try_from = "String", into = "String")]
pub enum DType {
    Float32,
    Float64,
    Float16,
    BFloat16,
    Int8,
    UInt8,
    Int16,
    UInt16,
    Int32,
    UInt32,
    Int64,
    UInt64,
    Bool,
    Float8E4M3FN,
    Float8E4M3FNUZ,
    Float8E5M2,
    Float8E5M2FNUZ,
    Float8E8M0,
    Float4E2M1,
    Int4,
    UInt4,
    Int2,
    UInt2,
}

impl DType {
    /// Every dtype, in the order of declaration.
    pub const ALL: [DType; 23] = [
        DType::Float32,
        DType::Float64,
        DType::Float16,
        DType::BFloat16,
        DType::Int8,
        DType::UInt8,
        DType::Int16,
        DType::UInt16,
        DType::Int32,
        DType::UInt32,
        DType::Int64,
        DType::UInt64,
        DType::Bool,
        DType::Float8E4M3FN,
        DType::Float8E4M3FNUZ,
        DType::Float8E5M2,
        DType::Float8E5M2FNUZ,
        DType::Float8E8M0,
        DType::Float4E2M1,
        DType::Int4,
        DType::UInt4,
        DType::Int2,
        DType::UInt2,
    ];

    /// Bytes of one element in memory.
    pub const fn size(self) -> usize {
        match self {
            DType::Float16 | DType::BFloat16 | DType::Int16 | DType::UInt16 => 2,
            DType::Float32 | DType::Int32 | DType::UInt32 => 4,
            DType::Float64 | DType::Int64 | DType::UInt64 => 8,
            _ => 1,
        }
    }

    /// Bits of one element that say its value.
    pub const fn bits(self) -> u32 {
        match self.narrow() {
            Some(narrow) => narrow.bits,
            None => 8 * self.size() as u32,
        }
    }

    /// How many bits a float has from its first one that is not 0 to its last one.
    pub const fn significant_bits(self) -> u32 {
        match self {
            DType::Float64 => 53,
            DType::Float16 => 11,
            DType::BFloat16 => 8,
            _ => 24,
        }
    }

    /// The least and the greatest number that a float holds with all its digits, without a sign.
    pub fn normal_range(self) -> (f64, f64) {
        match self {
            DType::Float64 => (f64::MIN_POSITIVE, f64::MAX),
            DType::Float16 => (f64::from(half::f16::MIN_POSITIVE), f64::from(half::f16::MAX)),
            DType::BFloat16 => (f64::from(half::bf16::MIN_POSITIVE), f64::from(half::bf16::MAX)),
            _ => (f64::from(f32::MIN_POSITIVE), f64::from(f32::MAX)),
        }
    }

    /// The greatest error of a float that is rounded to nearest, relative to it.
    pub fn rounding(self) -> f64 {
        2f64.powi(-(self.significant_bits() as i32))
    }

    /// What the codes mean of a dtype that is only stored: tensors of it are moved and converted, not computed with.
    pub const fn narrow(self) -> Option<Narrow> {
        Some(match self {
            DType::Float8E4M3FN => Narrow::float(8, 3, 7, Special::Last),
            DType::Float8E4M3FNUZ => Narrow::float(8, 3, 8, Special::NegativeZero),
            DType::Float8E5M2 => Narrow::float(8, 2, 15, Special::Infinities),
            DType::Float8E5M2FNUZ => Narrow::float(8, 2, 16, Special::NegativeZero),
            DType::Float8E8M0 => Narrow {
                bits: 8,
                format: Format::Power,
            },
            DType::Float4E2M1 => Narrow::float(4, 1, 1, Special::None),
            DType::Int4 => Narrow::int(4, true),
            DType::UInt4 => Narrow::int(4, false),
            DType::Int2 => Narrow::int(2, true),
            DType::UInt2 => Narrow::int(2, false),
            _ => return None,
        })
    }

    /// Whether this is a floating-point type that can be computed with.
    pub const fn is_float(self) -> bool {
        matches!(self, DType::Float32 | DType::Float64 | DType::Float16 | DType::BFloat16)
    }

    /// Whether this is an integer type that can be computed with (bool is not).
    pub const fn is_int(self) -> bool {
        !self.is_float() && !matches!(self, DType::Bool) && self.narrow().is_none()
    }

    /// numpy's (or ml_dtypes') name, for example "float32".
    pub const fn name(self) -> &'static str {
        match self {
            DType::Float32 => "float32",
            DType::Float64 => "float64",
            DType::Float16 => "float16",
            DType::BFloat16 => "bfloat16",
            DType::Int8 => "int8",
            DType::UInt8 => "uint8",
            DType::Int16 => "int16",
            DType::UInt16 => "uint16",
            DType::Int32 => "int32",
            DType::UInt32 => "uint32",
            DType::Int64 => "int64",
            DType::UInt64 => "uint64",
            DType::Bool => "bool",
            DType::Float8E4M3FN => "float8_e4m3fn",
            DType::Float8E4M3FNUZ => "float8_e4m3fnuz",
            DType::Float8E5M2 => "float8_e5m2",
            DType::Float8E5M2FNUZ => "float8_e5m2fnuz",
            DType::Float8E8M0 => "float8_e8m0fnu",
            DType::Float4E2M1 => "float4_e2m1fn",
            DType::Int4 => "int4",
            DType::UInt4 => "uint4",
            DType::Int2 => "int2",
            DType::UInt2 => "uint2",
        }
    }

    /// The dtype of numpy's name.
    pub fn parse(name: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|d| d.name() == name).ok_or_else(|| {
            Error::dtype(format!("unknown dtype {name:?}"))
                .expected(Self::ALL.map(Self::name).join(", "))
                .hint("cast the array to one of these first")
        })
    }
}

impl TryFrom<String> for DType {
    type Error = Error;
    fn try_from(name: String) -> Result<Self> {
        Self::parse(&name)
    }
}

impl From<DType> for String {
    fn from(dtype: DType) -> Self {
        dtype.name().into()
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
/// Whether a float of this dtype has an inverse that is exact, so that a division by it is a product: powers of two.
pub fn has_exact_inverse(value: f64, dtype: DType) -> bool {
    let (least, _) = dtype.normal_range();
    // The exponent of the inverse is the same with the other sign.
    let is_power_of_two = value.to_bits() << 12 == 0;
    is_power_of_two && (least..=1.0 / least).contains(&value.abs())
}
