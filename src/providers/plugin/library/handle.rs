//! A library and its plugins: each function of its table, with a result.

use super::{abi, dims::Dims, types};
use crate::error::{Error, ErrorKind, Result};
use crate::network::dim::Dim;
use crate::network::dtype::DType;
use crate::network::op::TensorType;
use crate::network::plugin::{Device, Run, Shaped};
use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use std::error::Error as _;
use std::ffi::{CString, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

/// The table of a library that is never closed.
#[derive(Clone, Copy)]
pub struct Table(&'static abi::Table);

/// What a creator says of itself.
#[derive(Default)]
pub struct Description {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// Its namespace.
    pub namespace: String,
    /// Its fields, with the numbers of their types.
    pub fields: Vec<(String, i32)>,
}

/// What a plugin always says of itself.
pub struct Traits {
    /// How many outputs it has.
    pub outputs: i32,
    /// Kinds of devices, as bits.
    pub devices: u32,
    /// Whether a CUDA graph may record it.
    pub is_capturable: bool,
}

impl Table {
    /// Opens a library, and asks for its version before anything else.
    ///
    /// # Errors
    /// If it is no library, exports no plugins, or speaks another version.
    pub fn open(path: &Path) -> Result<Self> {
        // SAFETY: opening runs what the library does when it is opened; the user names it in order to run its code.
        let library = unsafe { Library::open(Some(path), RTLD_NOW | RTLD_LOCAL) }
            .map_err(|e| Error::io("it can't be opened").got(e.source().map_or(e.to_string(), ToString::to_string)))?;
        type Entry = unsafe extern "C" fn() -> *const abi::Table;
        // SAFETY: whoever exports this name means the function of plugin_abi.h.
        let entry = unsafe { library.get::<Entry>(b"neurenix_plugin_entry\0") }.map_err(|_| {
            Error::unsupported("it exports no neurenix_plugin_entry")
                .hint("build it against neurenix/plugin.h, with REGISTER_TENSORRT_PLUGIN in a source file")
        })?;
        // SAFETY: as above. The table starts with its version, in every version.
        let table = unsafe { entry() };
        let version = match table.is_null() || !table.is_aligned() {
            true => return Err(Error::unsupported("its neurenix_plugin_entry gives no table")),
            // SAFETY: the first number alone is read.
            false => unsafe { table.cast::<u32>().read() },
        };
        if version != abi::VERSION {
            return Err(Error::unsupported("it was built for another version of the plugin ABI")
                .expected(format!("version {}", abi::VERSION))
                .got(format!("version {version}"))
                .hint("build it again, against the header in trt.plugin_include_dir()"));
        }
        // What the library gives must hold for the life of the process.
        std::mem::forget(library);
        // SAFETY: a table of this version has this layout.
        let table = unsafe { &*table };
        match table.table_bytes as usize >= size_of::<abi::Table>() {
            true => Ok(Self(table)),
            false => Err(Error::unsupported("its table of functions is too short")
                .expected(size_of::<abi::Table>().to_string())
                .got(table.table_bytes.to_string())),
        }
    }

    /// How many creators it has.
    pub fn creators(self) -> i32 {
        // SAFETY: a function of the table.
        unsafe { (self.0.creators)() }
    }

    /// What a creator says of itself.
    ///
    /// # Errors
    /// If it throws.
    pub fn describe(self, creator: i32) -> Result<Description> {
        // SAFETY: a function of the table, with our answers.
        let said = ask(|to| unsafe { (self.0.describe)(creator, to) })?;
        Ok(said.description)
    }

    /// The plugin that a creator makes of fields.
    ///
    /// # Errors
    /// If it throws, or makes none.
    pub fn create(self, creator: i32, layer: &str, given: &[types::Given]) -> Result<Instance> {
        let fields: Vec<abi::Field> = given
            .iter()
            .map(|field| abi::Field {
                name: field.name.as_ptr(),
                data: field.data.bytes().as_ptr().cast(),
                kind: field.kind,
                length: field.length,
            })
            .collect();
        let (layer, count) = (name(layer), fields.len() as i32);
        // SAFETY: names and data are alive during the call, and as long as they say.
        self.made(|made, to| unsafe { (self.0.create)(creator, layer.as_ptr(), fields.as_ptr(), count, made, to) })
    }

    /// The plugin that a creator makes of what another one serialised.
    ///
    /// # Errors
    /// If it throws, or makes none.
    pub fn deserialize(self, creator: i32, layer: &str, bytes: &[u8]) -> Result<Instance> {
        let (layer, data) = (name(layer), bytes.as_ptr().cast());
        // SAFETY: the bytes are alive during the call.
        self.made(|made, to| unsafe { (self.0.deserialize)(creator, layer.as_ptr(), data, bytes.len(), made, to) })
    }

    fn made(self, make: impl FnOnce(*mut *mut c_void, *const abi::Answers) -> i32) -> Result<Instance> {
        let mut plugin = std::ptr::null_mut();
        ask(|to| make(&mut plugin, to))?;
        match plugin.is_null() {
            true => Err(Error::new(ErrorKind::Plugin, "its creator made no plugin")),
            false => Ok(Instance { table: self, plugin }),
        }
    }
}

fn name(layer: &str) -> CString {
    CString::new(layer.replace('\0', "")).unwrap_or_default()
}

/// A plugin of a library; dropping it destroys that.
pub struct Instance {
    table: Table,
    plugin: *mut c_void,
}

// SAFETY: plugins are called by one thread at a time, and belong to none.
unsafe impl Send for Instance {}

impl Drop for Instance {
    fn drop(&mut self) {
        // SAFETY: it is ours, and nobody uses it any more.
        unsafe { (self.table.0.destroy)(self.plugin) }
    }
}

// One thread at a time: what is asked needs `&mut`.
impl Instance {
    /// Another one like it.
    ///
    /// # Errors
    /// If it throws, or makes none.
    pub fn duplicate(&mut self) -> Result<Instance> {
        // SAFETY: the plugin is alive.
        self.table
            .made(|made, to| unsafe { (self.table.0.clone)(self.plugin, made, to) })
    }

    /// What a file keeps of it.
    ///
    /// # Errors
    /// If it throws.
    pub fn serialize(&mut self) -> Result<Vec<u8>> {
        // SAFETY: the plugin is alive.
        let said = ask(|to| unsafe { (self.table.0.serialize)(self.plugin, to) })?;
        Ok(said.bytes)
    }

    /// What it always says of itself.
    ///
    /// # Errors
    /// If it throws.
    pub fn traits(&mut self) -> Result<Traits> {
        let (mut outputs, mut devices, mut capturable) = (0, 0, 0);
        // SAFETY: the plugin is alive, and so are the variables.
        ask(|to| unsafe { (self.table.0.traits)(self.plugin, &mut outputs, &mut devices, &mut capturable, to) })?;
        Ok(Traits {
            outputs,
            devices,
            is_capturable: capturable != 0,
        })
    }

    /// The type of one output.
    ///
    /// # Errors
    /// If it throws, or gives what is no type.
    pub fn infer(&mut self, output: i32, inputs: &[TensorType]) -> Result<TensorType> {
        let mut dims = Dims::default();
        let shapes = inputs
            .iter()
            .map(|ty| dims.shape(&ty.shape))
            .collect::<Result<Vec<_>>>()?;
        let dtypes = inputs
            .iter()
            .map(|ty| types::number(ty.dtype))
            .collect::<Result<Vec<_>>>()?;
        let (mut shape, mut dtype) = (abi::Shape::default(), 0);
        let exprs = dims.face();
        let (at, count) = (self.plugin, inputs.len() as i32);
        // SAFETY: the plugin is alive, the arrays have `count` elements, and `dims` is used by nobody else meanwhile.
        let said = ask(|to| unsafe {
            let (shapes, dtypes) = (shapes.as_ptr(), dtypes.as_ptr());
            (self.table.0.infer)(at, output, shapes, dtypes, count, &exprs, &mut shape, &mut dtype, to)
        });
        if let Err(error) = said {
            return Err(dims.reason(error));
        }
        let (shape, dtype): (Vec<Dim>, DType) = (dims.read(&shape)?, types::dtype(dtype)?);
        Ok(TensorType::new(dtype, shape))
    }

    /// Whether it takes the element type of one of these tensors.
    ///
    /// # Errors
    /// If it throws.
    pub fn supports(&mut self, at: usize, all: &[TensorType], inputs: usize) -> Result<bool> {
        let tensors = types::symbolic(all)?;
        let (position, from, to) = (at as i32, inputs as i32, (all.len() - inputs) as i32);
        let mut is_supported = 0;
        // SAFETY: the plugin is alive, and there are `from + to` tensors.
        ask(|answers| unsafe {
            let tensors = tensors.as_ptr();
            (self.table.0.supports)(self.plugin, position, tensors, from, to, &mut is_supported, answers)
        })?;
        Ok(is_supported != 0)
    }

    /// Gets it ready for these shapes; gives the bytes of scratch memory that a run needs.
    ///
    /// # Errors
    /// If it throws.
    pub fn prepare(&mut self, device: Device, inputs: &[Shaped], outputs: &[Shaped]) -> Result<usize> {
        let (kind, ordinal) = match device {
            Device::Cpu => (abi::DEVICE_HOST, 0),
            Device::Cuda(ordinal) => (abi::DEVICE_CUDA, ordinal as i32),
        };
        let (from, to) = (types::concrete(inputs)?, types::concrete(outputs)?);
        let (from_count, to_count) = (from.len() as i32, to.len() as i32);
        let mut workspace = 0;
        // SAFETY: the plugin is alive, and the arrays are as long as is said.
        ask(|answers| unsafe {
            let (from, to) = (from.as_ptr(), to.as_ptr());
            let prepare = self.table.0.prepare;
            prepare(
                self.plugin,
                kind,
                ordinal,
                from,
                from_count,
                to,
                to_count,
                &mut workspace,
                answers,
            )
        })?;
        Ok(workspace)
    }

    /// Runs it, once it is ready.
    ///
    /// # Errors
    /// If it throws, or says that it failed.
    pub fn enqueue(&mut self, run: &Run) -> Result<()> {
        let (inputs, outputs) = (run.inputs.as_ptr().cast(), run.outputs.as_ptr().cast());
        let (workspace, stream) = (run.workspace.cast(), run.stream);
        // SAFETY: the engine gives as many addresses as it was prepared for, of tensors as large.
        ask(|to| unsafe { (self.table.0.enqueue)(self.plugin, inputs, outputs, workspace, stream, to) }).map(drop)
    }
}

/// What a call answered.
#[derive(Default)]
struct Said {
    error: String,
    description: Description,
    bytes: Vec<u8>,
}

fn ask(call: impl FnOnce(*const abi::Answers) -> i32) -> Result<Said> {
    let mut said = Said::default();
    let answers = abi::Answers {
        host: std::ptr::from_mut(&mut said).cast(),
        put,
    };
    let kind = match call(&answers) {
        abi::OK => return Ok(said),
        abi::OUT_OF_MEMORY => ErrorKind::Memory,
        _ => ErrorKind::Plugin,
    };
    Err(Error::new(kind, said.error))
}

extern "C" fn put(host: *mut c_void, what: i32, bytes: *const c_void, size: usize) {
    let note = || {
        if bytes.is_null() || size == 0 {
            return;
        }
        // SAFETY: `host` is what `ask` gave, which waits for the call; the header gives bytes that hold during this one.
        let (said, bytes) = unsafe {
            (
                &mut *host.cast::<Said>(),
                std::slice::from_raw_parts(bytes.cast::<u8>(), size),
            )
        };
        let text = || String::from_utf8_lossy(bytes);
        match what {
            abi::ANSWER_ERROR => said.error.push_str(&text()),
            abi::ANSWER_NAME => said.description.name.push_str(&text()),
            abi::ANSWER_VERSION => said.description.version.push_str(&text()),
            abi::ANSWER_NAMESPACE => said.description.namespace.push_str(&text()),
            abi::ANSWER_BYTES => said.bytes.extend_from_slice(bytes),
            field => said
                .description
                .fields
                .push((text().into_owned(), field - abi::ANSWER_FIELD)),
        }
    };
    // Nothing of ours unwinds into code in C++; what is not noted is missing.
    let _ = catch_unwind(AssertUnwindSafe(note));
}
