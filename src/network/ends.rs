//! Inputs and outputs in another floating-point dtype than the model has them.

use crate::error::Result;
use crate::network::attr::{Attr, attrs};
use crate::network::dtype::DType;
use crate::network::ops::find;
use crate::network::{Network, TensorId};

impl Network {
    /// Lets the inputs and outputs that are float32, float16 or bfloat16 come and leave as `dtype`, which is one of these: what
    /// reads an input reads a Cast of it, and results are cast last.
    ///
    /// # Errors
    /// If a Cast can't be added.
    pub fn cast_ends(&mut self, dtype: DType) -> Result<()> {
        let differs = |other: DType| other != dtype && is_common(other);
        for input in self.inputs().to_vec() {
            let old = self[input].ty.dtype;
            if differs(old) {
                let users = self.retype_input(input, dtype);
                let cast = self.cast(input, old)?;
                self.hand_over(users, input, cast);
            }
        }
        for at in 0..self.outputs().len() {
            let tensor = self.outputs()[at].tensor;
            if differs(self[tensor].ty.dtype) {
                let cast = self.cast(tensor, dtype)?;
                self.set_output(at, cast);
            }
        }
        Ok(())
    }

    fn cast(&mut self, x: TensorId, to: DType) -> Result<TensorId> {
        let name = format!("{}_as_{to}", self[x].name);
        let outputs = self.add_layer(&name, find("Cast")?, attrs([("to", Attr::Type(to))]), &[Some(x)])?;
        Ok(outputs[0])
    }
}

/// Whether models come and go in it: other floats are what a model is about.
fn is_common(dtype: DType) -> bool {
    matches!(dtype, DType::Float32 | DType::Float16 | DType::BFloat16)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::attr::Attrs;
    use crate::network::dim::Dim;

    fn add(network: &mut Network, op: &str, inputs: &[TensorId]) -> TensorId {
        let inputs: Vec<_> = inputs.iter().copied().map(Some).collect();
        network.add_layer(op, find(op).unwrap(), Attrs::new(), &inputs).unwrap()[0]
    }

    #[test]
    fn floats_come_and_leave_as_asked_and_are_computed_with_as_before() {
        let mut network = Network::new("test");
        let x = network.add_input("x", DType::Float32, vec![Dim::from(2i64)]).unwrap();
        let i = network.add_input("i", DType::Int64, vec![Dim::from(2i64)]).unwrap();
        let y = add(&mut network, "Relu", &[x]);
        let z = add(&mut network, "Abs", &[i]);
        for (tensor, name) in [(y, "y"), (z, "z"), (x, "same")] {
            network.mark_output(tensor, name).unwrap();
        }
        network.cast_ends(DType::Float16).unwrap();
        network.verify().unwrap();
        let inputs: Vec<_> = network.inputs().iter().map(|&t| network[t].ty.dtype).collect();
        assert_eq!(inputs, [DType::Float16, DType::Int64]);
        let outputs = network.outputs().iter().map(|o| (&*o.name, network[o.tensor].ty.dtype));
        let wanted = [("y", DType::Float16), ("z", DType::Int64), ("same", DType::Float16)];
        assert_eq!(outputs.collect::<Vec<_>>(), wanted);
        let (_, relu) = network.layers().find(|(_, layer)| layer.op.name == "Relu").unwrap();
        assert_eq!(network[relu.outputs[0]].ty.dtype, DType::Float32);
    }
}
