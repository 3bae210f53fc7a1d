//! Each primitive against plain loops in f64.
mod convolution;
mod loops;
mod matrices;
mod others;
mod tensor;

use super::{Desc, Options, Primitive};
use crate::{
    network::{array::Buffer, dtype::DType},
    plan::layout::{Layout, Operand},
    providers::cpu::{simd::Isa, team},
};
use tensor::Tensor;

/// Whether oneDNN has bfloat16, channels in blocks of sixteen and slices of both: it does with AVX-512.
fn has_all() -> bool {
    Isa::here() == Isa::Avx512
}

const THREADS: usize = 2;

fn dense(dtype: DType, shape: &[usize], layout: Layout) -> Operand {
    Operand::dense(dtype, shape.to_vec(), layout)
}

fn f32s(shape: &[usize]) -> Operand {
    dense(DType::Float32, shape, Layout::Plain)
}

fn desc(operand: &Operand) -> Desc {
    Desc::of(operand).unwrap()
}

fn options() -> Options {
    Options::threads(THREADS)
}

/// Runs a primitive on a fresh output.
fn run(primitive: &mut Primitive, inputs: &[&Buffer], output: &Operand) -> Tensor {
    let memory = Tensor::memory(output);
    run_into(primitive, inputs, &memory);
    Tensor::load(output, &memory)
}

fn run_into(primitive: &mut Primitive, inputs: &[&Buffer], output: &Buffer) {
    let inputs: Vec<_> = inputs.iter().map(|input| input.as_ptr() as usize).collect();
    let (output, workspace) = (output.as_ptr() as usize, Buffer::zeroed(primitive.workspace()));
    assert_eq!(inputs.len(), primitive.inputs());
    team::run(THREADS, || {
        let inputs: Vec<_> = inputs.iter().map(|&input| input as *const u8).collect();
        // SAFETY: every test passes buffers of the sizes that its operands ask for.
        unsafe { primitive.run(&inputs, output as *mut u8, workspace.as_ptr()) }
    })
    .unwrap();
}

#[test]
fn the_library_is_of_major_version_3() {
    assert!(super::onednn_version().starts_with("3."));
}
