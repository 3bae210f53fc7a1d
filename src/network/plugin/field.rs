//! The fields of plugins: typed values, as they stand in an engine file.

use crate::error::{Error, Result};
use crate::network::array::bytes_of;
use crate::network::dtype::DType;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Fields by name.
pub type Fields = BTreeMap<String, Field>;

/// What the bytes of a field are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FieldKind {
    /// Elements of a tensor.
    Elements(DType),
    /// The extents of a shape, 64 bits each.
    Dims,
    /// UTF-8.
    Text,
    /// Bytes that only the plugin understands.
    Bytes,
}

impl FieldKind {
    /// Its name: that of the dtype, "dims", "text" or "bytes".
    pub const fn name(self) -> &'static str {
        match self {
            FieldKind::Elements(dtype) => dtype.name(),
            FieldKind::Dims => "dims",
            FieldKind::Text => "text",
            FieldKind::Bytes => "bytes",
        }
    }

    /// The kind of a name.
    ///
    /// # Errors
    /// If there is none.
    pub fn parse(name: &str) -> Result<Self> {
        Ok(match name {
            "dims" => FieldKind::Dims,
            "text" => FieldKind::Text,
            "bytes" => FieldKind::Bytes,
            dtype => FieldKind::Elements(DType::parse(dtype)?),
        })
    }

    const fn dtype(self) -> DType {
        match self {
            FieldKind::Elements(dtype) => dtype,
            FieldKind::Dims => DType::Int64,
            FieldKind::Text | FieldKind::Bytes => DType::UInt8,
        }
    }
}

/// One value: elements of one kind, row-major, in the byte order of the machine (little-endian).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Written", into = "Written")]
pub struct Field {
    kind: FieldKind,
    shape: Vec<usize>,
    data: Vec<u8>,
}

impl Field {
    /// A value of this shape; a single number has none.
    ///
    /// # Errors
    /// If the bytes are not those of the shape, or not those of a text.
    pub fn new(kind: FieldKind, shape: Vec<usize>, data: Vec<u8>) -> Result<Self> {
        let bytes = bytes_of(kind.dtype(), &shape)?;
        if bytes != data.len() {
            return Err(Error::format("a field of a plugin has the wrong length")
                .expected(format!("{bytes} bytes of {} {shape:?}", kind.name()))
                .got(format!("{} bytes", data.len())));
        }
        if kind == FieldKind::Text && std::str::from_utf8(&data).is_err() {
            return Err(Error::format("a field of a plugin is no text"));
        }
        Ok(Self { kind, shape, data })
    }

    /// What its bytes are.
    pub fn kind(&self) -> FieldKind {
        self.kind
    }

    /// The extents; none of a single number.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The bytes.
    pub fn data(&self) -> &[u8] {
        &self.data
    }
}

/// A field as a document has it: a text for its bytes, two digits each.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    kind: String,
    shape: Vec<usize>,
    data: String,
}

impl From<Field> for Written {
    fn from(field: Field) -> Self {
        Self {
            kind: field.kind.name().into(),
            shape: field.shape,
            data: field.data.iter().map(|byte| format!("{byte:02x}")).collect(),
        }
    }
}

impl TryFrom<Written> for Field {
    type Error = Error;

    fn try_from(written: Written) -> Result<Self> {
        let digits = written.data.as_bytes();
        let value = |digit: u8| char::from(digit).to_digit(16).map(|value| value as u8);
        let byte = |pair: &[u8]| match pair {
            &[high, low] => Some(value(high)? << 4 | value(low)?),
            _ => None,
        };
        let data: Option<Vec<u8>> = digits.chunks(2).map(byte).collect();
        let data = data.ok_or_else(|| Error::format("a field of a plugin is damaged"))?;
        Self::new(FieldKind::parse(&written.kind)?, written.shape, data)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_survives_the_round_trip_to_the_last_bit() {
        let values = [f64::NAN, -0.0, 1.0 / 3.0];
        let data = values.iter().flat_map(|v| v.to_ne_bytes()).collect();
        let field = Field::new(FieldKind::Elements(DType::Float64), vec![3], data).unwrap();
        let text = serde_json::to_string(&field).unwrap();
        assert_eq!(serde_json::from_str::<Field>(&text).unwrap(), field);
    }

    #[test]
    fn damaged_fields_are_refused() {
        let refused = |text: &str| serde_json::from_str::<Field>(text).is_err();
        assert!(!refused(r#"{"kind": "int32", "shape": [], "data": "2a000000"}"#));
        assert!(refused(r#"{"kind": "int32", "shape": [2], "data": "2a000000"}"#));
        assert!(refused(r#"{"kind": "int32", "shape": [], "data": "2a00000"}"#));
        assert!(refused(r#"{"kind": "int32", "shape": [], "data": "2a0000zz"}"#));
        assert!(refused(r#"{"kind": "pickle", "shape": [], "data": ""}"#));
        assert!(refused(r#"{"kind": "text", "shape": [1], "data": "ff"}"#));
        assert!(refused(
            r#"{"kind": "int32", "shape": [4294967296, 4294967296, 16], "data": ""}"#
        ));
    }
}
