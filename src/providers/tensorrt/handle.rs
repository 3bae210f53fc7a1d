//! A network of TensorRT that is being built, safely: what it reads lives as long as it does, and what it refuses is an error.

use super::bridge::ffi::{self, BuildSpec, LayerSpec, Property, WeightsSpec};
use super::hosted;
use super::library::Library;
use super::sink::Sink;
use crate::error::{Error, Result};
use crate::network::array::Array;
use crate::network::dtype::DType;
use cxx::UniquePtr;
use std::pin::Pin;
use std::sync::Arc;

/// A tensor of a [`Session`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tensor(u32);

/// A loop of a [`Session`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoopId(u32);

/// A conditional of a [`Session`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConditionalId(u32);

/// What a layer is made of, by TensorRT's names.
pub struct Spec {
    spec: LayerSpec,
    kept: Vec<Array>,
}

impl Spec {
    /// A layer of this kind.
    pub fn new(kind: &str) -> Self {
        let spec = LayerSpec {
            kind: kind.into(),
            name: String::new(),
            metadata: String::new(),
            inputs: vec![],
            properties: vec![],
            weights: vec![],
        };
        Self { spec, kept: vec![] }
    }

    /// The next input.
    pub fn input(self, tensor: Tensor) -> Self {
        self.optional(Some(tensor))
    }

    /// The next input, which may be left out.
    pub fn optional(mut self, tensor: Option<Tensor>) -> Self {
        self.spec.inputs.push(tensor.map_or(-1, |t| i64::from(t.0)));
        self
    }

    fn property(mut self, name: &str, words: Vec<String>, ints: Vec<i64>, floats: Vec<f32>) -> Self {
        self.spec.properties.push(Property {
            name: name.into(),
            words,
            ints,
            floats,
        });
        self
    }

    /// A value of an enum, by its name.
    pub fn word(self, name: &str, value: &str) -> Self {
        self.property(name, vec![value.into()], vec![], vec![])
    }

    /// Integers.
    pub fn ints(self, name: &str, values: impl Into<Vec<i64>>) -> Self {
        self.property(name, vec![], values.into(), vec![])
    }

    /// An integer or a truth value.
    pub fn int(self, name: &str, value: impl Into<i64>) -> Self {
        self.ints(name, [value.into()])
    }

    /// The loop that the layer is a boundary of.
    pub fn of_loop(self, id: LoopId) -> Self {
        self.int("loop", id.0)
    }

    /// The conditional that the layer is a boundary of.
    pub fn of_conditional(self, id: ConditionalId) -> Self {
        self.int("conditional", id.0)
    }

    /// Numbers.
    pub fn floats(self, name: &str, values: impl Into<Vec<f32>>) -> Self {
        self.property(name, vec![], vec![], values.into())
    }

    /// A number.
    pub fn float(self, name: &str, value: f64) -> Self {
        self.floats(name, [value as f32])
    }

    /// Gives weights the names by which they are replaced, told by where they are.
    pub(super) fn name_weights(&mut self, mut name: impl FnMut(usize) -> Option<String>) {
        for weights in &mut self.spec.weights {
            weights.name = name(weights.address).unwrap_or_default();
        }
    }

    /// The next weights, which are read where they are.
    ///
    /// # Errors
    /// If TensorRT has no such dtype.
    pub fn weights(mut self, array: &Array) -> Result<Self> {
        self.spec.weights.push(weights_spec("", array)?);
        self.kept.push(array.clone());
        Ok(self)
    }
}

/// Where the numbers of an array are, and what they are called when they are replaced.
///
/// # Errors
/// If TensorRT has no such dtype.
pub(super) fn weights_spec(name: &str, array: &Array) -> Result<WeightsSpec> {
    Ok(WeightsSpec {
        name: name.into(),
        dtype: dtype_name(array.dtype())?.into(),
        address: array.bytes().as_ptr() as usize,
        count: array.len(),
    })
}

/// TensorRT's name of a dtype.
///
/// # Errors
/// If it has none such.
pub fn dtype_name(dtype: DType) -> Result<&'static str> {
    Ok(match dtype {
        DType::Float32 => "FLOAT",
        DType::Float16 => "HALF",
        DType::BFloat16 => "BF16",
        DType::Int64 => "INT64",
        DType::Int32 => "INT32",
        DType::Int8 => "INT8",
        DType::UInt8 => "UINT8",
        DType::Bool => "BOOL",
        DType::Float8E4M3FN => "FP8",
        other => return Err(Error::unsupported(format!("TensorRT has no {other}"))),
    })
}

/// What TensorRT says of a tensor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Description {
    /// Its name.
    pub name: String,
    /// Its dtype, as TensorRT calls it.
    pub dtype: String,
    /// Its shape; -1 is an extent that comes with a call.
    pub shape: Vec<i64>,
}

/// What a build gives.
pub(super) struct Built {
    pub plan: Vec<u8>,
    /// What the build measured; empty where this version keeps none.
    pub timing_cache: Vec<u8>,
}

/// A network that is being built.
pub struct Session {
    raw: UniquePtr<ffi::Session>,
    /// The weights that TensorRT reads until the plan is built.
    kept: Vec<Array>,
    layers: usize,
    /// Whose code runs.
    library: Arc<Library>,
}

impl Session {
    /// An empty network.
    ///
    /// # Errors
    /// If the library gives none.
    pub fn new(library: &Arc<Library>, sink: Sink) -> Result<Self> {
        let raw = library.raw().session(Box::new(sink)).map_err(refused)?;
        Ok(Self {
            raw,
            kept: vec![],
            layers: 0,
            library: library.clone(),
        })
    }

    fn raw(&mut self) -> Pin<&mut ffi::Session> {
        self.raw.pin_mut()
    }

    /// Adds an input; -1 is an extent that comes with a call.
    ///
    /// # Errors
    /// If TensorRT does not take it.
    pub fn input(&mut self, name: &str, dtype: DType, shape: &[i64]) -> Result<Tensor> {
        let dtype = dtype_name(dtype).map_err(|e| e.tensor(name))?;
        let added = self.raw().add_input(name, dtype, shape);
        added.map(Tensor).map_err(|e| refused(e).tensor(name))
    }

    /// Adds a layer under this name, with the layers of the source model that it stands for, and gives its outputs.
    ///
    /// # Errors
    /// If TensorRT does not take it.
    pub fn add(&mut self, name: &str, sources: &str, spec: Spec) -> Result<Vec<Tensor>> {
        let Spec { mut spec, kept } = spec;
        spec.name = name.into();
        spec.metadata = sources.into();
        self.kept.extend(kept);
        self.layers += 1;
        // SAFETY: `kept` holds the weights as long as the session.
        let outputs = unsafe { self.raw().add_layer(&spec) }.map_err(refused)?;
        Ok(outputs.into_iter().map(Tensor).collect())
    }

    /// Adds a loop under this name; its boundaries are layers.
    ///
    /// # Errors
    /// If TensorRT gives none.
    pub fn add_loop(&mut self, name: &str) -> Result<LoopId> {
        self.raw().add_loop(name).map(LoopId).map_err(refused)
    }

    /// Adds a conditional under this name; its boundaries are layers.
    ///
    /// # Errors
    /// If TensorRT gives none.
    pub fn add_conditional(&mut self, name: &str) -> Result<ConditionalId> {
        self.raw().add_conditional(name).map(ConditionalId).map_err(refused)
    }

    /// Says what the output of a recurrence is in the next step.
    ///
    /// # Errors
    /// If the first tensor comes from no recurrence.
    pub fn set_next(&mut self, recurrence: Tensor, next: Tensor) -> Result<()> {
        self.raw().set_next(recurrence.0, next.0).map_err(refused)
    }

    /// Whose network it is.
    pub fn library(&self) -> &Arc<Library> {
        &self.library
    }

    /// How many layers were added.
    pub fn layers(&self) -> usize {
        self.layers
    }

    /// Marks a tensor as a result.
    ///
    /// # Errors
    /// If TensorRT does not take it.
    pub fn output(&mut self, tensor: Tensor, name: &str) -> Result<()> {
        let marked = self.raw().mark_output(tensor.0, name);
        marked.map_err(|e| refused(e).tensor(name))
    }

    /// What TensorRT makes of a tensor.
    ///
    /// # Errors
    /// If the tensor belongs to another session.
    pub fn describe(&self, tensor: Tensor) -> Result<Description> {
        let info = self.raw.tensor(tensor.0).map_err(refused)?;
        Ok(Description {
            name: info.name,
            dtype: info.dtype,
            shape: info.shape,
        })
    }

    /// Whether this TensorRT has a builder flag.
    pub fn has_flag(&self, name: &str) -> bool {
        self.raw.has_flag(name).unwrap_or(false)
    }

    /// Builds the plan.
    ///
    /// # Errors
    /// If TensorRT can't; with what it said.
    pub(super) fn build(mut self, spec: &BuildSpec) -> Result<Built> {
        let plan = self.raw().build(spec).map_err(|e| {
            // Of a plugin that fails TensorRT says less than the plugin.
            let error = hosted::take_error().unwrap_or_else(|| Error::device(e.what()));
            error.during("TensorRT builds")
        })?;
        let timing_cache = self.raw.timing_cache().to_vec();
        Ok(Built { plan, timing_cache })
    }
}

fn refused(e: cxx::Exception) -> Error {
    Error::unsupported(e.what())
}
