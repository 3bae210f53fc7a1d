//! Calls whose sizes the engine was not planned for, since symbols that meet in a broadcast were taken to be equal.

use crate::engine::config::BuilderConfig;
use crate::engine::{Engine, Profile, builder};
use crate::error::Result;
use crate::network::Network;
use crate::network::dim::Binding;
use crate::network::dtype::DType;
use crate::network::reference::bind;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// The network in which each of those symbols may be 1, and the engine for it once a call asked for one.
pub struct General {
    /// The network as it came.
    pub network: Arc<Network>,
    engine: Mutex<Option<Arc<Engine>>>,
    /// The call that asked first.
    reason: OnceLock<String>,
}

impl General {
    /// For a network that [`assume_equal`] changed.
    pub fn new(network: Arc<Network>) -> Self {
        Self {
            network,
            engine: Mutex::default(),
            reason: OnceLock::new(),
        }
    }

    /// Why calls run without tuned kernels, once one did.
    pub fn reason(&self) -> Option<&str> {
        self.reason.get().map(String::as_str)
    }

    /// The engine for it, built on the first call that asks: in float32, and by rules alone.
    fn engine(&self, around: &Engine) -> Result<Arc<Engine>> {
        let mut slot = self.engine.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(engine) = &*slot {
            return Ok(engine.clone());
        }
        let config = BuilderConfig {
            compute: DType::Float32,
            tf32: false,
            optimization_level: 0,
            profiles: vec![],
            timing_cache: None,
            refittable: false,
            ..around.config.clone()
        };
        let engine = builder::build_as_it_is((*self.network).clone(), config, around.providers())?;
        Ok(slot.insert(Arc::new(engine)).clone())
    }
}

/// The sizes of a call, where the network takes them as far as they are known before it.
///
/// # Errors
/// If it does not; names the input, or the layer.
pub fn sizes(network: &Network, shape_of: &dyn Fn(usize) -> Vec<usize>) -> Result<Binding> {
    let binding = bind(network, shape_of)?;
    network.check_known_guards(&binding)?;
    Ok(binding)
}

impl Engine {
    /// The engine for a call, and its sizes: this one, or the one for symbols that are not equal.
    ///
    /// # Errors
    /// If neither takes these shapes.
    pub fn taking(self: &Arc<Self>, shape_of: &dyn Fn(usize) -> Vec<usize>) -> Result<(Arc<Self>, Binding)> {
        let refusal = match sizes(&self.network, shape_of) {
            Ok(binding) => return Ok((self.clone(), binding)),
            Err(e) => e,
        };
        let Some(general) = &self.general else {
            return Err(refusal);
        };
        let binding = sizes(&general.network, shape_of)?;
        let engine = general.engine(self)?;
        if engine.stages.is_empty() != self.stages.is_empty() {
            return Err(refusal);
        }
        let reason = format!(
            "{}: a call of such sizes runs in float32 on kernels that nothing was timed for; build with input_shapes whose sizes to \
             optimise for differ so, and kernels are chosen for them",
            refusal.message()
        );
        let _ = general.reason.set(reason);
        Ok((engine, binding))
    }
}

/// Takes symbols that meet in a broadcast to be equal, if they are at the sizes to optimise for; gives the network as it was then.
///
/// # Errors
/// If a layer does not take equal ones; names it.
pub fn assume_equal(network: &mut Network, profiles: &[Profile]) -> Result<Option<Arc<Network>>> {
    let Some(equal) = network.with_equal_broadcasts()? else {
        return Ok(None);
    };
    let own = [network.symbols.clone()];
    let mut profiles = if profiles.is_empty() { &own } else { profiles }.iter();
    let fit = profiles.all(|profile| equal.check_known_guards(&builder::opt(&equal, profile)).is_ok());
    Ok(fit.then(|| Arc::new(std::mem::replace(network, equal))))
}
