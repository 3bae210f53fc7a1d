//! Plans that run, safely: an engine is a plan in the library's hands, and a context the state of one call.
//!
//! A plan is native code. Whoever opens one trusts whoever built it; nothing here can check that.

use super::bridge::ffi::{self, ShapeRange};
use super::collector::Collector;
use super::handle::weights_spec;
use super::library::Library;
use super::sink::Sink;
use crate::error::{Error, Result};
use crate::network::array::Array;
use cxx::UniquePtr;
use std::ffi::c_void;
use std::pin::Pin;
use std::sync::Arc;

pub use super::collector::Allocator;

/// The least, expected and greatest shape of an input in a profile, or the same of its values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bounds {
    /// The least.
    pub min: Vec<i64>,
    /// What the plan was tuned for.
    pub opt: Vec<i64>,
    /// The greatest.
    pub max: Vec<i64>,
}

impl Bounds {
    fn hold(&self, dims: &[i64]) -> bool {
        let range = self.min.iter().zip(&self.max);
        dims.len() == self.min.len()
            && dims
                .iter()
                .zip(range)
                .all(|(dim, (min, max))| (min..=max).contains(&dim))
    }
}

impl From<ShapeRange> for Bounds {
    fn from(range: ShapeRange) -> Self {
        let ShapeRange { min, opt, max, .. } = range;
        Self { min, opt, max }
    }
}

/// An input or output of a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IoTensor {
    /// Its name.
    pub name: String,
    /// Its dtype, as TensorRT calls it.
    pub dtype: String,
    /// Its shape; -1 is an extent that comes with a call.
    pub shape: Vec<i64>,
    /// Whether it is an input.
    pub is_input: bool,
    /// Whether TensorRT reads or writes it in the processor's memory.
    pub on_host: bool,
    /// Whether its values tell shapes.
    pub is_shape: bool,
    /// For an input, its shapes in each profile.
    pub profiles: Vec<Bounds>,
    /// For an input that tells shapes, its values in each profile.
    pub values: Vec<Bounds>,
}

/// A plan in the library's hands, shared by all contexts.
pub struct Engine {
    raw: UniquePtr<ffi::Engine>,
    tensors: Vec<IoTensor>,
    /// Whose code runs.
    _library: Arc<Library>,
}

impl Engine {
    /// Opens a plan, which is native code: the caller trusts whoever built it.
    ///
    /// # Errors
    /// If these bytes are no plan, one of another version or for another GPU, or TensorRT does not take it; with what it said.
    pub fn open(library: &Arc<Library>, plan: &[u8], sink: Sink) -> Result<Arc<Self>> {
        let what = || format!("{}, version {}", library.path(), library.version());
        let failed = |e: cxx::Exception| Error::device(e.what()).during("TensorRT opens a plan").got(what());
        if let Some(other) = no_plan(plan) {
            return Err(Error::format(format!("this is no plan of TensorRT but {other}")));
        }
        let raw = library.raw().engine(plan, Box::new(sink)).map_err(failed)?;
        let tensors = raw.tensors().map_err(failed)?;
        let tensors = tensors.into_iter().map(io_tensor).collect::<Result<_>>()?;
        Ok(Arc::new(Self {
            raw,
            tensors,
            _library: library.clone(),
        }))
    }

    /// The inputs and outputs.
    pub fn tensors(&self) -> &[IoTensor] {
        &self.tensors
    }

    /// An input or output by its name.
    ///
    /// # Errors
    /// If there is none such; names those that there are.
    pub fn tensor(&self, name: &str) -> Result<&IoTensor> {
        self.tensors.iter().find(|tensor| tensor.name == name).ok_or_else(|| {
            let names: Vec<_> = self.tensors.iter().map(|tensor| tensor.name.as_str()).collect();
            Error::invalid("the plan has no such input or output")
                .tensor(name)
                .expected(names.join(", "))
        })
    }

    /// The number of profiles, at least 1.
    pub fn profiles(&self) -> usize {
        usize::try_from(self.raw.profiles()).unwrap_or(1).max(1)
    }

    /// The bytes of the GPU's memory that a context needs for every shape of a profile.
    ///
    /// # Errors
    /// If there is no such profile.
    pub fn device_memory(&self, profile: usize) -> Result<usize> {
        let bytes = self.raw.device_memory(self.profile(profile)?).map_err(failed)?;
        size(bytes)
    }

    fn profile(&self, profile: usize) -> Result<i32> {
        let known = Some(profile).filter(|&number| number < self.profiles());
        known.and_then(|number| i32::try_from(number).ok()).ok_or_else(|| {
            Error::invalid(format!("the plan has no profile {profile}"))
                .expected(format!("0 to {}", self.profiles() - 1))
        })
    }

    /// What TensorRT's inspector says of each layer, as JSON.
    ///
    /// # Errors
    /// If it says nothing.
    pub fn layers(&self) -> Result<String> {
        self.raw.layers().map_err(failed)
    }

    /// The bytes of weights that need not stay on the GPU; 0 unless the plan was built for that.
    ///
    /// # Errors
    /// If this version of TensorRT streams no weights.
    pub fn streamable_weights(&self) -> Result<usize> {
        size(self.raw.streamable_weights().map_err(failed)?)
    }

    /// Lets weights take so many bytes of the GPU's memory; `None` is all of them. To be set before the first context.
    ///
    /// # Errors
    /// If this version streams no weights, the plan was not built for it, or contexts are alive.
    pub fn set_weight_budget(&self, bytes: Option<usize>) -> Result<()> {
        let bytes = match bytes {
            Some(bytes) => i64::try_from(bytes).map_err(|_| Error::invalid("a budget of more bytes than there are"))?,
            None => -1,
        };
        self.raw.set_weight_budget(bytes).map_err(failed)
    }

    /// The names of the weights that can be replaced.
    ///
    /// # Errors
    /// If the plan was not built for that.
    pub fn weight_names(&self) -> Result<Vec<String>> {
        self.raw.weight_names().map_err(failed)
    }

    /// Replaces weights by their names in the network. The caller has waited for all that was enqueued.
    ///
    /// # Errors
    /// If the plan was not built for that, a name, count or dtype is not one of its weights, or others must be given with
    /// them: names them.
    pub fn refit(&self, weights: &[(String, Array)]) -> Result<()> {
        let named = weights
            .iter()
            .map(|(name, array)| weights_spec(name, array).map_err(|e| e.tensor(name)));
        let named = named.collect::<Result<Vec<_>>>()?;
        // SAFETY: the arrays are borrowed until the call is over.
        let missing = unsafe { self.raw.refit(&named) };
        let missing = missing.map_err(|e| Error::invalid(e.what()).during("TensorRT replaces weights"))?;
        match missing.first() {
            None => Ok(()),
            Some(first) => Err(
                Error::invalid("weights that belong to these must be replaced with them")
                    .tensor(first)
                    .expected(missing.join(", ")),
            ),
        }
    }
}

/// The state of one call. Its scratch memory is the caller's.
pub struct Context {
    // Dropped before the engine.
    raw: UniquePtr<ffi::Context>,
    engine: Arc<Engine>,
    profile: usize,
}

impl Context {
    /// A context without memory of its own, at profile 0.
    ///
    /// # Errors
    /// If TensorRT gives none.
    pub fn new(engine: &Arc<Engine>) -> Result<Self> {
        let raw = engine.raw.context().map_err(failed)?;
        Ok(Self {
            raw,
            engine: engine.clone(),
            profile: 0,
        })
    }

    /// The engine.
    pub fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    fn raw(&mut self) -> Pin<&mut ffi::Context> {
        self.raw.pin_mut()
    }

    /// Chooses a profile; shapes and addresses are set anew after it.
    ///
    /// # Errors
    /// If there is no such profile, or TensorRT refuses.
    ///
    /// # Safety
    /// The stream must be one of the current CUDA context, or null.
    pub unsafe fn set_profile(&mut self, profile: usize, stream: *mut c_void) -> Result<()> {
        let number = self.engine.profile(profile)?;
        self.raw().set_profile(number, stream as usize).map_err(failed)?;
        self.profile = profile;
        Ok(())
    }

    /// Sets the shape of an input.
    ///
    /// # Errors
    /// If it is no input, or the shape not one of the profile's.
    pub fn set_shape(&mut self, input: &str, dims: &[i64]) -> Result<()> {
        let known = self.input(input)?;
        let fits = |(stated, dim): (&i64, &i64)| *stated < 0 || stated == dim;
        let bounds = known.profiles.get(self.profile);
        let inside = known.shape.len() == dims.len() && known.shape.iter().zip(dims).all(fits);
        if !inside || bounds.is_some_and(|bounds| !bounds.hold(dims)) {
            let range = bounds.map(|bounds| format!(", from {:?} to {:?}", bounds.min, bounds.max));
            return Err(
                Error::shape(format!("profile {} does not have this shape", self.profile))
                    .tensor(input)
                    .expected(format!("{:?}{}", known.shape, range.unwrap_or_default()))
                    .got(format!("{dims:?}")),
            );
        }
        self.raw()
            .set_shape(input, dims)
            .map_err(|e| failed(e).tensor(input).got(format!("{dims:?}")))
    }

    fn input(&self, name: &str) -> Result<&IoTensor> {
        let known = self.engine.tensor(name)?;
        match known.is_input {
            true => Ok(known),
            false => Err(Error::invalid("this is an output").tensor(name)),
        }
    }

    /// The shape of an input or output; -1 is an extent that is not known yet, or depends on data.
    ///
    /// # Errors
    /// If there is none such, or the shapes that were set fit no shape.
    pub fn shape(&self, tensor: &str) -> Result<Vec<i64>> {
        self.engine.tensor(tensor)?;
        self.raw.shape(tensor).map_err(|e| failed(e).tensor(tensor))
    }

    /// Works the shapes of the outputs out; gives the names of the inputs whose shape, or whose values where they tell shapes,
    /// are missing.
    ///
    /// # Errors
    /// If the shapes do not fit each other.
    pub fn infer(&mut self) -> Result<Vec<String>> {
        self.raw().infer().map_err(failed)
    }

    /// The bytes of scratch memory for the shapes that are set.
    ///
    /// # Errors
    /// If TensorRT can't tell.
    pub fn memory(&mut self) -> Result<usize> {
        let profile = self.profile;
        match self.raw().memory().map_err(failed)? {
            // Versions that do not tell of shapes tell of profiles.
            -1 => self.engine.device_memory(profile),
            bytes => size(bytes),
        }
    }

    /// At most how many bytes an output has for the shapes that are set; `None` where TensorRT can't tell.
    pub fn max_bytes(&self, output: &str) -> Option<usize> {
        usize::try_from(self.raw.max_bytes(output)).ok()
    }

    /// Whether what [`Context::enqueue`] puts into this stream can be captured in a graph.
    pub fn capturable(&self, stream: *mut c_void) -> bool {
        self.raw.capturable(stream as usize)
    }

    /// Says where the scratch memory is.
    ///
    /// # Errors
    /// If TensorRT does not take it.
    ///
    /// # Safety
    /// It must be memory of the GPU, aligned to 256 bytes, that nobody else uses until all that is enqueued is over.
    pub unsafe fn set_memory(&mut self, address: *mut c_void, bytes: usize) -> Result<()> {
        // SAFETY: the caller's.
        unsafe { self.raw().set_memory(address as usize, bytes) }.map_err(failed)
    }

    /// Says where an input or output is. What is `on_host` is read when shapes are worked out, and when the call is put into a
    /// stream. Addresses are multiples of 256.
    ///
    /// # Errors
    /// If there is none such, or TensorRT refuses.
    ///
    /// # Safety
    /// It must be memory of the GPU, or of the processor for a tensor that is `on_host`, large enough for its shape, and live
    /// until all that is enqueued is over.
    pub unsafe fn set_address(&mut self, tensor: &str, address: *mut c_void) -> Result<()> {
        self.engine.tensor(tensor)?;
        // SAFETY: the caller's.
        let set = unsafe { self.raw().set_address(tensor, address as usize) };
        set.map_err(|e| failed(e).tensor(tensor))
    }

    /// Lets an allocator give the memory of an output whose size depends on data.
    ///
    /// # Errors
    /// If it is no output, or TensorRT refuses.
    pub fn collect(&mut self, output: &str, allocator: Box<dyn Allocator>) -> Result<()> {
        if self.engine.tensor(output)?.is_input {
            return Err(Error::invalid("this is an input").tensor(output));
        }
        let collector = Box::new(Collector::new(allocator));
        self.raw()
            .collect(output, collector)
            .map_err(|e| failed(e).tensor(output))
    }

    /// Puts the call into a stream.
    ///
    /// # Errors
    /// If TensorRT refuses; with what it said.
    ///
    /// # Safety
    /// The stream must be one of the current CUDA context, all addresses be set, and live until the call is over.
    pub unsafe fn enqueue(&mut self, stream: *mut c_void) -> Result<()> {
        // SAFETY: the caller's.
        let done = unsafe { self.raw().enqueue(stream as usize) };
        done.map_err(|e| failed(e).during("TensorRT runs"))
    }

    /// Whether the next calls are timed layer by layer, which makes them slower.
    pub fn profile_layers(&mut self, wanted: bool) {
        self.raw().profile_layers(wanted);
    }

    /// How many milliseconds each layer of the last call took. The caller has waited for it.
    ///
    /// # Errors
    /// If TensorRT has no times.
    pub fn times(&mut self) -> Result<Vec<(String, f32)>> {
        let times = self.raw().times().map_err(failed)?;
        Ok(times.into_iter().map(|time| (time.layer, time.milliseconds)).collect())
    }
}

fn failed(e: cxx::Exception) -> Error {
    Error::device(e.what())
}

fn size(bytes: i64) -> Result<usize> {
    usize::try_from(bytes).map_err(|_| Error::device(format!("TensorRT tells of {bytes} bytes")))
}

fn io_tensor(info: ffi::IoInfo) -> Result<IoTensor> {
    if !info.layout.is_empty() {
        return Err(
            Error::unsupported("a plan whose inputs and outputs do not lie in row-major order")
                .tensor(info.name)
                .got(info.layout)
                .hint("build it without setAllowedFormats (trtexec: without --inputIOFormats and --outputIOFormats)"),
        );
    }
    Ok(IoTensor {
        name: info.name,
        dtype: info.dtype,
        shape: info.shape,
        is_input: info.is_input,
        on_host: info.on_host,
        is_shape: info.is_shape,
        profiles: info.profiles.into_iter().map(Bounds::from).collect(),
        values: info.values.into_iter().map(Bounds::from).collect(),
    })
}

/// What these bytes are if they can't be a plan.
fn no_plan(plan: &[u8]) -> Option<&'static str> {
    const LEAST: usize = 64;
    let starts: [(&[u8], &str); 4] = [
        (b"PK\x03\x04", "a zip archive, such as PyTorch writes"),
        (b"NRNXENG", "an engine file of Neurenix"),
        (b"\x89HDF", "a file of Keras"),
        (b"{", "JSON"),
    ];
    match plan {
        [] => Some("empty"),
        _ if plan.len() < LEAST => Some("shorter than any"),
        // Ultralytics puts its own words in front of a plan, and how many they are.
        [_, _, 0, 0, b'{', ..] => Some("one behind a header of Ultralytics, which must be cut off"),
        _ => starts
            .iter()
            .find(|(start, _)| plan.starts_with(start))
            .map(|(_, what)| *what),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_can_be_no_plan_is_named() {
        assert_eq!(no_plan(&[]), Some("empty"));
        assert_eq!(no_plan(&[1; 63]), Some("shorter than any"));
        let long = |start: &[u8]| [start, &[0; 64][..]].concat();
        assert!(no_plan(&long(b"PK\x03\x04")).unwrap().contains("PyTorch"));
        assert!(
            no_plan(&long(b"\x10\x02\0\0{\"stride\""))
                .unwrap()
                .contains("Ultralytics")
        );
        assert_eq!(no_plan(&long(b"ftrt")), None);
    }

    #[test]
    fn bounds_hold_what_lies_between() {
        let (min, opt, max) = (vec![1, 3], vec![4, 3], vec![8, 3]);
        let bounds = Bounds { min, opt, max };
        assert!(bounds.hold(&[1, 3]) && bounds.hold(&[8, 3]));
        assert!(!bounds.hold(&[9, 3]) && !bounds.hold(&[1, 2]) && !bounds.hold(&[1]));
    }
}
