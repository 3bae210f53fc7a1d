//! Python's view of the crate: no logic, one file per public class.

mod arrays;
mod attrs;
mod calls;
mod context;
mod dim;
mod dlpack;
mod engine;
mod errors;
mod every_form;
mod files;
mod histogram;
mod knobs;
mod layer;
mod machine;
mod network;
mod ops;
mod placed;
mod plan;
mod plugin;
mod provider;
mod tensor;
mod tensorrt;
mod timings;

/// The extension module `neurenix._native`; users meet its contents through `neurenix`.
#[pyo3::pymodule]
mod _native {
    use crate::providers::cpu;
    use pyo3::prelude::*;

    #[pymodule_export]
    use super::attrs::nearest;
    #[pymodule_export]
    use super::context::Context;
    #[pymodule_export]
    use super::dim::Dim;
    #[pymodule_export]
    use super::dlpack::dlpack;
    #[pymodule_export]
    use super::engine::Engine;
    #[pymodule_export]
    use super::every_form::run_every_form;
    #[pymodule_export]
    use super::files::Replacement;
    #[pymodule_export]
    use super::histogram::{Histogram, integers_of};
    #[pymodule_export]
    use super::knobs::{knob, knobs};
    #[pymodule_export]
    use super::layer::Layer;
    #[pymodule_export]
    use super::machine::{
        allowed_providers, cache_dir, computes, default_threads, device, end, gpu_count, gpu_info, look_in,
        provider_states, warm_up,
    };
    #[pymodule_export]
    use super::network::Network;
    #[pymodule_export]
    use super::ops::ops;
    #[pymodule_export]
    use super::placed::fingerprints;
    #[pymodule_export]
    use super::plan::{TensorRTPlan, tensorrt_library};
    #[pymodule_export]
    use super::plugin::{
        declared_fields, deregister_plugin, load_plugin_library, register_plugin, registered_plugins, resolve_plugin,
    };
    #[pymodule_export]
    use super::provider::register_provider;
    #[pymodule_export]
    use super::tensor::Tensor;
    #[pymodule_export]
    use super::tensorrt::{TensorRTContext, TensorRTEngine};
    #[pymodule_export]
    use super::timings::TimingCache;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        let paths = module.py().import("sys")?.getattr("path")?;
        let paths = paths.try_iter()?.filter_map(|path| path.ok()?.extract().ok());
        super::machine::look_in(paths.collect());
        module.add("__version__", env!("CARGO_PKG_VERSION"))?;
        module.add("onednn_version", cpu::handle::onednn_version())
    }
}
