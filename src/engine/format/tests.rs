//! Engine files by threat: each test bears the name of the attack.

use super::read::read_weights;
use super::write::lay_out;
use super::*;
use crate::error::Result;
use crate::network::array::{Array, Bytes};
use crate::network::attr::attrs;
use crate::network::dim::Symbols;
use crate::network::{Network, ops};
use std::path::PathBuf;
use std::sync::Arc;
use xxhash_rust::xxh3::xxh3_64;

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
        fixed_weights: false,
        shared: Default::default(),
        compute: DType::Float32,
        tf32: false,
        deterministic: false,
        built: None,
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

/// The file with another header, whose length and checksum match it.
fn with_header(whole: &[u8], text: &[u8]) -> Vec<u8> {
    let header = u64::from_le_bytes(whole[16..24].try_into().unwrap()) as usize;
    let weights = (PREAMBLE + header).next_multiple_of(WEIGHT_ALIGNMENT);
    let mut bytes = whole[..16].to_vec();
    bytes.extend((text.len() as u64).to_le_bytes());
    bytes.extend(xxh3_64(text).to_le_bytes());
    bytes.extend(text);
    bytes.resize(bytes.len().next_multiple_of(WEIGHT_ALIGNMENT), 0);
    bytes.extend(&whole[weights..]);
    bytes
}

fn header_of(whole: &[u8]) -> String {
    let length = u64::from_le_bytes(whole[16..24].try_into().unwrap()) as usize;
    String::from_utf8(whole[PREAMBLE..PREAMBLE + length].to_vec()).unwrap()
}

fn refused(bytes: Vec<u8>) -> String {
    parse_vec(bytes).err().expect("it was opened").to_string()
}

#[test]
fn any_bit_flip_is_refused() {
    let whole = bytes("flips");
    for at in 0..whole.len() {
        let mut flipped = whole.clone();
        flipped[at] ^= 1 << (at % 8);
        assert!(parse_vec(flipped).is_err(), "byte {at}");
    }
}

#[test]
fn bytes_behind_the_end_are_refused() {
    for appended in [&b"\0"[..], b"PK\x05\x06", &[0; 4096]] {
        let message = refused([&bytes("behind"), appended].concat());
        assert!(message.contains("behind the weights"), "{message}");
    }
}

#[test]
fn a_header_bomb_is_refused_before_anything_is_allocated() {
    let mut bomb = bytes("bomb");
    bomb[16..24].copy_from_slice(&u64::MAX.to_le_bytes());
    assert!(refused(bomb).contains("longer than the file"));
}

#[test]
fn a_header_of_many_values_is_refused_before_it_is_read() {
    let whole = bytes("values");
    for part in ["1,", "[],", "{},", "\"\","] {
        let bomb = format!("{{\"profiles\":[{}0]}}", part.repeat(MAX_VALUES + 1));
        assert!(refused(with_header(&whole, bomb.as_bytes())).contains("more values than any engine"));
    }
    assert!(!is_short(format!("\"{}\"", "n+".repeat(MAX_VALUES + 1)).as_bytes()));
    assert!(is_short(format!("\"\\\"{}\"", ",".repeat(MAX_VALUES + 1)).as_bytes()));
}

#[test]
fn a_deep_header_is_refused() {
    let whole = bytes("deep");
    for deep in ["[".repeat(100_000), "{\"network\":".repeat(100_000)] {
        assert!(refused(with_header(&whole, deep.as_bytes())).contains("can't be read"));
    }
}

#[test]
fn a_key_that_stands_twice_is_refused() {
    let whole = bytes("twice");
    let twice = header_of(&whole).replacen('{', "{\"producer\":\"test\",", 1);
    assert!(refused(with_header(&whole, twice.as_bytes())).contains("duplicate field"));
}

#[test]
fn a_number_that_overflows_is_refused() {
    let whole = bytes("overflow");
    for number in ["18446744073709551616", "-1", "1e400", "9".repeat(400).as_str(), "NaN"] {
        let text = header_of(&whole).replace("\"offset\":0", &format!("\"offset\":{number}"));
        assert!(
            refused(with_header(&whole, text.as_bytes())).contains("can't be read"),
            "{number}"
        );
    }
}

#[test]
fn a_newer_format_says_which_neurenix_is_needed() {
    let newer = |text: &str| {
        let mut newer = with_header(&bytes("newer"), text.as_bytes());
        newer[8..12].copy_from_slice(&(VERSION + 1).to_le_bytes());
        newer
    };
    let signed = refused(newer(r#"{"producer":"neurenix 9.1.0","shards":[1,2]}"#));
    assert!(
        signed.contains("open it with neurenix 9.1.0 or a newer one"),
        "{signed}"
    );
    assert!(
        signed.contains(&format!("got: {}, written by neurenix 9.1.0", VERSION + 1)),
        "{signed}"
    );
    let mut torn = newer(r#"{"producer":"neurenix 9.1.0"}"#);
    torn[PREAMBLE] ^= 1;
    for bytes in [newer("[]"), torn] {
        assert!(refused(bytes).contains("open it with a newer Neurenix"));
    }
}

#[test]
fn a_foreign_endianness_says_so() {
    let mut foreign = bytes("foreign");
    foreign[8..12].reverse();
    assert!(refused(foreign).contains("bytes in the other order"));
}

#[test]
fn a_version_that_lacks_what_the_header_has_is_refused() {
    let (mut header, mut weights) = sample();
    let (source, originals) = sample();
    header.source = Some(source.network);
    weights.extend(originals);
    let path = std::env::temp_dir().join(format!("neurenix-format-lacks-{}.engine", std::process::id()));
    save(&path, header, &weights).unwrap();
    let mut bytes = std::fs::read(&path).unwrap();
    std::fs::remove_file(path).unwrap();
    assert_eq!(bytes[8], 2);
    assert!(parse_vec(bytes.clone()).is_ok());
    bytes[8] = 1;
    assert!(refused(bytes).contains("has what its format version has not"));
}

#[test]
fn weights_that_overlap_or_lie_elsewhere_are_refused() {
    let all: Vec<_> = (0..3)
        .map(|i| Array::from_f64(DType::Float32, vec![65], &[f64::from(i); 65]).unwrap())
        .collect();
    let mut data = vec![];
    for array in &all {
        data.resize(usize::next_multiple_of(data.len(), WEIGHT_ALIGNMENT), 0);
        data.extend(array.bytes());
    }
    let read = |places: &[Weight]| {
        let mut buffer = crate::network::array::Buffer::zeroed(data.len());
        buffer.as_mut_slice().copy_from_slice(&data);
        read_weights(places, 0, &(Arc::new(buffer) as Bytes))
    };
    let sound = lay_out(&all);
    assert_eq!(read(&sound).unwrap(), all);
    for offset in [0, 256, 4, 508, 1 << 20, 1 << 63, u64::MAX, u64::MAX - 255] {
        let mut moved = sound.clone();
        moved[1].offset = offset;
        assert!(read(&moved).is_err(), "offset {offset}");
    }
    assert!(read(&sound[..2]).is_err());
}

#[test]
fn a_weight_of_enormous_shape_is_refused() {
    let (mut header, weights) = sample();
    header.weights = lay_out(&weights);
    let bytes: Bytes = Arc::new(vec![0u8; 4096]);
    for shape in [
        vec![usize::MAX, usize::MAX],
        vec![usize::MAX, 0],
        vec![1 << 63, 2],
        vec![1; 65],
        vec![1 << 45, 0],
    ] {
        header.weights[0].shape = shape;
        assert!(read_weights(&header.weights, 0, &bytes).is_err());
    }
}

#[test]
fn a_save_that_fails_leaves_the_old_file_and_nothing_else() {
    let folder = std::env::temp_dir().join(format!("neurenix-format-failing-{}", std::process::id()));
    std::fs::create_dir(&folder).unwrap();
    let path = folder.join("a.engine");
    let save_sample = |path: &std::path::Path| {
        let (header, weights) = sample();
        save(path, header, &weights)
    };
    save_sample(&path).unwrap();
    let before = std::fs::read(&path).unwrap();
    let (mut header, weights) = sample();
    header.notes = vec![String::new(); MAX_VALUES];
    let too_large = save(&path, header, &weights).unwrap_err();
    assert!(too_large.to_string().contains("too many layers"), "{too_large}");
    let folders = [
        folder.join("missing").join("a.engine"),
        folder.clone(),
        folder.join(".."),
    ];
    assert!(folders.iter().all(|bad| save_sample(bad).is_err()));
    assert_eq!(std::fs::read(&path).unwrap(), before);
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1);
    std::fs::remove_dir_all(folder).unwrap();
}
