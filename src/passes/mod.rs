//! Passes: Network -> Network, one file each. [`PIPELINE`] lists them in the order in which they run.
//!
//! Most are one local rule: it looks at a layer and gives a [`Patch`] or nothing, and [`rewrite`] walks it over the
//! network. Fusion is no pass: what one kernel runs is for the planner to choose.
//!
//! # Floats are not algebra
//! A rule may not change the value of a float expression beyond the rounding of the same operations. `(x + c) - c` rounds x,
//! and is meant to; `x * 0` is NaN where x is infinite; `x + 0` is 0 where x is -0; `x / 3` is not `x * (1 / 3)`; `x ** 0.5`
//! is infinite where x is minus infinity. Nothing is moved past a sum or a product that a model wrote, and NaN, infinities
//! and the sign of zeros come out as the ops say one by one. Of Max, Min, Clip and Relu the sign of a zero is open.
//!
//! Exempt are:
//! - constants that go into the weights and the bias of a convolution, a product or a normalization behind or before which
//!   they stand, as far as nothing overflows or vanishes and no bias is so large that it rounds what it is added to;
//! - composite ops that are recognised: they compute the formula that was written, with errors that are no larger. Numbers of
//!   the model that stand in it may differ from the op's by their rounding. Attention scales its scores after the product,
//!   and adds masks to each other first where that rounds nothing else;
//! - intermediates of 16 bits: within a kernel they may be wider than the graph says, never narrower. But a Cast that the
//!   model itself has rounds always; those that passes place bear a mark ([`cast::elidable`](crate::network::ops::cast)).

mod build;
mod causal;
mod eight_bits;
mod exactness;
mod matching;
mod rules;
mod runner;
mod scores;
mod settings;

pub mod align_weights;
pub mod allow_tf32;
pub mod assign_precision;
pub mod clean_casts;
pub mod dead_layers;
pub mod decompose;
pub mod duplicate_layers;
pub mod fold_batch_norm;
pub mod fold_constants;
pub mod fold_dequantize;
pub mod fold_pad;
pub mod fold_shapes;
pub mod keep_activations;
pub mod merge_reshapes;
pub mod merge_transposes;
pub mod move_quantization;
pub mod nest_concats;
pub mod pack_weights;
pub mod plan_precision;
pub mod recognise_activations;
pub mod recognise_attention;
pub mod recognise_group_norm;
pub mod recognise_layer_norm;
pub mod recognise_pointwise_conv;
pub mod recognise_rms_norm;
pub mod remove_no_ops;
pub mod round_weights;
pub mod scale_channels;
pub mod scatter_rows;
pub mod separate_dequantize;
pub mod simplify;
pub mod sink_transposes;
pub mod slice_entries;
pub mod unflatten_images;
pub mod unflatten_products;
pub mod widen;

#[cfg(test)]
mod random;
#[cfg(test)]
pub(crate) mod testing;

use crate::error::Result;
use crate::network::dtype::DType;
use crate::network::precision::LayerPrecision;
use crate::network::{LayerId, Network};
pub use eight_bits::{EIGHT_BITS, moved, moves};
pub use rules::{Found, rewrite, rewrite_with};
pub(crate) use rules::{rule_if, rule_if_some};
use runner::Runner;
pub use settings::Settings;
use std::collections::BTreeMap;

/// A rewrite of the whole network.
pub struct Pass {
    /// Its name, that of its file.
    pub name: &'static str,
    /// What becomes what.
    pub doc: &'static str,
    /// Runs it; gives the number of rewrites.
    pub apply: fn(&mut Network, &Settings) -> Result<usize>,
}

/// An entry of the pipeline.
pub enum PipelineEntry {
    /// Runs the pass.
    Once(&'static Pass),
    /// Runs the passes in turn until none of them finds anything.
    UntilStable(&'static [&'static Pass]),
}
use PipelineEntry::{Once, UntilStable};

/// The passes that bring a network into its simplest form; any order is correct, this one needs few rounds.
static CLEAN: &[&Pass] = &[
    // Shape arithmetic first: it hides constants from every other rule.
    &fold_shapes::PASS,
    &fold_constants::PASS,
    &fold_dequantize::PASS,
    &dead_layers::PASS,
    // Before the rules that ask for a single user: two equal users become one.
    &duplicate_layers::PASS,
    // Composite ops while their pieces are as they were written.
    &recognise_activations::PASS,
    &recognise_attention::PASS,
    &recognise_group_norm::PASS,
    &recognise_layer_norm::PASS,
    &recognise_rms_norm::PASS,
    &simplify::PASS,
    &remove_no_ops::PASS,
    &scatter_rows::PASS,
    &slice_entries::PASS,
    &nest_concats::PASS,
    // After simplify, which leaves Mul and Add by a constant on the right as the only forms.
    &fold_batch_norm::PASS,
    &scale_channels::PASS,
    &fold_pad::PASS,
    // Before merge_transposes, which moves transposes away from reshapes, and into products.
    &recognise_pointwise_conv::PASS,
    &unflatten_images::PASS,
    &merge_transposes::PASS,
    &merge_reshapes::PASS,
    &unflatten_products::PASS,
    // Behind those, which leave the first axes of what reshapes and slices read alone.
    &sink_transposes::PASS,
    &clean_casts::PASS,
];

/// The passes whose results any provider reads, in the order in which they run. An engine file keeps the network behind them.
pub static PIPELINE: &[PipelineEntry] = &[
    // Other ways to write the same go first, so that the rules below know one way only.
    Once(&decompose::PASS),
    UntilStable(CLEAN),
    // Precision last: recognised ops and folded weights are rounded once, and rules above see one dtype.
    Once(&plan_precision::PASS),
    Once(&assign_precision::PASS),
    Once(&allow_tf32::PASS),
    Once(&round_weights::PASS),
    // The casts that precision brought fold into weights and cancel.
    UntilStable(CLEAN),
    // Behind merge_transposes, which would turn them back.
    Once(&align_weights::PASS),
    Once(&fold_constants::PASS),
];

/// The passes behind [`PIPELINE`] that ask what the providers at hand can do; [`lower`] runs them.
pub static LOWERING: &[&Pass] = &[
    &widen::PASS,
    &move_quantization::PASS,
    &pack_weights::PASS,
    &keep_activations::PASS,
];

/// The passes behind [`LOWERING`] that leave what those in front of it would undo.
pub static LAST: &[&Pass] = &[&separate_dequantize::PASS];

/// Every pass; some stand there more than once.
pub fn passes() -> impl Iterator<Item = &'static Pass> {
    let of = |step: &'static PipelineEntry| match step {
        Once(pass) => std::slice::from_ref(pass),
        UntilStable(passes) => *passes,
    };
    PIPELINE.iter().flat_map(of).chain(LOWERING).chain(LAST).copied()
}

/// How often each pass rewrote something, by name.
pub type Counts = BTreeMap<&'static str, usize>;

/// Adds counts to others.
pub fn add(counts: &mut Counts, more: Counts) {
    for (name, count) in more {
        *counts.entry(name).or_default() += count;
    }
}

/// Runs all passes: [`run`], then [`lower`].
///
/// # Errors
/// As [`run`].
pub fn simplify(
    network: &mut Network,
    settings: &Settings,
    has_kernel: &dyn Fn(&Network, LayerId) -> bool,
) -> Result<Counts> {
    let mut counts = run(network, settings)?;
    add(&mut counts, lower(network, settings, has_kernel)?);
    Ok(counts)
}

/// Runs the steps of [`PIPELINE`] in front of those that lower the precision.
///
/// # Errors
/// As [`run`].
pub fn run_in_full(network: &mut Network, settings: &Settings) -> Result<Counts> {
    run_steps(network, settings, &PIPELINE[..lowering_starts()])
}

/// Runs the steps of [`PIPELINE`] behind [`run_in_full`], and [`lower`]; each weight is rounded by itself, which takes less time.
///
/// # Errors
/// As [`run`].
pub fn lower_roughly(
    network: &mut Network,
    settings: &Settings,
    has_kernel: &dyn Fn(&Network, LayerId) -> bool,
) -> Result<()> {
    let quick = |step: &&PipelineEntry| !matches!(step, Once(pass) if pass.name == round_weights::PASS.name);
    run_steps(network, settings, PIPELINE[lowering_starts()..].iter().filter(quick))?;
    lower(network, settings, has_kernel)?;
    Ok(())
}

/// Writes what the steps behind [`run_in_full`] lower as roundings between layers of float32 (see [`assign_precision::emulate`]), and
/// runs [`lower`]. What is rounded to tf32 is lowered as always.
///
/// # Errors
/// As [`run`].
pub fn emulate(
    network: &mut Network,
    settings: &Settings,
    has_kernel: &dyn Fn(&Network, LayerId) -> bool,
) -> Result<()> {
    if settings.compute == DType::Float32 {
        return lower_roughly(network, settings, has_kernel);
    }
    (plan_precision::PASS.apply)(network, settings)?;
    assign_precision::emulate(network)?;
    lower(network, settings, has_kernel)?;
    Ok(())
}

/// The layers whose precision the settings lower, in an order of execution, of a network that [`run_in_full`] left.
///
/// # Errors
/// If the network has a cycle.
pub fn lowered(network: &Network, settings: &Settings) -> Result<Vec<LayerId>> {
    let plan = plan_precision::plan(network, settings)?;
    let mut order = network.order()?;
    order.retain(|id| plan.get(id).is_some_and(LayerPrecision::is_lower));
    Ok(order)
}

fn lowering_starts() -> usize {
    let lowers = |step: &PipelineEntry| matches!(step, Once(pass) if pass.name == plan_precision::PASS.name);
    PIPELINE.iter().position(lowers).unwrap_or(PIPELINE.len())
}

/// Runs [`PIPELINE`].
///
/// # Errors
/// As the passes; in debug builds, and with `NEURENIX_VERIFY`, if one leaves a network that is not well-formed.
pub fn run(network: &mut Network, settings: &Settings) -> Result<Counts> {
    run_steps(network, settings, PIPELINE)
}

/// Writes what [`run`] left in the dtypes and ops for which the providers at hand have kernels. A network that was lowered
/// for others may be lowered again.
///
/// # Errors
/// As [`run`].
pub fn lower(
    network: &mut Network,
    settings: &Settings,
    has_kernel: &dyn Fn(&Network, LayerId) -> bool,
) -> Result<Counts> {
    let mut runner = Runner::new(settings)?;
    for pass in LOWERING {
        if runner.run(network, pass)? > 0 {
            runner.until_stable(network, CLEAN)?;
        }
    }
    let decomposed = decompose::without_kernel(network, has_kernel)?;
    if decomposed > 0 {
        *runner.counts.entry(decompose::PASS.name).or_default() += decomposed;
        runner.tidy(network)?;
    }
    for pass in LAST {
        runner.run(network, pass)?;
    }
    Ok(runner.counts)
}

/// Runs these steps.
///
/// # Errors
/// As [`run`].
pub fn run_steps<'s>(
    network: &mut Network,
    settings: &Settings,
    steps: impl IntoIterator<Item = &'s PipelineEntry>,
) -> Result<Counts> {
    let mut runner = Runner::new(settings)?;
    for step in steps {
        match step {
            Once(pass) => _ = runner.run(network, pass)?,
            UntilStable(passes) => runner.until_stable(network, passes)?,
        }
    }
    Ok(runner.counts)
}

#[cfg(test)]
mod tests {
    use super::rules::rewrite_as;
    use super::*;
    use crate::error::ErrorKind;
    use crate::network::attr::{Attr, attrs};
    use crate::network::ops;
    use crate::network::patch::{Change, Patch};
    use std::collections::BTreeSet;
    use testing::Graph;

    #[test]
    fn the_pipeline_and_the_folder_agree() {
        let names: BTreeSet<_> = passes().map(|pass| pass.name.to_string()).collect();
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/passes");
        let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        let files: BTreeSet<_> = files
            .filter(|path| std::fs::read_to_string(path).unwrap().contains("pub static PASS"))
            .map(|path| path.file_stem().unwrap().to_string_lossy().into_owned())
            .filter(|name| name != "mod")
            .collect();
        assert_eq!(names, files);
        assert!(passes().all(|pass| pass.doc.contains("=>")));
    }

    /// A chain of 5,000 layers in which most rules find something.
    fn long_chain() -> Network {
        let mut g = Graph::new();
        let mut x = g.input("x", "n 4 4");
        for _ in 0..500 {
            let (one, half) = (g.scalar(1.0), g.scalar(0.5));
            let swap = attrs([("perm", Attr::Ints(vec![0, 2, 1]))]);
            let t = g.op_with("Transpose", swap.clone(), &[x]);
            let t = g.op("Mul", &[t, one]);
            let t = g.op("Relu", &[t]);
            let t = g.op("Relu", &[t]);
            let t = g.op_with("Transpose", swap, &[t]);
            let s = g.op("Sigmoid", &[t]);
            let m = g.op("Mul", &[s, t]);
            let m = g.op("Mul", &[half, m]);
            let shape = g.op("Shape", &[m]);
            x = g.op("Reshape", &[m, shape]);
        }
        g.output(x);
        g.network
    }

    #[test]
    fn the_number_of_questions_is_linear() {
        let mut network = long_chain();
        let layers = network.layer_count();
        let questions = std::cell::Cell::new(0);
        let patches = rewrite_with(&mut network, |network, id| {
            questions.set(questions.get() + 1);
            let layer = &network[id];
            rule_if!(layer.op.name == "Relu" || layer.op.name == "Shape");
            // Each is written anew once: what is new has no source.
            rule_if!(layer.inputs.len() == 1 && !layer.name.starts_with("Anew"));
            let mut patch = Patch::new(network);
            let new = patch.add_named("Anew", layer.op, layer.attrs.clone(), &layer.inputs)?[0];
            patch.shunt(layer.outputs[0], new)?;
            Ok(Some(patch.finish()))
        })
        .unwrap();
        assert_eq!((layers, patches), (5000, 1500));
        assert!(questions.get() < layers + 6 * patches, "{} questions", questions.get());
    }

    #[test]
    fn a_long_network_is_done_in_few_rounds() {
        let mut network = long_chain();
        let counts = run_steps(&mut network, &Settings::default(), &PIPELINE[1..2]).unwrap();
        // Relu, Silu, Mul are left of ten layers.
        assert_eq!(network.layer_count(), 1500, "{counts:?}");
        assert!(counts.values().sum::<usize>() < 2 * 5000, "{counts:?}");
    }

    #[test]
    fn what_was_lowered_stays_lowered() {
        let mut g = Graph::new();
        let x = g.input("x", "n");
        let y = g.op("Silu", &[x]);
        g.output(y);
        lower(&mut g.network, &Settings::default(), &|_, _| false).unwrap();
        assert!(g.network.layers().all(|(_, l)| l.op.name != "Silu"));
    }

    /// Relu => Sigmoid; for the layer named "wrong" a Reshape of what can't be reshaped so comes first.
    fn some_rule(network: &Network, id: LayerId) -> Result<Option<Change>> {
        let layer = &network[id];
        rule_if!(layer.op.name == "Relu");
        rule_if_some!(x = matching::input(layer, 0));
        let mut patch = Patch::new(network);
        let x = match layer.name.as_str() {
            "wrong" => build::Build::reshape(&mut patch, x, &[7i64.into()])?,
            _ => x,
        };
        let new = build::Build::op(&mut patch, "Sigmoid", &[x])?;
        patch.shunt(layer.outputs[0], new)?;
        Ok(Some(patch.finish()))
    }

    #[test]
    fn a_rule_that_fails_leaves_its_layer_alone_and_is_reported_where_asked() {
        let mut g = Graph::new();
        let x = g.input("x", "2 3");
        let relu = ops::find("Relu").unwrap();
        let y = g
            .network
            .add_layer("wrong", relu, Default::default(), &[Some(x)])
            .unwrap()[0];
        let z = g.op("Relu", &[y]);
        g.output(z);
        let mut strict = g.network.clone();
        let error = rewrite_as(&mut strict, some_rule, true).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Shape);
        assert!(error.to_string().contains("wrong"), "{error}");
        assert_eq!(rewrite_as(&mut g.network, some_rule, false).unwrap(), 1);
        g.network.verify().unwrap();
        assert_eq!(
            testing::layers_of(&g.network),
            "%wrong: float32[2, 3] = Relu(%x)\n%Relu: float32[2, 3] = Sigmoid(%wrong)"
        );
    }

    #[test]
    fn a_broken_pass_is_named_with_the_layer() {
        static BROKEN: Pass = Pass {
            name: "broken",
            doc: "a layer => another dtype",
            apply: |network, _| {
                let (_, layer) = network.layers().next().unwrap();
                let output = layer.outputs[0];
                network[output].ty.dtype = DType::Int64;
                Ok(1)
            },
        };
        let mut g = Graph::new();
        let x = g.input("x", "n");
        let y = g.op("Relu", &[x]);
        g.output(y);
        let e = run_steps(&mut g.network, &Settings::default(), &[Once(&BROKEN)]).unwrap_err();
        let text = e.to_string();
        assert!(
            text.contains("in pass broken") && text.contains("layer: Relu (Relu)"),
            "{text}"
        );
    }

    #[test]
    fn a_pass_without_end_is_stopped() {
        let mut g = Graph::new();
        let x = g.input("x", "n");
        let y = g.op("Relu", &[x]);
        g.output(y);
        let e = rewrite(&mut g.network, |network, id| {
            let layer = &network[id];
            let mut patch = Patch::new(network);
            let new = patch.add_named("", layer.op, layer.attrs.clone(), &layer.inputs)?[0];
            patch.shunt(layer.outputs[0], new)?;
            Ok(Some(patch))
        });
        assert!(e.unwrap_err().message().contains("without end"));
    }
}
