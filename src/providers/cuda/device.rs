//! One GPU: its context, memory, streams and modules. What the driver gives is given back when it is dropped.

use super::library::driver::{self, Driver, Handle, attribute, driver};
use crate::error::{Error, Result};
use crate::plan::{Call, Memory, Queue, Recorder, Recording};
use std::ffi::{CStr, CString, c_int, c_uint, c_void};
use std::sync::Arc;

/// A GPU with its primary context, which PyTorch and others share.
pub struct Device {
    /// Its number among those that the process sees.
    pub ordinal: u32,
    /// Its name.
    pub name: String,
    /// Its compute capability.
    pub capability: (i32, i32),
    /// Number of streaming multiprocessors.
    pub multiprocessors: u32,
    /// Bytes of its second-level cache.
    pub l2_bytes: usize,
    /// Bytes of shared memory that a block may have.
    pub shared_bytes: usize,
    /// Bytes of its memory.
    pub total_memory: usize,
    /// The driver's version: 1000 x major + 10 x minor.
    pub driver_version: i32,
    driver: &'static Driver,
    context: Handle,
    process: u32,
}

// SAFETY: the driver may be called from any thread; the context is only named here.
unsafe impl Send for Device {}
// SAFETY: as above.
unsafe impl Sync for Device {}

/// The oldest compute capability that the kernels are written for.
const OLDEST: (i32, i32) = (7, 5);

/// How many GPUs there are.
///
/// # Errors
/// If there is no driver.
pub fn count() -> Result<u32> {
    let driver = driver()?;
    let mut count = 0;
    // SAFETY: the number is written.
    driver.check("cuDeviceGetCount", unsafe { (driver.cuDeviceGetCount)(&mut count) })?;
    Ok(count.max(0) as u32)
}

impl Device {
    /// Opens a GPU.
    ///
    /// # Errors
    /// If there is no such one, or it is too old.
    pub fn open(ordinal: u32) -> Result<Arc<Self>> {
        let driver = driver()?;
        let there = count()?;
        if ordinal >= there {
            return Err(Error::device(format!("there is no GPU {ordinal}"))
                .expected(format!("0 to {}", i64::from(there) - 1))
                .hint("see that CUDA_VISIBLE_DEVICES does not hide it"));
        }
        let (mut device, mut context, mut total, mut version) = (0, std::ptr::null_mut(), 0, 0);
        let mut name = [0u8; 128];
        // SAFETY: everything that is written is of the type that the driver writes.
        unsafe {
            driver.check("cuDeviceGet", (driver.cuDeviceGet)(&mut device, ordinal as c_int))?;
            let length = name.len() as c_int - 1;
            driver.check(
                "cuDeviceGetName",
                (driver.cuDeviceGetName)(name.as_mut_ptr().cast(), length, device),
            )?;
            driver.check("cuDeviceTotalMem", (driver.cuDeviceTotalMem_v2)(&mut total, device))?;
            driver.check("cuDriverGetVersion", (driver.cuDriverGetVersion)(&mut version))?;
        }
        let read = |which: c_int| -> Result<c_int> {
            let mut value = 0;
            // SAFETY: the number is written.
            let status = unsafe { (driver.cuDeviceGetAttribute)(&mut value, which, device) };
            driver.check("cuDeviceGetAttribute", status).map(|()| value)
        };
        let capability = (read(attribute::CAPABILITY_MAJOR)?, read(attribute::CAPABILITY_MINOR)?);
        let name = CStr::from_bytes_until_nul(&name)
            .map_or("".into(), CStr::to_string_lossy)
            .into_owned();
        if capability < OLDEST {
            return Err(Error::device(format!("GPU {ordinal} ({name}) is too old"))
                .expected(format!("compute capability {}.{} or newer", OLDEST.0, OLDEST.1))
                .got(format!("{}.{}", capability.0, capability.1)));
        }
        // SAFETY: the context is retained for the life of the process: kernels and memory of many engines live in it.
        driver.check("cuDevicePrimaryCtxRetain", unsafe {
            (driver.cuDevicePrimaryCtxRetain)(&mut context, device)
        })?;
        Ok(Arc::new(Self {
            ordinal,
            name,
            capability,
            multiprocessors: read(attribute::MULTIPROCESSORS)? as u32,
            l2_bytes: read(attribute::L2_BYTES)? as usize,
            shared_bytes: read(attribute::SHARED_BYTES_OPTIN)? as usize,
            total_memory: total,
            driver_version: version,
            driver,
            context,
            process: std::process::id(),
        }))
    }

    /// Makes the GPU the thread's current one until the guard is dropped.
    ///
    /// # Errors
    /// In a process that was forked off the one that opened the GPU, or if the driver refuses.
    pub fn enter(&self) -> Result<Entered<'_>> {
        if self.process != std::process::id() {
            return Err(Error::device("CUDA does not survive a fork")
                .hint("start worker processes with multiprocessing.set_start_method(\"spawn\")"));
        }
        // SAFETY: the context lives as long as the process.
        self.check("cuCtxPushCurrent", unsafe {
            (self.driver.cuCtxPushCurrent_v2)(self.context)
        })?;
        Ok(Entered(self))
    }

    fn check(&self, call: &str, status: c_int) -> Result<()> {
        self.driver.check(call, status)
    }

    /// Free and total bytes of memory.
    ///
    /// # Errors
    /// If the driver refuses.
    pub fn memory(&self) -> Result<(usize, usize)> {
        let _entered = self.enter()?;
        let (mut free, mut total) = (0, 0);
        // SAFETY: both are written.
        self.check("cuMemGetInfo", unsafe {
            (self.driver.cuMemGetInfo_v2)(&mut free, &mut total)
        })?;
        Ok((free, total))
    }

    /// Memory of the GPU; its contents are undefined.
    ///
    /// # Errors
    /// If there is not so much; says how much is free.
    pub fn allocate(self: &Arc<Self>, bytes: usize) -> Result<DeviceMemory> {
        let _entered = self.enter()?;
        let mut pointer = 0;
        // SAFETY: the address is written.
        let status = unsafe { (self.driver.cuMemAlloc_v2)(&mut pointer, bytes.max(1)) };
        self.check("cuMemAlloc", status).map_err(|error| {
            let free = self
                .memory()
                .map_or("unknown".into(), |(free, _)| format!("{free} bytes free"));
            error
                .expected(format!("{bytes} bytes on GPU {}", self.ordinal))
                .got(free)
        })?;
        Ok(DeviceMemory {
            device: self.clone(),
            pointer,
            bytes,
        })
    }

    /// Memory of the GPU with these bytes.
    ///
    /// # Errors
    /// If there is not so much, or the copy fails.
    pub fn upload(self: &Arc<Self>, bytes: &[u8]) -> Result<DeviceMemory> {
        let memory = self.allocate(bytes.len())?;
        let stream = self.stream()?;
        // SAFETY: source and target have so many bytes, and outlive the copy.
        unsafe { self.copy(memory.pointer, bytes.as_ptr() as u64, bytes.len(), stream.raw())? };
        stream.finish()?;
        Ok(memory)
    }

    /// Memory of the GPU with these numbers, as a struct of them has it.
    ///
    /// # Errors
    /// As [`Device::upload`].
    pub fn upload_words(self: &Arc<Self>, words: &[i32]) -> Result<DeviceMemory> {
        self.upload(&words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<_>>())
    }

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

    /// Copies bytes in a stream; either side may be the processor's memory.
    ///
    /// # Safety
    /// Both addresses must hold so many bytes until the stream has run the copy.
    ///
    /// # Errors
    /// If the driver refuses.
    pub unsafe fn copy(&self, to: u64, from: u64, bytes: usize, stream: Handle) -> Result<()> {
        let _entered = self.enter()?;
        // SAFETY: the caller vouches for the addresses; where each lies follows from it (unified addressing).
        self.check("cuMemcpyAsync", unsafe {
            (self.driver.cuMemcpyAsync)(to, from, bytes, stream)
        })
    }

    /// Sets every byte of some memory, in a stream.
    ///
    /// # Errors
    /// If the driver refuses.
    pub fn fill(&self, memory: &DeviceMemory, byte: u8, stream: &Stream) -> Result<()> {
        let _entered = self.enter()?;
        // SAFETY: the memory is ours, and outlives the stream's work: freeing it waits.
        let status = unsafe { (self.driver.cuMemsetD8Async)(memory.pointer, byte, memory.bytes, stream.stream) };
        self.check("cuMemsetD8Async", status)
    }

    /// Loads machine code.
    ///
    /// # Errors
    /// If it is not for this GPU.
    pub fn load(self: &Arc<Self>, code: &[u8]) -> Result<Module> {
        let _entered = self.enter()?;
        let mut module = std::ptr::null_mut();
        // SAFETY: the code comes from NVRTC, and the driver copies it.
        let status = unsafe { (self.driver.cuModuleLoadData)(&mut module, code.as_ptr().cast()) };
        self.check("cuModuleLoadData", status)?;
        Ok(Module {
            device: self.clone(),
            module,
        })
    }
}

/// While it lives, a GPU is the thread's current one.
pub struct Entered<'a>(&'a Device);

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        let mut before = std::ptr::null_mut();
        // SAFETY: pops what `enter` pushed. A failure leaves nothing to do.
        unsafe { (self.0.driver.cuCtxPopCurrent_v2)(&mut before) };
    }
}

/// Memory of a GPU.
pub struct DeviceMemory {
    device: Arc<Device>,
    pointer: u64,
    bytes: usize,
}

impl Memory for DeviceMemory {
    fn address(&self) -> *mut u8 {
        self.pointer as *mut u8
    }

    fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        let Ok(_entered) = self.device.enter() else { return };
        // SAFETY: it was allocated and not freed yet; the driver waits for work that uses it.
        unsafe { (self.device.driver.cuMemFree_v2)(self.pointer) };
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

/// Loaded machine code.
pub struct Module {
    device: Arc<Device>,
    module: Handle,
}

// SAFETY: a module is only read once it is loaded.
unsafe impl Send for Module {}
// SAFETY: as above.
unsafe impl Sync for Module {}

impl Module {
    /// A kernel of the module, which may use so many bytes of shared memory beside its own.
    ///
    /// # Errors
    /// If there is none of this name, or the GPU has less shared memory.
    pub fn function(self: &Arc<Self>, name: &str, shared_bytes: usize) -> Result<Function> {
        let _entered = self.device.enter()?;
        let driver = self.device.driver;
        let text = CString::new(name).map_err(|_| Error::internal("a kernel's name holds a zero"))?;
        let mut function = std::ptr::null_mut();
        // SAFETY: the handle is written.
        let status = unsafe { (driver.cuModuleGetFunction)(&mut function, self.module, text.as_ptr()) };
        self.device.check("cuModuleGetFunction", status)?;
        /// More than this has to be asked for.
        const FREE: usize = 48 << 10;
        if shared_bytes > FREE {
            // SAFETY: the function is alive.
            let status =
                unsafe { (driver.cuFuncSetAttribute)(function, driver::FUNCTION_SHARED_BYTES, shared_bytes as c_int) };
            self.device.check("cuFuncSetAttribute", status)?;
        }
        Ok(Function {
            module: self.clone(),
            function,
            shared_bytes,
        })
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        let Ok(_entered) = self.device.enter() else { return };
        // SAFETY: no kernel of it runs any more.
        unsafe { (self.device.driver.cuModuleUnload)(self.module) };
    }
}

/// A kernel that can be launched.
#[derive(Clone)]
pub struct Function {
    module: Arc<Module>,
    function: Handle,
    shared_bytes: usize,
}

// SAFETY: as for the module that it belongs to.
unsafe impl Send for Function {}
// SAFETY: as above.
unsafe impl Sync for Function {}

/// How many blocks of how many threads run a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grid {
    /// Blocks along x, y and z.
    pub blocks: [u32; 3],
    /// Threads of a block.
    pub threads: u32,
}

/// The arguments of a kernel, one after another as its parameters are declared.
#[derive(Clone, Default)]
pub struct Arguments {
    /// Eight bytes each: the kernels take nothing larger, and read the first bytes of it.
    values: Vec<u64>,
}

impl Arguments {
    /// The addresses of a call: outputs, then inputs.
    pub fn of(call: &Call) -> Self {
        let outputs = call.outputs.iter().map(|&output| output as u64);
        let inputs = call.inputs.iter().map(|&input| input as u64);
        Self {
            values: outputs.chain(inputs).collect(),
        }
    }

    /// Adds an address.
    pub fn address(&mut self, address: *const u8) -> &mut Self {
        self.values.push(address as u64);
        self
    }

    /// Adds a number of up to 64 bits.
    pub fn number(&mut self, number: i64) -> &mut Self {
        self.values.push(number as u64);
        self
    }

    /// Adds a float.
    pub fn float(&mut self, number: f32) -> &mut Self {
        self.values.push(u64::from(number.to_bits()));
        self
    }
}

impl Function {
    /// Puts a run of the kernel into a stream.
    ///
    /// # Safety
    /// The arguments must be those that the kernel declares, and its memory must live until the stream has run it.
    ///
    /// # Errors
    /// If the driver refuses.
    pub unsafe fn launch(&self, grid: Grid, arguments: &Arguments, stream: Handle) -> Result<()> {
        let device = &self.module.device;
        let mut pointers: Vec<*mut c_void> = arguments
            .values
            .iter()
            .map(|value| std::ptr::from_ref(value).cast_mut().cast())
            .collect();
        let [x, y, z] = grid.blocks;
        let shared = self.shared_bytes as c_uint;
        // SAFETY: the caller vouches for the arguments; the driver copies them.
        let status = unsafe {
            (device.driver.cuLaunchKernel)(
                self.function,
                x,
                y,
                z,
                grid.threads,
                1,
                1,
                shared,
                stream,
                pointers.as_mut_ptr(),
                std::ptr::null_mut(),
            )
        };
        device.check("cuLaunchKernel", status)
    }
}
