//! Networks of tests in few words.

use crate::network::array::Array;
use crate::network::attr::Attrs;
use crate::network::dtype::DType;
use crate::network::{Network, TensorId, ops};

/// A network under test.
pub struct Graph {
    /// The network.
    pub network: Network,
}

impl Graph {
    /// Without layers.
    pub fn new() -> Self {
        let network = Network::new("test");
        Self { network }
    }

    /// A float32 input; dimensions with blanks between.
    pub fn input(&mut self, name: &str, shape: &str) -> TensorId {
        self.input_of(name, DType::Float32, shape)
    }

    /// An input.
    pub fn input_of(&mut self, name: &str, dtype: DType, shape: &str) -> TensorId {
        let shape = shape.split_whitespace().map(|d| d.parse().unwrap()).collect();
        self.network.add_input(name, dtype, shape).unwrap()
    }

    /// Float32 constants, each another number.
    pub fn weights(&mut self, shape: &[usize]) -> TensorId {
        let values: Vec<f64> = (0..shape.iter().product()).map(|i| i as f64).collect();
        let array = Array::from_f64(DType::Float32, shape.to_vec(), &values).unwrap();
        self.network.add_constant("", array)
    }

    /// One float32 constant.
    pub fn scalar(&mut self, value: f64) -> TensorId {
        self.network.add_constant("", Array::scalar(DType::Float32, value))
    }

    /// What a layer without attributes gives.
    pub fn op(&mut self, op: &str, inputs: &[TensorId]) -> TensorId {
        self.op_with(op, Attrs::new(), inputs)
    }

    /// What a layer gives.
    pub fn op_with(&mut self, op: &str, attrs: Attrs, inputs: &[TensorId]) -> TensorId {
        let op = ops::find(op).unwrap();
        let inputs: Vec<_> = inputs.iter().map(|&t| Some(t)).collect();
        self.network.add_layer("", op, attrs, &inputs).unwrap()[0]
    }

    /// Gives a tensor to the caller.
    pub fn output(&mut self, tensor: TensorId) {
        self.network.mark_output(tensor, "y").unwrap();
    }
}
