//! Decides what each layer computes in where a lower precision was asked for: the precision plan.

use super::{Pass, Settings, allow_tf32, exactness};
use crate::error::Result;
use crate::network::dtype::DType;
use crate::network::precision::{LayerPrecision, Reason};
use crate::network::{Layer, LayerId, Network};
use std::collections::HashMap;

/// See [`Pass::doc`].
pub static PASS: Pass = Pass {
    name: "plan_precision",
    doc: "float32 layer => the same, with what it will compute in and why: Settings::compute or tf32, or float32 where it is \
          precision-sensitive, belongs to products of 8 bits, or is lifted",
    apply: |network, settings| {
        let plan = plan(network, settings)?;
        let planned =
            |(id, layer): (LayerId, &Layer)| Some((*layer.outputs.first()?, layer.precision, plan.get(&id).copied()));
        let mut changed: Vec<_> = network.layers().filter_map(planned).collect();
        changed.retain(|(_, before, now)| before != now);
        for &(output, _, now) in &changed {
            network.set_precision(output, now);
        }
        Ok(changed.len())
    },
};

/// What layers compute in by these settings; without those for which nothing is to be decided.
///
/// # Errors
/// If the network has a cycle.
pub fn plan(network: &Network, settings: &Settings) -> Result<HashMap<LayerId, LayerPrecision>> {
    let mut plan = match settings.compute {
        DType::Float16 | DType::BFloat16 => exactness::plan(network, settings)?,
        _ => HashMap::new(),
    };
    for (id, layer) in network.layers() {
        let is_lower = plan.get(&id).is_some_and(LayerPrecision::is_lower);
        if settings.tf32
            && !is_lower
            && let Some(rounds) = allow_tf32::plan(network, layer)
            && (rounds.tf32 || !plan.contains_key(&id))
        {
            plan.insert(id, rounds);
        }
        if settings.keeps(layer) && plan.get(&id).is_some_and(LayerPrecision::is_lower) {
            plan.insert(id, LayerPrecision::full(Reason::Lifted));
        }
    }
    Ok(plan)
}

/// The layers that the plan in a network brings to another dtype.
pub(super) fn lowered(network: &Network) -> HashMap<LayerId, LayerPrecision> {
    let of = |(id, layer): (LayerId, &Layer)| Some((id, layer.precision?));
    let planned = network.layers().filter_map(of);
    planned.filter(|(_, planned)| planned.dtype != DType::Float32).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::passes::testing::Graph;
    use std::collections::HashSet;

    #[test]
    fn each_layer_has_a_precision_and_a_reason() {
        let mut g = Graph::new();
        let (x, w) = (g.input("x", "n 32"), g.weights(&[32, 4]));
        let y = g.op("MatMul", &[x, w]);
        let large = g.scalar(1e30);
        let z = g.op("Add", &[y, large]);
        let z = g.op("Exp", &[z]);
        let z = g.op("Relu", &[z]);
        g.output(z);
        let name = |g: &Graph, at: usize| g.network.layers().nth(at).unwrap().1.name.clone();
        let reasons = |g: &Graph| -> Vec<_> {
            let layers = g.network.layers();
            layers.map(|(_, layer)| layer.precision.map(|p| p.reason)).collect()
        };
        let mut settings = Settings {
            compute: DType::Float16,
            lifted: HashSet::from([name(&g, 3)]),
            ..Settings::default()
        };
        (PASS.apply)(&mut g.network, &settings).unwrap();
        let want = [Reason::Asked, Reason::OutOfRange, Reason::Op, Reason::Lifted].map(Some);
        assert_eq!(reasons(&g), want);
        settings.compute = DType::Float32;
        assert_eq!((PASS.apply)(&mut g.network, &settings).unwrap(), 4);
        assert_eq!(reasons(&g), [None; 4]);
        settings.tf32 = true;
        (PASS.apply)(&mut g.network, &settings).unwrap();
        assert_eq!(reasons(&g), [Some(Reason::Asked), None, None, None]);
    }
}
