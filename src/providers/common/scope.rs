//! What a family sees when it is asked about a layer.

use super::Why;
use crate::network::array::Array;
use crate::network::dim::Dim;
use crate::network::op::TensorType;
use crate::network::{Layer, LayerId, Network, TensorId};
use crate::plan::layout::Layout;
use crate::plan::{Candidate, Form, Kernel, Tactic};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// The place of each layer in an order of execution.
pub type Positions = Arc<HashMap<LayerId, usize>>;

/// The order of the network that was asked about last, under its revision.
#[derive(Default)]
pub struct Orders(Mutex<Option<(u64, Positions)>>);

impl Orders {
    fn of(&self, network: &Network) -> Positions {
        let key = network.revision();
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, positions)) = known.as_ref().filter(|(k, _)| *k == key) {
            return positions.clone();
        }
        // A network with a cycle has no order; the planner says so.
        let order = network.order().unwrap_or_default();
        let positions: Positions = Arc::new(order.into_iter().enumerate().map(|(i, l)| (l, i)).collect());
        *known = Some((key, positions.clone()));
        positions
    }
}

/// A layer in its network.
pub struct Scope<'a> {
    /// The network.
    pub network: &'a Network,
    /// The layer that is asked about.
    pub layer: LayerId,
    /// Where the order of the network is kept.
    pub orders: &'a Orders,
}

impl<'a> Scope<'a> {
    /// The place of each layer in an order of execution. Takes time in the layers once for each change of the network:
    /// to be asked for where it is needed, and no sooner.
    pub fn positions(&self) -> Positions {
        self.orders.of(self.network)
    }

    /// The layer.
    pub fn layer(&self) -> &'a Layer {
        &self.network[self.layer]
    }

    /// The name of its op.
    pub fn op(&self) -> &'static str {
        self.layer().op.name
    }

    /// The tensor of an input that is there.
    pub fn input(&self, index: usize) -> Option<TensorId> {
        self.layer().inputs.get(index).copied().flatten()
    }

    /// The type of an input; required inputs are there in a verified network.
    pub fn input_type(&self, index: usize) -> Option<&'a TensorType> {
        self.input(index).map(|t| &self.network[t].ty)
    }

    /// The type of an output.
    pub fn output_type(&self, index: usize) -> &'a TensorType {
        &self.network[self.layer().outputs[index]].ty
    }

    /// The array of a constant input.
    pub fn constant(&self, index: usize) -> Option<&'a Array> {
        self.network[self.input(index)?].constant()
    }

    /// The elements of an integer input that the shapes determine.
    pub fn value(&self, index: usize) -> Option<&'a [Dim]> {
        self.input_type(index)?.value.as_deref()
    }

    /// As [`Scope::value`], of an input without which the layer can't run.
    ///
    /// # Errors
    /// That it depends on data.
    pub fn known(&self, index: usize) -> Result<Vec<Dim>, Why> {
        let value = self.value(index).map(<[Dim]>::to_vec);
        value.ok_or_else(|| Why::new(format!("{} depends on data", self.layer().op.inputs[index])))
    }

    /// Axes or steps, if the layer has them.
    ///
    /// # Errors
    /// That they are not known yet.
    pub fn numbers(&self, index: usize) -> Result<Option<Vec<i64>>, Why> {
        if self.input(index).is_none() {
            return Ok(None);
        }
        let values: Option<Vec<i64>> = self.known(index)?.iter().map(Dim::as_const).collect();
        values
            .map(Some)
            .ok_or_else(|| Why::new("axes or steps are not known at build time"))
    }

    /// Refuses the layer if the size of a result depends on data.
    ///
    /// # Errors
    /// The reason.
    pub fn require_known_sizes(&self) -> Result<(), Why> {
        self.network.unknown_size(self.layer).map_or(Ok(()), |dim| {
            Err(Why {
                reason: format!("the size of its result, {dim}, depends on data"),
                hint: "give it a constant size, or run it outside of the model",
            })
        })
    }

    /// The Add that gives the input: its layer, its two inputs, and its output where others read it too.
    pub fn residual(&self) -> Option<(LayerId, [TensorId; 2], Option<TensorId>)> {
        let network = self.network;
        let x = self.input(0)?;
        let (id, add) = network.producer(x).filter(|(_, layer)| layer.op.name == "Add")?;
        let &[Some(a), Some(b)] = add.inputs.as_slice() else {
            return None;
        };
        let own = &network[x].ty;
        let same = |t: TensorId| network[t].ty.shape == own.shape && network[t].ty.dtype == own.dtype;
        let shared = network.sole_user(x).is_none();
        (same(a) && same(b)).then_some((id, [a, b], shared.then_some(x)))
    }

    /// A candidate that runs the layer alone and reads these of its inputs.
    pub fn alone(&self, kernel: impl Kernel + 'static, inputs: &[usize]) -> Candidate {
        Candidate {
            kernel: Arc::new(kernel),
            layers: vec![self.layer],
            inputs: inputs.iter().filter_map(|&i| self.input(i)).collect(),
            outputs: self.layer().outputs.clone(),
        }
    }
}

/// Forms in which all operands lie in one layout, for each of `layouts`.
pub fn uniform_forms(layouts: &[Layout], inputs: usize, outputs: usize) -> Vec<Form> {
    let form = |&layout: &Layout| Form {
        tactic: Tactic::ONLY,
        inputs: vec![layout; inputs],
        outputs: vec![layout; outputs],
    };
    layouts.iter().map(form).collect()
}
