//! A network as a network of TensorRT, layer by layer. What TensorRT does not take is cut out, with its reason: what such a
//! layer gives comes in as an input, and what it reads goes out as a result.

use super::NAME;
use super::handle::{Session, Tensor, dtype_name};
use super::layers;
use super::library::Library;
use super::sink::Sink;
use super::writer::Writer;
use crate::error::{Error, Result};
use crate::network::dim::Dim;
use crate::network::{Layer, LayerId, Network, Source, TensorId};
use crate::plan::Refusal;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

/// A network in TensorRT.
pub struct Converted {
    /// The network there.
    pub session: Session,
    /// What comes in: the inputs of the network, and what the refused layers give.
    pub inputs: Vec<TensorId>,
    /// What goes out, and under which name.
    pub outputs: Vec<(TensorId, String)>,
    /// What these are in TensorRT.
    pub results: Vec<super::handle::Description>,
    /// The layers that are not in it.
    pub refusals: Vec<Refusal>,
    /// The number of those that are.
    pub taken: usize,
}

/// Layers with the reason why TensorRT does not take them.
type Refused = BTreeMap<LayerId, Refusal>;

/// Converts a network, less the layers of these names or ops.
///
/// # Errors
/// If TensorRT takes no layer, or gives no session.
pub fn convert(network: &Network, library: &Arc<Library>, sink: Sink, exclude: &[String]) -> Result<Converted> {
    if network.layer_count() == 0 {
        return Err(Error::unsupported(
            "the network has no layers: there is nothing to build",
        ));
    }
    let mut refused = excluded(network, exclude);
    // A layer that TensorRT refused stays in its network, which is then of no use: it is written anew without it.
    loop {
        let known = refused.len();
        walk(network, Session::new(library, Sink::silent())?, &mut refused)?;
        if refused.len() == known {
            break;
        }
    }
    let mut writer = walk(network, Session::new(library, sink)?, &mut refused)?;
    let outputs = results(network, &refused);
    if refused.len() == network.layer_count() || outputs.is_empty() {
        let reasons: Vec<_> = refused.values().map(|r| format!("{}: {}", r.layer, r.reason)).collect();
        return Err(Error::unsupported("TensorRT takes no layer of the network").got(reasons.join("\n       ")));
    }
    let results = outputs
        .iter()
        .map(|(id, _)| writer.tensor(*id))
        .collect::<Result<Vec<_>>>()?;
    let session = writer.finish(&outputs)?;
    let described = results.iter().map(|&tensor| session.describe(tensor));
    Ok(Converted {
        results: described.collect::<Result<_>>()?,
        session,
        inputs: feeds(network, &refused),
        outputs,
        taken: network.layer_count() - refused.len(),
        refusals: refused.into_values().collect(),
    })
}

fn refusal(layer: &Layer, error: &Error) -> Refusal {
    let part = |wanted: &str| error.parts().find(|(name, _)| *name == wanted).map(|(_, text)| text);
    let tensor = part("tensor").map(|name| format!(" ({name})")).unwrap_or_default();
    Refusal {
        provider: NAME.into(),
        layer: layer.name.clone(),
        reason: format!("{}: {}{tensor}", layer.op.name, error.message()),
        hint: part("hint").unwrap_or_default().into(),
    }
}

fn excluded(network: &Network, exclude: &[String]) -> Refused {
    let named = |layer: &Layer| exclude.iter().any(|name| *name == layer.name || name == layer.op.name);
    let reason = Error::unsupported("excluded by the caller");
    let out = network.layers().filter(|(_, layer)| named(layer));
    out.map(|(id, layer)| (id, refusal(layer, &reason))).collect()
}

/// Writes every layer that is not refused, and adds those that prove to be.
fn walk<'n>(network: &'n Network, session: Session, refused: &mut Refused) -> Result<Writer<'n>> {
    let mut writer = Writer::new(network, session);
    for id in feeds(network, refused) {
        writer.feed(id)?;
    }
    for id in network.order()? {
        if refused.contains_key(&id) {
            continue;
        }
        let layer = &network[id];
        if let Err(error) = write(&mut writer, network, id) {
            refused.insert(id, refusal(layer, &error));
            for &output in layer.outputs.iter().filter(|&&output| is_fed(network, output)) {
                writer.feed(output)?;
            }
        }
    }
    Ok(writer)
}

fn write(writer: &mut Writer, network: &Network, id: LayerId) -> Result<()> {
    let layer = &network[id];
    let write = layers::find(layer.op.name)
        .ok_or_else(|| Error::unsupported("Neurenix does not write it in layers of TensorRT"))?;
    let types = layer
        .inputs
        .iter()
        .flatten()
        .chain(&layer.outputs)
        .map(|&t| &network[t]);
    for tensor in types {
        dtype_name(tensor.ty.dtype).map_err(|e| e.tensor(&tensor.name))?;
    }
    writer.begin_layer(layer);
    let outputs = write(writer, layer)?;
    for (&ours, theirs) in layer.outputs.iter().zip(outputs) {
        agree(writer, ours, theirs)?;
        writer.put(ours, theirs);
    }
    Ok(())
}

/// TensorRT's own rules have to give the dtype and the extents that the network states.
fn agree(writer: &Writer, ours: TensorId, theirs: Tensor) -> Result<()> {
    let (ty, found) = (&writer.network[ours].ty, writer.session.describe(theirs)?);
    let fits = |(dim, extent): (&Dim, &i64)| dim.as_const().is_none_or(|known| *extent < 0 || *extent == known);
    let same = found.shape.len() == ty.rank() && ty.shape.iter().zip(&found.shape).all(fits);
    match same && found.dtype == dtype_name(ty.dtype)? {
        true => Ok(()),
        false => Err(Error::unsupported(format!(
            "TensorRT gives {}{:?} where the network has {}",
            found.dtype,
            found.shape,
            ty.describe()
        ))),
    }
}

/// Whether a tensor can come in. What TensorRT has no dtype for, only refused layers read.
fn is_fed(network: &Network, tensor: TensorId) -> bool {
    dtype_name(network[tensor].ty.dtype).is_ok()
}

/// What comes in, in order: the inputs, then what refused layers give to others.
fn feeds(network: &Network, refused: &Refused) -> Vec<TensorId> {
    let taken = |id: &LayerId| !refused.contains_key(id);
    let cut = refused.keys().flat_map(|&id| &network[id].outputs).copied();
    let cut = cut.filter(|&tensor| network[tensor].users.iter().any(taken));
    let all = network.inputs().iter().copied().chain(cut);
    all.filter(|&tensor| is_fed(network, tensor)).collect()
}

/// What goes out: the results, then what refused layers read of others.
fn results(network: &Network, refused: &Refused) -> Vec<(TensorId, String)> {
    let given = |tensor: TensorId| match network[tensor].source {
        Source::Layer(id, _) => !refused.contains_key(&id),
        _ => refused.is_empty(),
    };
    let marked = network.outputs().iter().filter(|output| given(output.tensor));
    let mut found: Vec<_> = marked.map(|output| (output.tensor, output.name.clone())).collect();
    let mut seen: HashSet<TensorId> = found.iter().map(|(tensor, _)| *tensor).collect();
    for tensor in refused
        .keys()
        .flat_map(|&id| network[id].inputs.iter().flatten().copied())
    {
        let inside = matches!(network[tensor].source, Source::Layer(id, _) if !refused.contains_key(&id));
        if inside && seen.insert(tensor) {
            found.push((tensor, network[tensor].name.clone()));
        }
    }
    found
}
