//! The CUDA C++ of an attention.

use super::share::Way;
use super::tile::Tile;
use crate::network::dtype::DType;
use crate::providers::cuda::kernels::pointwise::code::element;

const TENSOR: &str = include_str!("../../../../../kernels/tensor.cuh");
const PLAIN: &str = include_str!("../../../../../kernels/attention.cu");
const RESULTS: &str = include_str!("../../../../../kernels/attention_results.cu");
const TILES: &str = include_str!("../../../../../kernels/attention_tiles.cu");
const PRODUCTS: &str = include_str!("../../../../../kernels/groups.cuh");
const GROUPS: &str = include_str!("../../../../../kernels/attention_groups.cu");
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
        let ty = element(self.dtype).unwrap_or("float");
        let given = element(self.given).unwrap_or("float");
        let wide = if self.dtype == DType::Float64 {
            "double"
        } else {
            "float"
        };
        let (mask, masked) = match self.mask {
            Mask::None => (ty, 0),
            Mask::Truths => ("bool", 1),
            Mask::Numbers => (ty, 2),
        };
        let rule = format!("{}, {masked}, {}", self.causal, self.capped);
        let (files, kernel, bounds) = match self.way {
            Way::Tiles(tile) => {
                let Tile {
                    size,
                    v_size,
                    keys,
                    row_warps,
                    key_warps,
                    residents,
                    grouped,
                } = tile;
                let files = format!("{TENSOR}\n{PLAIN}\n{RESULTS}\n{TILES}");
                let bounds = format!("{}, {residents}", tile.threads());
                if grouped {
                    let kernel = format!("attend_in_groups<{ty}, {size}, {v_size}, {}, {rule}>", row_warps / 4);
                    (format!("{files}\n{PRODUCTS}\n{GROUPS}"), kernel, bounds)
                } else {
                    let kernel = format!("attend<{ty}, {size}, {v_size}, {keys}, {row_warps}, {key_warps}, {rule}>");
                    (files, kernel, bounds)
                }
            }
            Way::Plain { columns } => {
                let kernel = format!("attend_plainly<{ty}, {columns}, {rule}>");
                (PLAIN.into(), kernel, "128".into())
            }
        };
        // As `weigh` has it.
        let of_two = matches!(self.way, Way::Tiles(_)) && self.mask != Mask::Numbers;
        format!(
            "{files}\nextern \"C\" __global__ void __launch_bounds__({bounds}) attending({given}* y, const {ty}* q, const {ty}* k, \
             const {ty}* v, const {mask}* mask, {wide}* partial, const Attend s) {{\n    \
             after_previous();\n    {kernel}(y, q, k, v, mask, partial, s);\n}}\n\
             extern \"C\" __global__ void __launch_bounds__({JOINING}) combining({given}* y, {wide}* partial, const Attend s) \
             {{\n    after_previous();\n    combine<{ty}, {of_two}>(y, partial, s);\n}}\n"
        )
    }
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
