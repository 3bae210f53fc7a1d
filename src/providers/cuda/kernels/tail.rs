//! What libraries do to a product before they store it: a bias, a residual, an activation, in this order.

use crate::network::{Layer, Network, TensorId};
use crate::providers::common::epilogue::{Broadcast, Epilogue, Value};

/// The first steps of an epilogue, as far as a library does them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tail<A> {
    /// So many steps.
    pub steps: usize,
    /// What is added to each column.
    pub bias: Option<TensorId>,
    /// What of the result's shape is added.
    pub residual: Option<TensorId>,
    /// What is done in the end.
    pub activation: Option<A>,
}

impl<A> Tail<A> {
    /// The most steps of an epilogue that are of this form, behind the `first` ones. `biased` says that there is a bias already;
    /// `activation` gives that which a layer is.
    pub fn of(
        network: &Network,
        epilogue: &Epilogue,
        first: usize,
        biased: bool,
        activation: impl Fn(&Layer) -> Option<A>,
    ) -> Self {
        let mut found = Self {
            steps: first,
            bias: None,
            residual: None,
            activation: None,
        };
        while found.activation.is_none() && found.takes(network, epilogue, biased, &activation) {
            found.steps += 1;
        }
        found
    }

    /// With one more step.
    fn takes(
        &mut self,
        network: &Network,
        epilogue: &Epilogue,
        biased: bool,
        activation: &impl Fn(&Layer) -> Option<A>,
    ) -> bool {
        let value = self.steps.checked_sub(1).map_or(Value::Product, Value::Step);
        let Some(step) = epilogue.steps.get(self.steps).filter(|_| epilogue.uses(value) == 1) else {
            return false;
        };
        let layer = &network[step.layer];
        if network[layer.outputs[0]].ty.dtype != network[epilogue.product].ty.dtype {
            return false;
        }
        if step.inputs.first() == Some(&Some(value)) {
            self.activation = activation(layer);
        }
        if self.activation.is_some() {
            return true;
        }
        let other = step
            .beside(value)
            .filter(|_| layer.op.name == "Add" && self.residual.is_none());
        let Some(other) = other.and_then(|(_, other)| epilogue.operand(other)) else {
            return false;
        };
        let (ty, columns) = (
            &network[other.tensor].ty,
            &network[epilogue.product].ty.shape[epilogue.axis],
        );
        if !biased && self.bias.is_none() && ty.shape.last() == Some(columns) && ty.elements() == *columns {
            self.bias = Some(other.tensor);
        } else if other.broadcast == Broadcast::Full {
            self.residual = Some(other.tensor);
        } else {
            return false;
        }
        true
    }
}
