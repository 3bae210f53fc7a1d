//! Plugins: layers whose work somebody outside of this crate does.
//!
//! A [`Creator`] stands in the [`registry`] under an [`Identity`] (name, version, namespace) and makes a [`Plugin`] out of
//! [`Fields`], typed values by name. A layer of op `Plugin` [holds](Held) its plugin and those fields; an engine file keeps
//! identity and fields alone, so opening one asks the registry for a creator and runs nothing that the file brought.
//!
//! The life of a plugin, and who calls what:
//!
//! 1. `Creator::create` when a layer is added by name, or read from a file;
//! 2. `Plugin::infer` and `Plugin::supports` by the rule of the op, whenever a pass or a check types the layer: they must
//!    give the same for the same inputs;
//! 3. `Plugin::devices`, `Plugin::has_source` when providers say who runs the layer;
//! 4. `Plugin::prepare` (or `Plugin::source`, where a plugin brings a kernel) for a device and concrete shapes, once for
//!    each context: what it gives is that context's own;
//! 5. `Prepared::run` at each call, from one thread at a time.
//!
//! Implementations come from outside and speak neither of layers nor of providers: Python classes (`bindings`), and
//! shared libraries in C++. They need no locks against each other: all but `Prepared` is `Sync`, and nothing here holds a
//! lock while it calls them. Every error that they return is given the name of the plugin by [`blame`].

mod field;
mod held;
pub mod registry;
mod source;

pub use field::{Field, FieldKind, Fields};
pub use held::Held;
pub use source::{Number, Source};

use crate::error::{Error, Result};
use crate::network::dtype::DType;
use crate::network::op::TensorType;
use std::ffi::c_void;
use std::fmt;
use std::sync::Arc;

/// What a plugin is known by.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Identity {
    /// Its name.
    pub name: String,
    /// Its version; "1" where nobody says.
    pub version: String,
    /// Its namespace; empty where nobody says.
    pub namespace: String,
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} version {}", self.name, self.version)?;
        match self.namespace.as_str() {
            "" => Ok(()),
            namespace => write!(f, " of {namespace:?}"),
        }
    }
}

/// Why a plugin is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// A network gets a layer of it.
    Build,
    /// A file that names it is opened.
    Runtime,
}

/// Where a plugin runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Device {
    /// The processor.
    Cpu,
    /// The GPU of a number.
    Cuda(u32),
}

impl Device {
    /// The word by which plugins name the kind.
    pub const fn word(self) -> &'static str {
        match self {
            Device::Cpu => "cpu",
            Device::Cuda(_) => "cuda",
        }
    }
}

/// A tensor at a concrete shape; its elements lie dense and row-major.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shaped {
    /// The element type.
    pub dtype: DType,
    /// The extent of each dimension.
    pub shape: Vec<usize>,
}

/// Makes plugins of one identity.
pub trait Creator: Send + Sync {
    /// What it makes.
    fn identity(&self) -> Identity;

    /// The fields that it says it reads, with TensorRT's numbers of their types; none where it says nothing.
    fn declared(&self) -> Vec<(String, i32)> {
        vec![]
    }

    /// Makes one for a layer.
    ///
    /// # Errors
    /// If the fields are not those that it reads.
    fn create(&self, layer: &str, fields: &Fields, phase: Phase) -> Result<Arc<dyn Plugin>>;
}

/// A plugin with its fields, shared by all contexts.
pub trait Plugin: Send + Sync {
    /// What it is.
    fn identity(&self) -> Identity;

    /// The fields out of which its creator makes it again.
    ///
    /// # Errors
    /// If it can't be serialised.
    fn fields(&self) -> Result<Fields>;

    /// The types of the outputs, at least one. The elements of the last `shape_inputs` inputs are known (`value`), and the
    /// kernel does not get those inputs. Extents may be expressions of what is in the inputs, and nothing else.
    ///
    /// # Errors
    /// If it does not take these inputs.
    fn infer(&self, inputs: &[TensorType], shape_inputs: usize) -> Result<Vec<TensorType>>;

    /// Whether it takes the element type of `types[at]`, given those before it: `inputs` inputs, then outputs.
    ///
    /// # Errors
    /// If it fails.
    fn supports(&self, _at: usize, _types: &[TensorType], _inputs: usize) -> Result<bool> {
        Ok(true)
    }

    /// The kinds of devices that it runs on, as [`Device::word`] names them.
    fn devices(&self) -> Vec<String>;

    /// Whether it brings a kernel for GPUs, which then runs there in place of [`Plugin::prepare`]'s.
    fn has_source(&self) -> bool {
        false
    }

    /// The kernel for GPUs and its launch at these shapes, where [`Plugin::has_source`].
    ///
    /// # Errors
    /// If there is none for these shapes.
    fn source(&self, _inputs: &[Shaped], _outputs: &[Shaped]) -> Result<Source> {
        Err(Error::internal("the plugin brings no kernel"))
    }

    /// Gets ready for concrete shapes on a device.
    ///
    /// # Errors
    /// If it does not run there.
    fn prepare(&self, device: Device, inputs: &[Shaped], outputs: &[Shaped]) -> Result<Box<dyn Prepared>>;
}

/// A plugin at concrete shapes, owned by one context.
pub trait Prepared: Send {
    /// Bytes of scratch memory that a run needs, on the device.
    fn workspace(&self) -> usize {
        0
    }

    /// Whether a run does nothing but put work into its stream, so that a CUDA graph may record it.
    fn is_capturable(&self) -> bool {
        false
    }

    /// Runs it.
    ///
    /// # Errors
    /// If it fails.
    fn run(&mut self, call: &Run) -> Result<()>;
}

/// The addresses of one run, in the memory of the device.
pub struct Run<'a> {
    /// One per input.
    pub inputs: &'a [*const u8],
    /// One per output.
    pub outputs: &'a [*mut u8],
    /// As many bytes as the plugin asked for.
    pub workspace: *mut u8,
    /// The CUDA stream that the work goes into; null on the processor, where a run is over when it returns.
    pub stream: *mut c_void,
}

/// Names the plugin in an error of its own.
pub fn blame(identity: &Identity) -> impl Fn(Error) -> Error {
    move |error| match error.message().starts_with("plugin ") {
        true => error,
        false => error.during(format!("plugin {identity}")),
    }
}
