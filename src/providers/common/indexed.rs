//! How the indices of Gather and scatter name elements.

use super::scope::Scope;
use crate::network::attr::Read;

/// How indices name elements.
#[derive(Debug, Clone, Copy)]
pub enum Rule {
    /// Each names an entry of this axis.
    Axis(usize),
    /// Each names an element, by its own place but for this axis.
    Elements(usize),
    /// Each vector names a slice, after so many leading dimensions that are shared.
    Vectors(usize),
}

impl Rule {
    /// That of a layer; `None` for one without indices.
    pub fn of(scope: &Scope) -> Option<Self> {
        let (x, attrs) = (scope.input_type(0)?, &scope.layer().attrs);
        let axis = || x.axis(attrs.int("axis")).unwrap_or(0);
        Some(match scope.op() {
            "Gather" => Self::Axis(axis()),
            "GatherElements" | "ScatterElements" => Self::Elements(axis()),
            "GatherND" => Self::Vectors(attrs.int("batch_dims").max(0) as usize),
            "ScatterND" => Self::Vectors(0),
            _ => return None,
        })
    }
}
