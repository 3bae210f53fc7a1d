//! An engine that is open, and what is said of it once and for all.

use super::arguments::c_string;
use super::log::{Level, tell};
use crate::engine::Engine;
use crate::engine::config::Precision;
use crate::error::{Error, Result};
use crate::network::TensorId;
use crate::network::dim::{Binding, Dim, Range};
use crate::network::dtype::DType;
use crate::network::op::TensorType;
use std::ffi::{CStr, CString, c_char};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

/// An engine, and texts and numbers that C's side points to as long as it is open.
pub struct OpenEngine {
    /// The engine.
    pub engine: Arc<Engine>,
    /// Its name.
    pub name: CString,
    /// What the user should know.
    pub notes: CString,
    /// The GPUs whose memory it reaches.
    pub devices: Vec<i32>,
    /// Its inputs, in order.
    pub inputs: Vec<Port>,
    /// Its outputs, in order.
    pub outputs: Vec<Port>,
    report: OnceLock<CString>,
    told_outside: AtomicBool,
    told_degraded: AtomicBool,
}

/// An input or output.
pub struct Port {
    /// Its name.
    pub name: CString,
    /// Its element type.
    pub dtype: DType,
    /// Its extents, -1 for one that calls give.
    pub dims: Vec<i64>,
    symbols: Vec<Option<CString>>,
    addresses: Addresses,
}

/// Addresses of texts that do not change.
struct Addresses(Vec<*const c_char>);

// SAFETY: the texts are owned by the port, never change, and anybody may read them.
unsafe impl Send for Addresses {}
// SAFETY: as above.
unsafe impl Sync for Addresses {}

impl Port {
    fn new(name: &str, ty: &TensorType) -> Self {
        let dims = ty.shape.iter();
        let symbols: Vec<_> = dims.clone().map(symbol).collect();
        let address = |text: &Option<CString>| text.as_ref().map_or(std::ptr::null(), |text| text.as_ptr());
        Self {
            name: c_string(name),
            dtype: ty.dtype,
            dims: dims.map(|dim| dim.as_const().unwrap_or(-1)).collect(),
            addresses: Addresses(symbols.iter().map(address).collect()),
            symbols,
        }
    }

    /// For each dimension the address of its name, null for a fixed one.
    pub fn symbols(&self) -> *const *const c_char {
        debug_assert_eq!(self.symbols.len(), self.addresses.0.len());
        self.addresses.0.as_ptr()
    }
}

/// What a dimension that is not fixed is called.
fn symbol(dim: &Dim) -> Option<CString> {
    match (dim.as_const(), dim.as_symbol()) {
        (Some(_), _) => None,
        (None, Some(symbol)) => Some(c_string(symbol)),
        (None, None) => Some(c_string(&dim.to_string())),
    }
}

/// Which value of a range is meant.
#[derive(Debug, Clone, Copy)]
pub enum Bound {
    /// The least.
    Min,
    /// The expected one.
    Opt,
    /// The greatest.
    Max,
}

impl Bound {
    fn of(self, range: &Range) -> i64 {
        match self {
            Bound::Min => range.min,
            Bound::Opt => range.opt,
            Bound::Max => range.max,
        }
    }
}

impl OpenEngine {
    /// An engine with what is to be known of it; `notes` are those of opening it.
    pub fn new(engine: Engine, notes: &[String]) -> Self {
        let network = &engine.network;
        let input = |&id: &TensorId| Port::new(&network[id].name, &network[id].ty);
        let inputs = network.inputs().iter().map(input).collect();
        let outputs = network.outputs().iter();
        let outputs = outputs.map(|o| Port::new(&o.name, &network[o.tensor].ty)).collect();
        let spaces = engine.plans.iter().flat_map(|plan| plan.program.spaces());
        let mut devices: Vec<i32> = spaces.filter_map(|space| space.device()).map(|d| d as i32).collect();
        devices.sort();
        devices.dedup();
        let mut lines = notes.to_vec();
        lines.extend(engine.notes.iter().cloned());
        Self {
            name: c_string(&network.name),
            notes: c_string(&lines.join("\n")),
            devices,
            inputs,
            outputs,
            report: OnceLock::new(),
            told_outside: AtomicBool::new(false),
            told_degraded: AtomicBool::new(false),
            engine: Arc::new(engine),
        }
    }

    /// What was asked for.
    pub fn precision(&self) -> &'static CStr {
        match self.engine.config.precision() {
            Precision {
                tf32: true,
                dtype: DType::Float32,
            } => c"tf32",
            Precision {
                dtype: DType::BFloat16, ..
            } => c"bf16",
            Precision {
                dtype: DType::Float16, ..
            } => c"fp16",
            _ => c"fp32",
        }
    }

    /// A shape of an input in a profile.
    ///
    /// # Errors
    /// If there is no such profile or input.
    pub fn profile_shape(&self, profile: usize, input: usize, bound: Bound) -> Result<Vec<i64>> {
        let count = self.engine.profiles().count();
        let ranges = self.engine.profiles().nth(profile);
        let ranges = ranges.ok_or_else(|| no_such("profile", profile, count))?;
        let network = &self.engine.network;
        let inputs = network.inputs();
        let tensor = inputs.get(input).ok_or_else(|| no_such("input", input, inputs.len()))?;
        let value = |(name, declared): (&Arc<str>, &Range)| {
            let range = ranges.get(name).unwrap_or(declared);
            (name.clone(), bound.of(range))
        };
        let binding: Binding = network.symbols.iter().map(value).collect();
        let dims = &network[*tensor].ty.shape;
        dims.iter().map(|dim| dim.eval(&binding)).collect()
    }

    /// What the engine does at the opt shapes of its first profile, as JSON.
    ///
    /// # Errors
    /// If a kernel can't be prepared.
    pub fn report(&self) -> Result<&CStr> {
        if let Some(report) = self.report.get() {
            return Ok(report);
        }
        let profile = self.engine.profiles().next();
        let symbols = self.engine.network.symbols.iter();
        let value = |(name, declared): (&Arc<str>, &Range)| {
            let range = profile.and_then(|profile| profile.get(name)).unwrap_or(declared);
            (name.clone(), range.opt)
        };
        let report = self.engine.report(&symbols.map(value).collect())?;
        let text = serde_json::to_string(&report).map_err(|e| Error::internal(e.to_string()))?;
        Ok(self.report.get_or_init(|| c_string(&text)))
    }

    /// Tells once what a call showed: shapes outside of every profile, and why calls are slower than they could be.
    pub fn tell_of_call(&self, inside: bool) {
        if !inside && !self.told_outside.swap(true, Ordering::Relaxed) {
            let text = "the shapes of a call lie outside of every profile; it runs, but was not optimised for them";
            tell(Level::Warning, text);
        }
        if let Some(why) = self.engine.degraded()
            && !self.told_degraded.swap(true, Ordering::Relaxed)
        {
            tell(Level::Warning, &format!("calls are slower than they could be: {why}"));
        }
    }
}

/// What is asked for by a number that is too great.
pub fn no_such(what: &str, index: usize, count: usize) -> Error {
    let error = Error::invalid(format!("there is no {what} of this number")).got(index.to_string());
    match count {
        0 => error.expected(format!("none: there is no {what}")),
        count => error.expected(format!("0 to {}", count - 1)),
    }
}
