//! The one error type: what went wrong, where, and the way out.

use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// What sort of failure an [`Error`] is; bindings map each kind to one Python exception.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// A value that the caller gave is not acceptable.
    InvalidArgument,
    /// A shape does not fit.
    Shape,
    /// A dtype does not fit.
    Type,
    /// Nothing here can run or import this.
    Unsupported,
    /// A file is damaged, too new, or not ours.
    Format,
    /// The operating system refused.
    Io,
    /// Not enough memory.
    Memory,
    /// A library, device or driver failed.
    Device,
    /// A plugin failed.
    Plugin,
    /// Whoever called wants no more of it: a signal, or the end of the process.
    Interrupted,
    /// A broken invariant of ours; always a defect of Neurenix.
    Internal,
}

impl ErrorKind {
    /// Every kind.
    pub const ALL: [ErrorKind; 11] = [
        ErrorKind::InvalidArgument,
        ErrorKind::Shape,
        ErrorKind::Type,
        ErrorKind::Unsupported,
        ErrorKind::Format,
        ErrorKind::Io,
        ErrorKind::Memory,
        ErrorKind::Device,
        ErrorKind::Plugin,
        ErrorKind::Interrupted,
        ErrorKind::Internal,
    ];
}

/// An error with its place and its way out.
#[derive(Debug, Clone)]
pub struct Error(Box<Detail>);

#[derive(Debug, Clone)]
struct Detail {
    kind: ErrorKind,
    message: String,
    layer: Option<String>,
    tensor: Option<String>,
    expected: Option<String>,
    got: Option<String>,
    hint: Option<String>,
    cause: Option<Cause>,
}

/// What another language raised: an object of its own, which it gets back as it is.
#[derive(Clone)]
struct Cause(Arc<dyn Any + Send + Sync>);

impl fmt::Debug for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Cause")
    }
}

/// `Result` with our [`Error`].
pub type Result<T> = std::result::Result<T, Error>;

macro_rules! constructors {
    ($($name:ident => $kind:ident),* $(,)?) => {
        $(#[doc = concat!("A new error of kind [`ErrorKind::", stringify!($kind), "`].")]
        pub fn $name(message: impl Into<String>) -> Self {
            Self::new(ErrorKind::$kind, message)
        })*
    };
}

macro_rules! places {
    ($($name:ident: $doc:literal),* $(,)?) => {
        $(#[doc = $doc]
        pub fn $name(mut self, text: impl Into<String>) -> Self {
            self.0.$name.get_or_insert(text.into());
            self
        })*
    };
}

impl Error {
    /// A new error of the given kind.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self(Box::new(Detail {
            kind,
            message: message.into(),
            layer: None,
            tensor: None,
            expected: None,
            got: None,
            hint: None,
            cause: None,
        }))
    }

    constructors! {
        invalid => InvalidArgument, shape => Shape, dtype => Type, unsupported => Unsupported,
        format => Format, io => Io, memory => Memory, device => Device, interrupted => Interrupted,
        internal => Internal,
    }

    places! {
        layer: "Names the layer; the innermost caller that knows it wins.",
        tensor: "Names the tensor; the innermost caller that knows it wins.",
        expected: "Says what was expected.",
        got: "Says what came instead.",
        hint: "Says what to do about it.",
    }

    /// Says that a number of one of so many was expected, counted from either end.
    pub fn expected_index(self, size: i64) -> Self {
        match size {
            0 => self.expected("none, for there are none"),
            _ => self.expected(format!("{} to {}", -size, size - 1)),
        }
    }

    /// Says in which step it happened, before the message.
    pub fn during(mut self, step: impl fmt::Display) -> Self {
        self.0.message = format!("{step}: {}", self.0.message);
        self
    }

    /// Keeps what another language raised.
    pub fn caused_by(mut self, cause: impl Any + Send + Sync) -> Self {
        self.0.cause = Some(Cause(Arc::new(cause)));
        self
    }

    /// What another language raised, where it is of this type.
    pub fn cause<T: Any>(&self) -> Option<&T> {
        self.0.cause.as_ref()?.0.downcast_ref()
    }

    /// The sort of failure.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The message without place, expectation and hint.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// The named parts that are set, in the order in which they are printed.
    pub fn parts(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let d = &*self.0;
        [
            ("layer", &d.layer),
            ("tensor", &d.tensor),
            ("expected", &d.expected),
            ("got", &d.got),
            ("hint", &d.hint),
        ]
        .into_iter()
        .filter_map(|(name, part)| part.as_deref().map(|text| (name, text)))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.message())?;
        self.parts()
            .try_for_each(|(name, text)| write!(f, "\n  {name}: {text}"))
    }
}

impl std::error::Error for Error {}

impl From<std::io::Error> for Error {
    fn from(e: std::io::Error) -> Self {
        Self::io(e.to_string())
    }
}

/// Runs `work`; a panic inside becomes an internal error, so that no defect of ours ends the process.
///
/// # Errors
/// Those of the work.
pub fn guarded<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<&str>().map(|s| s.to_string());
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
        Err(
            Error::internal(text.unwrap_or_else(|| "a panic without a message".into()))
                .hint("this is a defect of Neurenix; please report it with the model that shows it"),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_innermost_place_wins_and_parts_print_in_order() {
        let e = Error::shape("shapes differ")
            .got("[1]")
            .expected("[2]")
            .layer("inner")
            .layer("outer");
        assert_eq!(
            e.to_string(),
            "shapes differ\n  layer: inner\n  expected: [2]\n  got: [1]"
        );
    }
}
