//! The work of building an engine grows as the network does. It is counted in allocations of the thread that builds, of
//! which two runs need the same number; a step that goes over the whole network for each layer shows in their bytes.

use neurenix::engine::{Engine, config::BuilderConfig};
use neurenix::network::array::Array;
use neurenix::network::attr::{Attr, Attrs, attrs};
use neurenix::network::dtype::DType;
use neurenix::network::{Network, TensorId, ops};
use neurenix::providers;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

struct Counting;

thread_local! {
    /// Calls and bytes of this thread: other tests go on beside it.
    static COUNTED: Cell<[usize; 2]> = const { Cell::new([0; 2]) };
}

// SAFETY: every call goes to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let [calls, bytes] = COUNTED.get();
        COUNTED.set([calls + 1, bytes + layout.size()]);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// A network on its way.
struct Graph {
    network: Network,
}

impl Graph {
    fn input(&mut self, name: &str, shape: &str) -> TensorId {
        let shape = shape.split(' ').map(|dim| dim.parse().unwrap()).collect();
        self.network.add_input(name, DType::Float32, shape).unwrap()
    }

    fn weights(&mut self, shape: &[usize]) -> TensorId {
        let values: Vec<f64> = (0..shape.iter().product()).map(|i| (i % 7) as f64 / 8.0).collect();
        let array = Array::from_f64(DType::Float32, shape.to_vec(), &values).unwrap();
        self.network.add_constant("w", array)
    }

    fn ints(&mut self, values: &[i64]) -> TensorId {
        self.network.add_constant("i", Array::ints(values))
    }

    fn op(&mut self, op: &str, inputs: &[TensorId]) -> TensorId {
        self.op_with(op, Attrs::new(), inputs)
    }

    fn op_with(&mut self, op: &str, attrs: Attrs, inputs: &[TensorId]) -> TensorId {
        let inputs: Vec<_> = inputs.iter().copied().map(Some).collect();
        self.network
            .add_layer(op, ops::find(op).unwrap(), attrs, &inputs)
            .unwrap()[0]
    }
}

/// Blocks of a transformer with dynamic shapes, 14 layers each, as an exporter writes them.
fn blocks(layers: usize) -> Network {
    let mut g = Graph {
        network: Network::new("blocks"),
    };
    let mut x = g.input("x", "n t 8");
    for _ in 0..layers / 14 {
        let (w, last) = (g.weights(&[8, 8]), attrs([("axes", Attr::Ints(vec![-1]))]));
        let mean = g.op_with("ReduceMean", last.clone(), &[x]);
        let away = g.op("Sub", &[x, mean]);
        let projected = g.op("MatMul", &[away, w]);
        let shape = g.op("Shape", &[projected]);
        let (zero, one, rest) = (g.ints(&[0]), g.ints(&[2]), g.ints(&[2, 4]));
        let head = g.op("Slice", &[shape, zero, one]);
        let wanted = g.op_with("Concat", attrs([("axis", Attr::Int(0))]), &[head, rest]);
        let heads = g.op("Reshape", &[projected, wanted]);
        let swap = attrs([("perm", Attr::Ints(vec![0, 2, 1, 3]))]);
        let apart = g.op_with("Transpose", swap.clone(), &[heads]);
        let softmax = g.op("Softmax", &[apart]);
        let back = g.op_with("Transpose", swap, &[softmax]);
        let joined = g.op("Reshape", &[back, shape]);
        let sigmoid = g.op("Sigmoid", &[joined]);
        let gated = g.op("Mul", &[joined, sigmoid]);
        x = g.op("Add", &[x, gated]);
    }
    g.network.mark_output(x, "y").unwrap();
    g.network
}

/// A sum of inputs each of whose first dimensions has a name of its own: a guard for each.
fn guards(layers: usize) -> Network {
    let mut g = Graph {
        network: Network::new("guards"),
    };
    let mut x = g.input("x", "m 8");
    for i in 0..layers {
        let other = g.input(&format!("x{i}"), &format!("n{i} 8"));
        x = g.op("Add", &[x, other]);
    }
    g.network.mark_output(x, "y").unwrap();
    g.network
}

/// Many readers of one tensor, and many results.
fn star(layers: usize) -> Network {
    let mut g = Graph {
        network: Network::new("star"),
    };
    let x = g.input("x", "n 8");
    for i in 0..layers {
        let w = g.weights(&[8]);
        let y = g.op(if i % 2 == 0 { "Add" } else { "Softmax" }, &[x, w][..2 - i % 2]);
        g.network.mark_output(y, &format!("y{i}")).unwrap();
    }
    g.network
}

/// Allocations and their bytes while an engine is built.
fn work(network: Network) -> [usize; 2] {
    let config = BuilderConfig {
        optimization_level: 0,
        ..Default::default()
    };
    let providers = providers::available();
    let before = COUNTED.get();
    let engine = Engine::build(network, config, &providers).unwrap();
    let after = COUNTED.get();
    drop(engine);
    [after[0] - before[0], after[1] - before[1]]
}

#[test]
fn the_work_grows_as_the_network_does() {
    /// Twice the layers may need so much more: a little over 2, for tables that double.
    const MOST: f64 = 2.5;
    work(blocks(50));
    type Make = fn(usize) -> Network;
    for (name, make) in [("blocks", blocks as Make), ("guards", guards), ("star", star)] {
        let (small, large) = (work(make(400)), work(make(800)));
        for (what, (a, b)) in ["allocations", "bytes"].into_iter().zip(small.into_iter().zip(large)) {
            let ratio = b as f64 / a as f64;
            assert!(
                ratio < MOST,
                "{name}: {a} {what} for 400 layers, {b} for 800: {ratio:.2} times"
            );
        }
    }
}
