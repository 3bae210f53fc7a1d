//! Opens an engine file.

use super::{Header, MAGIC, MAX_HEADER, PREAMBLE, PRODUCER, VERSION, WEIGHT_ALIGNMENT, Weight, is_short};
use crate::error::{Error, ErrorKind, Result};
use crate::network::array::{Array, Bytes, bytes_of};
use crate::network::dim::Dim;
use crate::network::document::Document;
use crate::network::op::TensorType;
use memmap2::Mmap;
use serde::Deserialize;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;
use xxhash_rust::xxh3::xxh3_64;

/// What to give.
const OURS: &str = "give the path of a file that OptimizedModel.save or `neurenix export` wrote";

/// Opens an engine file; the weights are mapped, not read.
///
/// # Errors
/// If it is no engine file, is damaged, or was written by a newer Neurenix; names the file.
pub fn open(path: &Path) -> Result<(Header, Vec<Array>)> {
    let refused = |e: Error| refused(path, &e);
    let file = regular(path).map_err(refused)?;
    // SAFETY: the file is ours to read; it is replaced by rename, never written in place (see the module's text).
    let map = unsafe { Mmap::map(&file) }.map_err(|e| refused(e.into()))?;
    parse(Arc::new(map)).map_err(refused)
}

/// Opens a file that can be mapped. A pipe would wait for a writer.
fn regular(path: &Path) -> Result<File> {
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(path)?;
    let there = file.metadata()?;
    if there.is_file() {
        return Ok(file);
    }
    Err(Error::format("it is not an engine file")
        .expected("a file")
        .got(if there.is_dir() {
            "a folder"
        } else {
            "a device or a pipe"
        })
        .hint(OURS))
}

/// Names the file. Whatever does not fit in it, a shape or a dtype, it is the file that is wrong; but for what is missing here.
pub fn refused(path: &Path, error: &Error) -> Error {
    let message = format!("{} can't be opened: {}", path.display(), error.message());
    let (kind, hint) = match error.kind() {
        ErrorKind::Io => (ErrorKind::Io, "check the path and its rights"),
        kind @ (ErrorKind::Unsupported | ErrorKind::Plugin | ErrorKind::Memory | ErrorKind::Device) => (kind, ""),
        _ => (
            ErrorKind::Format,
            "build the engine again, or save it anew with this version",
        ),
    };
    let named = error
        .parts()
        .fold(Error::new(kind, message), |named, (part, text)| match part {
            "layer" => named.layer(text),
            "tensor" => named.tensor(text),
            "expected" => named.expected(text),
            "got" => named.got(text),
            _ => named.hint(text),
        });
    match hint {
        "" => named,
        hint => named.hint(hint),
    }
}

/// Reads an engine from its bytes.
///
/// # Errors
/// As [`open`], without the name of a file.
pub fn parse(bytes: Bytes) -> Result<(Header, Vec<Array>)> {
    let all = (*bytes).as_ref();
    let damaged = |what: &str| Error::format(what.to_string()).got(format!("{} bytes", all.len()));
    if all.len() < PREAMBLE || &all[..8] != MAGIC {
        return Err(damaged("it is not an engine file").hint(OURS));
    }
    let word = |at: usize| u32::from_le_bytes(std::array::from_fn(|i| all[at + i]));
    let number = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| all[at + i]));
    let (version, length) = (word(8), number(16));
    let text = usize::try_from(length)
        .ok()
        .and_then(|length| all[PREAMBLE..].get(..length));
    let text = text.filter(|text| text.len() as u64 <= MAX_HEADER);
    let intact = text.filter(|text| xxh3_64(text) == number(24));
    if !(1..=VERSION).contains(&version) {
        return Err(of_another_version(version, intact));
    }
    if word(12) != 0 {
        return Err(damaged("a part of it that is reserved is not zero"));
    }
    if text.is_none() {
        return Err(damaged("the header is longer than the file"));
    }
    let text = intact.ok_or_else(|| damaged("the header does not match its checksum"))?;
    if !is_short(text) {
        return Err(damaged("the header has more values than any engine"));
    }
    let unread = |e: serde_json::Error| {
        let error = damaged(&format!("the header can't be read: {e}"));
        match producer(text) {
            Some(producer) => of_another(error, &producer),
            None => error,
        }
    };
    let header: Header = serde_json::from_slice(text).map_err(unread)?;
    if header.version() > version {
        return Err(damaged("the header has what its format version has not"));
    }
    let originals = header.source.as_ref().map_or(0, Document::constant_count);
    let count = (header.network.constant_count() + originals).checked_sub(header.shared.len());
    if Some(header.weights.len()) != count {
        return Err(damaged("network and weights differ in number"));
    }
    let weights = read_weights(&header.weights, PREAMBLE + text.len(), &bytes)?;
    Ok((header, weights))
}

/// Which Neurenix wrote a header of any version.
fn producer(header: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct Signed {
        producer: String,
    }
    Some(serde_json::from_slice::<Signed>(header).ok()?.producer)
}

/// As much of it as is shown: the name may be anything.
fn shown(producer: &str) -> String {
    const LONGEST: usize = 40;
    producer.chars().take(LONGEST).collect()
}

/// What does not fit in a file that another Neurenix wrote may be what that one knows and this one does not.
pub fn of_another(error: Error, producer: &str) -> Error {
    match producer == PRODUCER {
        true => error,
        false => error.hint(format!(
            "it was written by {}, and this is {PRODUCER}: open it with the newer of both, or build the engine again",
            shown(producer)
        )),
    }
}

/// Says which Neurenix is needed, where the header can be found.
fn of_another_version(version: u32, header: Option<&[u8]>) -> Error {
    let error = Error::format("the format version is not one that this Neurenix reads")
        .expected(format!("at most {VERSION}, which {PRODUCER} reads"));
    if (1..=VERSION).contains(&version.swap_bytes()) {
        let turned = format!("{} with its bytes in the other order", version.swap_bytes());
        return error
            .got(turned)
            .hint("build the engine again on a little-endian machine");
    }
    match header.and_then(producer) {
        Some(producer) => {
            let producer = shown(&producer);
            error.got(format!("{version}, written by {producer}")).hint(format!(
                "open it with {producer} or a newer one, or build the engine again with this one"
            ))
        }
        None => error
            .got(version.to_string())
            .hint("open it with a newer Neurenix, or build the engine again with this one"),
    }
}

/// The weights, which stand one behind the other up to the end of the file.
pub(super) fn read_weights(weights: &[Weight], header_end: usize, bytes: &Bytes) -> Result<Vec<Array>> {
    let all = (**bytes).as_ref();
    let start = header_end.next_multiple_of(WEIGHT_ALIGNMENT);
    let mut end = header_end;
    let mut arrays = vec![];
    for weight in weights {
        let at = end.next_multiple_of(WEIGHT_ALIGNMENT);
        if weight.offset != (at - start) as u64 {
            return Err(Error::format("a weight is out of place")
                .expected(format!("offset {}", at - start))
                .got(weight.offset.to_string()));
        }
        let array = read_weight(weight, at, bytes)?;
        if all[end..at].iter().any(|&byte| byte != 0) {
            return Err(Error::format("there is something between the weights"));
        }
        end = at + array.bytes().len();
        arrays.push(array);
    }
    if end != all.len() {
        return Err(Error::format("there is something behind the weights").got(format!("{} bytes", all.len() - end)));
    }
    Ok(arrays)
}

fn read_weight(weight: &Weight, at: usize, bytes: &Bytes) -> Result<Array> {
    let shape: Vec<Dim> = weight.shape.iter().map(|&extent| extent.into()).collect();
    TensorType::new(weight.dtype, shape).check_size()?;
    let end = bytes_of(weight.dtype, &weight.shape)? + at;
    if end > (**bytes).as_ref().len() {
        return Err(Error::format("the file ends before its weights do")
            .expected(format!("{end} bytes or more"))
            .got(format!("{} bytes", (**bytes).as_ref().len())));
    }
    let array = Array::new(weight.dtype, weight.shape.clone(), bytes.clone(), at)?;
    if xxh3_64(array.bytes()) != weight.checksum {
        return Err(Error::format("a weight does not match its checksum"));
    }
    Ok(array)
}
