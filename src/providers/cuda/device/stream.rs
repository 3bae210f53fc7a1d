//! Streams, captured graphs and events.

use super::Device;
use super::lanes::Lanes;
use crate::device::{self, Capture, NumberedJob};
use crate::error::Result;

use crate::providers::cuda::library::driver::{self, Handle};
use std::ffi::{c_int, c_uint, c_void};
use std::sync::Arc;

impl Device {
    /// A stream of its own.
    ///
    /// # Errors
    /// If the driver refuses.
    pub fn stream(self: &Arc<Self>) -> Result<Stream> {
        let _entered = self.enter()?;
        let mut stream = std::ptr::null_mut();
        // SAFETY: the handle is written.
        let status = unsafe { (self.driver.cuStreamCreate)(&mut stream, driver::STREAM_NON_BLOCKING) };
        self.check("cuStreamCreate", status)?;
        Ok(Stream {
            device: self.clone(),
            stream,
        })
    }

    /// An event, with these flags.
    ///
    /// # Errors
    /// If the driver refuses.
    pub fn event(self: &Arc<Self>, flags: c_uint) -> Result<Event> {
        let _entered = self.enter()?;
        let mut event = std::ptr::null_mut();
        // SAFETY: the handle is written.
        self.check("cuEventCreate", unsafe {
            (self.driver.cuEventCreate)(&mut event, flags)
        })?;
        Ok(Event {
            device: self.clone(),
            event,
        })
    }

    /// A stream that somebody else made.
    ///
    /// # Safety
    /// It must be one of this GPU, or the default one, and outlive what is returned.
    pub unsafe fn adopt(self: &Arc<Self>, stream: Handle) -> Adopted {
        // Nobody captures the default stream.
        let is_default = stream.is_null() || stream == driver::STREAM_LEGACY;
        Adopted {
            device: self.clone(),
            stream,
            is_default,
            capturing: !is_default && self.is_capturing(stream),
        }
    }

    fn is_capturing(&self, stream: Handle) -> bool {
        /// `CU_STREAM_CAPTURE_STATUS_ACTIVE`.
        const ACTIVE: c_int = 1;
        let mut status = 0;
        let entered = self.enter();
        // SAFETY: the number is written. What is wrong with the stream shows where it is used first.
        let asked = entered.is_ok_and(|_| unsafe { (self.driver.cuStreamIsCapturing)(stream, &mut status) } == 0);
        asked && status == ACTIVE
    }

    fn wait_for(&self, stream: Handle) -> Result<()> {
        let _entered = self.enter()?;
        // SAFETY: the stream is alive.
        self.check("cuStreamSynchronize", unsafe {
            (self.driver.cuStreamSynchronize)(stream)
        })
    }
}

/// A stream of a GPU.
pub struct Stream {
    device: Arc<Device>,
    stream: Handle,
}

// SAFETY: a stream may be used from any thread.
unsafe impl Send for Stream {}

impl Stream {
    /// As [`device::Stream::time`], with a fraction.
    ///
    /// # Errors
    /// What the job returns, or if something fails.
    pub fn nanoseconds(&self, job: &mut dyn FnMut() -> Result<()>) -> Result<f64> {
        let (start, end) = (self.device.event(0)?, self.device.event(0)?);
        start.record_in(self.stream)?;
        job()?;
        end.record_in(self.stream)?;
        end.since(&start)
    }

    /// The least of so many such times.
    ///
    /// # Errors
    /// As [`Stream::nanoseconds`].
    pub fn least_time(&self, repeats: usize, job: &mut dyn FnMut() -> Result<()>) -> Result<f64> {
        (0..repeats).try_fold(f64::INFINITY, |least, _| Ok(self.nanoseconds(job)?.min(least)))
    }

    fn end_capture(&self) -> Result<Captured<'_>> {
        let mut graph = std::ptr::null_mut();
        // SAFETY: the handle is written.
        let status = unsafe { (self.device.driver.cuStreamEndCapture)(self.stream, &mut graph) };
        self.device.check("cuStreamEndCapture", status)?;
        Ok(Captured {
            device: &self.device,
            graph,
        })
    }
}

impl device::Stream for Stream {
    fn raw(&self) -> *mut c_void {
        self.stream
    }

    fn synchronize(&self) -> Result<()> {
        self.device.wait_for(self.stream)
    }

    fn time(&self, job: &mut dyn FnMut() -> Result<()>) -> Result<u64> {
        Ok(self.nanoseconds(job)? as u64)
    }

    fn capture(&self) -> Option<&dyn Capture> {
        Some(self)
    }
}

impl Capture for Stream {
    fn graph(&self, after: &[Vec<usize>], job: NumberedJob) -> Result<Box<dyn device::Graph>> {
        let _entered = self.device.enter()?;
        let driver = self.device.driver;
        let mut lanes = Lanes::new(&self.device, self, after.len())?;
        // SAFETY: the stream is alive, and nobody else uses it.
        let status = unsafe { (driver.cuStreamBeginCapture_v2)(self.stream, driver::CAPTURE_THREAD_LOCAL) };
        self.device.check("cuStreamBeginCapture", status)?;
        let done = lanes.record(after, job);
        // There is a graph even if the job failed.
        let captured = self.end_capture();
        done?;
        let captured = captured?;
        let only_kernels = captured.has_only_kernels();
        let mut instance = std::ptr::null_mut();
        // SAFETY: the graph is alive; an instance does not need it any longer.
        let status = unsafe { (driver.cuGraphInstantiateWithFlags)(&mut instance, captured.graph, 0) };
        self.device.check("cuGraphInstantiate", status)?;
        Ok(Box::new(Graph {
            device: self.device.clone(),
            instance,
            only_kernels,
        }))
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let Ok(_entered) = self.device.enter() else { return };
        // SAFETY: it is not used any more; the driver lets it run empty.
        unsafe { (self.device.driver.cuStreamDestroy_v2)(self.stream) };
    }
}

/// A stream of somebody else's.
pub struct Adopted {
    device: Arc<Device>,
    stream: Handle,
    is_default: bool,
    capturing: bool,
}

// SAFETY: a stream may be used from any thread.
unsafe impl Send for Adopted {}

impl device::Stream for Adopted {
    fn raw(&self) -> *mut c_void {
        self.stream
    }

    fn synchronize(&self) -> Result<()> {
        self.device.wait_for(self.stream)
    }

    fn is_default(&self) -> bool {
        self.is_default
    }

    fn is_capturing(&self) -> bool {
        self.capturing
    }
}

/// What a stream captured.
struct Captured<'a> {
    device: &'a Device,
    graph: Handle,
}

impl Captured<'_> {
    /// As [`device::Graph::has_only_kernels`]; no, where the driver does not say.
    fn has_only_kernels(&self) -> bool {
        let driver = self.device.driver;
        let mut count = 0;
        // SAFETY: without room for nodes their number is written.
        let counted = unsafe { (driver.cuGraphGetNodes)(self.graph, std::ptr::null_mut(), &mut count) };
        let mut nodes = vec![std::ptr::null_mut(); count];
        // SAFETY: there is room for so many nodes.
        let listed = unsafe { (driver.cuGraphGetNodes)(self.graph, nodes.as_mut_ptr(), &mut count) };
        let is_kernel = |&node: &Handle| {
            let mut kind = -1;
            // SAFETY: the number is written.
            let asked = unsafe { (driver.cuGraphNodeGetType)(node, &mut kind) };
            asked == 0 && kind == driver::NODE_KERNEL
        };
        counted == 0 && listed == 0 && nodes.iter().all(is_kernel)
    }
}

impl Drop for Captured<'_> {
    fn drop(&mut self) {
        let Ok(_entered) = self.device.enter() else { return };
        // SAFETY: it is not used any more.
        unsafe { (self.device.driver.cuGraphDestroy)(self.graph) };
    }
}

/// A captured graph that can be launched.
struct Graph {
    device: Arc<Device>,
    instance: Handle,
    only_kernels: bool,
}

// SAFETY: a graph may be launched from any thread, one at a time.
unsafe impl Send for Graph {}

impl device::Graph for Graph {
    fn launch(&mut self, stream: &dyn device::Stream) -> Result<()> {
        let _entered = self.device.enter()?;
        // SAFETY: what it was captured from (kernels, arena, constants) lives as long as the context that owns it.
        let status = unsafe { (self.device.driver.cuGraphLaunch)(self.instance, stream.raw()) };
        self.device.check("cuGraphLaunch", status)
    }

    fn has_only_kernels(&self) -> bool {
        self.only_kernels
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        let Ok(_entered) = self.device.enter() else { return };
        // SAFETY: it is not used any more.
        unsafe { (self.device.driver.cuGraphExecDestroy)(self.instance) };
    }
}

/// A point in a stream.
pub struct Event {
    device: Arc<Device>,
    event: Handle,
}

// SAFETY: an event may be used from any thread.
unsafe impl Send for Event {}

impl Event {
    fn record_in(&self, stream: Handle) -> Result<()> {
        let _entered = self.device.enter()?;
        // SAFETY: both are alive.
        self.device.check("cuEventRecord", unsafe {
            (self.device.driver.cuEventRecord)(self.event, stream)
        })
    }

    /// Nanoseconds from another event to this one, which it waits for.
    fn since(&self, start: &Event) -> Result<f64> {
        device::Event::synchronize(self)?;
        let _entered = self.device.enter()?;
        let mut milliseconds = 0.0;
        // SAFETY: both are alive and recorded.
        let status = unsafe { (self.device.driver.cuEventElapsedTime)(&mut milliseconds, start.event, self.event) };
        self.device.check("cuEventElapsedTime", status)?;
        Ok(f64::from(milliseconds) * 1e6)
    }
}

impl device::Event for Event {
    fn record(&self, stream: &dyn device::Stream) -> Result<()> {
        self.record_in(stream.raw())
    }

    fn record_default(&self) -> Result<()> {
        self.record_in(driver::STREAM_LEGACY)
    }

    fn hold(&self, stream: &dyn device::Stream) -> Result<()> {
        let _entered = self.device.enter()?;
        // SAFETY: both are alive.
        self.device.check("cuStreamWaitEvent", unsafe {
            (self.device.driver.cuStreamWaitEvent)(stream.raw(), self.event, 0)
        })
    }

    fn synchronize(&self) -> Result<()> {
        let _entered = self.device.enter()?;
        // SAFETY: the event is alive.
        self.device.check("cuEventSynchronize", unsafe {
            (self.device.driver.cuEventSynchronize)(self.event)
        })
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        let Ok(_entered) = self.device.enter() else { return };
        // SAFETY: it is not used any more.
        unsafe { (self.device.driver.cuEventDestroy_v2)(self.event) };
    }
}
