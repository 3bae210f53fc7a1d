//! How long calls take on arrays that stay on a device.

use crate::context::ExecutionContext;
use crate::device::{Device, Memory, Space};
use crate::error::{Error, Result};
use crate::network::array::Array;
use crate::runtime::bindings::ArrayAddress;
use crate::runtime::streams::CallerStream;

/// Calls before those that are timed: libraries load what they need in the first one, graphs are captured in the next.
const FIRST: usize = 3;

impl ExecutionContext {
    /// Nanoseconds of one of so many calls behind each other, whose inputs and outputs lie on the device that runs the network's
    /// first kernels on one.
    ///
    /// # Errors
    /// As [`ExecutionContext::prepare`] and [`ExecutionContext::run`]; if no kernel runs on a device.
    pub fn time_on_device(&mut self, inputs: &[Array], calls: usize) -> Result<u64> {
        let types: Vec<_> = inputs.iter().map(|a| (a.dtype(), a.shape())).collect();
        let specs = self.specs(&types)?.to_vec();
        let program = self.program()?;
        let provider = program
            .providers
            .iter()
            .find(|provider| provider.space() != Space::Host);
        let provider = provider.ok_or_else(|| Error::invalid("no kernel of the engine runs on a device"))?;
        let device = provider.device();
        let stream = device.stream()?;
        let allocate = |bytes: usize| device.allocate(bytes);
        let given = inputs.iter().map(|array| allocate(array.bytes().len()));
        let given = given.collect::<Result<Vec<_>>>()?;
        let made = specs.iter().map(|spec| allocate(spec.bytes()));
        let made = made.collect::<Result<Vec<_>>>()?;
        let copied = given.iter().zip(inputs).try_for_each(|(memory, array)| {
            let from = array.bytes();
            // SAFETY: both hold so many bytes, and live until the stream was waited for.
            unsafe { device.copy(memory.address(), from.as_ptr(), from.len(), &*stream) }
        });
        stream.synchronize().and(copied)?;
        let [from, to] = [addresses(device, &given), addresses(device, &made)];
        let caller = CallerStream {
            space: device.space(),
            raw: stream.raw(),
        };
        let mut run = |count: usize| {
            // SAFETY: the memory lives until the stream was waited for, and has the prepared shapes.
            (0..count).try_for_each(|_| unsafe { self.run(&from, &to, Some(&caller)) })
        };
        let timed = run(FIRST).and_then(|()| stream.time(&mut || run(calls)));
        // Whether or not a call failed, nobody may work in the memory when it goes.
        stream.synchronize().and_then(|()| self.finish())?;
        Ok(timed? / calls.max(1) as u64)
    }
}

fn addresses(device: &dyn Device, memory: &[Box<dyn Memory>]) -> Vec<ArrayAddress> {
    let space = device.space();
    let place = |address| ArrayAddress {
        address,
        space,
        is_held: true,
    };
    memory.iter().map(|memory| place(memory.address())).collect()
}
