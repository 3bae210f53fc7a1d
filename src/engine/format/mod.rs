//! The engine file: magic, format version, checksums, a header in JSON, and the weights, each aligned to be mapped.
//!
//! Loading executes nothing from the file and trusts nothing in it: every length is checked against the size of
//! the file before anything is allocated, every byte stands under a checksum or is zero, and the network is
//! built anew through its own rules. A mapped file must not be changed or shortened by others while it is open, for
//! which the system ends the process; saving writes a new file and renames it, so a save over an open engine is safe.

mod read;
mod write;

pub use read::{of_another, open, parse, refused};
pub use write::save;

use crate::engine::Profile;
use crate::engine::built::Built;
use crate::network::document::Document;
use crate::network::dtype::DType;
use crate::plan::timing::Times;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The first bytes of every engine file.
pub const MAGIC: &[u8; 8] = b"NRNXENG\x1a";
/// Which Neurenix writes files.
pub const PRODUCER: &str = concat!("neurenix ", env!("CARGO_PKG_VERSION"));
/// The newest format version that this code reads. It writes the oldest that has what the engine needs.
pub const VERSION: u32 = 5;
/// Weights start at multiples of this.
pub const WEIGHT_ALIGNMENT: usize = 256;
/// A longer header can't be ours.
pub const MAX_HEADER: u64 = 256 << 20;
/// Nor can one of more values, or of more operators in its texts: each takes up to some hundred bytes of memory.
pub const MAX_VALUES: usize = 1 << 20;
/// magic, version, reserved (zero), length of the header, checksum of the header; all numbers in little-endian.
const PREAMBLE: usize = 8 + 4 + 4 + 8 + 8;

/// Weights are mapped as they stand in the file.
const _: () = assert!(cfg!(target_endian = "little"), "engine files are little-endian");

/// Everything in an engine file but the weights.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Header {
    /// Which Neurenix wrote it. It stands in headers of every version.
    pub producer: String,
    /// The simplified network, before it is lowered for providers.
    pub network: Document,
    /// The network as it came, where its weights can be replaced, or calls may have sizes that the other does not take. The
    /// places of its weights stand behind those of the other. From version 2 on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<Document>,
    /// Whether `source` stands there for sizes alone, and no weights can be replaced. From version 4 on.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub fixed_weights: bool,
    /// Weights of `source`, by number, that are weights of `network`, by number, and have no places of their own. From version 4 on.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub shared: BTreeMap<usize, usize>,
    /// The precision that was asked for.
    pub compute: DType,
    /// Whether products of float32 might round what they multiply to tf32.
    #[serde(default)]
    pub tf32: bool,
    /// Whether nothing may be timed when it is opened either, so that it computes the same. From version 2 on.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub deterministic: bool,
    /// The build for which the times hold. From version 3 on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub built: Option<Built>,
    /// The ranges of shapes that it is optimised for.
    pub profiles: Vec<Profile>,
    /// Times of kernels by key; the key names the device.
    pub times: Times,
    /// What the user should know of this engine.
    pub notes: Vec<String>,
    /// Where each weight is.
    pub weights: Vec<Weight>,
}

impl Header {
    /// The oldest format version that has all its fields.
    fn version(&self) -> u32 {
        let documents = [Some(&self.network), self.source.as_ref()];
        let any = |has: fn(&Document) -> bool| documents.into_iter().flatten().any(has);
        match self {
            _ if any(Document::has_precision) => 5,
            _ if self.fixed_weights || !self.shared.is_empty() || any(Document::has_broadcasts) => 4,
            Self { built: Some(_), .. } => 3,
            _ if self.source.is_some() || self.deterministic => 2,
            _ => 1,
        }
    }
}

/// Where a weight is in the file.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Weight {
    dtype: DType,
    shape: Vec<usize>,
    /// From the end of the header, rounded up to [`WEIGHT_ALIGNMENT`]. Weights stand one behind the other, and the file
    /// ends with the last one.
    offset: u64,
    checksum: u64,
}

/// Whether a text in JSON has no more than [`MAX_VALUES`] values, and what operators in its texts make of them.
fn is_short(text: &[u8]) -> bool {
    let (mut quoted, mut escaped, mut values) = (false, false, 0);
    for &byte in text {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => quoted = !quoted,
            b',' | b'[' | b'{' if !quoted => values += 1,
            b'+' | b'-' | b'*' | b'(' if quoted => values += 1,
            _ => {}
        }
    }
    values <= MAX_VALUES
}

#[cfg(test)]
mod tests;
