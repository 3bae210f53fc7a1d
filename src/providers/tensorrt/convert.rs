//! A network as a network of TensorRT, layer by layer. What TensorRT does not take is cut out, with its reason: what such a
//! layer gives comes in as an input, and what it reads goes out as a result.

use super::NAME;
use super::handle::{Description, Session, dtype_name};
use super::layers;
use super::library::Library;
use super::sink::Sink;
use super::writer::Writer;
use crate::error::{Error, Result};
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
    pub results: Vec<Description>,
    /// The layers that are not in it.
    pub refusals: Vec<Refusal>,
    /// The number of those that are.
    pub taken: usize,
}

/// Layers with the reason why TensorRT does not take them.
pub type Refused = BTreeMap<LayerId, Refusal>;

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
    let inside = network
        .layers()
        .map(|(id, _)| id)
        .filter(|id| !refused.contains_key(id));
    let mut selection = Selection {
        network,
        inside: inside.collect(),
        whole: true,
    };
    refused.extend(selection.settle(library)?);
    let outputs = selection.results();
    if refused.len() == network.layer_count() || outputs.is_empty() {
        let reasons: Vec<_> = refused.values().map(|r| format!("{}: {}", r.layer, r.reason)).collect();
        return Err(Error::unsupported("TensorRT takes no layer of the network").got(reasons.join("\n       ")));
    }
    let (session, results) = selection.write(library, sink)?;
    Ok(Converted {
        results,
        session,
        inputs: selection.feeds(),
        outputs,
        taken: network.layer_count() - refused.len(),
        refusals: refused.into_values().collect(),
    })
}

/// Layers of a network that become one of TensorRT.
pub struct Selection<'n> {
    /// The network.
    pub network: &'n Network,
    /// The layers.
    pub inside: HashSet<LayerId>,
    /// Whether it stands for the network: it has all its inputs, read or not, and gives its results under their names.
    pub whole: bool,
}

impl<'n> Selection<'n> {
    /// Removes what TensorRT does not take, and gives the reasons.
    ///
    /// # Errors
    /// If the library gives no session.
    pub fn settle(&mut self, library: &Arc<Library>) -> Result<Refused> {
        let mut refused = Refused::new();
        // A layer that TensorRT refused stays in its network, which is then of no use: it is written anew without it.
        loop {
            let mut session = Session::new(library, Sink::silent())?;
            let (_, new) = self.walk(&mut session)?;
            if new.is_empty() {
                return Ok(refused);
            }
            self.inside.retain(|id| !new.contains_key(id));
            refused.extend(new);
        }
    }

    /// Writes the layers; gives the network in TensorRT and what it says of the results.
    ///
    /// # Errors
    /// If the library gives no session, or does not take a layer that it took before.
    pub fn write(&self, library: &Arc<Library>, sink: Sink) -> Result<(Session, Vec<Description>)> {
        let mut session = Session::new(library, sink)?;
        let (mut writer, refused) = self.walk(&mut session)?;
        if let Some(refusal) = refused.into_values().next() {
            return Err(Error::unsupported(refusal.reason).layer(refusal.layer));
        }
        let outputs = self.results();
        let tensors = outputs.iter().map(|(id, _)| writer.tensor(*id));
        let tensors = tensors.collect::<Result<Vec<_>>>()?;
        writer.finish(&outputs)?;
        let described = tensors.iter().map(|&tensor| session.describe(tensor));
        let described = described.collect::<Result<_>>()?;
        Ok((session, described))
    }

    /// Writes every layer that TensorRT takes; gives the others.
    fn walk<'s>(&self, session: &'s mut Session) -> Result<(Writer<'s>, Refused)>
    where
        'n: 's,
    {
        let network = self.network;
        let mut writer = Writer::new(network, session);
        let mut refused = Refused::new();
        for id in self.feeds() {
            writer.feed(id)?;
        }
        for id in network.order()?.into_iter().filter(|id| self.inside.contains(id)) {
            let layer = &network[id];
            if let Err(error) = layers::write(&mut writer, id) {
                refused.insert(id, refusal(layer, &error));
                for &output in layer.outputs.iter().filter(|&&output| is_fed(network, output)) {
                    writer.feed(output)?;
                }
            }
        }
        Ok((writer, refused))
    }

    /// What comes in, in order: the inputs, then what other layers give to these.
    pub fn feeds(&self) -> Vec<TensorId> {
        let network = self.network;
        let read = |tensor: &TensorId| network[*tensor].users.iter().any(|user| self.inside.contains(user));
        let inputs = network
            .inputs()
            .iter()
            .copied()
            .filter(|tensor| self.whole || read(tensor));
        let others = network.layers().filter(|(id, _)| !self.inside.contains(id));
        let cut = others.flat_map(|(_, layer)| layer.outputs.iter().copied()).filter(read);
        inputs.chain(cut).filter(|&tensor| is_fed(network, tensor)).collect()
    }

    /// What goes out, and under which name: the results, then what other layers read of these.
    pub fn results(&self) -> Vec<(TensorId, String)> {
        let network = self.network;
        let ours =
            |tensor: TensorId| matches!(network[tensor].source, Source::Layer(id, _) if self.inside.contains(&id));
        let all = self.inside.len() == network.layer_count();
        let given = |tensor: TensorId| match network[tensor].source {
            Source::Layer(..) => ours(tensor),
            _ => self.whole && all,
        };
        let marked = network.outputs().iter().filter(|output| given(output.tensor));
        let own = |tensor: TensorId| network[tensor].name.clone();
        let mut found: Vec<_> = match self.whole {
            true => marked.map(|output| (output.tensor, output.name.clone())).collect(),
            false => {
                let mut seen = HashSet::new();
                let marked = marked.filter(|output| seen.insert(output.tensor));
                marked.map(|output| (output.tensor, own(output.tensor))).collect()
            }
        };
        let mut seen: HashSet<TensorId> = found.iter().map(|(tensor, _)| *tensor).collect();
        let others = network.layers().filter(|(id, _)| !self.inside.contains(id));
        for tensor in others.flat_map(|(_, layer)| layer.inputs.iter().flatten().copied()) {
            if ours(tensor) && seen.insert(tensor) {
                found.push((tensor, own(tensor)));
            }
        }
        found
    }
}

/// Why TensorRT does not take a layer.
pub fn refusal(layer: &Layer, error: &Error) -> Refusal {
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

/// Whether a tensor can come in. What TensorRT has no dtype for, only refused layers read.
fn is_fed(network: &Network, tensor: TensorId) -> bool {
    dtype_name(network[tensor].ty.dtype).is_ok()
}
