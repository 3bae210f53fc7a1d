//! The CUDA C++ of an attention.

use super::pipeline::Pipeline;
use super::share::Way;
use super::tile::Tile;
use crate::network::dtype::DType;
use crate::providers::cuda::kernels::pointwise::code::element;

const PLAIN: &str = include_str!("../../../../../kernels/attention.cu");
const ON_TENSOR_CORES: &str = concat!(
    include_str!("../../../../../kernels/tensor.cuh"),
    include_str!("../../../../../kernels/attention.cu"),
    include_str!("../../../../../kernels/attention_results.cu"),
    include_str!("../../../../../kernels/attention_tiles.cu")
);
const PRODUCTS: &str = include_str!("../../../../../kernels/groups.cuh");
const GROUPS: &str = include_str!("../../../../../kernels/attention_groups.cu");
const COPIES: &str = include_str!("../../../../../kernels/copies.cuh");
const PIPELINE: &str = include_str!("../../../../../kernels/attention_pipeline.cu");
/// Threads of the blocks that join the parts of the keys.
pub const JOINING: u32 = 128;

/// What is done to scores before they are softened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mask {
    /// Nothing.
    None,
    /// Some of them do not count.
    Truths,
    /// Numbers are added.
    Numbers,
}

/// What a kernel is compiled for; everything else is an argument.
pub struct Code {
    /// Which kernel.
    pub way: Way,
    /// The element type.
    pub dtype: DType,
    /// The type of the result: it, or codes of 8 bits.
    pub given: DType,
    /// Whether a query sees no key behind its own place.
    pub causal: bool,
    /// The mask.
    pub mask: Mask,
    /// Whether scores are capped.
    pub capped: bool,
}

impl Code {
    /// The source, with the entry points `attending` and `combining`.
    pub fn source(&self) -> String {
        let given = element(self.given).unwrap_or("float");
        let (ty, wide) = self.types();
        let Entry {
            files,
            kernel,
            bounds,
            parameters,
            arguments,
        } = match self.way {
            Way::Tiles(tile) => self.in_tiles(tile),
            Way::Pipeline(pipeline) => self.in_pipeline(pipeline),
            Way::Plain { columns } => self.plain(columns),
        };
        // As `weigh` has it.
        let of_two = !matches!(self.way, Way::Plain { .. }) && self.mask != Mask::Numbers;
        format!(
            "{files}\nextern \"C\" __global__ void __launch_bounds__({bounds}) attending({given}* y, {parameters}) {{\n    \
             after_previous();\n    {kernel}(y, {arguments});\n}}\n\
             extern \"C\" __global__ void __launch_bounds__({JOINING}) combining({given}* y, {wide}* partial, const Attend s) \
             {{\n    after_previous();\n    combine<{ty}, {of_two}>(y, partial, s);\n}}\n"
        )
    }

    /// The type of elements, and that in which they are summed.
    fn types(&self) -> (&'static str, &'static str) {
        let wide = if self.dtype == DType::Float64 {
            "double"
        } else {
            "float"
        };
        (element(self.dtype).unwrap_or("float"), wide)
    }

    /// Whether keys are hidden, as template arguments.
    fn rule(&self) -> String {
        let masked = match self.mask {
            Mask::None => 0,
            Mask::Truths => 1,
            Mask::Numbers => 2,
        };
        format!("{}, {masked}, {}", self.causal, self.capped)
    }

    /// A kernel that reads keys, values and perhaps a mask where they lie.
    fn reading(&self, files: String, kernel: String, bounds: String) -> Entry {
        let (ty, wide) = self.types();
        let mask = if self.mask == Mask::Truths { "bool" } else { ty };
        Entry {
            files,
            kernel,
            bounds,
            parameters: format!(
                "const {ty}* q, const {ty}* k, const {ty}* v, const {mask}* mask, {wide}* partial, const Attend s"
            ),
            arguments: "q, k, v, mask, partial, s",
        }
    }

    fn in_tiles(&self, tile: Tile) -> Entry {
        let Tile {
            size,
            v_size,
            keys,
            row_warps,
            key_warps,
            residents,
            grouped,
        } = tile;
        let ((ty, _), rule) = (self.types(), self.rule());
        let bounds = format!("{}, {residents}", tile.threads());
        if grouped {
            let kernel = format!("attend_in_groups<{ty}, {size}, {v_size}, {}, {rule}>", row_warps / 4);
            return self.reading(format!("{ON_TENSOR_CORES}{PRODUCTS}\n{GROUPS}"), kernel, bounds);
        }
        let kernel = format!("attend<{ty}, {size}, {v_size}, {keys}, {row_warps}, {key_warps}, {rule}>");
        self.reading(ON_TENSOR_CORES.into(), kernel, bounds)
    }

    fn in_pipeline(&self, pipeline: Pipeline) -> Entry {
        let Pipeline {
            size,
            v_size,
            keys,
            groups,
        } = pipeline;
        let (ty, wide) = self.types();
        Entry {
            files: format!("{ON_TENSOR_CORES}{PRODUCTS}\n{GROUPS}\n{COPIES}\n{PIPELINE}"),
            kernel: format!(
                "attend_in_pipeline<{ty}, {size}, {v_size}, {keys}, {groups}, {}, {}>",
                self.causal, self.capped
            ),
            bounds: format!("{}, 1", pipeline.threads()),
            parameters: format!(
                "const {ty}* q, {wide}* partial, const Attend s, const KvMoves kv_moves, const __grid_constant__ TensorMap keys, const \
                 __grid_constant__ TensorMap values"
            ),
            arguments: "q, partial, s, kv_moves, &keys, &values",
        }
    }

    fn plain(&self, columns: usize) -> Entry {
        let kernel = format!("attend_plainly<{}, {columns}, {}>", self.types().0, self.rule());
        self.reading(PLAIN.into(), kernel, "128".into())
    }
}

/// What the entry point of a way is made of.
struct Entry {
    files: String,
    kernel: String,
    /// Threads of a block, and perhaps blocks that a multiprocessor has registers for.
    bounds: String,
    parameters: String,
    arguments: &'static str,
}

/// Doubles as the 32-bit numbers of a struct.
pub fn doubles(numbers: &[f64]) -> Vec<i32> {
    let halves = |number: &f64| [number.to_bits() as i32, (number.to_bits() >> 32) as i32];
    numbers.iter().flat_map(halves).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entry_points_name_what_they_are_compiled_for() {
        let code = |way, dtype, mask| Code {
            way,
            dtype,
            given: dtype,
            causal: true,
            mask,
            capped: false,
        };
        let tiles = Way::Tiles(Tile::all([64, 32], 1 << 17, false)[6]);
        let source = code(tiles, DType::BFloat16, Mask::Truths).source();
        assert!(source.contains("attend<bfloat16, 64, 32, 32, 1, 4, true, 1, false>(y, q, k, v, mask, partial, s);"));
        assert!(source.contains("__launch_bounds__(128, 4) attending"));
        assert!(source.contains("const bool* mask, float* partial") && source.contains("combine<bfloat16, true>"));
        let source = code(Way::Plain { columns: 64 }, DType::Float64, Mask::Numbers).source();
        assert!(source.contains("attend_plainly<double, 64, true, 2, false>") && source.contains("double* partial"));
        assert!(source.contains("combine<double, false>") && !source.contains("mma.sync"));
    }

    #[test]
    fn doubles_are_their_low_and_high_halves() {
        assert_eq!(doubles(&[1.0, -2.0]), [0, 0x3ff0_0000, 0, -0x4000_0000]);
    }
}
