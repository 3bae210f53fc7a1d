//! The numbers of the headers that we use.

/// `cudnnBackendDescriptorType_t`.
pub mod kind {
    pub const POINTWISE: i32 = 0;
    pub const CONVOLUTION: i32 = 1;
    pub const ENGINE_HEURISTIC: i32 = 4;
    pub const ENGINE_CONFIG: i32 = 3;
    pub const PLAN: i32 = 5;
    pub const KNOB_CHOICE: i32 = 7;
    pub const CONVOLUTION_FORWARD: i32 = 10;
    pub const CONVOLUTION_BACKWARD_DATA: i32 = 12;
    pub const OPERATION_POINTWISE: i32 = 13;
    pub const GRAPH: i32 = 15;
    pub const VARIANT_PACK: i32 = 16;
    pub const TENSOR: i32 = 17;
    pub const MATMUL: i32 = 18;
    pub const OPERATION_MATMUL: i32 = 19;
    pub const ENGINE: i32 = 2;
}

/// `cudnnBackendAttributeType_t`.
pub mod ty {
    pub const HANDLE: i32 = 0;
    pub const DATA_TYPE: i32 = 1;
    pub const BOOLEAN: i32 = 2;
    pub const INT64: i32 = 3;
    pub const FLOAT: i32 = 4;
    pub const DOUBLE: i32 = 5;
    pub const POINTER: i32 = 6;
    pub const CONVOLUTION_MODE: i32 = 7;
    pub const HEURISTIC_MODE: i32 = 8;
    pub const KNOB: i32 = 9;
    pub const NAN_PROPAGATION: i32 = 10;
    pub const NUMERICAL_NOTE: i32 = 11;
    pub const POINTWISE_MODE: i32 = 14;
    pub const DESCRIPTOR: i32 = 15;
    pub const BEHAVIOR_NOTE: i32 = 19;
}

/// `cudnnBackendAttributeName_t`.
pub mod name {
    pub const POINTWISE_MODE: i32 = 0;
    pub const POINTWISE_PRECISION: i32 = 1;
    pub const POINTWISE_NAN_PROPAGATION: i32 = 2;
    pub const POINTWISE_RELU_SLOPE: i32 = 5;
    pub const CONVOLUTION_PRECISION: i32 = 100;
    pub const CONVOLUTION_MODE: i32 = 101;
    pub const CONVOLUTION_DILATIONS: i32 = 102;
    pub const CONVOLUTION_STRIDES: i32 = 103;
    pub const CONVOLUTION_END: i32 = 104;
    pub const CONVOLUTION_BEGIN: i32 = 105;
    pub const CONVOLUTION_AXES: i32 = 106;
    pub const HEURISTIC_MODE: i32 = 200;
    pub const HEURISTIC_GRAPH: i32 = 201;
    pub const HEURISTIC_RESULTS: i32 = 202;
    pub const CONFIG_ENGINE: i32 = 300;
    pub const CONFIG_KNOBS: i32 = 302;
    pub const PLAN_HANDLE: i32 = 400;
    pub const PLAN_CONFIG: i32 = 401;
    pub const PLAN_WORKSPACE: i32 = 402;
    pub const KNOB_TYPE: i32 = 600;
    pub const KNOB_VALUE: i32 = 601;
    pub const FORWARD_ALPHA: i32 = 700;
    pub const FORWARD_BETA: i32 = 701;
    pub const FORWARD_CONVOLUTION: i32 = 702;
    pub const FORWARD_W: i32 = 703;
    pub const FORWARD_X: i32 = 704;
    pub const FORWARD_Y: i32 = 705;
    pub const BACKWARD_ALPHA: i32 = 706;
    pub const BACKWARD_BETA: i32 = 707;
    pub const BACKWARD_CONVOLUTION: i32 = 708;
    pub const BACKWARD_W: i32 = 709;
    pub const BACKWARD_X: i32 = 710;
    pub const BACKWARD_Y: i32 = 711;
    pub const OPERATION_POINTWISE: i32 = 750;
    pub const OPERATION_X: i32 = 751;
    pub const OPERATION_B: i32 = 752;
    pub const OPERATION_Y: i32 = 753;
    pub const GRAPH_HANDLE: i32 = 800;
    pub const GRAPH_OPERATIONS: i32 = 801;
    pub const TENSOR_ALIGNMENT: i32 = 900;
    pub const TENSOR_TYPE: i32 = 901;
    pub const TENSOR_DIMENSIONS: i32 = 902;
    pub const TENSOR_STRIDES: i32 = 903;
    pub const TENSOR_ID: i32 = 906;
    pub const TENSOR_VIRTUAL: i32 = 907;
    pub const PACK_IDS: i32 = 1000;
    pub const PACK_POINTERS: i32 = 1001;
    pub const PACK_WORKSPACE: i32 = 1003;
    pub const ENGINE_GRAPH: i32 = 1300;
    pub const ENGINE_INDEX: i32 = 1301;
    pub const ENGINE_NOTES: i32 = 1303;
    pub const ENGINE_BEHAVIOR: i32 = 1305;
    pub const MATMUL_PRECISION: i32 = 1500;
    pub const MATMUL_A: i32 = 1520;
    pub const MATMUL_B: i32 = 1521;
    pub const MATMUL_C: i32 = 1522;
    pub const OPERATION_MATMUL: i32 = 1523;
}

/// `cudnnPointwiseMode_t`, as far as it is named.
pub mod mode {
    pub const RELU: i32 = 100;
}

/// `CUDNN_PROPAGATE_NAN`.
pub const PROPAGATE_NAN: i32 = 1;

/// `cudnnBackendNumericalNote_t`.
pub mod note {
    /// float32 operands are rounded to tf32 there.
    pub const TENSOR_CORE: i32 = 0;
    pub const DOWN_CONVERT_INPUTS: i32 = 1;
    pub const REDUCED_PRECISION_REDUCTION: i32 = 2;
    pub const FFT: i32 = 3;
    pub const NONDETERMINISTIC: i32 = 4;
    /// This one and the next three.
    pub const WINOGRAD: i32 = 5;
    pub const LAST_WINOGRAD: i32 = 8;
}

/// `cudnnBackendBehaviorNote_t`.
pub mod behavior {
    /// The library compiles a kernel for each plan.
    pub const RUNTIME_COMPILATION: i32 = 0;
}

/// `cudnnStatus_t`.
pub mod status {
    pub const SUBLIBRARY_LOADING_FAILED: i32 = 1008;
    /// This one and those up to the last internal error.
    pub const BAD_PARAM: i32 = 2000;
    pub const LAST_INTERNAL_ERROR: i32 = 4999;
    pub const HOST_ALLOCATION_FAILED: i32 = 4003;
    pub const DEVICE_ALLOCATION_FAILED: i32 = 4004;
}

/// `CUDNN_HEUR_MODE_A` and `CUDNN_HEUR_MODE_FALLBACK`.
pub const HEURISTICS: [i32; 2] = [3, 2];
