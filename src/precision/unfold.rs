//! Writes constants that were folded as layers again, so that other weights in the place of the original ones come through.

use crate::error::Result;
use crate::network::{Constant, Network, Source, TensorId};
use std::collections::HashMap;
use std::sync::Arc;

/// The tensors that constants were written as.
type Written = HashMap<*const Constant, TensorId>;

/// In the place of each constant that is computed from others, layers on the constants that it came from, under their names.
///
/// # Errors
/// If a layer can't be added.
pub fn unfold(network: &mut Network) -> Result<()> {
    let folded: Vec<(TensorId, Arc<Constant>)> = network
        .tensors()
        .filter(|(id, tensor)| !tensor.users.is_empty() || network.is_output(*id))
        .filter_map(|(id, tensor)| match &tensor.source {
            Source::Constant(constant) if constant.recipe.is_some() => Some((id, constant.clone())),
            _ => None,
        })
        .collect();
    let mut written = Written::new();
    for (id, constant) in folded {
        let name = network[id].name.clone();
        let new = write(network, &name, &constant, &mut written)?;
        network.replace_uses(id, new);
    }
    network.verify()
}

fn write(network: &mut Network, name: &str, constant: &Arc<Constant>, written: &mut Written) -> Result<TensorId> {
    if let Some(&id) = written.get(&Arc::as_ptr(constant)) {
        return Ok(id);
    }
    let id = match &constant.recipe {
        None => original(network, constant),
        Some(recipe) => {
            let mut inputs = vec![];
            for input in &recipe.inputs {
                inputs.push(match input {
                    Some(input) => Some(write(network, name, input, written)?),
                    None => None,
                });
            }
            network.add_layer(name, recipe.op, recipe.attrs.clone(), &inputs)?[recipe.output]
        }
    };
    written.insert(Arc::as_ptr(constant), id);
    Ok(id)
}

/// The tensor of an original constant: that of its name where there is one, or a new one.
fn original(network: &mut Network, constant: &Arc<Constant>) -> TensorId {
    let known = network.tensors().find_map(|(id, tensor)| match &tensor.source {
        Source::Constant(other) => (!constant.name.is_empty() && Arc::ptr_eq(other, constant)).then_some(id),
        _ => None,
    });
    known.unwrap_or_else(|| network.add_constant(&constant.name, constant.array.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::dtype::DType;
    use crate::passes::testing::{Graph, assert_same_within};
    use crate::passes::{Settings, fold_constants};
    use crate::precision::{Dtypes, place};
    use std::collections::HashSet;

    #[test]
    fn weights_come_back_under_their_names() {
        let mut g = Graph::new();
        let x = g.input("x", "n 4 6 6");
        let w = g.weights(&[8, 4, 3, 3]);
        let name = g.network[w].name.clone();
        let y = g.op("Conv", &[x, w]);
        g.output(y);
        let dtypes = Dtypes {
            weights: DType::Int8,
            symmetric: false,
        };
        place(&mut g.network, None, dtypes, &HashSet::new(), &HashSet::new()).unwrap();
        let folded = g.network.clone();
        unfold(&mut g.network).unwrap();
        let uses = |network: &Network| -> usize {
            let tensors = network
                .tensors()
                .filter(|(_, t)| t.name == name && t.constant().is_some());
            tensors.map(|(_, t)| t.users.len()).sum()
        };
        assert_eq!((uses(&folded), uses(&g.network)), (0, 2));
        (fold_constants::PASS.apply)(&mut g.network, &Settings::default()).unwrap();
        assert_same_within(&folded, &g.network, 0.0);
    }
}
