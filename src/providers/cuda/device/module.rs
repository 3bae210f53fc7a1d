//! Machine code and its launches.

use super::Device;
use crate::error::{Error, Result};
use crate::plan::Call;
use crate::providers::cuda::library::driver::{self, Handle, LaunchConfig, TensorMap};
use std::ffi::{CString, c_int, c_uint, c_void};
use std::sync::Arc;

impl Device {
    /// Loads machine code; says whether its kernels wait themselves for what is before them in their stream.
    ///
    /// # Errors
    /// If it is not for this GPU.
    pub fn load(self: &Arc<Self>, code: &[u8], waits: bool) -> Result<Module> {
        let _entered = self.enter()?;
        let mut module = std::ptr::null_mut();
        // SAFETY: the code comes from NVRTC, and the driver copies it.
        let status = unsafe { (self.driver.cuModuleLoadData)(&mut module, code.as_ptr().cast()) };
        self.check("cuModuleLoadData", status)?;
        Ok(Module {
            device: self.clone(),
            module,
            waits,
        })
    }
}

/// Loaded machine code.
pub struct Module {
    device: Arc<Device>,
    module: Handle,
    waits: bool,
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

impl Grid {
    /// As many blocks as have a thread for each item.
    ///
    /// # Errors
    /// If there are more blocks than a grid has.
    pub fn over(items: usize, threads: u32) -> Result<Self> {
        let blocks = items.div_ceil(threads as usize);
        let blocks = i32::try_from(blocks).map_err(|_| {
            Error::unsupported("the tensors are too large for one kernel")
                .expected(format!("{} blocks of {threads} threads", i32::MAX))
                .got(blocks.to_string())
        })?;
        Ok(Self {
            blocks: [blocks as u32, 1, 1],
            threads,
        })
    }
}

/// The arguments of a kernel, one after another as its parameters are declared.
#[derive(Clone, Default)]
pub struct Arguments {
    /// The values, each from a multiple of eight bytes on: a kernel reads as many bytes as its parameter has.
    words: Vec<u64>,
    /// Where in `words` each begins.
    starts: Vec<usize>,
}

impl Arguments {
    /// The addresses of a call: outputs, then inputs.
    pub fn of(call: &Call) -> Self {
        let mut arguments = Self::default();
        let outputs = call.outputs.iter().map(|output| output.cast_const());
        outputs
            .chain(call.inputs.iter().copied())
            .for_each(|address| _ = arguments.address(address));
        arguments
    }

    fn word(&mut self, word: u64) -> &mut Self {
        self.starts.push(self.words.len());
        self.words.push(word);
        self
    }

    /// Adds an address.
    pub fn address(&mut self, address: *const u8) -> &mut Self {
        self.word(address as u64)
    }

    /// Adds a number of up to 64 bits.
    pub fn number(&mut self, number: i64) -> &mut Self {
        self.word(number as u64)
    }

    /// Adds a double.
    pub fn double(&mut self, number: f64) -> &mut Self {
        self.word(number.to_bits())
    }

    /// Adds a float.
    pub fn float(&mut self, number: f32) -> &mut Self {
        self.word(u64::from(number.to_bits()))
    }

    /// Adds what the copy engine knows a tensor by.
    pub fn map(&mut self, map: &TensorMap) -> &mut Self {
        self.starts.push(self.words.len());
        self.words.extend(map.0);
        self
    }

    /// Adds a struct of 32-bit numbers, by value; nothing where there are none.
    pub fn fields(&mut self, numbers: &[i32]) -> &mut Self {
        if numbers.is_empty() {
            return self;
        }
        self.starts.push(self.words.len());
        let bits = |at: usize| u64::from(numbers.get(at).copied().unwrap_or(0) as u32);
        self.words
            .extend((0..numbers.len()).step_by(2).map(|at| bits(at) | bits(at + 1) << 32));
        self
    }
}

impl Function {
    /// The GPU that it runs on.
    pub fn device(&self) -> &Device {
        &self.module.device
    }

    /// Puts a run of the kernel into a stream.
    ///
    /// # Safety
    /// The arguments must be those that the kernel declares, and its memory must live until the stream has run it.
    ///
    /// # Errors
    /// If the driver refuses.
    pub unsafe fn launch(&self, grid: Grid, arguments: &Arguments, stream: Handle) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.launch_blocks(grid.blocks, [grid.threads, 1, 1], arguments, stream) }
    }

    /// As [`Function::launch`], with blocks of threads along x, y and z.
    ///
    /// # Safety
    /// As [`Function::launch`].
    ///
    /// # Errors
    /// If the driver refuses.
    pub unsafe fn launch_blocks(
        &self,
        blocks: [u32; 3],
        threads: [u32; 3],
        arguments: &Arguments,
        stream: Handle,
    ) -> Result<()> {
        let device = &self.module.device;
        let mut pointers: Vec<*mut c_void> = arguments
            .starts
            .iter()
            .map(|&start| std::ptr::from_ref(&arguments.words[start]).cast_mut().cast())
            .collect();
        let attribute = driver::STARTS_AHEAD;
        let config = LaunchConfig {
            blocks,
            threads,
            shared_bytes: self.shared_bytes as c_uint,
            stream,
            attributes: &attribute,
            count: self.module.waits as c_uint,
        };
        // SAFETY: the caller vouches for the arguments; the driver copies them. A kernel that is started ahead waits for what is
        // before it.
        let status = unsafe {
            (device.driver.cuLaunchKernelEx)(&config, self.function, pointers.as_mut_ptr(), std::ptr::null_mut())
        };
        device.check("cuLaunchKernelEx", status)
    }
}
