//! Faults that are planted in the kernels of a device: the build finds the kernel, takes another form, and says so.

use neurenix::engine::{Engine, Saved, built::Built, config::BuilderConfig};
use neurenix::error::Result;
use neurenix::network::array::Array;
use neurenix::network::attr::{Attr, attrs};
use neurenix::network::dtype::DType;
use neurenix::network::{Network, TensorId, ops, reference};
use neurenix::plan::Provider;
use std::sync::Arc;

use super::toy::{self, Fault, Toy};

/// Branches that meet again: sums, activations, a Concat, a product and a Softmax.
fn network() -> Network {
    let mut network = Network::new("branches");
    let x = network
        .add_input("x", DType::Float32, [2i64, 6, 5].map(Into::into).to_vec())
        .unwrap();
    let mut add = |name: &str, op: &str, given: &[TensorId]| {
        let made = match op {
            "Concat" => attrs([("axis", Attr::Int(1))]),
            "Softmax" => attrs([("axis", Attr::Int(-1))]),
            _ => attrs([]),
        };
        let given: Vec<_> = given.iter().copied().map(Some).collect();
        network.add_layer(name, ops::find(op).unwrap(), made, &given).unwrap()[0]
    };
    let gate = add("gate", "Sigmoid", &[x]);
    let bent = add("bent", "Tanh", &[x]);
    let gated = add("gated", "Mul", &[bent, gate]);
    let sum = add("sum", "Add", &[bent, gated]);
    let both = add("both", "Concat", &[sum, bent]);
    let last = add("last", "Softmax", &[both]);
    network.mark_output(last, "y").unwrap();
    network.mark_output(sum, "z").unwrap();
    network
}

fn build(fault: Option<(&'static str, Fault)>) -> Result<Engine> {
    Engine::build(network(), untimed(), &providers(fault))
}

fn providers(fault: Option<(&'static str, Fault)>) -> [Arc<dyn Provider>; 2] {
    let far = Toy {
        fault,
        ..Toy::new(true, true)
    };
    [Arc::new(far), Arc::new(Toy::new(false, true))]
}

fn untimed() -> BuilderConfig {
    BuilderConfig {
        optimization_level: 0,
        ..BuilderConfig::default()
    }
}

fn answers(engine: Engine) -> Vec<f64> {
    let values: Vec<f64> = (0..60).map(|i| f64::from(i * 7 % 23) / 11.0 - 1.0).collect();
    let x = Array::from_f64(DType::Float32, vec![2, 6, 5], &values).unwrap();
    let exact = reference::evaluate(&network(), std::slice::from_ref(&x)).unwrap();
    let got = toy::run(Arc::new(engine), &[x], false);
    let differences = got.iter().zip(&exact).flat_map(|(got, exact)| {
        let pairs = got.to_f64().into_iter().zip(exact.to_f64());
        pairs.map(|(got, exact)| (got - exact).abs()).collect::<Vec<_>>()
    });
    differences.collect()
}

#[test]
fn a_kernel_that_computes_something_else_is_found_and_replaced() {
    let faults = [
        Fault::Scaled,
        Fault::Shifted,
        Fault::LostTail,
        Fault::RepeatedHalf,
        Fault::NotANumber,
        Fault::Skipped,
        Fault::WrongCast,
        Fault::Swapped,
    ];
    let layers = [
        ("Sigmoid", "gate"),
        ("Mul", "gated"),
        ("Tanh", "bent"),
        ("Add", "sum"),
        ("Softmax", "last"),
    ];
    let mut found = 0;
    for (op, layer) in layers {
        for fault in faults {
            let engine = build(Some((op, fault))).unwrap_or_else(|e| panic!("{op} {fault:?}: {e}"));
            let notes: Vec<_> = engine
                .notes
                .iter()
                .filter(|note| note.contains("was excluded"))
                .collect();
            assert_eq!(notes.len(), 1, "{op} {fault:?}: {:?}", engine.notes);
            assert!(notes[0].contains(&format!("of {layer} ")), "{op} {fault:?}: {notes:?}");
            let worst = answers(engine).into_iter().fold(0.0, f64::max);
            assert!(worst < 1e-6, "{op} {fault:?}: {worst}");
            found += 1;
        }
    }
    assert!(found >= 40);
}

#[test]
fn a_file_does_not_bring_back_what_was_excluded() {
    for fault in [Fault::Scaled, Fault::InEveryForm] {
        let engine = build(Some(("Tanh", fault))).unwrap();
        let path = std::env::temp_dir().join(format!("neurenix-excluded-{}.engine", std::process::id()));
        engine.save(&path).unwrap();
        let saved = Saved::open(&path).unwrap();
        let config = saved.config();
        let opened = saved.plan(config, &providers(Some(("Tanh", fault))));
        std::fs::remove_file(&path).unwrap();
        let worst = answers(opened.unwrap()).into_iter().fold(0.0, f64::max);
        assert!(worst < 1e-6, "{fault:?}: {worst}");
    }
}

#[test]
fn where_a_file_has_a_number_for_a_tactic_none_of_its_kernel_runs() {
    let engine = build(Some(("Tanh", Fault::Scaled))).unwrap();
    let text = serde_json::to_string(&engine.built.excluded_forms).unwrap();
    assert!(text.contains("\"tactic\":\"toy\""), "{text}");
    let built = Built {
        excluded_forms: serde_json::from_str(&text.replace("\"tactic\":\"toy\"", "\"tactic\":0")).unwrap(),
        ..engine.built.clone()
    };
    let config = built.config();
    assert!(config.excluded_forms.is_empty());
    assert_eq!(config.exclude["far"], ["bent"]);
}

#[test]
fn nothing_is_excluded_where_nothing_is_wrong() {
    let engine = build(None).unwrap();
    assert!(engine.notes.is_empty(), "{:?}", engine.notes);
    assert!(answers(engine).into_iter().all(|difference| difference < 1e-6));
}

#[test]
fn without_a_form_that_is_right_another_provider_runs_the_layer() {
    let engine = build(Some(("Tanh", Fault::InEveryForm))).unwrap();
    let runs = |provider: &str| {
        let program = &engine.plans[0].program;
        let commands = program
            .commands
            .iter()
            .filter(|command| program.providers[command.provider].name() == provider);
        commands.filter(|command| !command.layers.is_empty()).count()
    };
    assert_eq!((runs("toy"), runs("far")), (1, 5));
    assert!(
        engine.notes.iter().any(|note| note.contains("of bent departs by")),
        "{:?}",
        engine.notes
    );
    assert!(answers(engine).into_iter().all(|difference| difference < 1e-6));
}

#[test]
fn what_a_model_rounds_itself_is_no_fault() {
    let mut network = Network::new("half");
    let x = network
        .add_input("x", DType::Float32, [2i64, 6, 5].map(Into::into).to_vec())
        .unwrap();
    let mut add = |op: &str, made, given: TensorId| {
        network
            .add_layer(op, ops::find(op).unwrap(), made, &[Some(given)])
            .unwrap()[0]
    };
    let half = add("Cast", attrs([("to", Attr::Type(DType::BFloat16))]), x);
    let bent = add("Tanh", attrs([]), half);
    let back = add("Cast", attrs([("to", Attr::Type(DType::Float32))]), bent);
    network.mark_output(back, "y").unwrap();
    let rounded = Engine::build(network, untimed(), &providers(Some(("Tanh", Fault::WrongCast)))).unwrap();
    assert!(rounded.notes.is_empty(), "{:?}", rounded.notes);
}

#[test]
fn what_a_precision_cannot_hold_is_no_fault_of_a_kernel() {
    let mut network = Network::new("large");
    let x = network
        .add_input("x", DType::Float32, [2i64, 6, 5].map(Into::into).to_vec())
        .unwrap();
    let large = network.add_constant(
        "large",
        Array::from_f64(DType::Float32, vec![2, 6, 5], &[3e4; 60]).unwrap(),
    );
    let mut add = |op: &str, given: &[TensorId]| {
        let given: Vec<_> = given.iter().copied().map(Some).collect();
        network
            .add_layer(op, ops::find(op).unwrap(), attrs([]), &given)
            .unwrap()[0]
    };
    let bent = add("Tanh", &[x]);
    let product = add("Mul", &[bent, large]);
    let square = add("Mul", &[product, product]);
    let last = add("Sigmoid", &[square]);
    network.mark_output(last, "y").unwrap();
    network.mark_output(square, "z").unwrap();
    let config = BuilderConfig {
        compute: DType::Float16,
        ..untimed()
    };
    let engine = Engine::build(network, config, &providers(Some(("Sigmoid", Fault::NotANumber)))).unwrap();
    assert!(
        engine.notes.iter().any(|note| note.contains("not finite")),
        "{:?}",
        engine.notes
    );
}
