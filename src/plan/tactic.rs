//! Which of a kernel's algorithms a form names.

use crate::error::Error;
use serde::de::{self, Deserializer, Visitor};
use serde::ser::Serializer;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::fmt;

/// One of a kernel's algorithms, by name: a family and a number within it, `tile 3`. Engine files and the timing cache keep the
/// name, so that a family which grows moves none of the others.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Tactic {
    family: Cow<'static, str>,
    number: u32,
}

impl Tactic {
    /// That of a kernel with one algorithm.
    pub const ONLY: Self = Self::new("only", 0);

    /// One that a version which knew numbers alone wrote down: which it was is not known any more, so that no other of its kernel may
    /// stand for it.
    pub const NUMBERED: Self = Self::new("of an older version", 0);

    /// The algorithm with this number of a family, whose name does not end with a number.
    pub const fn new(family: &'static str, number: u32) -> Self {
        Self {
            family: Cow::Borrowed(family),
            number,
        }
    }

    /// The family.
    pub fn family(&self) -> &str {
        &self.family
    }

    /// The number in its family.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// This algorithm as it is used by another kernel.
    pub fn within(&self, kernel: &str) -> Self {
        Self {
            family: format!("{kernel} {}", self.family).into(),
            number: self.number,
        }
    }

    /// What was made by [`Self::within`] for that kernel.
    pub fn inner(&self, kernel: &str) -> Option<Self> {
        let family = self.family.strip_prefix(kernel)?.strip_prefix(' ')?;
        Some(Self {
            family: family.to_string().into(),
            number: self.number,
        })
    }

    /// An error for a name that a kernel does not know.
    pub fn unknown(&self) -> Error {
        Error::internal(format!("the kernel has no tactic \"{self}\""))
    }

    /// What reports write behind the layouts of a form: nothing where there is no choice.
    pub fn suffix(&self) -> String {
        if *self == Self::ONLY {
            String::new()
        } else {
            format!(", {self}")
        }
    }

    fn parse(name: &str) -> Self {
        let numbered = name.rsplit_once(' ');
        let numbered = numbered.and_then(|(family, number)| Some((family, number.parse().ok()?)));
        let (family, number) = numbered.unwrap_or((name, 0));
        Self {
            family: family.to_string().into(),
            number,
        }
    }
}

impl fmt::Display for Tactic {
    /// The family alone stands for its first algorithm.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.number {
            0 => write!(f, "{}", self.family),
            number => write!(f, "{} {number}", self.family),
        }
    }
}

impl Serialize for Tactic {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Tactic {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        struct Name;
        impl Visitor<'_> for Name {
            type Value = Tactic;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "the name of a tactic")
            }

            /// What versions before these names wrote.
            fn visit_u64<E: de::Error>(self, _: u64) -> std::result::Result<Tactic, E> {
                Ok(Tactic::NUMBERED)
            }

            fn visit_str<E: de::Error>(self, name: &str) -> std::result::Result<Tactic, E> {
                Ok(Tactic::parse(name))
            }
        }
        deserializer.deserialize_any(Name)
    }
}

/// An enum of a kernel's algorithms with their names: `fn tactic(self) -> Tactic`, and `fn of(&Tactic) -> Result<Self>`.
macro_rules! tactics {
    ($(#[$doc:meta])* $vis:vis enum $way:ident {
        $($(#[$about:meta])* $variant:ident $(($number:ident: $ty:ty))? = $family:literal,)+
    }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        $vis enum $way {
            $($(#[$about])* $variant $(($ty))?,)+
        }

        impl $way {
            /// The name that a form bears.
            $vis fn tactic(self) -> $crate::plan::Tactic {
                match self {
                    $(Self::$variant $(($number))? => $crate::plan::Tactic::new($family, 0 $(+ $number as u32)?),)+
                }
            }

            /// The algorithm of this name.
            $vis fn of(tactic: &$crate::plan::Tactic) -> $crate::error::Result<Self> {
                match tactic.family() {
                    $($family => Ok(Self::$variant $(({ let $number = tactic.number(); $number as $ty }))?),)+
                    _ => Err(tactic.unknown()),
                }
            }
        }
    };
}
pub(crate) use tactics;

#[cfg(test)]
mod tests {
    use super::*;

    tactics! {
        /// Some.
        enum Way {
            /// Without a number.
            Plain = "plain",
            /// With one.
            Tile(number: usize) = "tile",
        }
    }

    #[test]
    fn a_name_is_read_as_it_was_written() {
        let inner = Way::Tile(3).tactic().within("in turn");
        assert_eq!(inner.to_string(), "in turn tile 3");
        for tactic in [
            Tactic::ONLY,
            Way::Plain.tactic(),
            Way::Tile(0).tactic(),
            Way::Tile(3).tactic(),
            inner.clone(),
        ] {
            let text = serde_json::to_string(&tactic).unwrap();
            assert_eq!(serde_json::from_str::<Tactic>(&text).unwrap(), tactic);
        }
        assert_eq!(serde_json::from_str::<Tactic>("12").unwrap(), Tactic::NUMBERED);
        assert_eq!(Way::of(&inner.inner("in turn").unwrap()).unwrap(), Way::Tile(3));
        assert_eq!(Tactic::ONLY.within("in turn").inner("in turn"), Some(Tactic::ONLY));
        assert_eq!(Way::Plain.tactic().inner("in turn"), None);
    }

    #[test]
    fn an_unknown_name_is_an_error_that_says_it() {
        let error = Way::of(&Tactic::new("patches", 2)).unwrap_err();
        assert!(error.message().contains("\"patches 2\""));
    }
}
