//! Random graphs through cover, placing and arena, on a provider that computes with the reference: whatever
//! shares memory wrongly gives a wrong result. With a second one, whose memory the first can't reach, what lies in the
//! wrong memory crashes.

use neurenix::context::ExecutionContext;
use neurenix::engine::{Engine, config::BuilderConfig};
use neurenix::error::{ErrorKind, Result};
use neurenix::network::array::Array;
use neurenix::network::attr::{Attr, Attrs, attrs};
use neurenix::network::dim::{Binding, Dim};
use neurenix::network::dtype::DType;
use neurenix::network::{Network, TensorId, ops, reference};
use neurenix::plan::Provider;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::toy::{RECORDED, Toy, run};

/// xorshift64*: random enough for a test, the same at every run.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % n
    }
}

fn random_network(random: &mut Random) -> Network {
    let mut network = Network::new("random");
    let batch = [1i64, 2][random.below(2)];
    let shape = |c: usize| vec![batch.into(), c.into(), 3i64.into()];
    let mut tensors = vec![];
    for i in 0..2 {
        tensors.push(
            network
                .add_input(&format!("x{i}"), DType::Float32, shape(1 + random.below(3)))
                .unwrap(),
        );
    }
    for i in 0..4 + random.below(20) {
        let pick = |random: &mut Random, tensors: &[TensorId]| tensors[random.below(tensors.len())];
        let (a, b) = (pick(random, &tensors), pick(random, &tensors));
        let channels = network[a].ty.shape[1].as_const().unwrap();
        let mut add = |op: &str, attrs: Attrs, inputs: &[TensorId]| {
            let inputs: Vec<_> = inputs.iter().copied().map(Some).collect();
            network
                .add_layer(&format!("{op}{i}"), ops::find(op).unwrap(), attrs, &inputs)
                .unwrap()[0]
        };
        let made = match random.below(5) {
            0 => add("Relu", attrs([]), &[a]),
            1 | 2 if channels < 40 => add("Concat", attrs([("axis", Attr::Int(1))]), &[a, b]),
            3 => {
                let flat = network.add_constant("flat", Array::ints(&[batch, -1, 1]));
                let back = network.add_constant("back", Array::ints(&[batch, -1, 3]));
                let inner = network
                    .add_layer("flatten", &ops::reshape::DEF, attrs([]), &[Some(a), Some(flat)])
                    .unwrap();
                let inner = network
                    .add_layer("mid", &ops::sigmoid::DEF, attrs([]), &[Some(inner[0])])
                    .unwrap();
                network
                    .add_layer("fold", &ops::reshape::DEF, attrs([]), &[Some(inner[0]), Some(back)])
                    .unwrap()[0]
            }
            _ => add("Add", attrs([]), &[a, a]),
        };
        tensors.push(made);
    }
    for i in 0..1 + random.below(3) {
        let tensor = tensors[tensors.len() - 1 - random.below(4)];
        network.mark_output(tensor, &format!("y{i}")).unwrap();
    }
    network
}

#[test]
fn memory_is_never_shared_wrongly() {
    let mut random = Random(7);
    for round in 0..100 {
        let network = random_network(&mut random);
        let inputs: Vec<_> = network
            .inputs()
            .iter()
            .map(|&t| {
                let shape = network[t].ty.concrete().unwrap();
                let values: Vec<f64> = (0..shape.iter().product())
                    .map(|_| random.below(2000) as f64 / 500.0 - 2.0)
                    .collect();
                Array::from_f64(DType::Float32, shape, &values).unwrap()
            })
            .collect();
        let want = reference::evaluate(&network, &inputs).unwrap();
        let farther = Toy {
            far: Some(1),
            ..Toy::new(true, true)
        };
        // The far ones, and where the caller's arrays are: with two devices tensors go from one to the other.
        let cases = [
            (vec![], false),
            (vec![Toy::new(true, false)], false),
            (vec![Toy::new(true, false)], true),
            (vec![Toy::new(true, true)], true),
            (vec![Toy::new(true, false), farther], true),
        ];
        let build = |toys: Vec<Toy>| {
            let toys = toys.into_iter().chain([Toy::new(false, true)]);
            let providers: Vec<_> = toys.map(|toy| Arc::new(toy) as Arc<dyn Provider>).collect();
            Engine::build(network.clone(), BuilderConfig::default(), &providers).unwrap()
        };
        let results = cases.map(|(toys, far)| run(Arc::new(build(toys)), &inputs, far));
        for (got, want) in results.iter().flat_map(|got| got.iter().zip(&want)) {
            let close = got
                .to_f64()
                .iter()
                .zip(want.to_f64())
                .all(|(g, w)| (g - w).abs() <= 1e-5 * w.abs().max(1.0));
            assert!(close && got.shape() == want.shape(), "round {round}:\n{network}");
        }
    }
    assert!(RECORDED.load(Ordering::Relaxed) > 300);
}

/// A few layers of which each needs memory of its own, at any batch.
fn chain() -> Network {
    let mut network = Network::new("chain");
    let shape = vec![Dim::symbol("batch"), 3i64.into(), 5i64.into()];
    let x = network.add_input("x", DType::Float32, shape).unwrap();
    let mut layer = |name: &str, op: &str, inputs: &[TensorId]| {
        let inputs: Vec<_> = inputs.iter().copied().map(Some).collect();
        let op = ops::find(op).unwrap();
        network.add_layer(name, op, attrs([]), &inputs).unwrap()[0]
    };
    let a = layer("a", "Sigmoid", &[x]);
    let b = layer("b", "Relu", &[x]);
    let c = layer("c", "Mul", &[a, b]);
    let d = layer("d", "Add", &[c, a]);
    let e = layer("e", "Sigmoid", &[d]);
    network.mark_output(e, "y").unwrap();
    network
}

fn check_batch(context: &mut ExecutionContext, network: &Network, batch: usize) -> Result<()> {
    let values: Vec<f64> = (0..batch * 15).map(|i| (i * 7 % 23) as f64 / 8.0 - 1.0).collect();
    let x = Array::from_f64(DType::Float32, vec![batch, 3, 5], &values).unwrap();
    let got = context.evaluate(std::slice::from_ref(&x))?;
    let want = reference::evaluate(network, &[x]).unwrap();
    for (got, want) in got[0].to_f64().iter().zip(want[0].to_f64()) {
        assert!((got - want).abs() < 1e-5, "batch {batch}");
    }
    Ok(())
}

#[test]
fn one_arena_serves_all_shapes_of_a_context() {
    for (far, all) in [(false, true), (true, true), (true, false)] {
        let (toy, near) = (Toy::new(far, all), Toy::new(false, true));
        let (room, beside) = (toy.room.clone(), near.room.clone());
        let providers: Vec<Arc<dyn Provider>> = vec![Arc::new(toy), Arc::new(near)];
        let network = chain();
        let engine = Arc::new(Engine::build(network.clone(), BuilderConfig::default(), &providers).unwrap());
        let taken = || room.taken.load(Ordering::Relaxed) + beside.taken.load(Ordering::Relaxed);
        let before = taken();
        let mut context = ExecutionContext::new(engine.clone());
        let mut largest = 0;
        for batch in [2, 7, 2, 3, 40, 2, 2, 7, 7, 40, 5, 6, 8, 9, 10, 11, 12, 2, 40] {
            check_batch(&mut context, &network, batch).unwrap();
            let mut asked = ExecutionContext::new(engine.clone());
            asked.prepare(&[(DType::Float32, &[batch, 3, 5])]).unwrap();
            largest = largest.max(asked.arena_bytes());
            assert_eq!(taken() - before, largest, "far {far}, batch {batch}");
        }
        assert!(RECORDED.load(Ordering::Relaxed) > 0 || !far);

        // What does not fit is an error, and leaves what did.
        room.size.store(taken() + 1000, Ordering::Relaxed);
        for _ in 0..2 {
            let refused = check_batch(&mut context, &network, 100).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::Memory);
            for batch in [40, 2, 7] {
                check_batch(&mut context, &network, batch).unwrap();
                assert_eq!(taken() - before, largest);
            }
        }
        room.size.store(usize::MAX, Ordering::Relaxed);
        let mut other = ExecutionContext::new(engine);
        check_batch(&mut other, &network, 1).unwrap();
        assert!(taken() - before > largest);
        drop((context, other));
        assert_eq!(taken(), before);
    }
}

#[test]
fn a_tactic_that_does_not_serve_a_shape_is_replaced_and_noted() {
    for far in [false, true] {
        let toy = Toy {
            largest_batch: Some(4),
            ..Toy::new(far, true)
        };
        let network = chain();
        let providers: [Arc<dyn Provider>; 2] = [Arc::new(toy), Arc::new(Toy::new(false, true))];
        let used = &providers[..1 + usize::from(far)];
        let engine = Engine::build(network.clone(), BuilderConfig::default(), used).unwrap();
        let engine = Arc::new(engine);
        let mut context = ExecutionContext::new(engine.clone());
        check_batch(&mut context, &network, 2).unwrap();
        assert!(engine.replacements().is_empty());
        check_batch(&mut context, &network, 8).unwrap();
        let notes = engine.replacements();
        let wanted =
            "e runs as reference where its tactic toy does not serve the shapes of a call: the batch is too large";
        assert!(notes.len() == 5 && notes.contains(&wanted.to_string()), "{notes:#?}");
    }
}

/// Two tensors that are joined and read as one; a Concat takes 1,000 ns in all.
fn joined() -> Network {
    let mut network = Network::new("joined");
    let x = network
        .add_input("x", DType::Float32, [2i64, 3, 4].map(Dim::from).to_vec())
        .unwrap();
    let mut add = |op, inputs: &[TensorId]| {
        let inputs: Vec<_> = inputs.iter().copied().map(Some).collect();
        let attrs = if inputs.len() > 1 {
            attrs([("axis", Attr::Int(1))])
        } else {
            attrs([])
        };
        network.add_layer("", op, attrs, &inputs).unwrap()[0]
    };
    let parts = [&ops::relu::DEF, &ops::sigmoid::DEF].map(|op| add(op, &[x]));
    let whole = add(&ops::concat::DEF, &parts);
    let y = add(&ops::sigmoid::DEF, &[whole]);
    network.mark_output(y, "y").unwrap();
    network
}

#[test]
fn slices_are_kept_where_they_lose_less_than_copies_take() {
    for (slice_time, copied) in [(None, false), (Some(1400), false), (Some(1600), true)] {
        let toy = Toy {
            slice_time,
            ..Toy::new(false, true)
        };
        let network = joined();
        let engine = Engine::build(network.clone(), BuilderConfig::default(), &[Arc::new(toy)]).unwrap();
        let report = engine.report(&Binding::default()).unwrap();
        let concat = report.kernels.iter().find(|kernel| kernel.kernel == "Concat").unwrap();
        assert_eq!(!concat.implementation.is_empty(), copied, "{slice_time:?}");
        let input = Array::from_f64(DType::Float32, vec![2, 3, 4], &[0.25; 24]).unwrap();
        let want = reference::evaluate(&network, std::slice::from_ref(&input)).unwrap();
        assert_eq!(run(Arc::new(engine), &[input], false)[0].bytes(), want[0].bytes());
    }
}
