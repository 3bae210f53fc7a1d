//! Kernels of ours that take packs of elements where the addresses allow.

use super::launch::Launches;
use crate::error::Result;
use crate::network::dtype::DType;
use crate::plan::{Call, Instance, Launcher, Prepared};
use crate::providers::cuda::compile::compiled;

/// Bytes that a thread reads or writes at once, at most.
pub const WIDEST: usize = 16;

/// Launches for packs of elements, and those for single ones where an operand begins in the middle of a pack.
struct Packed {
    packed: Launches,
    single: Launches,
}

impl Launcher for Packed {
    fn launch(&mut self, call: &Call) -> Result<()> {
        let outputs = call.outputs.iter().map(|address| address.cast_const());
        let even = |address: *const u8| address.addr().is_multiple_of(WIDEST);
        match outputs.chain(call.inputs.iter().copied()).all(even) {
            true => self.packed.launch(call),
            false => self.single.launch(call),
        }
    }
}

/// An instance of what `make` gives for packs of so many elements, with what it gives for single ones to fall back on.
///
/// # Errors
/// What `make` returns.
pub fn in_packs(pack: usize, make: impl Fn(usize) -> Result<Launches>) -> Result<Prepared> {
    let single = make(1)?;
    if pack == 1 {
        return Ok(single.into());
    }
    let packed = make(pack)?;
    let workspace = packed.workspace.max(single.workspace);
    let entries = [packed.entries(), single.entries()].concat();
    let how = packed.how.clone();
    Ok(compiled(
        entries,
        Instance::new(how, Packed { packed, single }).with_workspace(workspace),
    ))
}

/// How many elements a thread takes at once where all these numbers of elements are whole packs.
pub fn pack(dtype: DType, numbers: impl IntoIterator<Item = usize>) -> usize {
    /// Each element has a register.
    const MOST: usize = 8;
    let widest = (WIDEST / dtype.size()).min(MOST);
    // The greatest power of two that divides all of them; any does so with 0.
    let bits = numbers.into_iter().fold(widest, |bits, number| bits | number);
    1 << bits.trailing_zeros()
}

/// The words of a number of 64 bits, which must come before all others of a struct.
pub fn double(number: f64) -> [i64; 2] {
    let bits = number.to_bits();
    [bits as u32 as i32, (bits >> 32) as i32].map(i64::from)
}

/// A source with an entry point of this name, for blocks of at most so many threads: these leave each of them registers
/// enough.
pub fn entry(sources: &[&str], name: &str, threads: u32, parameters: &str, body: &str) -> String {
    let source = sources.join("\n");
    let bounds = format!("__launch_bounds__({threads})");
    format!(
        "{source}\nextern \"C\" __global__ void {bounds} {name}({parameters}) {{\n    after_previous();\n    {body}\n}}\n"
    )
}

/// The parameters of a kernel for those operands of an element type that are there, each with a comma behind it, and the arguments of a
/// function of the device for all of them, null where there is none.
pub fn optional(ty: &str, operands: &[(&str, bool)]) -> [String; 2] {
    let there = operands.iter().filter(|(_, there)| *there);
    let argument = |&(name, there): &(&str, bool)| match there {
        true => name.to_string(),
        false => format!("(const {ty}*)0"),
    };
    let arguments: Vec<String> = operands.iter().map(argument).collect();
    [
        there.map(|(name, _)| format!("const {ty}* {name}, ")).collect(),
        arguments.join(", "),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packs_divide_every_number() {
        assert_eq!(pack(DType::Float16, [768, 24]), 8);
        assert_eq!(pack(DType::Float32, [768]), 4);
        assert_eq!(pack(DType::Float16, [768, 12]), 4);
        assert_eq!(pack(DType::Float16, [768, 7]), 1);
        assert_eq!(pack(DType::Int8, [0]), 8);
        assert_eq!(pack(DType::Float64, []), 2);
    }
}
