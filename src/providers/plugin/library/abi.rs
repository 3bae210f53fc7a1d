//! `cpp/include/neurenix/plugin_abi.h`, as it crosses.

use std::ffi::{c_char, c_void};

/// What this crate speaks.
pub const VERSION: u32 = 1;
/// The rank up to which tensors cross.
pub const MAX_DIMS: usize = 8;

pub const OK: i32 = 0;
pub const FAILED: i32 = 1;
pub const OUT_OF_MEMORY: i32 = 2;

pub const ANSWER_ERROR: i32 = 0;
pub const ANSWER_NAME: i32 = 1;
pub const ANSWER_VERSION: i32 = 2;
pub const ANSWER_NAMESPACE: i32 = 3;
pub const ANSWER_BYTES: i32 = 4;
pub const ANSWER_FIELD: i32 = 16;

pub const DEVICE_HOST: u32 = 1;
pub const DEVICE_CUDA: u32 = 2;

/// A text or bytes for us.
#[repr(C)]
pub struct Answers {
    pub host: *mut c_void,
    pub put: extern "C" fn(host: *mut c_void, what: i32, bytes: *const c_void, size: usize),
}

/// A dimension.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Expr {
    pub constant: i64,
    pub id: u32,
    pub is_constant: i32,
}

/// Dimensions.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Shape {
    pub dims: [Expr; MAX_DIMS],
    pub rank: i32,
}

/// What a plugin calculates dimensions with.
#[repr(C)]
pub struct Exprs {
    pub host: *mut c_void,
    pub constant: extern "C" fn(host: *mut c_void, value: i64, made: *mut Expr) -> i32,
    pub operation: extern "C" fn(host: *mut c_void, operation: i32, first: u32, second: u32, made: *mut Expr) -> i32,
}

/// A tensor.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Tensor {
    pub dims: [i64; MAX_DIMS],
    pub rank: i32,
    pub dtype: i32,
}

/// A field.
#[repr(C)]
pub struct Field {
    pub name: *const c_char,
    pub data: *const c_void,
    pub kind: i32,
    pub length: i32,
}

type Plugin = *mut c_void;
type To = *const Answers;

/// The functions of a library.
#[repr(C)]
pub struct Table {
    pub abi_version: u32,
    pub table_bytes: u32,
    pub creators: unsafe extern "C" fn() -> i32,
    pub describe: unsafe extern "C" fn(creator: i32, To) -> i32,
    pub create: unsafe extern "C" fn(
        creator: i32,
        layer: *const c_char,
        fields: *const Field,
        count: i32,
        made: *mut Plugin,
        To,
    ) -> i32,
    pub deserialize: unsafe extern "C" fn(
        creator: i32,
        layer: *const c_char,
        data: *const c_void,
        size: usize,
        made: *mut Plugin,
        To,
    ) -> i32,
    pub clone: unsafe extern "C" fn(Plugin, made: *mut Plugin, To) -> i32,
    pub destroy: unsafe extern "C" fn(Plugin),
    pub serialize: unsafe extern "C" fn(Plugin, To) -> i32,
    pub traits: unsafe extern "C" fn(Plugin, outputs: *mut i32, devices: *mut u32, capturable: *mut i32, To) -> i32,
    pub infer: unsafe extern "C" fn(
        Plugin,
        output: i32,
        shapes: *const Shape,
        dtypes: *const i32,
        inputs: i32,
        *const Exprs,
        shape: *mut Shape,
        dtype: *mut i32,
        To,
    ) -> i32,
    pub supports: unsafe extern "C" fn(
        Plugin,
        at: i32,
        tensors: *const Tensor,
        inputs: i32,
        outputs: i32,
        is_supported: *mut i32,
        To,
    ) -> i32,
    pub prepare: unsafe extern "C" fn(
        Plugin,
        device: u32,
        ordinal: i32,
        inputs: *const Tensor,
        input_count: i32,
        outputs: *const Tensor,
        output_count: i32,
        workspace: *mut usize,
        To,
    ) -> i32,
    pub enqueue: unsafe extern "C" fn(
        Plugin,
        inputs: *const *const c_void,
        outputs: *const *mut c_void,
        workspace: *mut c_void,
        stream: *mut c_void,
        To,
    ) -> i32,
}
