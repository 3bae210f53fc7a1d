//! GroupNormalization and InstanceNormalization in both layouts, with an activation behind them.

use super::ROWS;
use super::norm::{Held, SOURCE as NORMALIZE};
use super::softmax::Tile;
use crate::error::{Error, Result};
use crate::network::attr::Read;
use crate::network::{Layer, LayerId, TensorId};
use crate::plan::layout::{Layout, Operand};
use crate::plan::{Candidate, Form, Prepared, Request, Tactic};
use crate::providers::common::Why;
use crate::providers::common::scope::Scope;
use crate::providers::cuda::device::Grid;
use crate::providers::cuda::kernels::launch::{KernelLaunch, Launches, fields, sourced};
use crate::providers::cuda::kernels::packs::{double, entry, in_packs, pack};
use crate::providers::cuda::kernels::pointwise::code::element;
use crate::providers::cuda::kernels::quantize_behind::QuantizeBehind;
use crate::providers::cuda::kernels::{Answer, Gpu};
use std::sync::Arc;

const SOURCE: &str = include_str!("../../../../../kernels/group_norm.cu");
/// Threads of a block.
const THREADS: usize = 256;

/// The normalization with Relu or Silu behind it, and alone.
pub fn offer(scope: &Scope, gpu: &Arc<Gpu>) -> Answer {
    let groups = match scope.op() {
        "GroupNormalization" => Some(scope.layer().attrs.int("num_groups") as usize),
        "InstanceNormalization" => None,
        _ => return Ok(vec![]),
    };
    let output = scope.layer().outputs[0];
    let followed = scope.network.sole_user(output).and_then(|user| {
        let layer = &scope.network[user];
        Some((user, layer, activation(layer)?))
    });
    let alone = candidate(scope, gpu, groups, vec![scope.layer], output, (String::new(), 0))?;
    let fused = followed.map(|(user, layer, activation)| {
        let name = format!("+{}", layer.op.name);
        candidate(
            scope,
            gpu,
            groups,
            vec![scope.layer, user],
            layer.outputs[0],
            (name, activation),
        )
    });
    Ok(fused.transpose()?.into_iter().chain([alone]).collect())
}

/// The number of an activation in `normalize.cu`.
fn activation(layer: &Layer) -> Option<usize> {
    match layer.op.name {
        "Relu" => Some(1),
        "Silu" => Some(2),
        _ => None,
    }
}

fn candidate(
    scope: &Scope,
    gpu: &Arc<Gpu>,
    groups: Option<usize>,
    layers: Vec<LayerId>,
    output: TensorId,
    (behind, activation): (String, usize),
) -> std::result::Result<Candidate, Why> {
    let ty = scope.output_type(0);
    let norm = GroupNorm {
        ty: element(ty.dtype).ok_or_else(|| Why::new(format!("{} is not normalized", ty.dtype)))?,
        groups,
        activation,
        epsilon: scope.layer().attrs.float("epsilon"),
    };
    let form = |&layout: &Layout| Form {
        tactic: Tactic::ONLY,
        inputs: vec![layout, Layout::Plain, Layout::Plain],
        outputs: vec![layout],
    };
    let layouts = [Layout::Plain, Layout::ChannelsLast];
    let forms = layouts
        .iter()
        .filter(|layout| layout.fits(ty.rank()))
        .map(form)
        .collect();
    let make = move |gpu: &Gpu, request: &Request| norm.instance(gpu, request);
    let name = format!("{}{behind}", scope.op());
    Ok(Candidate {
        kernel: Arc::new(sourced(&name, format!("{groups:?}"), forms, gpu, make)),
        layers,
        inputs: (0..3).filter_map(|i| scope.input(i)).collect(),
        outputs: vec![output],
    })
}

struct GroupNorm {
    /// The element type.
    ty: &'static str,
    /// Groups of channels; as many as there are channels if none.
    groups: Option<usize>,
    /// What is done in the end.
    activation: usize,
    epsilon: f64,
}

/// The extents of what is normalized.
#[derive(Clone, Copy)]
struct Extents {
    images: usize,
    channels: usize,
    places: usize,
    groups: usize,
    /// Channels of a group.
    each: usize,
}

impl GroupNorm {
    fn instance(&self, gpu: &Gpu, request: &Request) -> Result<Prepared> {
        let x = &request.inputs[0];
        let channels = x.shape[1];
        let groups = self.groups.unwrap_or(channels);
        let extents = Extents {
            images: x.shape[0],
            channels,
            places: x.shape[2..].iter().product(),
            groups,
            each: channels / groups,
        };
        if x.elements() > i32::MAX as usize {
            return Err(Error::unsupported("the tensors are too large for one kernel").got(x.describe()));
        }
        let along = match x.layout {
            Layout::ChannelsLast => channels,
            _ => extents.places,
        };
        in_packs(pack(x.dtype, [along]), |pack| {
            let (rows, length) = (extents.images * groups, extents.each * extents.places);
            let held = Held::of(x.dtype, rows, length, pack, gpu.device.multiprocessors);
            if x.layout == Layout::Plain && !held.is_streamed() {
                return self.held(gpu, extents, pack, &held);
            }
            self.split(gpu, x, extents, pack)
        })
    }

    /// A group in the registers of a team.
    fn held(&self, gpu: &Gpu, extents: Extents, pack: usize, held: &Held) -> Result<Launches> {
        let Extents {
            images,
            groups,
            each,
            places,
            ..
        } = extents;
        let (ty, activation, call) = (self.ty, self.activation, &held.call);
        let parameters = format!("{ty}* y, const {ty}* x, const {ty}* scale, const {ty}* bias, const Rows s");
        let body = format!(
            "Normalize<{ty}, {ty}, {pack}, DEVIATION, false, false, true, true, true, {activation}, void>\
             {{y, nullptr, x, nullptr, scale, bias, nullptr}}.{call}(s);"
        );
        let source = entry(&[ROWS, NORMALIZE], "normalize", held.team.bound(), &parameters, &body);
        let rows = images * groups;
        let numbers = [rows, each * places, held.team.size, places, each, groups].map(|n| n as i64);
        let function = gpu.compiler.entry(&source, "normalize", 0);
        let numbers = fields(
            double(self.epsilon)
                .into_iter()
                .chain(numbers)
                .chain(QuantizeBehind::params(None)),
        )?;
        Ok(Launches::one(function, held.grid(rows)?, numbers, held.describe()))
    }

    /// Sums of parts of the groups, what follows from them, and then all elements.
    fn split(&self, gpu: &Gpu, x: &Operand, extents: Extents, pack: usize) -> Result<Launches> {
        let last = x.layout == Layout::ChannelsLast;
        let parts = Parts::of(extents, last, pack, gpu.device.multiprocessors);
        let Extents {
            images,
            channels,
            places,
            groups,
            each,
        } = extents;
        let sums = parts.parts * if last { each } else { 1 };
        let numbers = [
            images,
            channels,
            places,
            groups,
            each,
            sums,
            parts.parts,
            parts.part,
            parts.lanes,
        ];
        let numbers = numbers.map(|n| n as i64);
        let numbers = fields(double(self.epsilon).into_iter().chain(numbers))?;
        let (ty, activation) = (self.ty, self.activation);
        let parameters = format!(
            "{ty}* y, const {ty}* x, const {ty}* scale, const {ty}* bias, Pair<Wide<{ty}>::type>* sums, const Groups s"
        );
        let launch = |body: &str, grid: Grid| -> Result<KernelLaunch> {
            let source = entry(
                &[ROWS, NORMALIZE, SOURCE],
                "group_norm",
                THREADS as u32,
                &parameters,
                body,
            );
            Ok(KernelLaunch::new(
                gpu.compiler.entry(&source, "group_norm", 0),
                grid,
                numbers.clone(),
            ))
        };
        let first = if last { "channel_sums" } else { "group_sums" };
        let count = images * groups;
        let launches = vec![
            launch(&format!("{first}<{ty}, {pack}>(x, sums, s);"), parts.grid)?,
            launch(
                &format!("group_factors<{ty}, {last}>(x, sums, s);"),
                Grid::over(count * 32, 128)?,
            )?,
            launch(
                &format!("group_apply<{ty}, {pack}, {last}, {activation}>(y, x, scale, bias, sums, s);"),
                Grid::over(images * channels * places / pack, THREADS as u32)?,
            )?,
        ];
        Ok(Launches {
            launches,
            // A sum and one of squares, in the type that they are computed in.
            workspace: count * (sums + 1) * 2 * x.dtype.size().max(size_of::<f32>()),
            device_check: None,
            how: format!("sums in {} parts", parts.parts),
        })
    }
}

/// Who computes the sums.
struct Parts {
    grid: Grid,
    /// Threads next to each other along the channels.
    lanes: usize,
    parts: usize,
    part: usize,
}

impl Parts {
    fn of(extents: Extents, last: bool, pack: usize, multiprocessors: u32) -> Self {
        /// Packs that a thread has at least.
        const PACKS: usize = 4;
        let Extents {
            images,
            channels,
            places,
            groups,
            each,
        } = extents;
        let tile = Tile::of(channels.div_ceil(pack), places);
        let (blocks, length, least, threads) = match last {
            true => (images * tile.tiles, places, tile.depth * PACKS, tile.threads()),
            false => (images * groups, each * places, THREADS * PACKS * pack, THREADS),
        };
        let wanted = (4 * multiprocessors as usize).div_ceil(blocks);
        let part = length.div_ceil(wanted).next_multiple_of(least);
        let parts = length.div_ceil(part);
        Self {
            grid: Grid {
                blocks: [blocks as u32, parts as u32, 1],
                threads: threads as u32,
            },
            lanes: tile.lanes,
            parts,
            part,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_multiprocessors_have_a_part() {
        let extents = Extents {
            images: 2,
            channels: 320,
            places: 4096,
            groups: 32,
            each: 10,
        };
        let parts = Parts::of(extents, true, 8, 132);
        assert_eq!(
            (parts.grid.blocks, parts.grid.threads, parts.lanes),
            ([4, 128, 1], 256, 32)
        );
        assert_eq!((parts.parts, parts.part), (128, 32));
        let parts = Parts::of(extents, false, 8, 132);
        assert_eq!((parts.grid.blocks, parts.part), ([64, 5, 1], 8192));
    }
}
