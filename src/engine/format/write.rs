//! Saves an engine file.

use super::{Header, MAGIC, MAX_HEADER, MAX_VALUES, PREAMBLE, WEIGHT_ALIGNMENT, Weight, is_short};
use crate::error::{Error, Result};
use crate::network::array::Array;
use crate::replace::Replacement;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use xxhash_rust::xxh3::xxh3_64;

/// Writes an engine file: beside the target first, then renamed over it, so that a reader sees the old one or the new one.
/// A link at the target is replaced, and what it points to stays as it is; a file's rights go over to the new one.
///
/// # Errors
/// If the disk is full, the folder can't be written, or the target is a folder or a device; an old file stays as it was.
pub fn save(path: &Path, mut header: Header, weights: &[Array]) -> Result<()> {
    header.weights = lay_out(weights);
    let refused = |e: Error| {
        let message = format!("the engine can't be saved to {}: {}", path.display(), e.message());
        let named = Error::new(e.kind(), message);
        let named = e.parts().fold(named, |named, (part, text)| match part {
            "expected" => named.expected(text),
            "got" => named.got(text),
            _ => named.hint(text),
        });
        named.hint("check the folder, its rights and the free space; an older file of this name is unchanged")
    };
    let write = || {
        replaceable(path)?;
        let (replacement, file) = Replacement::beside(path, None)?;
        write_all(file, &header, weights)?;
        Ok(replacement.commit()?)
    };
    write().map_err(refused)
}

/// A rename would put a file in the place of a device, and fails on a folder late.
fn replaceable(path: &Path) -> Result<()> {
    match std::fs::metadata(path) {
        Ok(there) if !there.is_file() => Err(Error::io("there is something else than a file")
            .got(if there.is_dir() {
                "a folder"
            } else {
                "a device or a pipe"
            })
            .hint("give the path of a file")),
        _ => Ok(()),
    }
}

pub(super) fn lay_out(weights: &[Array]) -> Vec<Weight> {
    let mut offset = 0;
    let place = |array: &Array| {
        let begin = u64::next_multiple_of(offset, WEIGHT_ALIGNMENT as u64);
        offset = begin + array.bytes().len() as u64;
        Weight {
            dtype: array.dtype(),
            shape: array.shape().to_vec(),
            offset: begin,
            checksum: xxh3_64(array.bytes()),
        }
    };
    weights.iter().map(place).collect()
}

fn write_all(file: File, header: &Header, weights: &[Array]) -> Result<()> {
    let text = serde_json::to_vec(header).map_err(|e| Error::internal(format!("the header can't be written: {e}")))?;
    if text.len() as u64 > MAX_HEADER || !is_short(&text) {
        return Err(Error::unsupported("the network has too many layers for an engine file")
            .expected(format!(
                "at most {MAX_VALUES} values in {MAX_HEADER} bytes, besides the weights"
            ))
            .got(format!("{} bytes", text.len()))
            .hint("build it from the model at each start, or save parts of it"));
    }
    let mut file = BufWriter::new(file);
    file.write_all(MAGIC)?;
    file.write_all(&header.version().to_le_bytes())?;
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
