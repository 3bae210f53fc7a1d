//! What the tests of passes share: networks in few words, and comparison with the reference.

use super::{Pass, Settings};
use crate::network::array::Array;
use crate::network::attr::Attrs;
use crate::network::dim::{Dim, Range};
use crate::network::dtype::DType;
use crate::network::{Network, TensorId, ops, reference};

/// Numbers that are the same at every run (splitmix64).
pub struct Rng(pub u64);

impl Rng {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }

    /// In -2..2.
    pub fn number(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 51) as f64 - 2.0
    }

    pub fn array(&mut self, dtype: DType, shape: Vec<usize>) -> Array {
        let values: Vec<_> = (0..shape.iter().product()).map(|_| self.number()).collect();
        Array::from_f64(dtype, shape, &values).unwrap()
    }
}

/// A network under test.
pub struct Graph {
    pub network: Network,
    pub rng: Rng,
    weights: usize,
}

impl Graph {
    pub fn new() -> Self {
        Self {
            network: Network::new("test"),
            rng: Rng(1),
            weights: 0,
        }
    }

    /// A float32 input; dimensions with blanks between.
    pub fn input(&mut self, name: &str, shape: &str) -> TensorId {
        self.input_of(name, DType::Float32, shape)
    }

    pub fn input_of(&mut self, name: &str, dtype: DType, shape: &str) -> TensorId {
        let shape: Vec<Dim> = shape.split_whitespace().map(|d| d.parse().unwrap()).collect();
        let input = self.network.add_input(name, dtype, shape).unwrap();
        let symbols: Vec<_> = self.network.symbols.keys().cloned().collect();
        let range = Range {
            min: 1,
            opt: 3,
            max: 64,
        };
        for symbol in symbols {
            self.network.set_range(&symbol, range).unwrap();
        }
        input
    }

    pub fn weights(&mut self, shape: &[usize]) -> TensorId {
        let array = self.rng.array(DType::Float32, shape.to_vec());
        self.weights += 1;
        self.network.add_constant(&format!("w{}", self.weights), array)
    }

    /// As [`Graph::weights`], all above zero.
    pub fn positive(&mut self, shape: &[usize]) -> TensorId {
        let values: Vec<_> = (0..shape.iter().product())
            .map(|_| self.rng.number() / 4.0 + 1.0)
            .collect();
        self.weights += 1;
        let array = Array::from_f64(DType::Float32, shape.to_vec(), &values).unwrap();
        self.network.add_constant(&format!("w{}", self.weights), array)
    }

    pub fn scalar(&mut self, value: f64) -> TensorId {
        self.network.add_constant("c", Array::scalar(DType::Float32, value))
    }

    pub fn ints(&mut self, values: &[i64]) -> TensorId {
        self.network.add_constant("i", Array::ints(values))
    }

    pub fn op(&mut self, op: &str, inputs: &[TensorId]) -> TensorId {
        self.op_with(op, Attrs::new(), inputs)
    }

    pub fn op_with(&mut self, op: &str, attrs: Attrs, inputs: &[TensorId]) -> TensorId {
        let inputs: Vec<_> = inputs.iter().copied().map(Some).collect();
        self.op_full(op, attrs, &inputs)[0]
    }

    pub fn op_full(&mut self, op: &str, attrs: Attrs, inputs: &[Option<TensorId>]) -> Vec<TensorId> {
        self.network
            .add_layer(op, ops::find(op).unwrap(), attrs, inputs)
            .unwrap()
    }

    pub fn output(&mut self, tensor: TensorId) {
        let name = format!("y{}", self.network.outputs().len());
        self.network.mark_output(tensor, &name).unwrap();
    }

    /// Runs a pass until it finds nothing, and compares the layers (numbered as [`layers_of`] does) with the text and the results with the reference.
    pub fn becomes(&mut self, pass: &Pass, layers: &str) {
        self.becomes_by(&[pass], &Settings::default(), layers);
    }

    /// As [`Graph::becomes`], by several passes in turn.
    pub fn becomes_by(&mut self, passes: &[&Pass], settings: &Settings, layers: &str) {
        let before = self.network.clone();
        for round in 0.. {
            let mut count = 0;
            for pass in passes {
                count += (pass.apply)(&mut self.network, settings).unwrap();
                self.network.verify().unwrap_or_else(|e| panic!("{}: {e}", pass.name));
            }
            if count == 0 {
                break;
            }
            assert!(round < 20, "does not settle:\n{}", self.network);
        }
        assert_eq!(layers_of(&self.network), tidy(layers), "before:\n{before}");
        let low = settings.compute != DType::Float32;
        assert_same_within(&before, &self.network, if low { 0.05 } else { 1e-5 });
    }
}

fn tidy(text: &str) -> String {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    lines.collect::<Vec<_>>().join("\n")
}

/// The lines of the dump that are layers, without the `:out` of tensor names, numbered as they appear.
pub fn layers_of(network: &Network) -> String {
    let text = network.to_string();
    let lines = text.lines().filter(|line| line.starts_with("  %"));
    let text = tidy(&lines.collect::<Vec<_>>().join("\n").replace(":out", ""));
    let mut seen: Vec<(String, Vec<String>)> = vec![];
    let mut parts = text.split('%');
    let mut plain = parts.next().unwrap_or_default().to_string();
    for part in parts {
        let (name, rest) = part.split_at(part.find([':', ',', ')']).unwrap_or(part.len()));
        let base = name.split('~').next().unwrap_or(name).to_string();
        let at = seen.iter().position(|(b, _)| *b == base).unwrap_or_else(|| {
            seen.push((base.clone(), vec![]));
            seen.len() - 1
        });
        let names = &mut seen[at].1;
        let number = names.iter().position(|n| n == name).unwrap_or_else(|| {
            names.push(name.into());
            names.len() - 1
        });
        let suffix = if number == 0 {
            String::new()
        } else {
            format!("~{number}")
        };
        plain += &format!("%{base}{suffix}{rest}");
    }
    plain
}

/// Asserts that two networks give the same on random inputs at two shapes.
pub fn assert_same(before: &Network, after: &Network) {
    assert_same_within(before, after, 1e-5);
}

pub fn assert_same_within(before: &Network, after: &Network, tolerance: f64) {
    for (seed, size) in [(7, 3), (8, 4)] {
        let mut rng = Rng(seed);
        let inputs: Vec<_> = before
            .inputs()
            .iter()
            .map(|&t| {
                let ty = &before[t].ty;
                let binding = before.symbols.keys().map(|s| (s.clone(), size)).collect();
                let shape = ty.shape.iter().map(|d| d.eval(&binding).unwrap() as usize).collect();
                rng.array(ty.dtype, shape)
            })
            .collect();
        let want = reference::evaluate(before, &inputs).unwrap();
        let have = reference::evaluate(after, &inputs).unwrap_or_else(|e| panic!("{e}\n{after}"));
        assert_eq!(want.len(), have.len());
        for (i, (want, have)) in want.iter().zip(&have).enumerate() {
            assert_eq!(before.outputs()[i].name, after.outputs()[i].name);
            assert_eq!(
                (want.dtype(), want.shape()),
                (have.dtype(), have.shape()),
                "\n{before}\n{after}"
            );
            let scale = want
                .to_f64()
                .iter()
                .filter(|v| v.is_finite())
                .fold(1.0, |m: f64, v| m.max(v.abs()));
            for (a, b) in want.to_f64().into_iter().zip(have.to_f64()) {
                let same = (a - b).abs() <= tolerance * scale || a == b || (a.is_nan() && b.is_nan());
                assert!(same, "output {i}: {a} became {b}\n{before}\n{after}");
            }
        }
    }
}
