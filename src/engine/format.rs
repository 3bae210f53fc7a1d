//! The engine file: magic, format version, checksums, a header in JSON, and the weights, each aligned to be mapped.
//!
//! Loading executes nothing from the file and trusts nothing in it: every length is checked against the size of
//! the file before anything is allocated, every byte that is used stands under a checksum, and the network is
//! built anew through its own rules. A mapped file must not be changed by others while it is open; saving writes
//! a new file and renames it, so a save over an open engine is safe.

use crate::engine::Profile;
use crate::error::{Error, ErrorKind, Result};
use crate::network::array::{Array, Bytes};
use crate::network::document::Document;
use crate::network::dtype::DType;
use crate::plan::timing::Times;
use memmap2::Mmap;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use xxhash_rust::xxh3::xxh3_64;

/// The first bytes of every engine file.
pub const MAGIC: &[u8; 8] = b"NRNXENG\x1a";
/// The version that this code writes, and the newest that it reads.
pub const VERSION: u32 = 1;
/// Weights start at multiples of this.
pub const WEIGHT_ALIGNMENT: usize = 256;
/// A longer header can't be ours.
pub const MAX_HEADER: u64 = 256 << 20;
/// magic, version, reserved, length of the header, checksum of the header.
const PREAMBLE: usize = 8 + 4 + 4 + 8 + 8;

/// Everything in an engine file but the weights.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Header {
    /// Which Neurenix wrote it.
    pub producer: String,
    /// The simplified network.
    pub network: Document,
    /// The network as it came, where its weights can be replaced; their places stand behind those of the other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<Document>,
    /// The precision that was asked for.
    pub compute: DType,
    /// Whether products of float32 might round what they multiply to tf32.
    #[serde(default)]
    pub tf32: bool,
    /// Whether nothing may be timed when it is opened either, so that it computes the same.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub deterministic: bool,
    /// The ranges of shapes that it is optimised for.
    pub profiles: Vec<Profile>,
    /// Times of kernels by key; the key names the device.
    pub times: Times,
    /// What the user should know of this engine.
    pub notes: Vec<String>,
    /// Where each weight is.
    pub weights: Vec<Weight>,
}

/// Where a weight is in the file.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Weight {
    dtype: DType,
    shape: Vec<usize>,
    /// From the end of the header, rounded up to [`WEIGHT_ALIGNMENT`].
    offset: u64,
    checksum: u64,
}

/// Writes an engine file: beside the target first, then renamed over it, so that a reader sees the old one or the new one.
///
/// # Errors
/// If the disk is full or the folder can't be written; the old file stays as it was.
pub fn save(path: &Path, mut header: Header, weights: &[Array]) -> Result<()> {
    header.weights = lay_out(weights);
    let temporary = temporary_beside(path);
    let written = write_all(&temporary, &header, weights).and_then(|()| Ok(std::fs::rename(&temporary, path)?));
    written.map_err(|e| {
        // What can't be removed now was never created, or the disk itself fails.
        let _ = std::fs::remove_file(&temporary);
        Error::io(format!(
            "the engine can't be saved to {}: {}",
            path.display(),
            e.message()
        ))
        .hint("check the folder, its rights and the free space; an older file of this name is unchanged")
    })
}

fn temporary_beside(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    let nanoseconds = std::time::UNIX_EPOCH.elapsed().map_or(0, |t| t.subsec_nanos());
    name.push(format!(".{}-{nanoseconds}.tmp", std::process::id()));
    path.with_file_name(name)
}

fn lay_out(weights: &[Array]) -> Vec<Weight> {
    let mut offset = 0;
    let place = |array: &Array| {
        let weight = Weight {
            dtype: array.dtype(),
            shape: array.shape().to_vec(),
            offset,
            checksum: xxh3_64(array.bytes()),
        };
        offset = (offset + array.bytes().len() as u64).next_multiple_of(WEIGHT_ALIGNMENT as u64);
        weight
    };
    weights.iter().map(place).collect()
}

fn write_all(path: &Path, header: &Header, weights: &[Array]) -> Result<()> {
    let text = serde_json::to_vec(header).map_err(|e| Error::internal(format!("the header can't be written: {e}")))?;
    let mut file = BufWriter::new(File::create_new(path)?);
    file.write_all(MAGIC)?;
    file.write_all(&VERSION.to_le_bytes())?;
    file.write_all(&0u32.to_le_bytes())?;
    file.write_all(&(text.len() as u64).to_le_bytes())?;
    file.write_all(&xxh3_64(&text).to_le_bytes())?;
    file.write_all(&text)?;
    let start = (PREAMBLE + text.len()).next_multiple_of(WEIGHT_ALIGNMENT);
    let mut at = PREAMBLE + text.len();
    for (weight, array) in header.weights.iter().zip(weights) {
        let target = start + weight.offset as usize;
        file.write_all(&[0; WEIGHT_ALIGNMENT][..target - at])?;
        file.write_all(array.bytes())?;
        at = target + array.bytes().len();
    }
    file.flush()?;
    Ok(file.get_ref().sync_all()?)
}

/// Opens an engine file; the weights are mapped, not read.
///
/// # Errors
/// If it is no engine file, is damaged, or was written by a newer Neurenix.
pub fn open(path: &Path) -> Result<(Header, Vec<Array>)> {
    let file = File::open(path).map_err(|e| refused(path, &e.into()))?;
    // SAFETY: the file is ours to read; it is replaced by rename, never written in place (see the module's text).
    let map = unsafe { Mmap::map(&file) }.map_err(|e| refused(path, &e.into()))?;
    parse(Arc::new(map)).map_err(|e| refused(path, &e))
}

/// Names the file. Whatever does not fit in it, a shape or a dtype, it is the file that is wrong.
fn refused(path: &Path, error: &Error) -> Error {
    let message = format!("{} can't be opened: {}", path.display(), error.message());
    let named = match error.kind() {
        ErrorKind::Io => Error::io(message).hint("check the path and its rights"),
        _ => Error::format(message).hint("build the engine again, or save it anew with this version"),
    };
    error.parts().fold(named, |named, (part, text)| match part {
        "expected" => named.expected(text),
        "got" => named.got(text),
        _ => named,
    })
}

/// Reads an engine from its bytes.
///
/// # Errors
/// As [`open`].
pub fn parse(bytes: Bytes) -> Result<(Header, Vec<Array>)> {
    let all = (*bytes).as_ref();
    let damaged = |what: &str| Error::format(what.to_string()).got(format!("{} bytes", all.len()));
    if all.len() < PREAMBLE || &all[..8] != MAGIC {
        return Err(damaged("it is not an engine file"));
    }
    let number = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| all[at + i]));
    let version = number(8) as u32;
    if version == 0 || version > VERSION {
        return Err(Error::format("the format version is not one that this Neurenix reads")
            .expected(format!("at most {VERSION}"))
            .got(version.to_string()));
    }
    let length = number(16);
    if length > MAX_HEADER || length > (all.len() - PREAMBLE) as u64 {
        return Err(damaged("the header is longer than the file"));
    }
    let text = &all[PREAMBLE..PREAMBLE + length as usize];
    if xxh3_64(text) != number(24) {
        return Err(damaged("the header does not match its checksum"));
    }
    let header: Header =
        serde_json::from_slice(text).map_err(|e| damaged(&format!("the header can't be read: {e}")))?;
    let originals = header.source.as_ref().map_or(0, Document::constant_count);
    if header.weights.len() != header.network.constant_count() + originals {
        return Err(damaged("network and weights differ in number"));
    }
    let start = (PREAMBLE + text.len()).next_multiple_of(WEIGHT_ALIGNMENT);
    let weights = header
        .weights
        .iter()
        .map(|weight| read_weight(weight, start, &bytes))
        .collect::<Result<_>>()?;
    Ok((header, weights))
}

fn read_weight(weight: &Weight, start: usize, bytes: &Bytes) -> Result<Array> {
    let aligned = weight.offset.is_multiple_of(WEIGHT_ALIGNMENT as u64);
    let offset = usize::try_from(weight.offset)
        .ok()
        .and_then(|o| o.checked_add(start))
        .filter(|_| aligned);
    let offset = offset.ok_or_else(|| Error::format("a weight is out of place"))?;
    let array = Array::new(weight.dtype, weight.shape.clone(), bytes.clone(), offset)?;
    if xxh3_64(array.bytes()) != weight.checksum {
        return Err(Error::format("a weight does not match its checksum"));
    }
    Ok(array)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::attr::attrs;
    use crate::network::dim::Symbols;
    use crate::network::{Network, ops};

    fn sample() -> (Header, Vec<Array>) {
        let mut network = Network::new("sample");
        let x = network.add_input("x", DType::Float32, vec![3i64.into()]).unwrap();
        let w = network.add_constant("w", Array::from_f64(DType::Float32, vec![3], &[1.0, 2.0, 3.0]).unwrap());
        let y = network
            .add_layer("add", &ops::add::DEF, attrs([]), &[Some(x), Some(w)])
            .unwrap()[0];
        network.mark_output(y, "y").unwrap();
        let (network, weights) = Document::write(&network).unwrap();
        let header = Header {
            producer: "test".into(),
            network,
            source: None,
            compute: DType::Float32,
            tf32: false,
            deterministic: false,
            profiles: vec![Symbols::new()],
            times: Times::new(),
            notes: vec![],
            weights: vec![],
        };
        (header, weights)
    }

    fn saved(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("neurenix-format-{name}-{}.engine", std::process::id()));
        let (header, weights) = sample();
        save(&path, header, &weights).unwrap();
        path
    }

    fn bytes(name: &str) -> Vec<u8> {
        let path = saved(name);
        let bytes = std::fs::read(&path).unwrap();
        std::fs::remove_file(path).unwrap();
        bytes
    }

    fn parse_vec(mut bytes: Vec<u8>) -> Result<(Header, Vec<Array>)> {
        // As a mapping is: aligned.
        let mut buffer = crate::network::array::Buffer::zeroed(bytes.len());
        buffer.as_mut_slice().swap_with_slice(&mut bytes);
        parse(Arc::new(buffer))
    }

    #[test]
    fn what_was_saved_is_opened() {
        let path = saved("round-trip");
        let (header, weights) = open(&path).unwrap();
        assert_eq!(weights[0].to_f64(), [1.0, 2.0, 3.0]);
        assert_eq!(header.network.read(weights).unwrap().layer_count(), 1);
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn truncated_anywhere_is_refused() {
        let whole = bytes("truncated");
        for length in 0..whole.len() {
            assert!(
                parse_vec(whole[..length].to_vec()).is_err(),
                "{length} of {} bytes",
                whole.len()
            );
        }
    }

    #[test]
    fn bit_flips_in_what_is_used_are_refused() {
        let whole = bytes("flips");
        let header = u64::from_le_bytes(whole[16..24].try_into().unwrap()) as usize;
        let start = (PREAMBLE + header).next_multiple_of(WEIGHT_ALIGNMENT);
        let used = (0..12).chain(16..PREAMBLE + header).chain(start..start + 12);
        for at in used {
            let mut flipped = whole.clone();
            flipped[at] ^= 0x40;
            assert!(parse_vec(flipped).is_err(), "byte {at}");
        }
    }

    #[test]
    fn a_header_bomb_is_refused_before_anything_is_allocated() {
        let mut bomb = bytes("bomb");
        bomb[16..24].copy_from_slice(&u64::MAX.to_le_bytes());
        assert!(parse_vec(bomb).is_err());
    }

    #[test]
    fn a_newer_format_says_so() {
        let mut newer = bytes("newer");
        newer[8..12].copy_from_slice(&(VERSION + 1).to_le_bytes());
        assert!(parse_vec(newer).err().unwrap().to_string().contains("format version"));
    }

    #[test]
    fn a_weight_of_enormous_shape_is_refused() {
        let (mut header, weights) = sample();
        header.weights = lay_out(&weights);
        header.weights[0].shape = vec![usize::MAX, usize::MAX];
        let bytes: Bytes = Arc::new(vec![0u8; 4096]);
        assert!(read_weight(&header.weights[0], 0, &bytes).is_err());
    }

    #[test]
    fn a_save_that_fails_leaves_the_old_file() {
        let path = saved("failing");
        let before = std::fs::read(&path).unwrap();
        let (header, weights) = sample();
        let missing = path.with_file_name("no-such-folder").join("x.engine");
        assert!(save(&missing, header, &weights).is_err());
        assert_eq!(std::fs::read(&path).unwrap(), before);
        std::fs::remove_file(path).unwrap();
    }
}
