//! Random networks: the pipeline must leave them well-formed, and their results as the reference gives them.

use super::testing::{Graph, assert_same_within};
use super::{Settings, run, simplify};
use crate::network::TensorId;
use crate::network::array::Array;
use crate::network::attr::{Attr, attrs};
use crate::network::dtype::DType;
use std::collections::BTreeSet;

impl Graph {
    fn shape(&self, t: TensorId) -> Vec<Option<i64>> {
        self.network[t].ty.shape.iter().map(|d| d.as_const()).collect()
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.rng.below(from.len())]
    }

    /// A constant that can be broadcast to a tensor without widening it; no element is near zero.
    fn beside(&mut self, t: TensorId) -> TensorId {
        let shape = self.shape(t);
        let skip = self.rng.below(shape.len() + 1);
        let dims: Vec<usize> = shape[skip..]
            .iter()
            .map(|d| d.filter(|_| self.rng.below(2) == 0).unwrap_or(1) as usize)
            .collect();
        let values: Vec<_> = (0..dims.iter().product())
            .map(|_| self.pick(&[0.5, 1.0, 1.5, -0.7, 2.0, 3.0]))
            .collect();
        let array = Array::from_f64(DType::Float32, dims, &values).unwrap();
        self.network.add_constant("c", array)
    }

    /// One step further from a tensor.
    fn step(&mut self, x: TensorId, known: &[TensorId]) -> TensorId {
        let shape = self.shape(x);
        let rank = shape.len();
        match self.rng.below(17) {
            0 => {
                let op = self.pick(&["Relu", "Sigmoid", "Tanh", "Neg", "Abs", "HardSwish", "Identity", "Silu"]);
                self.op(op, &[x])
            }
            1 | 2 => {
                let (op, c) = (self.pick(&["Add", "Mul", "Sub", "Div"]), self.beside(x));
                self.op(op, &[x, c])
            }
            3 => {
                let (op, c) = (self.pick(&["Add", "Mul", "Sub"]), self.beside(x));
                self.op(op, &[c, x])
            }
            4 => {
                let alike: Vec<_> = known
                    .iter()
                    .copied()
                    .filter(|&t| self.network[t].ty.shape == self.network[x].ty.shape)
                    .collect();
                let (op, y) = (self.pick(&["Add", "Mul", "Sub", "Max"]), self.pick(&alike));
                self.op(op, &[x, y])
            }
            5 | 6 => {
                let mut perm: Vec<i64> = (0..rank as i64).collect();
                (1..rank).for_each(|i| perm.swap(i, self.rng.below(i + 1)));
                self.op_with("Transpose", attrs([("perm", Attr::Ints(perm))]), &[x])
            }
            7 if rank >= 2 => {
                let mut target: Vec<i64> = (0..rank as i64 - 1).map(|_| 0).collect();
                *target.last_mut().unwrap() = -1;
                let target = self.ints(&target);
                self.op("Reshape", &[x, target])
            }
            8 => {
                let mut target: Vec<i64> = shape.iter().map(|d| d.unwrap_or(-1)).collect();
                target.insert(self.rng.below(rank + 1), 1);
                if target.iter().filter(|&&d| d == -1).count() > 1 || rank > 4 {
                    return x;
                }
                let target = self.ints(&target);
                self.op("Reshape", &[x, target])
            }
            9 => {
                let axis = self.rng.below(rank) as i64;
                self.op_with("Concat", attrs([("axis", Attr::Int(axis))]), &[x, x])
            }
            10 if rank == 4 && shape[1].is_some_and(|c| c < 9) => {
                let (channels, kernel) = (shape[1].unwrap() as usize, self.pick(&[1, 3]));
                let w = self.weights(&[3, channels, kernel, kernel]);
                let pad = if kernel == 3 { 1 } else { self.pick(&[0, 1]) };
                let conv = attrs([("pads", Attr::Ints(vec![pad; 4]))]);
                let y = self.op_with("Conv", conv, &[x, w]);
                if self.rng.below(2) == 0 {
                    return y;
                }
                let parts = [
                    self.weights(&[3]),
                    self.weights(&[3]),
                    self.weights(&[3]),
                    self.positive(&[3]),
                ];
                self.op("BatchNormalization", &[y, parts[0], parts[1], parts[2], parts[3]])
            }
            11 if rank >= 2 && shape[rank - 1].is_some() => {
                let w = self.weights(&[shape[rank - 1].unwrap() as usize, 3]);
                self.op("MatMul", &[x, w])
            }
            12 if rank >= 2 => {
                let mut perm: Vec<i64> = (0..rank as i64).collect();
                perm.swap(rank - 1, rank - 2);
                let swapped = self.op_with("Transpose", attrs([("perm", Attr::Ints(perm))]), &[x]);
                let y = self.op("MatMul", &[x, swapped]);
                self.op_with("Softmax", attrs([("axis", Attr::Int(-1))]), &[y])
            }
            13 if rank >= 2 => {
                let op = self.pick(&["ReduceMean", "ReduceMax", "ReduceSum"]);
                let (axis, keep) = (self.rng.below(rank) as i64, self.pick(&[0, 1]));
                let reduction = attrs([("axes", Attr::Ints(vec![axis])), ("keepdims", Attr::Int(keep))]);
                self.op_with(op, reduction, &[x])
            }
            14 => {
                let shape = self.op("Shape", &[x]);
                let (first, rest) = (self.ints(&[0]), self.ints(&[-1]));
                let first = self.op("Gather", &[shape, first]);
                let target = self.op_with("Concat", attrs([("axis", Attr::Int(0))]), &[first, rest]);
                self.op("Reshape", &[x, target])
            }
            15 => {
                let gate = self.op("Sigmoid", &[x]);
                self.op("Mul", &[gate, x])
            }
            16 if rank >= 3 && shape[rank - 1].is_some() => {
                let mut perm: Vec<i64> = (0..rank as i64).collect();
                perm.swap(0, 1);
                let y = self.op_with("Transpose", attrs([("perm", Attr::Ints(perm.clone()))]), &[x]);
                let w = self.weights(&[shape[rank - 1].unwrap() as usize, 4]);
                let y = self.op("MatMul", &[y, w]);
                let target: Vec<i64> = [vec![0; rank - 1], vec![2, 2]].concat();
                let target = self.ints(&target);
                let y = self.op("Reshape", &[y, target]);
                perm.push(rank as i64);
                perm.swap(rank - 2, rank - 1);
                self.op_with("Transpose", attrs([("perm", Attr::Ints(perm))]), &[y])
            }
            _ => self.op("Tanh", &[x]),
        }
    }
}

/// A network of about so many layers.
fn random(seed: u64, steps: usize) -> Graph {
    let mut g = Graph::new();
    g.rng.0 = seed;
    let mut known = vec![g.input("x", "n 2 4 3"), g.input("z", "n 4")];
    for _ in 0..steps {
        // Mostly onwards from the newest, so that chains come about that rules can see.
        let recent = known.len() - 1 - g.rng.below(2);
        let any = g.rng.below(known.len());
        let from = known[if g.rng.below(4) == 0 { any } else { recent }];
        let size: i64 = g.shape(from).iter().map(|d| d.unwrap_or(4)).product();
        let mut next = g.step(from, &known);
        if size > 2000 || g.rng.below(3) == 0 {
            next = g.op("Tanh", &[next]);
        }
        if size <= 2000 {
            known.push(next);
        }
    }
    for &t in &known[2..] {
        if g.network[t].users.is_empty() || g.rng.below(12) == 0 {
            g.output(t);
        }
    }
    g
}

#[test]
fn the_pipeline_keeps_what_random_networks_compute() {
    let mut found = BTreeSet::new();
    for seed in 0..150 {
        let g = random(seed, 14);
        let mut after = g.network.clone();
        let counts =
            run(&mut after, &Settings::default()).unwrap_or_else(|e| panic!("seed {seed}: {e}\n{}", g.network));
        found.extend(counts.into_iter().filter(|(_, count)| *count > 0).map(|(name, _)| name));
        assert_same_within(&g.network, &after, 1e-4);
    }
    let all = [
        "decompose",
        "duplicate_layers",
        "fold_batch_norm",
        "fold_constants",
        "fold_shapes",
        "merge_reshapes",
        "merge_transposes",
        "recognise_activations",
        "remove_no_ops",
        "simplify",
        "sink_transposes",
    ];
    assert!(all.iter().all(|pass| found.contains(pass)), "{found:?}");
}

#[test]
fn low_precision_stays_near_and_keeps_the_dtypes_outside() {
    for seed in 1000..1030 {
        let g = random(seed, 8);
        let mut after = g.network.clone();
        let low = Settings {
            compute: DType::Float16,
            channel_products: true,
            ..Settings::default()
        };
        run(&mut after, &low).unwrap_or_else(|e| panic!("seed {seed}: {e}\n{}", g.network));
        assert_same_within(&g.network, &after, 0.05);
        let wide = Settings {
            compute: DType::BFloat16,
            unsupported: vec![DType::BFloat16],
            ..Settings::default()
        };
        let mut after = g.network.clone();
        simplify(&mut after, &wide, &|_, _| true).unwrap_or_else(|e| panic!("seed {seed}: {e}\n{}", g.network));
        assert_same_within(&g.network, &after, 0.3);
    }
}
