//! Attributes of layers, and their declaration by an op.

use crate::error::{Error, Result};
use crate::network::body::Body;
use crate::network::dim::Dim;
use crate::network::dtype::DType;
use crate::network::plugin::Held;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

/// The value of one attribute.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Attr {
    /// An integer or a truth value.
    Int(i64),
    /// A number.
    Float(f64),
    /// A word.
    Text(String),
    /// Integers.
    Ints(Vec<i64>),
    /// Numbers.
    Floats(Vec<f64>),
    /// Symbolic dimensions.
    Dims(Vec<Dim>),
    /// An element type.
    Type(DType),
    /// Attributes of another op.
    Attrs(Attrs),
    /// A plugin.
    Plugin(Held),
    /// A network; a document holds it beside the attributes.
    #[serde(skip)]
    Body(Body),
}

impl Attr {
    fn kind(&self) -> &'static str {
        match self {
            Attr::Int(_) => "an integer",
            Attr::Float(_) => "a number",
            Attr::Text(_) => "a text",
            Attr::Ints(_) => "a list of integers",
            Attr::Floats(_) => "a list of numbers",
            Attr::Dims(_) => "a list of dimensions",
            Attr::Type(_) => "a dtype",
            Attr::Attrs(_) => "attributes by name",
            Attr::Plugin(_) => "a plugin",
            Attr::Body(_) => "a network",
        }
    }

    /// The same value as the kind of `pattern`, where that loses nothing (an int for a float, an empty list, ...).
    fn fitted(self, pattern: &Attr) -> Result<Attr> {
        Ok(match (self, pattern) {
            (Attr::Int(v), Attr::Float(_)) => Attr::Float(v as f64),
            (Attr::Ints(v), Attr::Floats(_)) => Attr::Floats(v.into_iter().map(|v| v as f64).collect()),
            (Attr::Ints(v), Attr::Dims(_)) => Attr::Dims(v.into_iter().map(Dim::from).collect()),
            (Attr::Text(v), Attr::Type(_)) => Attr::Type(DType::parse(&v)?),
            (value, pattern) if std::mem::discriminant(&value) == std::mem::discriminant(pattern) => value,
            (value, pattern) => {
                return Err(Error::invalid("attribute has the wrong kind")
                    .expected(pattern.kind())
                    .got(value.kind()));
            }
        })
    }
}

/// The attributes of one layer, by name; only what the op declares, defaults filled in.
pub type Attrs = BTreeMap<String, Attr>;

/// What an attribute is when the layer does not give it.
#[derive(Debug, Clone, Copy)]
#[allow(missing_docs)]
pub enum Preset {
    Int(i64),
    Float(f64),
    Text(&'static str),
    Ints(&'static [i64]),
    Floats(&'static [f64]),
    /// A mark that a layer bears or not: 1, or left out, so that layers without it are as if there were none.
    Mark,
    /// The layer must give dimensions.
    RequiredDims,
    /// The layer must give integers.
    RequiredInts,
    /// The layer must give an integer.
    RequiredInt,
    /// The layer must give a dtype.
    RequiredType,
    /// The layer must give attributes of another op.
    RequiredAttrs,
    /// The layer must give a plugin.
    RequiredPlugin,
    /// The layer must give a network.
    RequiredBody,
}

impl Preset {
    fn pattern(self) -> Attr {
        match self {
            Preset::Int(v) => Attr::Int(v),
            Preset::Float(v) => Attr::Float(v),
            Preset::Text(v) => Attr::Text(v.into()),
            Preset::Ints(v) => Attr::Ints(v.into()),
            Preset::Floats(v) => Attr::Floats(v.into()),
            Preset::RequiredDims => Attr::Dims(vec![]),
            Preset::RequiredInts => Attr::Ints(vec![]),
            Preset::Mark | Preset::RequiredInt => Attr::Int(0),
            Preset::RequiredType => Attr::Type(DType::Float32),
            Preset::RequiredAttrs => Attr::Attrs(Attrs::new()),
            Preset::RequiredPlugin => Attr::Plugin(Held::none()),
            Preset::RequiredBody => Attr::Body(Body(Arc::default())),
        }
    }

    fn required(self) -> bool {
        matches!(
            self,
            Self::RequiredDims
                | Self::RequiredInts
                | Self::RequiredInt
                | Self::RequiredType
                | Self::RequiredAttrs
                | Self::RequiredPlugin
                | Self::RequiredBody
        )
    }
}

/// One attribute that an op declares.
#[derive(Debug, Clone, Copy)]
pub struct AttrDef {
    /// Its name, ONNX's where ONNX has it.
    pub name: &'static str,
    /// What it is without being given.
    pub default: Preset,
    /// What it means.
    pub doc: &'static str,
}

/// Shorthand for an [`AttrDef`].
pub const fn attr(name: &'static str, default: Preset, doc: &'static str) -> AttrDef {
    AttrDef { name, default, doc }
}

/// Checks given attributes against the declared ones and fills in defaults.
///
/// # Errors
/// On an unknown name, a wrong kind, or a required attribute that is not there.
pub fn complete(declared: &[AttrDef], mut given: Attrs) -> Result<Attrs> {
    let mut complete = Attrs::new();
    for def in declared {
        let pattern = def.default.pattern();
        let value = match given.remove(def.name) {
            Some(value) => value
                .fitted(&pattern)
                .map_err(|e| e.hint(format!("attribute {:?}: {}", def.name, def.doc)))?,
            None if def.default.required() => {
                return Err(Error::invalid(format!("attribute {:?} is missing", def.name)).expected(pattern.kind()));
            }
            None => pattern,
        };
        if matches!(def.default, Preset::Mark) && value == Attr::Int(0) {
            continue;
        }
        complete.insert(def.name.into(), value);
    }
    match given.keys().next() {
        None => Ok(complete),
        Some(name) => Err(
            Error::invalid(format!("unknown attribute {name:?}")).expected(match declared {
                [] => "no attributes".into(),
                declared => declared.iter().map(|d| d.name).collect::<Vec<_>>().join(", "),
            }),
        ),
    }
}

/// Reads declared attributes; asking for what the op does not declare is a defect of ours and gives the zero value.
pub trait Read {
    /// An integer.
    fn int(&self, name: &str) -> i64;
    /// A truth value.
    fn flag(&self, name: &str) -> bool {
        self.int(name) != 0
    }
    /// Whether the layer bears a mark.
    fn is_marked(&self, name: &str) -> bool;
    /// A number.
    fn float(&self, name: &str) -> f64;
    /// A word.
    fn text(&self, name: &str) -> &str;
    /// Integers.
    fn ints(&self, name: &str) -> &[i64];
    /// Numbers.
    fn floats(&self, name: &str) -> &[f64];
    /// Dimensions.
    fn dims(&self, name: &str) -> &[Dim];
    /// A dtype.
    fn dtype(&self, name: &str) -> DType;
    /// A network.
    fn body(&self, name: &str) -> &Body;
}

macro_rules! read {
    ($self:ident, $name:ident, $kind:ident, $zero:expr) => {
        match $self.get($name) {
            Some(Attr::$kind(v)) => v,
            other => {
                debug_assert!(false, "attribute {} is {other:?}", $name);
                $zero
            }
        }
    };
}

impl Read for Attrs {
    fn int(&self, name: &str) -> i64 {
        *read!(self, name, Int, &0)
    }
    fn is_marked(&self, name: &str) -> bool {
        self.get(name).is_some_and(|mark| *mark != Attr::Int(0))
    }
    fn float(&self, name: &str) -> f64 {
        *read!(self, name, Float, &0.0)
    }
    fn text(&self, name: &str) -> &str {
        read!(self, name, Text, "")
    }
    fn ints(&self, name: &str) -> &[i64] {
        read!(self, name, Ints, &[])
    }
    fn floats(&self, name: &str) -> &[f64] {
        read!(self, name, Floats, &[])
    }
    fn dims(&self, name: &str) -> &[Dim] {
        read!(self, name, Dims, &[])
    }
    fn dtype(&self, name: &str) -> DType {
        *read!(self, name, Type, &DType::Float32)
    }
    fn body(&self, name: &str) -> &Body {
        static NONE: LazyLock<Body> = LazyLock::new(|| Body(Arc::default()));
        read!(self, name, Body, &NONE)
    }
}

/// Builds [`Attrs`] from pairs.
pub fn attrs<const N: usize>(pairs: [(&str, Attr); N]) -> Attrs {
    pairs
        .into_iter()
        .map(|(name, value)| (name.to_string(), value))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const DECLARED: &[AttrDef] = &[attr("axis", Preset::Int(-1), ""), attr("to", Preset::RequiredType, "")];

    #[test]
    fn defaults_are_filled_in_and_values_fitted() {
        let done = complete(DECLARED, attrs([("to", Attr::Text("int64".into()))])).unwrap();
        assert_eq!((done.int("axis"), done.dtype("to")), (-1, DType::Int64));
    }

    #[test]
    fn unknown_missing_and_wrong_attributes_are_refused() {
        let to = ("to", Attr::Type(DType::Bool));
        assert!(complete(DECLARED, attrs([])).is_err());
        assert!(complete(DECLARED, attrs([to.clone(), ("x", Attr::Int(1))])).is_err());
        assert!(complete(DECLARED, attrs([to, ("axis", Attr::Text("1".into()))])).is_err());
    }
}
