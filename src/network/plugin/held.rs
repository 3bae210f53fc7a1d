//! The plugin of a layer.

use super::{Fields, Identity, Phase, Plugin, blame, registry};
use crate::error::Result;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// A plugin with what a file says of it: identity and fields. One that comes from a file is made when somebody first asks.
#[derive(Clone)]
pub struct Held(Arc<Inner>);

struct Inner {
    written: Written,
    made: Mutex<Option<Arc<dyn Plugin>>>,
}

/// What a file says of a plugin.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    identity: Identity,
    fields: Fields,
    shape_inputs: usize,
}

impl Held {
    /// A layer's plugin, the last `shape_inputs` inputs of which only tell shapes.
    ///
    /// # Errors
    /// If the plugin can't be serialised; names it.
    pub fn new(plugin: Arc<dyn Plugin>, shape_inputs: usize) -> Result<Self> {
        let identity = plugin.identity();
        let fields = plugin.fields().map_err(blame(&identity))?;
        Ok(Self::of(identity, fields, shape_inputs, Some(plugin)))
    }

    /// A plugin that the registry makes for a layer.
    ///
    /// # Errors
    /// If there is no creator, or it does not take these fields; names the plugin.
    pub fn create(layer: &str, identity: Identity, fields: Fields, shape_inputs: usize) -> Result<Self> {
        let creator = registry::find(&identity)?;
        let plugin = creator.create(layer, &fields, Phase::Build).map_err(blame(&identity))?;
        Self::new(plugin, shape_inputs)
    }

    /// A pattern for attributes: no plugin.
    pub(crate) fn none() -> Self {
        let identity = Identity {
            name: String::new(),
            version: String::new(),
            namespace: String::new(),
        };
        Self::of(identity, Fields::new(), 0, None)
    }

    fn of(identity: Identity, fields: Fields, shape_inputs: usize, made: Option<Arc<dyn Plugin>>) -> Self {
        let written = Written {
            identity,
            fields,
            shape_inputs,
        };
        let made = Mutex::new(made);
        Self(Arc::new(Inner { written, made }))
    }

    /// What the plugin is.
    pub fn identity(&self) -> &Identity {
        &self.0.written.identity
    }

    /// Its fields.
    pub fn fields(&self) -> &Fields {
        &self.0.written.fields
    }

    /// How many of the last inputs only tell shapes.
    pub fn shape_inputs(&self) -> usize {
        self.0.written.shape_inputs
    }

    /// The plugin.
    ///
    /// # Errors
    /// If it comes from a file and there is no creator for it, or that does not take the fields; names it.
    pub fn plugin(&self, layer: &str) -> Result<Arc<dyn Plugin>> {
        // A creator may wait for locks of its own language that who waits here holds: none is held while it is called.
        if let Some(made) = &*self.made() {
            return Ok(made.clone());
        }
        let creator = registry::find(self.identity())?;
        let made = creator
            .create(layer, self.fields(), Phase::Runtime)
            .map_err(blame(self.identity()))?;
        let mut slot = self.made();
        Ok(slot.get_or_insert(made).clone())
    }

    fn made(&self) -> std::sync::MutexGuard<'_, Option<Arc<dyn Plugin>>> {
        // It is set as a whole.
        self.0.made.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.identity())?;
        f.debug_map().entries(self.fields()).finish()
    }
}

impl PartialEq for Held {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.0.written == other.0.written
    }
}

impl Serialize for Held {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        self.0.written.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Held {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        let written = Written::deserialize(deserializer)?;
        let made = Mutex::new(None);
        Ok(Self(Arc::new(Inner { written, made })))
    }
}
