//! The raw bridge to `cpp/cpu`: no checks, no lifetimes. Everything else goes through `handle.rs` and `team.rs`.
use super::team::team_part;

#[cxx::bridge(namespace = "neurenix::cpu")]
pub(super) mod ffi {
    /// The element types that oneDNN knows, and none.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    enum ElementType {
        Absent,
        F32,
        F16,
        BF16,
        S8,
        U8,
        S32,
    }

    /// Extents and where the elements lie: `strides` in elements, or blocks of 16 channels.
    #[derive(Debug, Clone)]
    struct TensorDesc {
        dims: Vec<i64>,
        strides: Vec<i64>,
        dtype: ElementType,
        blocked: bool,
        /// Where blocked: the channels of the tensor that this one is a slice of, or of itself.
        parent_channels: i64,
    }

    /// What a post-op does.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    enum PostKind {
        Sum,
        Add,
        Sub,
        Mul,
        Div,
        Relu,
        Clip,
        Swish,
        GeluErf,
        GeluTanh,
        Sigmoid,
        Tanh,
        HardSwish,
        HardSigmoid,
        Elu,
        Mish,
        Linear,
        Abs,
        Square,
        Sqrt,
        Exp,
        Log,
        Round,
    }

    /// One link of the chain that a primitive applies to its result; binary ones have an operand, and of the operand of a sum the
    /// dtype counts: `alpha * (operand - beta)` is added.
    #[derive(Debug, Clone)]
    struct PostOp {
        kind: PostKind,
        alpha: f32,
        beta: f32,
        operand: TensorDesc,
    }

    /// What every primitive is asked.
    #[derive(Debug, Clone)]
    struct Options {
        post: Vec<PostOp>,
        threads: usize,
        quantization: Quantization,
    }

    /// Which scales (float32) and zero points (int32) a product of integers of 8 bits takes as arguments, behind its bias and in
    /// this order.
    #[derive(Debug, Clone, Copy)]
    struct Quantization {
        /// One number.
        src_scale: bool,
        /// One number for each place along the axes of this mask; -1: none.
        weight_scales: i32,
        /// One number, by which the result is divided.
        dst_scale: bool,
        /// One number.
        src_zero: bool,
        /// One number, which is added last.
        dst_zero: bool,
    }

    /// Dilations count the gaps: 0 is dense.
    struct Convolution {
        src: TensorDesc,
        weights: TensorDesc,
        bias: ElementType,
        dst: TensorDesc,
        strides: Vec<i64>,
        dilations: Vec<i64>,
        begin: Vec<i64>,
        end: Vec<i64>,
        transposed: bool,
    }

    struct Matmul {
        a: TensorDesc,
        b: TensorDesc,
        bias: ElementType,
        dst: TensorDesc,
        pack_b: bool,
    }

    /// What pooling makes of a window.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    enum PoolingKind {
        /// The greatest element.
        Max,
        /// The average of the elements that are not padding.
        Average,
        /// The average that counts padding as zeros.
        AverageWithPadding,
    }

    /// Dilations count the gaps: 0 is dense.
    struct Pooling {
        kind: PoolingKind,
        src: TensorDesc,
        dst: TensorDesc,
        kernel: Vec<i64>,
        strides: Vec<i64>,
        dilations: Vec<i64>,
        begin: Vec<i64>,
        end: Vec<i64>,
    }

    struct Softmax {
        src: TensorDesc,
        dst: TensorDesc,
        axis: usize,
        logarithm: bool,
    }

    struct LayerNorm {
        src: TensorDesc,
        dst: TensorDesc,
        epsilon: f32,
        scale: bool,
        shift: bool,
    }

    struct Resampling {
        src: TensorDesc,
        dst: TensorDesc,
        linear: bool,
    }

    /// What a reduction makes of many numbers.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    enum ReductionKind {
        /// Their sum.
        Sum,
        /// Their average.
        Mean,
        /// The greatest.
        Max,
        /// The least.
        Min,
    }

    extern "Rust" {
        fn team_part(context: usize, part: usize, parts: usize);
    }

    unsafe extern "C++" {
        include!("cpu/version.h");
        fn onednn_version() -> String;

        include!("cpu/team.h");
        fn set_team_size(threads: usize) -> usize;
        fn each_member(threads: usize, context: usize);

        include!("cpu/weight_format.h");
        type WeightFormat;
        fn source_bytes(self: &WeightFormat) -> usize;
        fn packed_bytes(self: &WeightFormat) -> usize;
        fn equals(self: &WeightFormat, other: &WeightFormat) -> bool;
        fn packer(self: &WeightFormat, threads: usize) -> Result<UniquePtr<Primitive>>;

        include!("cpu/primitive.h");
        type Primitive;
        fn arguments(self: &Primitive) -> usize;
        fn scratchpad_bytes(self: &Primitive) -> usize;
        fn implementation(self: &Primitive) -> String;
        fn weight_format(self: &Primitive) -> SharedPtr<WeightFormat>;
        unsafe fn execute(self: Pin<&mut Primitive>, addresses: &[usize]) -> Result<()>;

        include!("cpu/convolution.h");
        fn convolution(
            spec: &Convolution,
            options: &Options,
            given: SharedPtr<WeightFormat>,
        ) -> Result<UniquePtr<Primitive>>;
        include!("cpu/matmul.h");
        fn matmul(spec: &Matmul, options: &Options, given: SharedPtr<WeightFormat>) -> Result<UniquePtr<Primitive>>;
        include!("cpu/pooling.h");
        fn pooling(spec: &Pooling, options: &Options) -> Result<UniquePtr<Primitive>>;
        include!("cpu/softmax.h");
        fn softmax(spec: &Softmax, options: &Options) -> Result<UniquePtr<Primitive>>;
        include!("cpu/layer_norm.h");
        fn layer_norm(spec: &LayerNorm, options: &Options) -> Result<UniquePtr<Primitive>>;
        include!("cpu/resampling.h");
        fn resampling(spec: &Resampling, options: &Options) -> Result<UniquePtr<Primitive>>;
        include!("cpu/pointwise.h");
        fn pointwise(
            src: &TensorDesc,
            dst: &TensorDesc,
            first: &PostOp,
            options: &Options,
        ) -> Result<UniquePtr<Primitive>>;
        include!("cpu/reduction.h");
        fn reduction(
            src: &TensorDesc,
            dst: &TensorDesc,
            kind: ReductionKind,
            options: &Options,
        ) -> Result<UniquePtr<Primitive>>;
        include!("cpu/reorder.h");
        fn reorder(from: &TensorDesc, to: &TensorDesc, threads: usize) -> Result<UniquePtr<Primitive>>;
    }
}
