//! Streams, captured graphs and events.

use super::Device;
use crate::error::Result;
use crate::plan::{Queue, Recorder, Recording};
use crate::providers::cuda::library::driver::{self, Handle};
use std::ffi::c_void;
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
}

/// A stream of a GPU.
pub struct Stream {
    device: Arc<Device>,
    stream: Handle,
}

// SAFETY: a stream may be used from any thread.
unsafe impl Send for Stream {}

impl Stream {
    /// Nanoseconds that the GPU takes for what a job puts into the stream.
    ///
    /// # Errors
    /// What the job returns, or if something fails.
    pub fn time(&self, job: &mut dyn FnMut() -> Result<()>) -> Result<f64> {
        let (start, end) = (Event::new(&self.device)?, Event::new(&self.device)?);
        start.record(self)?;
        job()?;
        end.record(self)?;
        end.since(&start)
    }

    fn end_capture(&self) -> Result<Handle> {
        let mut graph = std::ptr::null_mut();
        // SAFETY: the handle is written.
        let status = unsafe { (self.device.driver.cuStreamEndCapture)(self.stream, &mut graph) };
        self.device.check("cuStreamEndCapture", status).map(|()| graph)
    }
}

impl Queue for Stream {
    fn raw(&self) -> *mut c_void {
        self.stream
    }

    fn finish(&self) -> Result<()> {
        let _entered = self.device.enter()?;
        // SAFETY: the stream is alive.
        self.device.check("cuStreamSynchronize", unsafe {
            (self.device.driver.cuStreamSynchronize)(self.stream)
        })
    }

    fn recorder(&self) -> Option<&dyn Recorder> {
        Some(self)
    }
}

impl Recorder for Stream {
    fn record(&self, job: &mut dyn FnMut() -> Result<()>) -> Result<Box<dyn Recording>> {
        let _entered = self.device.enter()?;
        let driver = self.device.driver;
        // SAFETY: the stream is alive, and nobody else uses it.
        let status = unsafe { (driver.cuStreamBeginCapture_v2)(self.stream, driver::CAPTURE_THREAD_LOCAL) };
        self.device.check("cuStreamBeginCapture", status)?;
        let done = job();
        let graph = self.end_capture();
        done?;
        let graph = graph?;
        let mut instance = std::ptr::null_mut();
        // SAFETY: the graph was captured just now; an instance does not need it any longer.
        let status = unsafe { (driver.cuGraphInstantiateWithFlags)(&mut instance, graph, 0) };
        unsafe { (driver.cuGraphDestroy)(graph) };
        self.device.check("cuGraphInstantiate", status)?;
        Ok(Box::new(Graph {
            device: self.device.clone(),
            instance,
            stream: self.stream,
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

/// A captured graph. The stream that it was captured on outlives it: both belong to one context.
struct Graph {
    device: Arc<Device>,
    instance: Handle,
    stream: Handle,
}

// SAFETY: a graph may be launched from any thread, one at a time.
unsafe impl Send for Graph {}

impl Recording for Graph {
    fn replay(&mut self) -> Result<()> {
        let _entered = self.device.enter()?;
        // SAFETY: what it was captured from (kernels, arena, constants) lives as long as the context that owns it.
        let status = unsafe { (self.device.driver.cuGraphLaunch)(self.instance, self.stream) };
        self.device.check("cuGraphLaunch", status)
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        let Ok(_entered) = self.device.enter() else { return };
        // SAFETY: it is not used any more.
        unsafe { (self.device.driver.cuGraphExecDestroy)(self.instance) };
    }
}

struct Event<'a> {
    device: &'a Device,
    event: Handle,
}

impl<'a> Event<'a> {
    fn new(device: &'a Device) -> Result<Self> {
        let _entered = device.enter()?;
        let mut event = std::ptr::null_mut();
        // SAFETY: the handle is written.
        device.check("cuEventCreate", unsafe { (device.driver.cuEventCreate)(&mut event, 0) })?;
        Ok(Self { device, event })
    }

    fn record(&self, stream: &Stream) -> Result<()> {
        let _entered = self.device.enter()?;
        // SAFETY: both are alive.
        self.device.check("cuEventRecord", unsafe {
            (self.device.driver.cuEventRecord)(self.event, stream.stream)
        })
    }

    /// Nanoseconds from another event to this one, which it waits for.
    fn since(&self, start: &Event) -> Result<f64> {
        let _entered = self.device.enter()?;
        let mut milliseconds = 0.0;
        // SAFETY: both are alive and recorded.
        unsafe {
            self.device.check(
                "cuEventSynchronize",
                (self.device.driver.cuEventSynchronize)(self.event),
            )?;
            let status = (self.device.driver.cuEventElapsedTime)(&mut milliseconds, start.event, self.event);
            self.device.check("cuEventElapsedTime", status)?;
        }
        Ok(f64::from(milliseconds) * 1e6)
    }
}

impl Drop for Event<'_> {
    fn drop(&mut self) {
        let Ok(_entered) = self.device.enter() else { return };
        // SAFETY: it is not used any more.
        unsafe { (self.device.driver.cuEventDestroy_v2)(self.event) };
    }
}
