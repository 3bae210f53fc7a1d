//! The precision plan: what each layer computes in where a lower precision was asked for, and why.
//!
//! It is a column of the network, one value a layer. The pass `plan_precision` decides it; the passes that lower layers,
//! verification and reports read it, and engine files keep it.

use crate::network::dtype::DType;
use serde::{Deserialize, Serialize};
use std::fmt;

/// What a layer that was of float32 computes in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LayerPrecision {
    /// The dtype of its operands and results.
    pub dtype: DType,
    /// Whether its products may round what they multiply to tf32.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub tf32: bool,
    /// Whether its mask must be brought into the range of the dtype.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub clips_mask: bool,
    /// Why.
    pub reason: Reason,
}

/// Why a layer computes in what it does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// It was asked for.
    Asked,
    /// The op has no form in a lower precision, or would lose what it is for.
    Op,
    /// It reads, or moves, exact numbers: positions, times, counts.
    ReadsExact,
    /// What it gives becomes an angle, an exponent or an integer.
    FeedsExact,
    /// It may read numbers that become infinite.
    OutOfRange,
    /// It computes with a number that becomes 0.
    Vanishes,
    /// It belongs to products of 8 bits, which compute between their roundings.
    EightBits,
    /// Rounding it would gain little time, for what it loses.
    GainsLittle,
    /// The outputs would depart too far: verification found it at fault.
    Lifted,
}

impl LayerPrecision {
    /// float32, for this reason.
    pub fn full(reason: Reason) -> Self {
        Self {
            dtype: DType::Float32,
            tf32: false,
            clips_mask: false,
            reason,
        }
    }

    /// Whether it is lower than float32.
    pub fn is_lower(&self) -> bool {
        self.tf32 || self.dtype != DType::Float32
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Asked => "as it was asked for",
            Self::Op => "ops that compute in float32 alone",
            Self::ReadsExact => "they read exact numbers (positions, times, counts)",
            Self::FeedsExact => "what they give becomes an angle, an exponent or an integer",
            Self::OutOfRange => "they may read numbers that are out of range (masks, for instance)",
            Self::Vanishes => "they compute with a number that would become 0",
            Self::EightBits => "they belong to products of 8 bits",
            Self::GainsLittle => "rounding them would gain little time",
            Self::Lifted => "verification found that outputs would depart too far",
        })
    }
}
