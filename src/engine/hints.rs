//! What a user had better know of what was asked for: notes of an engine that change nothing.

use super::Engine;
use super::arithmetic::operations;
use super::builder::opt;
use super::config::Hint;
use crate::plan::Provider;

/// What a hint does not change.
pub fn idle_hint(engine: &Engine) -> Option<String> {
    let asked = engine.config.hint == Hint::Throughput;
    (asked && engine.uses_devices()).then(|| {
        "hint=\"throughput\" shares the processor's threads among calls; what runs on a GPU is the same with \"latency\"".into()
    })
}

/// That products in the precision that was asked for take longer than in float32, where these are most of a call.
pub fn slow_precision(engine: &Engine, first: &dyn Provider) -> Option<String> {
    /// Less than this may be chance.
    const LONGER: f64 = 1.2;
    /// Multiplications and additions that a processor does in some milliseconds.
    const MANY: f64 = 1e9;
    let dtype = engine.config.compute;
    if products(engine) < MANY {
        return None;
    }
    let times = first.slowdown(dtype).filter(|&times| times > LONGER)?;
    Some(format!(
        "products in {dtype} take {times:.1} times float32's time on this {}: precision=\"fp32\" is likely to be faster",
        first.name()
    ))
}

/// Multiplications and additions of a call in the precision that was asked for, at the expected sizes.
fn products(engine: &Engine) -> f64 {
    let dtype = engine.config.compute;
    let plans = engine.parts().into_iter().flat_map(|part| &part.plans);
    let of = |plan: &super::Plan| -> f64 {
        let network = &plan.program.network;
        let sizes = opt(network, &plan.profile);
        let layers = network.layers().map(|(_, layer)| layer);
        let low = layers.filter(|l| l.op.multiplications.is_some() && network[l.outputs[0]].ty.dtype == dtype);
        low.map(|layer| operations(network, layer, &sizes)).sum()
    };
    plans.map(of).fold(0.0, f64::max)
}
