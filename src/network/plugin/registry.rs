//! The creators of plugins that the process knows.

use super::{Creator, Identity};
use crate::error::{Error, Result};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

type Known = BTreeMap<Identity, Arc<dyn Creator>>;

// Creators are neither called nor dropped while this is locked: they may come back here.
static KNOWN: Mutex<Known> = Mutex::new(BTreeMap::new());

fn known() -> MutexGuard<'static, Known> {
    // Each change is one insertion or removal: a panic elsewhere leaves the map whole.
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Adds a creator.
///
/// # Errors
/// If there is one of its identity already, which stays.
pub fn register(creator: Arc<dyn Creator>) -> Result<()> {
    let identity = creator.identity();
    if identity.name.is_empty() {
        return Err(Error::invalid("a plugin has no name"));
    }
    let mut known = known();
    if known.contains_key(&identity) {
        return Err(Error::invalid(format!("plugin {identity} is registered already"))
            .hint("give it another version or namespace, or deregister the other one first"));
    }
    known.insert(identity, creator);
    Ok(())
}

/// Takes a creator out; says whether there was one. Networks and engines that have plugins of it keep them.
pub fn deregister(identity: &Identity) -> bool {
    let removed = known().remove(identity);
    removed.is_some()
}

/// The creator of an identity.
///
/// # Errors
/// If there is none; says what there is of that name.
pub fn find(identity: &Identity) -> Result<Arc<dyn Creator>> {
    let found = known().get(identity).cloned();
    found.ok_or_else(|| missing(std::slice::from_ref(identity)))
}

/// The identities of all creators, in order.
pub fn identities() -> Vec<Identity> {
    known().keys().cloned().collect()
}

/// The identity that a name, and perhaps a version and a namespace, stand for. Without a version it is "1", or the only one
/// that there is.
pub fn resolve(name: &str, version: Option<&str>, namespace: &str) -> Identity {
    let of = |version: &str| Identity {
        name: name.into(),
        version: version.into(),
        namespace: namespace.into(),
    };
    if let Some(version) = version {
        return of(version);
    }
    let all = identities();
    let mut fitting = all.iter().filter(|id| id.name == name && id.namespace == namespace);
    match (fitting.next(), fitting.next()) {
        (Some(only), None) => only.clone(),
        _ => of("1"),
    }
}

/// Refuses identities that have no creator; the error lists all of them.
///
/// # Errors
/// That.
pub fn require<'a>(identities: impl Iterator<Item = &'a Identity>) -> Result<()> {
    let mut wanted: Vec<Identity> = identities.cloned().collect();
    wanted.sort();
    wanted.dedup();
    {
        let known = known();
        wanted.retain(|identity| !known.contains_key(identity));
    }
    if wanted.is_empty() {
        Ok(())
    } else {
        Err(missing(&wanted))
    }
}

fn missing(wanted: &[Identity]) -> Error {
    let list = |identities: &[Identity]| {
        let texts: Vec<_> = identities.iter().map(Identity::to_string).collect();
        texts.join(", ")
    };
    let all = identities();
    let same_name = |id: &&Identity| wanted.iter().any(|w| w.name == id.name);
    let near: Vec<Identity> = all.iter().filter(same_name).cloned().collect();
    let registered = match (near.as_slice(), all.as_slice()) {
        ([], []) => "none".into(),
        ([], all) => list(all),
        (near, _) => list(near),
    };
    let (noun, verb) = if wanted.len() == 1 {
        ("plugin", "is")
    } else {
        ("plugins", "are")
    };
    Error::unsupported(format!("{noun} {} {verb} not registered", list(wanted)))
        .expected("registered plugins")
        .got(registered)
        .hint(
            "register them first: name the module or the library (.so) that brings them in plugins=, or with --plugins on \
             the command line; or call trt.register_plugin(name, class), with the version and namespace, or \
             trt.load_plugin_library(path)",
        )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::plugin::{Fields, Phase, Plugin};

    struct Nothing(Identity);

    impl Creator for Nothing {
        fn identity(&self) -> Identity {
            self.0.clone()
        }

        fn create(&self, _: &str, _: &Fields, _: Phase) -> Result<Arc<dyn Plugin>> {
            Err(Error::unsupported("it makes nothing"))
        }
    }

    fn identity(name: &str, version: &str) -> Identity {
        Identity {
            name: name.into(),
            version: version.into(),
            namespace: "registry tests".into(),
        }
    }

    #[test]
    fn each_identity_has_one_creator() {
        let (one, two) = (identity("Twice", "1"), identity("Twice", "2"));
        register(Arc::new(Nothing(one.clone()))).unwrap();
        assert!(register(Arc::new(Nothing(one.clone()))).is_err());
        assert_eq!(resolve("Twice", None, "registry tests"), one);
        register(Arc::new(Nothing(two.clone()))).unwrap();
        assert_eq!(resolve("Twice", None, "registry tests").version, "1");
        assert_eq!(resolve("Twice", Some("2"), "registry tests"), two);
        assert!(deregister(&one) && !deregister(&one));
        assert_eq!(resolve("Twice", None, "registry tests"), two);
        let error = find(&one).err().unwrap().to_string();
        assert!(
            error.contains("Twice version 1") && error.contains("Twice version 2"),
            "{error}"
        );
        assert!(deregister(&two));
    }

    #[test]
    fn all_that_is_missing_is_listed() {
        let wanted = [identity("Lost", "1"), identity("Lost", "7"), identity("Gone", "1")];
        let error = require(wanted.iter()).unwrap_err().to_string();
        for part in ["Gone version 1", "Lost version 1", "Lost version 7", "not registered"] {
            assert!(error.contains(part), "{error}");
        }
        assert!(require([].iter()).is_ok());
    }
}
