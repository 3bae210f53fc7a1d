//! The engines that the library proposes for a graph, and what they are known by.

use super::descriptor::Descriptor;
use super::engines::Subject;
use super::numbers::{HEURISTICS, behavior, kind, name, note, ty};
use super::{Cudnn, supported};
use crate::error::Result;
use crate::network::dtype::DType;
use crate::providers::cuda::library::driver::Handle;

/// An engine as the library would set it. It is known by this among the engines for the same graph at other shapes and
/// strides, where its place is another one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Engine {
    /// Its number among all engines for such graphs.
    pub index: i64,
    /// How it is set, by the sort of knob.
    pub knobs: Vec<(i32, i64)>,
    /// Whether it multiplies on tensor cores, which round float32 to tf32.
    pub on_tensor_cores: bool,
    /// Whether the library compiles a kernel for each plan, which takes a second.
    pub compiles: bool,
}

/// What the library proposes for what a graph computes.
#[derive(Default)]
pub(super) struct Proposals {
    /// Whether it is drawn with a Relu that keeps NaNs.
    pub(super) keeps_nan: bool,
    /// The engines that may be taken, the best guess first.
    pub(super) engines: Vec<Engine>,
}

impl Proposals {
    /// Those for the graph whose Relu keeps NaNs; only where there are none, those that may lose them.
    pub(super) fn of(library: &'static Cudnn, subject: &dyn Subject, handle: Handle) -> Result<Self> {
        if subject.clamps()
            && let Some(found) = supported(Self::drawn(library, subject, handle, true))?
            && !found.engines.is_empty()
        {
            return Ok(found);
        }
        Self::drawn(library, subject, handle, false)
    }

    fn drawn(library: &'static Cudnn, subject: &dyn Subject, handle: Handle, keeps_nan: bool) -> Result<Self> {
        let drawn = subject.draw(library, handle, keeps_nan)?;
        let mut engines = vec![];
        for mode in HEURISTICS {
            for config in configurations(&drawn.graph, mode)? {
                let engine = engine_of(&config)?;
                let numerics = notes(&engine, name::ENGINE_NOTES, ty::NUMERICAL_NOTE)?;
                if is_exact(&numerics, subject) {
                    engines.push(known_by(&config, &engine, &numerics)?);
                }
            }
        }
        Ok(Self { keeps_nan, engines })
    }
}

/// An engine as it is set for a graph.
pub(super) struct Configured {
    pub(super) config: Descriptor,
    /// What it refers to.
    _kept: Vec<Descriptor>,
}

impl Engine {
    /// It for a graph, as it is set: what a plan is made of.
    pub(super) fn configure(&self, graph: &Descriptor) -> Result<Configured> {
        let library = graph.library;
        let engine = Descriptor::new(library, kind::ENGINE)?;
        engine
            .link(name::ENGINE_GRAPH, &[graph])?
            .set(name::ENGINE_INDEX, ty::INT64, &[self.index])?;
        let engine = engine.finish()?;
        let choice = |&(sort, value): &(i32, i64)| {
            let choice = Descriptor::new(library, kind::KNOB_CHOICE)?;
            choice
                .set(name::KNOB_TYPE, ty::KNOB, &[sort])?
                .set(name::KNOB_VALUE, ty::INT64, &[value])?;
            choice.finish()
        };
        let mut kept = self.knobs.iter().map(choice).collect::<Result<Vec<_>>>()?;
        let config = Descriptor::new(library, kind::ENGINE_CONFIG)?;
        config.link(name::CONFIG_ENGINE, &[&engine])?;
        if !kept.is_empty() {
            config.link(name::CONFIG_KNOBS, &kept.iter().collect::<Vec<_>>())?;
        }
        kept.push(engine);
        Ok(Configured {
            config: config.finish()?,
            _kept: kept,
        })
    }
}

fn configurations(graph: &Descriptor, mode: i32) -> Result<Vec<Descriptor>> {
    /// For float32 those without tensor cores come last, behind some thirty others.
    const MOST: usize = 64;
    let heuristic = Descriptor::new(graph.library, kind::ENGINE_HEURISTIC)?;
    heuristic
        .link(name::HEURISTIC_GRAPH, &[graph])?
        .set(name::HEURISTIC_MODE, ty::HEURISTIC_MODE, &[mode])?;
    // A mode may know nothing of a graph.
    match supported(heuristic.finish())? {
        Some(heuristic) => heuristic.parts(name::HEURISTIC_RESULTS, kind::ENGINE_CONFIG, MOST),
        None => Ok(vec![]),
    }
}

/// The engine of a configuration.
fn engine_of(config: &Descriptor) -> Result<Descriptor> {
    let engine = Descriptor::new(config.library, kind::ENGINE)?;
    config.get(name::CONFIG_ENGINE, ty::DESCRIPTOR, &mut [engine.handle])?;
    Ok(engine)
}

fn notes(engine: &Descriptor, name: i32, ty: i32) -> Result<Vec<i32>> {
    let mut notes = [-1i32; 16];
    let count = engine.get(name, ty, &mut notes)?;
    Ok(notes[..count.min(notes.len())].to_vec())
}

/// Whether an engine neither rounds operands, but to tf32 where they may be, nor sums to less than float32, and gives the
/// same result again. float32 is not transformed either: products of integers, which come as such, are exact.
fn is_exact(numerics: &[i32], subject: &dyn Subject) -> bool {
    let float32 = subject.dtype() == DType::Float32;
    let refused = |given: &i32| match *given {
        note::TENSOR_CORE => float32 && !subject.tf32(),
        note::FFT | note::WINOGRAD..=note::LAST_WINOGRAD => float32,
        note::DOWN_CONVERT_INPUTS | note::REDUCED_PRECISION_REDUCTION | note::NONDETERMINISTIC => true,
        _ => false,
    };
    !numerics.iter().any(refused)
}

fn known_by(config: &Descriptor, engine: &Descriptor, numerics: &[i32]) -> Result<Engine> {
    /// There are some fifty sorts of knobs.
    const MOST: usize = 64;
    let mut index = [-1i64];
    engine.get(name::ENGINE_INDEX, ty::INT64, &mut index)?;
    // An engine may have none.
    let choices = supported(config.parts(name::CONFIG_KNOBS, kind::KNOB_CHOICE, MOST))?.unwrap_or_default();
    let knob = |choice: &Descriptor| {
        let (mut sort, mut value) = ([-1i32], [-1i64]);
        choice.get(name::KNOB_TYPE, ty::KNOB, &mut sort)?;
        choice.get(name::KNOB_VALUE, ty::INT64, &mut value)?;
        Ok((sort[0], value[0]))
    };
    let mut knobs = choices.iter().map(knob).collect::<Result<Vec<_>>>()?;
    knobs.sort_unstable();
    // What a version does not tell costs time, and nothing else.
    let behavior = supported(notes(engine, name::ENGINE_BEHAVIOR, ty::BEHAVIOR_NOTE))?.unwrap_or_default();
    Ok(Engine {
        index: index[0],
        knobs,
        on_tensor_cores: numerics.contains(&note::TENSOR_CORE),
        compiles: behavior.contains(&behavior::RUNTIME_COMPILATION),
    })
}
