//! Which layers go together: convex sets of those that TensorRT takes, as few and as large as it goes.

use crate::error::Result;
use crate::network::{LayerId, Network, TensorId};
use std::collections::{BTreeMap, HashMap, HashSet};

/// A region of fewer layers that compute something is not worth a plan of its own.
const FEWEST: usize = 3;

/// Convex sets of the layers that are taken, each in an order of execution.
///
/// Each layer gets a level that no layer behind it is below, and that rises where a path leaves the taken layers and where it
/// comes back: so no path from a level to itself leads through a layer that is not taken.
///
/// # Errors
/// If the layers form a cycle.
pub fn cut(network: &Network, taken: &HashSet<LayerId>) -> Result<Vec<Vec<LayerId>>> {
    let order = network.order()?;
    let mut levels: HashMap<LayerId, usize> = HashMap::new();
    for &id in &order {
        let own = taken.contains(&id);
        let behind = |before: LayerId| levels[&before] + usize::from(taken.contains(&before) != own);
        let before = network[id].inputs.iter().flatten().filter_map(|&t| network.producer(t));
        let least = usize::from(!own);
        levels.insert(
            id,
            before
                .map(|(before, _)| behind(before))
                .max()
                .unwrap_or(least)
                .max(least),
        );
    }
    // What only later regions read may as well run in these.
    for &id in order.iter().rev().filter(|id| taken.contains(id)) {
        let users = network[id].outputs.iter().flat_map(|&t| &network[t].users);
        let last = users
            .map(|user| levels[user] - usize::from(!taken.contains(user)))
            .min();
        levels.insert(id, last.unwrap_or(levels[&id]).max(levels[&id]));
    }
    let mut regions: BTreeMap<usize, Vec<LayerId>> = BTreeMap::new();
    for id in order.into_iter().filter(|id| taken.contains(id)) {
        regions.entry(levels[&id]).or_default().push(id);
    }
    Ok(regions.into_values().collect())
}

/// Whether a region is worth a plan: it is the whole network, or has some layers that compute.
pub fn is_worthwhile(network: &Network, region: &[LayerId]) -> bool {
    let computes = |id: &&LayerId| {
        let op = network[**id].op;
        !op.movement.is_layout() && op.name != "Cast"
    };
    region.len() == network.layer_count() || region.iter().filter(computes).count() >= FEWEST
}

/// What a set of layers reads of others, and gives to others or as a result; in the order in which they come up.
pub fn ports(network: &Network, region: &[LayerId]) -> (Vec<TensorId>, Vec<TensorId>) {
    let inside: HashSet<LayerId> = region.iter().copied().collect();
    let (mut reads, mut gives) = (vec![], vec![]);
    for &id in region {
        for &tensor in network[id].inputs.iter().flatten() {
            let comes = match network.producer(tensor) {
                Some((producer, _)) => !inside.contains(&producer),
                None => network.inputs().contains(&tensor),
            };
            if comes && !reads.contains(&tensor) {
                reads.push(tensor);
            }
        }
        let leaves = |tensor: &TensorId| {
            let mut users = network[*tensor].users.iter();
            network.is_output(*tensor) || users.any(|user| !inside.contains(user))
        };
        gives.extend(network[id].outputs.iter().copied().filter(leaves));
    }
    (reads, gives)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::attr::attrs;
    use crate::network::dtype::DType;
    use crate::network::ops;

    /// A network of layers `(name, op, inputs by name)`; what nobody reads is a result.
    fn network(layers: &[(&str, &str, &[&str])]) -> Network {
        let mut network = Network::new("");
        let x = network.add_input("x", DType::Float32, vec![4i64.into()]).unwrap();
        let mut tensors = HashMap::from([("x", x)]);
        for (name, op, inputs) in layers {
            let inputs: Vec<_> = inputs.iter().map(|name| Some(tensors[name])).collect();
            let made = network
                .add_layer(name, ops::find(op).unwrap(), attrs([]), &inputs)
                .unwrap()[0];
            tensors.insert(name, made);
        }
        let unread: Vec<_> = layers
            .iter()
            .filter(|(name, ..)| network[tensors[name]].users.is_empty())
            .collect();
        for (name, ..) in unread {
            network.mark_output(tensors[name], name).unwrap();
        }
        network
    }

    fn regions(network: &Network, refused: &[&str]) -> Vec<String> {
        let taken = network.layers().filter(|(_, l)| !refused.contains(&l.name.as_str()));
        let found = cut(network, &taken.map(|(id, _)| id).collect()).unwrap();
        let names = |region: &Vec<LayerId>| {
            let mut names: Vec<_> = region.iter().map(|&id| network[id].name.as_str()).collect();
            names.sort();
            names.join(" ")
        };
        found.iter().map(names).collect()
    }

    #[test]
    fn a_chain_with_a_refused_layer_is_two_regions() {
        let layers: &[(&str, &str, &[&str])] = &[
            ("a", "Relu", &["x"]),
            ("b", "Relu", &["a"]),
            ("c", "Relu", &["b"]),
            ("d", "Relu", &["c"]),
        ];
        assert_eq!(regions(&network(layers), &[]), ["a b c d"]);
        assert_eq!(regions(&network(layers), &["b"]), ["a", "c d"]);
        assert_eq!(regions(&network(layers), &["a", "d"]), ["b c"]);
    }

    #[test]
    fn a_path_around_a_refused_layer_does_not_close_a_circle() {
        // a -> refused -> c, and a -> b -> c: with a, b and c in one region it would wait for itself.
        let layers: &[(&str, &str, &[&str])] = &[
            ("a", "Relu", &["x"]),
            ("r", "Relu", &["a"]),
            ("b", "Relu", &["a"]),
            ("c", "Add", &["b", "r"]),
        ];
        assert_eq!(regions(&network(layers), &["r"]), ["a", "b c"]);
    }

    #[test]
    fn what_only_a_later_region_reads_runs_in_it() {
        let layers: &[(&str, &str, &[&str])] = &[
            ("a", "Relu", &["x"]),
            ("b", "Relu", &["a"]),
            ("r", "Relu", &["x"]),
            ("c", "Add", &["b", "r"]),
        ];
        assert_eq!(regions(&network(layers), &["r"]), ["a b c"]);
    }

    #[test]
    fn ports_are_what_crosses() {
        let network = network(&[
            ("a", "Relu", &["x"]),
            ("b", "Relu", &["a"]),
            ("c", "Add", &["a", "b"]),
            ("d", "Relu", &["b"]),
        ]);
        let ids: HashMap<_, _> = network.layers().map(|(id, l)| (l.name.as_str(), id)).collect();
        let name =
            |tensors: Vec<TensorId>| -> Vec<String> { tensors.iter().map(|&t| network[t].name.clone()).collect() };
        let (reads, gives) = ports(&network, &[ids["b"], ids["c"]]);
        assert_eq!(
            (name(reads), name(gives)),
            (vec!["a:out".to_string()], vec!["b:out".into(), "c:out".into()])
        );
    }

    /// xorshift64*: random enough for a test, the same at every run.
    fn random(state: &mut u64) -> usize {
        *state ^= *state >> 12;
        *state ^= *state << 25;
        *state ^= *state >> 27;
        (state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize
    }

    /// Whether a path leaves a set and comes back, the slow way.
    fn is_convex(network: &Network, region: &[LayerId]) -> bool {
        let users = |id: LayerId| network[id].outputs.iter().flat_map(|&t| network[t].users.clone());
        let outside = |id: &LayerId| !region.contains(id);
        let mut pending: Vec<LayerId> = region.iter().flat_map(|&id| users(id)).filter(outside).collect();
        let mut seen = HashSet::new();
        while let Some(id) = pending.pop() {
            if region.contains(&id) {
                return false;
            }
            if seen.insert(id) {
                pending.extend(users(id));
            }
        }
        true
    }

    #[test]
    fn regions_are_convex_and_hold_every_taken_layer_once() {
        let mut state = 11;
        let names: Vec<String> = (0..30).map(|i| format!("l{i}")).collect();
        for round in 0..300 {
            let mut known = vec!["x"];
            let mut layers: Vec<(&str, &str, Vec<&str>)> = vec![];
            for name in &names[..1 + random(&mut state) % names.len()] {
                let near = |state: &mut u64| known[known.len() - 1 - random(state) % known.len().min(6)];
                let inputs = vec![near(&mut state), near(&mut state)];
                layers.push((name, "Add", inputs));
                known.push(name);
            }
            let layers: Vec<(&str, &str, &[&str])> = layers.iter().map(|(n, o, i)| (*n, *o, &i[..])).collect();
            let network = network(&layers);
            let taken: HashSet<LayerId> = network
                .layers()
                .map(|(id, _)| id)
                .filter(|_| !random(&mut state).is_multiple_of(4))
                .collect();
            let found = cut(&network, &taken).unwrap();
            assert!(
                found.iter().all(|region| is_convex(&network, region)),
                "round {round}:\n{network}"
            );
            let mut all: Vec<LayerId> = found.iter().flatten().copied().collect();
            all.sort();
            let mut want: Vec<LayerId> = taken.into_iter().collect();
            want.sort();
            assert_eq!(all, want, "round {round}");
            // The regions and the other layers can run one after another.
            let mut group: HashMap<LayerId, usize> = HashMap::new();
            for (at, region) in found.iter().enumerate() {
                group.extend(region.iter().map(|&id| (id, at)));
            }
            for (at, region) in found.iter().enumerate() {
                for (tensor, user) in region
                    .iter()
                    .flat_map(|&id| &network[id].outputs)
                    .flat_map(|&t| network[t].users.iter().map(move |&user| (t, user)))
                {
                    assert!(
                        group.get(&user).is_none_or(|&other| other >= at),
                        "{tensor:?} goes back"
                    );
                }
            }
        }
    }
}
