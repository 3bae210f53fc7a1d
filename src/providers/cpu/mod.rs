//! The CPU provider: oneDNN primitives and our own kernels, on one team of threads.
mod bridge;
pub mod handle;
mod kernels;
mod pace;
mod simd;
pub mod team;

use crate::device::{Device, Host};
use crate::error::Result;
use crate::network::dtype::DType;
use crate::network::op::{Decomposition, TensorType};
use crate::network::{LayerId, Network};
use crate::plan::layout::Layout;
use crate::plan::{Job, Kernel, Offer, Provider, Refusal, Settings};
use crate::providers::common::scope::{Orders, Scope};
use std::sync::{Arc, OnceLock};

/// The processor of this machine.
#[derive(Default)]
pub struct Cpu {
    orders: Orders,
}

impl Provider for Cpu {
    fn name(&self) -> &'static str {
        "cpu"
    }

    fn has_int8(&self) -> bool {
        kernels::quantized::sums_exactly()
    }

    fn has_packed_weights(&self) -> bool {
        true
    }

    fn conditions(&self, settings: &Settings) -> Vec<(String, String)> {
        vec![
            ("neurenix".into(), env!("CARGO_PKG_VERSION").into()),
            ("processor".into(), model().into()),
            ("instructions".into(), features()),
            ("threads".into(), settings.threads.to_string()),
            ("onednn".into(), handle::onednn_version()),
        ]
    }

    fn device(&self) -> &dyn Device {
        &Host
    }

    fn compute_dtype(&self, dtype: DType) -> DType {
        match dtype {
            DType::Float16 => DType::Float32,
            DType::BFloat16 if !is_x86_feature_detected!("avx512bf16") => DType::Float32,
            other => other,
        }
    }

    fn slowdown(&self, dtype: DType) -> Option<f64> {
        (dtype == DType::BFloat16).then(pace::of_bfloat16).flatten()
    }

    fn candidates(&self, network: &Network, layer: LayerId, _settings: &Settings) -> Offer {
        let scope = Scope {
            network,
            layer,
            orders: &self.orders,
        };
        kernels::candidates(&scope).map_err(|why| Refusal {
            provider: self.name().into(),
            layer: network[layer].name.clone(),
            reason: why.reason,
            hint: why.hint.into(),
        })
    }

    fn reorder(&self, from: Layout, to: Layout, ty: &TensorType) -> Arc<dyn Kernel> {
        Arc::new(kernels::reorder::Reorder {
            from,
            to,
            bitcast: from.is_bitcast(to, &ty.shape),
        })
    }

    fn run(&self, threads: usize, job: Job) -> Result<()> {
        team::run(threads, job)
    }
}

/// The name of the processor.
fn model() -> &'static str {
    static MODEL: OnceLock<String> = OnceLock::new();
    MODEL.get_or_init(|| {
        let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let line = text.lines().find_map(|l| l.strip_prefix("model name"));
        let name = line.and_then(|l| l.split(':').nth(1)).unwrap_or("unknown");
        name.trim().to_string()
    })
}

/// The instruction sets that kernels choose by.
fn features() -> String {
    let found = [
        ("avx2", is_x86_feature_detected!("avx2")),
        ("avx512", is_x86_feature_detected!("avx512f")),
        ("vnni", is_x86_feature_detected!("avx512vnni")),
        ("bf16", is_x86_feature_detected!("avx512bf16")),
        (
            "amx",
            std::fs::read_to_string("/proc/cpuinfo").is_ok_and(|t| t.contains("amx_bf16")),
        ),
    ];
    let names: Vec<_> = found
        .into_iter()
        .filter(|(_, there)| *there)
        .map(|(name, _)| name)
        .collect();
    names.join("+")
}

/// Whether a layer is given by smaller ops, so that it need not run on the reference evaluation. One that tells a size stays
/// whole, since the size has its name.
fn decomposes(network: &Network, layer: LayerId) -> bool {
    !matches!(network[layer].op.decomposition, Decomposition::None) && network.new_sizes(layer).is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::attr::Attrs;
    use crate::network::ops;

    #[test]
    fn the_last_candidate_runs_the_layer_alone() {
        let settings = Settings::default();
        let mut network = Network::new("");
        let x = network.add_input("x", DType::Float32, vec![4i64.into()]).unwrap();
        let relu = ops::find("Relu").unwrap();
        let a = network.add_layer("a", relu, Attrs::new(), &[Some(x)]).unwrap()[0];
        network.add_layer("b", relu, Attrs::new(), &[Some(a)]).unwrap();
        let (cpu, id) = (Cpu::default(), network.producer(a).unwrap().0);
        let found = cpu.candidates(&network, id, &settings).unwrap();
        assert_eq!(found.last().unwrap().layers, [id]);
        assert_eq!(found[0].layers.len(), 2);
    }
}
