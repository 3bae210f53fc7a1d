//! Plugins out of shared libraries that were built against `cpp/include/neurenix/plugin.h`.

#[allow(missing_docs)]
pub(in crate::providers) mod abi;
mod dims;
mod handle;
pub(in crate::providers) mod types;

use crate::error::{Error, Result};
use crate::network::op::TensorType;
use crate::network::plugin::{
    Creator, Device, Field, FieldKind, Fields, Identity, Phase, Plugin, Prepared, Run, Shaped, registry,
};
use handle::{Instance, Table, Traits};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The name of the field that holds what a plugin serialised, as for classes in Python.
const SERIALIZED: &str = "(serialized)";

type Creators = Vec<Arc<FromLibrary>>;

/// The libraries that are open, by their real paths. They stay open.
static OPEN: Mutex<BTreeMap<PathBuf, Creators>> = Mutex::new(BTreeMap::new());

/// Opens a library and registers its creators; gives their identities. One that is open already only registers again what
/// was deregistered meanwhile.
///
/// # Errors
/// If it is no library of plugins for this version, or one of its identities is taken; names it, and registers nothing.
pub fn load(path: &Path) -> Result<Vec<Identity>> {
    let named = |error: Error| error.during(format!("plugin library {}", path.display()));
    let missing = |e: std::io::Error| named(Error::from(e).hint("give the path of a library (.so)"));
    let real = path.canonicalize().map_err(missing)?;
    // Each change is one insertion. What a library does when it is opened does not come back here.
    let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    let creators = match open.get(&real) {
        Some(creators) => creators.clone(),
        None => creators(&real).map_err(named)?,
    };
    register(&creators).map_err(named)?;
    let identities = creators.iter().map(|creator| creator.identity()).collect();
    open.insert(real, creators);
    Ok(identities)
}

fn creators(path: &Path) -> Result<Creators> {
    let table = Table::open(path)?;
    let file = path.file_name().unwrap_or_default().to_string_lossy();
    let file: Arc<str> = file.into();
    let creator = |number| {
        let description = table.describe(number)?;
        Ok(Arc::new(FromLibrary {
            origin: Origin {
                identity: Identity {
                    name: description.name,
                    version: description.version,
                    namespace: description.namespace,
                },
                file: file.clone(),
            },
            declared: description.fields,
            table,
            number,
            busy: Mutex::new(()),
        }))
    };
    let found: Creators = (0..table.creators()).map(creator).collect::<Result<_>>()?;
    match found.is_empty() {
        true => Err(Error::unsupported("it has no creator").hint("REGISTER_TENSORRT_PLUGIN in a source file adds one")),
        false => Ok(found),
    }
}

/// All of them, or none.
fn register(creators: &[Arc<FromLibrary>]) -> Result<()> {
    let mut added = vec![];
    for creator in creators {
        let identity = creator.identity();
        let before = registry::find(&identity).ok();
        if before.is_some_and(|before| std::ptr::addr_eq(Arc::as_ptr(&before), Arc::as_ptr(creator))) {
            continue;
        }
        if let Err(error) = registry::register(creator.clone()) {
            for identity in &added {
                registry::deregister(identity);
            }
            return Err(error);
        }
        added.push(identity);
    }
    Ok(())
}

/// The plugin and its library, which errors name.
#[derive(Clone)]
struct Origin {
    identity: Identity,
    file: Arc<str>,
}

impl Origin {
    fn blame(&self) -> impl Fn(Error) -> Error {
        move |error| error.during(format!("plugin {} ({})", self.identity, self.file))
    }
}

/// A creator of a library.
struct FromLibrary {
    origin: Origin,
    declared: Vec<(String, i32)>,
    table: Table,
    number: i32,
    /// Creators in TensorRT's shape expect one call at a time.
    busy: Mutex<()>,
}

impl Creator for FromLibrary {
    fn identity(&self) -> Identity {
        self.origin.identity.clone()
    }

    fn declared(&self) -> Vec<(String, i32)> {
        self.declared.clone()
    }

    fn create(&self, layer: &str, fields: &Fields, _: Phase) -> Result<Arc<dyn Plugin>> {
        let make = || {
            let _busy = self.busy.lock().unwrap_or_else(PoisonError::into_inner);
            let mut instance = match fields.get(SERIALIZED) {
                Some(bytes) if fields.len() == 1 => self.table.deserialize(self.number, layer, bytes.data())?,
                _ => self
                    .table
                    .create(self.number, layer, &types::fields(fields, &self.declared)?)?,
            };
            let traits = instance.traits()?;
            Ok(Shared {
                origin: self.origin.clone(),
                traits,
                instance: Mutex::new(instance),
            })
        };
        Ok(Arc::new(make().map_err(self.origin.blame())?))
    }
}

/// A plugin of a library, for all contexts.
struct Shared {
    origin: Origin,
    traits: Traits,
    /// One call at a time: plugins in TensorRT's shape expect no more.
    instance: Mutex<Instance>,
}

impl Shared {
    fn instance(&self) -> MutexGuard<'_, Instance> {
        // A panic of ours leaves what is in C++ as it was.
        self.instance.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Plugin for Shared {
    fn identity(&self) -> Identity {
        self.origin.identity.clone()
    }

    fn fields(&self) -> Result<Fields> {
        let bytes = self.instance().serialize().map_err(self.origin.blame())?;
        let field = Field::new(FieldKind::Bytes, vec![bytes.len()], bytes)?;
        Ok(Fields::from([(SERIALIZED.into(), field)]))
    }

    fn infer(&self, inputs: &[TensorType], shape_inputs: usize) -> Result<Vec<TensorType>> {
        let mut instance = self.instance();
        let found = match shape_inputs {
            0 => (0..self.traits.outputs)
                .map(|output| instance.infer(output, inputs))
                .collect(),
            _ => Err(Error::unsupported("plugins in C++ have no shape inputs")),
        };
        found.map_err(self.origin.blame())
    }

    fn supports(&self, at: usize, types: &[TensorType], inputs: usize) -> Result<bool> {
        self.instance().supports(at, types, inputs).map_err(self.origin.blame())
    }

    fn devices(&self) -> Vec<String> {
        let kinds = [(abi::DEVICE_HOST, Device::Cpu), (abi::DEVICE_CUDA, Device::Cuda(0))];
        let given = kinds.iter().filter(|(bit, _)| self.traits.devices & bit != 0);
        given.map(|(_, device)| device.word().to_string()).collect()
    }

    fn prepare(&self, device: Device, inputs: &[Shaped], outputs: &[Shaped]) -> Result<Box<dyn Prepared>> {
        let prepare = || {
            let mut instance = self.instance().duplicate()?;
            let workspace = instance.prepare(device, inputs, outputs)?;
            Ok(Ready {
                origin: self.origin.clone(),
                is_capturable: self.traits.is_capturable,
                workspace,
                instance,
            })
        };
        Ok(Box::new(prepare().map_err(self.origin.blame())?))
    }
}

/// A clone of a plugin at concrete shapes.
struct Ready {
    origin: Origin,
    is_capturable: bool,
    workspace: usize,
    instance: Instance,
}

impl Prepared for Ready {
    fn workspace(&self) -> usize {
        self.workspace
    }

    fn is_capturable(&self) -> bool {
        self.is_capturable
    }

    fn run(&mut self, call: &Run) -> Result<()> {
        self.instance.enqueue(call).map_err(self.origin.blame())
    }
}
