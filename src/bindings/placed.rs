//! Calls on arrays whose addresses Python knows: those of a GPU among them.

use super::calls;
use super::context::Crossing;
use crate::context::{ContextPool, ExecutionContext, LayerTime};
use crate::device::Space;
use crate::error::{Error, Result};
use crate::fingerprint::fingerprint;
use crate::network::dtype::DType;
use crate::runtime::bindings::ArrayAddress;
use crate::runtime::streams::CallerStream;
use pyo3::prelude::*;

/// The location of an array: its address, and the number of its GPU, or None in the processor's memory.
pub type Location = (usize, Option<u32>);

fn array_address(&(address, device): &Location, is_held: bool) -> ArrayAddress {
    ArrayAddress {
        address: address as *mut u8,
        space: device.map_or(Space::Host, Space::Device),
        is_held,
    }
}

/// What a few words of each array in the processor's memory come to, by address and bytes that Python's side vouches
/// for: another number where somebody wrote to it.
#[pyfunction]
pub fn fingerprints(addresses: Vec<usize>, sizes: Vec<usize>) -> Vec<u64> {
    let arrays = addresses.into_iter().zip(sizes);
    // SAFETY: Python's side has the tensors at these addresses, of at least so many bytes.
    let one = |(address, bytes): (usize, usize)| unsafe { fingerprint(address as *const u8, bytes) };
    arrays.map(one).collect()
}

/// The types that a context prepares for.
pub fn types(dtypes: impl Iterator<Item = DType>, shapes: &[Vec<usize>]) -> Vec<(DType, &[usize])> {
    dtypes
        .zip(shapes)
        .map(|(dtype, shape)| (dtype, shape.as_slice()))
        .collect()
}

/// A call on arrays that Python's side vouches for: their dtypes are those of the ports, and they are dense.
pub struct Call {
    /// The address of each input, in order.
    pub inputs: Vec<Location>,
    /// Their shapes.
    pub shapes: Vec<Vec<usize>>,
    /// The address of each output, in order; its shape is what `specs` says.
    pub outputs: Vec<Location>,
    /// The GPU of the caller's stream, and the stream.
    pub stream: Option<(u32, usize)>,
    /// Whether each kernel is timed.
    pub timed: bool,
    /// Whether a framework holds the memory of the arrays.
    pub held: bool,
}

/// The result of a call: whether the shapes lay inside a profile, and the time of each kernel where that was asked for.
pub type CallReport = (bool, Vec<LayerTime>);

impl Call {
    /// Runs it.
    ///
    /// # Errors
    /// As [`ExecutionContext::prepare_for`] and [`ExecutionContext::run`].
    pub fn run(self, py: Python<'_>, pool: &ContextPool, dtypes: impl Iterator<Item = DType>) -> Result<CallReport> {
        let dtypes: Vec<DType> = dtypes.collect();
        let mut lent = match pool.try_lend() {
            Some(context) => context,
            None => calls::interruptible(py, || pool.lend())?,
        };
        let arrays = |given: &[Location]| given.iter().map(|one| array_address(one, self.held)).collect();
        let crossing = Crossing(arrays(&self.inputs), arrays(&self.outputs));
        let foreign = self.stream.map(|(device, raw)| CallerStream {
            space: Space::Device(device),
            raw: raw as *mut std::ffi::c_void,
        });
        let context: &mut ExecutionContext = &mut lent;
        let network = &context.engine().network;
        let (inputs, outputs) = (network.inputs().len(), network.outputs().len());
        if (crossing.0.len(), self.shapes.len(), crossing.1.len()) != (inputs, inputs, outputs) {
            return Err(
                Error::invalid("each input needs an address and a shape, each output an address")
                    .expected(format!("{inputs} inputs, {outputs} outputs"))
                    .got(format!(
                        "{} inputs, {} shapes, {} outputs",
                        crossing.0.len(),
                        self.shapes.len(),
                        crossing.1.len()
                    )),
            );
        }
        let types = types(dtypes.into_iter(), &self.shapes);
        if !context.is_ready_for(&types, &crossing.0, &crossing.1) {
            let arrays = &crossing;
            calls::interruptible(py, || {
                context.specs(&types)?;
                context.prepare_for(&arrays.0, &arrays.1)
            })?;
        }
        calls::released(py, || {
            let (crossing, foreign) = (crossing, foreign);
            let mut times = vec![];
            // SAFETY: Python's side keeps the arrays until the work in its stream is done, as frameworks do.
            match self.timed {
                true => times = unsafe { context.profile_run(&crossing.0, &crossing.1) }?,
                false => unsafe { context.run(&crossing.0, &crossing.1, foreign.as_ref()) }?,
            }
            Ok((context.profile().is_none_or(|(_, inside)| inside), times))
        })
    }
}
