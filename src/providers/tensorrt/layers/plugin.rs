//! Plugins: called back by TensorRT where it has a function that adds them.

use super::Family;
use crate::error::{Error, Result};
use crate::network::op::TensorType;
use crate::network::ops::plugin;
use crate::network::plugin::Device;
use crate::network::{Layer, TensorId};
use crate::providers::tensorrt::handle::{Spec, Tensor};
use crate::providers::tensorrt::hosted::Hosted;
use crate::providers::tensorrt::writer::Writer;

pub const FAMILY: Family = Family {
    ops: &["Plugin"],
    write,
};

fn write(w: &mut Writer, layer: &Layer) -> Result<Vec<Tensor>> {
    let Some(held) = plugin::of(layer) else {
        return Err(Error::internal("a Plugin layer holds no plugin"));
    };
    let named = |what: String| Error::unsupported(format!("plugin {}: {what}", held.identity()));
    let library = w.session.library();
    if !library.takes_plugins() {
        let word = if library.is_rtx() { "TensorRT-RTX" } else { "TensorRT" };
        return Err(named(format!("{word} {} has no addPluginV3", library.version()))
            .hint("it runs beside TensorRT: on the CUDA or the CPU engine, and the plan is built around it"));
    }
    let devices = held.plugin(&layer.name)?.devices();
    if !devices.iter().any(|name| name == Device::Cuda(0).word()) {
        return Err(named(format!(
            "it runs on {} (its `devices`), not on cuda",
            devices.join(", ")
        )));
    }
    if held.shape_inputs() > 0 {
        return Err(named("its shape inputs are not taken into TensorRT".into()));
    }
    let network = w.network;
    let types = |ids: &[TensorId]| -> Vec<TensorType> { ids.iter().map(|&id| network[id].ty.clone()).collect() };
    let inputs: Vec<_> = layer.inputs.iter().flatten().copied().collect();
    let hosted = Hosted::new(&layer.name, held.clone(), types(&inputs), types(&layer.outputs))?;
    let mut spec = Spec::new("PluginV3");
    for index in 0..layer.inputs.len() {
        spec = spec.input(w.input(layer, index)?);
    }
    // TensorRT's network takes a clone of it.
    w.add(spec.int("plugin", &raw const hosted as i64))
}
