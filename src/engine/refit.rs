//! Other weights for an engine: the network as it came, with some constants replaced, built anew with the times that are
//! known, so that nothing is searched again.

use crate::engine::config::BuilderConfig;
use crate::engine::{Engine, builder};
use crate::error::{Error, Result};
use crate::network::array::Array;
use crate::network::{Network, Tensor};
use crate::plan::Provider;
use std::collections::BTreeMap;
use std::sync::Arc;

impl Engine {
    /// The weights that can be replaced: the constants of the network as it came, by name.
    pub fn weights(&self) -> BTreeMap<&str, &Array> {
        let tensors = self.original.iter().flat_map(|source| source.tensors());
        let used = tensors.filter(|(_, tensor)| !tensor.users.is_empty());
        used.filter_map(|(_, tensor)| Some((tensor.name.as_str(), tensor.constant()?)))
            .collect()
    }

    /// An engine with other weights; this one stays as it is.
    ///
    /// # Errors
    /// If the engine was not built to be refitted, there is no weight of some name, one has another dtype or shape, or as
    /// [`Engine::build`].
    pub fn refit(
        &self,
        weights: BTreeMap<String, Array>,
        config: BuilderConfig,
        providers: &[Arc<dyn Provider>],
    ) -> Result<Self> {
        let source = self.original.as_deref().ok_or_else(|| {
            Error::invalid("the weights of this engine can't be replaced").hint("build it with refittable=True")
        })?;
        let network = replaced(source, weights)?;
        let config = BuilderConfig {
            compute: self.config.compute,
            tf32: self.config.tf32,
            profiles: self.config.profiles.clone(),
            // The network as it came has its casts already.
            io: None,
            refittable: true,
            ..config
        };
        builder::build_with(network, config, providers, &self.times())
    }
}

/// The network with other arrays for the constants of these names.
fn replaced(source: &Network, weights: BTreeMap<String, Array>) -> Result<Network> {
    let mut network = source.clone();
    let found: Vec<_> = network
        .tensors()
        .map(|(id, tensor)| (tensor.name.clone(), id))
        .collect();
    let mut ids: BTreeMap<String, _> = found.into_iter().collect();
    for (name, array) in weights {
        let id = ids.remove(&name).filter(|&id| network[id].constant().is_some());
        let id = id.ok_or_else(|| unknown(source, &name))?;
        check(&network[id], &array)?;
        if network[id].users.is_empty() {
            unread(&network[id], &array)?;
        }
        network.set_constant(id, array);
    }
    network.verify().map_err(|error| {
        Error::invalid("these weights decide shapes, which are other ones now")
            .got(error.message())
            .hint("build the model with them anew")
    })?;
    Ok(network)
}

fn unknown(source: &Network, name: &str) -> Error {
    let constants = source.tensors().filter(|(_, tensor)| tensor.constant().is_some());
    let names = constants.map(|(_, tensor)| tensor.name.as_str());
    Error::invalid(format!("the engine has no weight {name:?}")).nearest(name, names)
}

/// Takes for a constant that no layer reads what it is already: what was made of it stays as it was.
fn unread(tensor: &Tensor, array: &Array) -> Result<()> {
    if tensor.constant() == Some(array) {
        return Ok(());
    }
    let hint = "build the model with it anew; engines that optimize_model itself quantizes (precision=, calibration=) take new weights";
    Err(
        Error::invalid("no layer reads this weight any more: what was made of it, as codes of 8 bits, stays as it was")
            .tensor(&tensor.name)
            .hint(hint),
    )
}

fn check(tensor: &Tensor, array: &Array) -> Result<()> {
    let Some(old) = tensor.constant() else {
        return Ok(());
    };
    let describe = |array: &Array| format!("{}{:?}", array.dtype(), array.shape());
    if (old.dtype(), old.shape()) != (array.dtype(), array.shape()) {
        return Err(
            Error::shape("a weight has another dtype or shape than the one that it replaces")
                .tensor(&tensor.name)
                .expected(describe(old))
                .got(describe(array)),
        );
    }
    if tensor.ty.value.is_some() && old != array {
        return Err(
            Error::invalid("the elements of this constant decide shapes: they can't be replaced")
                .tensor(&tensor.name)
                .hint("build the model anew"),
        );
    }
    Ok(())
}
