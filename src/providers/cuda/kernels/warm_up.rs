//! What NVIDIA's libraries set up when they are asked for the first time in a process: a second's work, which is done beside what a
//! build does before it asks.

use super::Gpu;
use crate::error::Result;
use crate::network::dtype::DType;
use crate::providers::cuda::library::cublaslt::{Epilogue, Product};
use crate::providers::cuda::library::cudnn::{Activation, After, Convolution, Tensor};

/// Asks each library something small, on a thread each. What goes wrong is found again by who needs it.
pub fn warm_up(gpu: &Gpu) {
    let questions: [fn(&Gpu) -> Result<()>; 2] = [ask_cublaslt, ask_cudnn];
    let ask = |question: fn(&Gpu) -> Result<()>| gpu.device.enter().and_then(|_entered| question(gpu));
    std::thread::scope(|scope| {
        questions
            .into_iter()
            .for_each(|question| _ = scope.spawn(move || _ = ask(question)))
    });
}

fn ask_cublaslt(gpu: &Gpu) -> Result<()> {
    const SIDE: usize = 64;
    let product = Product {
        dtype: DType::Float16,
        tf32: false,
        result: DType::Float16,
        m: SIDE,
        n: SIDE,
        k: SIDE,
        transposed: [false, true],
        batches: 1,
        strides: [SIDE * SIDE; 3],
        epilogue: Epilogue {
            bias: true,
            activation: None,
        },
        adds: false,
        alignment: 16,
    };
    gpu.blas()?.plan(product, 0).map(|_| ())
}

/// A graph of several operations: the engines that compile read their sources for it.
fn ask_cudnn(gpu: &Gpu) -> Result<()> {
    const CHANNELS: i64 = 64;
    let image = Tensor::dense(vec![1, CHANNELS, 8, 8]);
    let convolution = Convolution {
        dtype: DType::Float16,
        tf32: false,
        transposed: false,
        x: image.clone(),
        w: Tensor::dense(vec![CHANNELS, CHANNELS, 3, 3]),
        y: image.clone(),
        strides: vec![1, 1],
        dilations: vec![1, 1],
        begin: vec![1, 1],
        end: vec![1, 1],
        bias: true,
        residual: Some(image),
        activation: Some(Activation::Relu(0.0)),
        after: After::default(),
    };
    let dnn = gpu.dnn()?;
    dnn.engines(&dnn.problem(&convolution)).map(|_| ())
}
