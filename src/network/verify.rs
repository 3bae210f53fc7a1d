//! Checks that a network is well-formed; run after each pass in debug and test builds, and on every loaded file.

use crate::error::{Error, Result};
use crate::network::{Layer, LayerId, Network, Source, TensorId};
use std::collections::{HashMap, HashSet};

impl Network {
    /// Checks structure and types.
    ///
    /// # Errors
    /// Names the first layer or tensor that is not as it should be.
    pub fn verify(&self) -> Result<()> {
        if self.outputs.is_empty() {
            return Err(Error::invalid("the network has no outputs").hint("mark at least one tensor as an output"));
        }
        let mut uses = self.uses();
        let mut names = HashSet::new();
        for (id, layer) in self.layers() {
            if !names.insert(&layer.name) {
                return Err(Error::internal("two layers have one name").layer(&layer.name));
            }
            self.verify_links(id, layer, &mut uses)
                .map_err(|e| e.layer(&layer.name))?;
            self.verify_types(layer)
                .map_err(|e| e.layer(format!("{} ({})", layer.name, layer.op.name)))?;
        }
        for output in &self.outputs {
            if self[output.tensor].name.is_empty() {
                return Err(Error::internal("an output has no source").tensor(&output.name));
            }
        }
        self.order().map(|_| ())
    }

    /// How often each layer reads each tensor, as the tensors have it.
    fn uses(&self) -> HashMap<(TensorId, LayerId), usize> {
        let mut uses = HashMap::new();
        for (tensor, user) in self
            .tensors()
            .flat_map(|(id, tensor)| tensor.users.iter().map(move |&user| (id, user)))
        {
            *uses.entry((tensor, user)).or_default() += 1;
        }
        uses
    }

    /// Takes what the layer reads out of `uses`, where nothing of it may be left.
    fn verify_links(&self, id: LayerId, layer: &Layer, uses: &mut HashMap<(TensorId, LayerId), usize>) -> Result<()> {
        for &input in layer.inputs.iter().flatten() {
            let tensor = self
                .tensors
                .get(input.0 as usize)
                .ok_or_else(|| Error::internal("input is no tensor"))?;
            let left = uses.get_mut(&(input, id)).filter(|left| **left > 0);
            *left.ok_or_else(|| Error::internal("users and inputs disagree").tensor(&tensor.name))? -= 1;
            let alive = match tensor.source {
                Source::Layer(producer, _) => self.layers.contains_key(&producer),
                Source::Symbolic => tensor.ty.value.is_some(),
                Source::Input => self.inputs.contains(&input),
                Source::Constant(_) => true,
            };
            if !alive {
                return Err(Error::internal("input has no source").tensor(&tensor.name));
            }
        }
        let mut read = layer.inputs.iter().flatten();
        if let Some(&input) = read.find(|&&input| uses.get(&(input, id)).is_some_and(|&left| left > 0)) {
            return Err(Error::internal("users and inputs disagree").tensor(&self[input].name));
        }
        for (i, &output) in layer.outputs.iter().enumerate() {
            if !matches!(self[output].source, Source::Layer(l, at) if l == id && at == i) {
                return Err(Error::internal("output does not know its layer").tensor(&self[output].name));
            }
        }
        Ok(())
    }

    fn verify_types(&self, layer: &Layer) -> Result<()> {
        let inputs: Vec<_> = layer.inputs.iter().map(|t| t.map(|t| &self[t])).collect();
        let (types, _) = self.infer(&layer.name, layer.op, &layer.attrs, &inputs)?;
        if types.len() != layer.outputs.len() {
            return Err(Error::internal("the rule gives another number of outputs")
                .expected(types.len().to_string())
                .got(layer.outputs.len().to_string()));
        }
        for (ty, &output) in types.iter().zip(&layer.outputs) {
            let have = &self[output].ty;
            if ty.dtype != have.dtype || ty.shape != have.shape {
                return Err(Error::internal("an output is not what the rule gives")
                    .tensor(&self[output].name)
                    .expected(ty.describe())
                    .got(have.describe()));
            }
        }
        Ok(())
    }
}
