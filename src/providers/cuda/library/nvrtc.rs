//! NVRTC, the compiler that CUDA carries for run time (NVRTC User Guide).

use super::library;
use crate::error::{Error, Result};
use std::ffi::{CString, c_char, c_int, c_void};
use std::sync::OnceLock;

type Program = *mut c_void;

library! {
    /// The compiler.
    Nvrtc from &["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"];
    fn nvrtcVersion(*mut c_int, *mut c_int) -> c_int;
    fn nvrtcCreateProgram(
        *mut Program, *const c_char, *const c_char, c_int, *const *const c_char, *const *const c_char,
    ) -> c_int;
    fn nvrtcDestroyProgram(*mut Program) -> c_int;
    fn nvrtcCompileProgram(Program, c_int, *const *const c_char) -> c_int;
    fn nvrtcGetProgramLogSize(Program, *mut usize) -> c_int;
    fn nvrtcGetProgramLog(Program, *mut c_char) -> c_int;
    fn nvrtcGetCUBINSize(Program, *mut usize) -> c_int;
    fn nvrtcGetCUBIN(Program, *mut c_char) -> c_int;
}

/// The compiler, opened once.
///
/// # Errors
/// If there is none.
pub fn nvrtc() -> Result<&'static Nvrtc> {
    static NVRTC: OnceLock<Result<Nvrtc>> = OnceLock::new();
    NVRTC.get_or_init(Nvrtc::load).as_ref().map_err(Clone::clone)
}

impl Nvrtc {
    /// `major.minor`.
    pub fn version(&self) -> String {
        let (mut major, mut minor) = (0, 0);
        // SAFETY: both are written.
        unsafe { (self.nvrtcVersion)(&mut major, &mut minor) };
        format!("{major}.{minor}")
    }

    /// Compiles a source to machine code, with these options.
    ///
    /// # Errors
    /// If it does not compile; carries the compiler's log.
    pub fn compile(&self, source: &str, options: &[String]) -> Result<Vec<u8>> {
        let text = |text: &str| CString::new(text).map_err(|_| Error::internal("a kernel's source holds a zero"));
        let (source, options) = (
            text(source)?,
            options.iter().map(|o| text(o)).collect::<Result<Vec<_>>>()?,
        );
        let options: Vec<_> = options.iter().map(|o| o.as_ptr()).collect();
        let mut program = Destroyed {
            nvrtc: self,
            program: std::ptr::null_mut(),
        };
        let name = c"neurenix.cu".as_ptr();
        let none = std::ptr::null();
        // SAFETY: the texts live through the calls, and each buffer has the size that the library asks for.
        unsafe {
            let made = (self.nvrtcCreateProgram)(&mut program.program, source.as_ptr(), name, 0, none, none);
            program.check("nvrtcCreateProgram", made)?;
            let status = (self.nvrtcCompileProgram)(program.program, options.len() as c_int, options.as_ptr());
            program.check("nvrtcCompileProgram", status)?;
            let mut size = 0;
            program.check(
                "nvrtcGetCUBINSize",
                (self.nvrtcGetCUBINSize)(program.program, &mut size),
            )?;
            let mut code = vec![0u8; size];
            program.check(
                "nvrtcGetCUBIN",
                (self.nvrtcGetCUBIN)(program.program, code.as_mut_ptr().cast()),
            )?;
            Ok(code)
        }
    }
}

/// A program that is destroyed in the end.
struct Destroyed<'a> {
    nvrtc: &'a Nvrtc,
    program: Program,
}

impl Destroyed<'_> {
    fn check(&self, call: &str, status: c_int) -> Result<()> {
        if status == 0 {
            return Ok(());
        }
        let message = format!("NVRTC {} failed: status {status} in {call}", self.nvrtc.version());
        Err(Error::internal(message).got(self.log()))
    }

    fn log(&self) -> String {
        let mut size = 0;
        // SAFETY: the buffer has the size that the library asks for.
        unsafe {
            if (self.nvrtc.nvrtcGetProgramLogSize)(self.program, &mut size) != 0 {
                return String::new();
            }
            let mut log = vec![0u8; size];
            (self.nvrtc.nvrtcGetProgramLog)(self.program, log.as_mut_ptr().cast());
            String::from_utf8_lossy(&log).trim_end_matches('\0').trim().to_string()
        }
    }
}

impl Drop for Destroyed<'_> {
    fn drop(&mut self) {
        if !self.program.is_null() {
            // SAFETY: it was created, and is not used any more.
            unsafe { (self.nvrtc.nvrtcDestroyProgram)(&mut self.program) };
        }
    }
}
