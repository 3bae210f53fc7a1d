//! Layers that TensorRT-RTX takes into a network and has no implementation of, so that every build with one fails: the
//! library is asked, by building one alone.

use super::handle::{Session, Spec, Tensor};
use super::library::Library;
use super::plan::{Config, spec};
use super::sink::Sink;
use crate::error::{Error, Result};
use crate::network::array::Array;
use crate::network::dtype::DType;
use std::sync::Arc;

/// Writes a network with one layer; gives its output.
type Write = fn(&mut Session) -> Result<Tensor>;

/// The smallest networks with these layers.
const LAYERS: [(&str, Write); 2] = [("NonZero", non_zero), ("NMS", nms)];

/// Whether a library builds networks with layers of this kind.
///
/// # Errors
/// If it does not; in its words.
pub fn check(library: &Arc<Library>, kind: &'static str) -> Result<()> {
    let Some((_, write)) = LAYERS.iter().find(|(known, _)| *known == kind && library.is_rtx()) else {
        return Ok(());
    };
    let refusal = library.remember(kind, || build(library, *write).err().map(|e| e.message().to_string()));
    match refusal {
        None => Ok(()),
        Some(words) => Err(Error::unsupported(format!(
            "TensorRT-RTX has no implementation of it: \"{}\"",
            words.lines().next().unwrap_or_default()
        ))),
    }
}

/// For no GPU that is there, so that nothing is asked of one.
fn build(library: &Arc<Library>, write: Write) -> Result<()> {
    let mut session = Session::new(library, Sink::silent())?;
    let output = write(&mut session)?;
    session.output(output, "y")?;
    let config = Config {
        targets: vec!["8.6".into()],
        optimization_level: 0,
        ..Config::default()
    };
    let spec = spec(&config, &session, &[], 0)?;
    session.build(&spec).map(drop)
}

fn first(session: &mut Session, spec: Spec) -> Result<Tensor> {
    let outputs = session.add("probe", "", spec)?;
    outputs
        .first()
        .copied()
        .ok_or_else(|| Error::internal("a layer has no output"))
}

fn non_zero(session: &mut Session) -> Result<Tensor> {
    let x = session.input("x", DType::Bool, &[1])?;
    first(session, Spec::new("NonZero").input(x))
}

fn nms(session: &mut Session) -> Result<Tensor> {
    let boxes = session.input("boxes", DType::Float32, &[1, 1, 4])?;
    let scores = session.input("scores", DType::Float32, &[1, 1, 1])?;
    let mut scalar = |dtype| {
        let one = Array::from_f64(dtype, vec![], &[1.0])?;
        first(session, Spec::new("Constant").ints("shape", []).weights(&one)?)
    };
    let (most, limit) = (scalar(DType::Int32)?, scalar(DType::Float32)?);
    let spec = Spec::new("NMS").input(boxes).input(scores).input(most);
    first(session, spec.input(limit).input(limit).word("format", "CORNER_PAIRS"))
}
