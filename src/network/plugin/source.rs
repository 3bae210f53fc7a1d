//! A kernel that a plugin brings for GPUs.

/// CUDA C++ and one launch of it. The parameters of the kernel are the inputs, the outputs, the workspace if there is one,
/// then the numbers.
#[derive(Debug, Clone, PartialEq)]
pub struct Source {
    /// What NVRTC compiles.
    pub code: String,
    /// The name of the kernel, which is declared `extern "C"`.
    pub entry: String,
    /// Folders that hold what the code includes.
    pub include_paths: Vec<String>,
    /// Blocks along x, y and z.
    pub grid: [u32; 3],
    /// Threads of a block along x, y and z.
    pub block: [u32; 3],
    /// Bytes of shared memory that the launch brings.
    pub shared_bytes: usize,
    /// Bytes of scratch memory.
    pub workspace: usize,
    /// The last parameters.
    pub numbers: Vec<Number>,
}

/// A number that a kernel takes by value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Number {
    /// Of an integer type of any width, or bool.
    Int(i64),
    /// A float.
    Float(f32),
    /// A double.
    Double(f64),
}
