//! What follows the activation of a convolution: a scale and a shift for each channel, and a residual.

use crate::network::{Network, TensorId};
use crate::providers::common::epilogue::{Broadcast, Epilogue, Value};
use crate::providers::cuda::kernels::tail::Tail;
use crate::providers::cuda::library::cudnn::{Activation, After};

/// The steps of an epilogue behind a [`Tail`], as far as kernels do them.
#[derive(Debug, Clone, Copy, Default)]
pub struct Ending {
    /// So many steps.
    pub steps: usize,
    /// What each channel is multiplied by.
    pub scale: Option<TensorId>,
    /// What is added to each channel.
    pub shift: Option<TensorId>,
    /// What of the result's shape is added.
    pub residual: Option<TensorId>,
}

impl Ending {
    /// The most steps that are of this form.
    pub fn of(network: &Network, epilogue: &Epilogue, tail: &Tail<Activation>) -> Self {
        let mut found = Self::default();
        while found.takes(network, epilogue, tail) {
            found.steps += 1;
        }
        found
    }

    /// Which of them there are.
    pub fn after(&self) -> After {
        After {
            scale: self.scale.is_some(),
            shift: self.shift.is_some(),
            residual: self.residual.is_some(),
        }
    }

    /// With one more step.
    fn takes(&mut self, network: &Network, epilogue: &Epilogue, tail: &Tail<Activation>) -> bool {
        let at = tail.steps + self.steps;
        let value = at.checked_sub(1).map_or(Value::Product, Value::Step);
        let Some(step) = epilogue.steps.get(at).filter(|_| epilogue.uses(value) == 1) else {
            return false;
        };
        let (layer, product) = (&network[step.layer], &network[epilogue.product].ty);
        let other = step.beside(value).and_then(|(_, other)| epilogue.operand(other));
        let Some(other) = other.filter(|_| network[layer.outputs[0]].ty.dtype == product.dtype) else {
            return false;
        };
        let columns =
            other.broadcast == Broadcast::Column && network[other.tensor].ty.elements() == product.shape[epilogue.axis];
        let (shifted, ended) = (self.shift.is_some(), self.residual.is_some());
        let place = match layer.op.name {
            "Mul" if columns && self.scale.is_none() && !shifted && !ended => &mut self.scale,
            "Add" if columns && !shifted && !ended => &mut self.shift,
            "Add" if other.broadcast == Broadcast::Full && !ended && tail.residual.is_none() => &mut self.residual,
            _ => return false,
        };
        *place = Some(other.tensor);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::providers::common::testing::Graph;

    /// What follows a product of four rows of eight whose layers are these, behind the first.
    fn ending(g: &Graph, product: TensorId) -> (usize, After) {
        let order = g.network.order().unwrap();
        let epilogue = Epilogue::new(&g.network, product, 1, &order[1..]).unwrap();
        let gelu = |layer: &crate::network::Layer| (layer.op.name == "Gelu").then_some(Activation::Gelu);
        let tail = Tail::of(&g.network, &epilogue, 0, true, gelu);
        let found = Ending::of(&g.network, &epilogue, &tail);
        (tail.steps + found.steps, found.after())
    }

    fn product(g: &mut Graph) -> [TensorId; 3] {
        let (x, w) = (g.input("x", "4 8"), g.weights(&[8, 8]));
        [g.op("MatMul", &[x, w]), g.weights(&[8]), g.input("skip", "4 8")]
    }

    #[test]
    fn a_scale_a_shift_and_a_residual_follow_an_activation_in_this_order() {
        let mut g = Graph::new();
        let [product, row, skip] = product(&mut g);
        let gelu = g.op("Gelu", &[product]);
        let scaled = g.op("Mul", &[row, gelu]);
        let shift = g.weights(&[8]);
        let shifted = g.op("Add", &[scaled, shift]);
        let sum = g.op("Add", &[skip, shifted]);
        g.op("Mul", &[sum, row]);
        let all = After {
            scale: true,
            shift: true,
            residual: true,
        };
        assert_eq!(ending(&g, product), (4, all));
    }

    #[test]
    fn there_is_one_residual_and_no_scale_behind_a_shift() {
        let mut g = Graph::new();
        let [product, row, skip] = product(&mut g);
        let sum = g.op("Add", &[product, skip]);
        let gelu = g.op("Gelu", &[sum]);
        let shifted = g.op("Add", &[gelu, row]);
        let other = g.weights(&[8]);
        g.op("Mul", &[shifted, other]);
        let shift = After {
            shift: true,
            ..After::default()
        };
        assert_eq!(ending(&g, product), (3, shift));
        let mut g = Graph::new();
        let [product, _, skip] = self::product(&mut g);
        let sum = g.op("Add", &[product, skip]);
        let gelu = g.op("Gelu", &[sum]);
        g.op("Add", &[gelu, skip]);
        assert_eq!(ending(&g, product), (2, After::default()));
    }
}
