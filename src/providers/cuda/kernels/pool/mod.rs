//! MaxPool with its indices, AveragePool, LpPool, and MaxUnpool.

mod unpool;

use super::launch::{Launches, fields, sourced};
use super::packs::{entry, in_packs, pack};
use super::pointwise::code::element;
use super::{Answer, Gpu};
use crate::error::Result;
use crate::network::attr::{Attrs, Read};
use crate::network::ops::{pool, strides};
use crate::plan::layout::{Layout, Operand};
use crate::plan::{Prepared, Request};
use crate::providers::common::Why;
use crate::providers::common::operand_strides::axes;
use crate::providers::common::scope::{Scope, uniform_forms};
use crate::providers::cuda::device::Grid;
use std::sync::Arc;

const SOURCE: &str = include_str!("../../../../../kernels/pool.cu");
/// Spatial axes that `pool.cu` walks; one or two are the last of these.
const AXES: usize = 3;
/// Threads of a block.
const THREADS: u32 = 128;
/// The longest window along the last axis that is written out.
const UNROLLED: i64 = 5;
/// Results along each axis of those that a thread has side by side, where there are many.
const SIDE: usize = 2;
/// Threads that a multiprocessor has work enough with.
const BUSY: usize = 256;

/// Pooling in both layouts.
pub fn offer(scope: &Scope, gpu: &Arc<Gpu>) -> Answer {
    let rule = match scope.op() {
        "MaxPool" | "AveragePool" | "LpPool" => Rule::Values(scope.op()),
        "MaxPoolIndices" => Rule::Indices,
        "MaxUnpool" => return unpool::offer(scope, gpu),
        _ => return Ok(vec![]),
    };
    let (Some(x), name) = (scope.input_type(0), scope.op()) else {
        return Ok(vec![]);
    };
    let Some(ty) = element(x.dtype) else {
        return Err(Why::new(format!("there is no pooling of {}", x.dtype)));
    };
    if x.rank() > AXES + 2 {
        return Err(Why::new("there are more than three spatial axes"));
    }
    let attrs = scope.layer().attrs.clone();
    let layouts = [Layout::ChannelsLast, Layout::Plain];
    let identity = format!("{attrs:?}");
    let pool = Pool { rule, ty, attrs };
    let make = move |gpu: &Gpu, request: &Request| pool.instance(gpu, request);
    let mut kernel = sourced(name, &identity, uniform_forms(&layouts, 1, 1), gpu, make);
    kernel.reads_slices = true;
    Ok(vec![scope.alone(kernel, &[0])])
}

/// What is asked of a window.
enum Rule {
    /// What this rule of `pool.cu` makes of its elements.
    Values(&'static str),
    /// Where its greatest element is.
    Indices,
}

struct Pool {
    rule: Rule,
    /// The element type.
    ty: &'static str,
    attrs: Attrs,
}

impl Pool {
    fn instance(&self, gpu: &Gpu, request: &Request) -> Result<Prepared> {
        let (x, y) = (&request.inputs[0], &request.outputs[0]);
        let pack = match (&self.rule, y.layout) {
            (Rule::Values(_), Layout::ChannelsLast) => pack(x.dtype, [y.shape[1], x.parent_channels.unwrap_or(0)]),
            _ => 1,
        };
        in_packs(pack, |pack| {
            let enough = gpu.device.multiprocessors as usize * BUSY;
            let block = self.block(y, pack)?.filter(|&(_, threads)| threads >= enough);
            let (threads, how) = match block {
                Some((_, threads)) => (threads, format!("{SIDE} by {SIDE} results of {pack} channels a thread")),
                None => (y.elements() / pack, format!("{pack} results a thread")),
            };
            let source = self.source(y, pack, block.map(|(block, _)| block))?;
            Ok(Launches::one(
                gpu.compiler.entry(&source, "pooling", 0),
                Grid::over(threads, THREADS)?,
                fields(self.window(x, y, pack)?)?,
                how,
            ))
        })
    }

    /// The windows for which a thread has results side by side, as extents and stride, and how many threads there are then.
    fn block(&self, y: &Operand, pack: usize) -> Result<Option<([i64; 3], usize)>> {
        let window = pool::window(&self.attrs)?;
        let rule = matches!(self.rule, Rule::Values("MaxPool" | "AveragePool"));
        let &[batch, channels, height, width] = y.shape.as_slice() else {
            return Ok(None);
        };
        let (&[down, across], &[stride, other]) = (window.kernel.as_slice(), window.strides.as_slice()) else {
            return Ok(None);
        };
        // All loads of a thread are written out.
        let widest = if stride == 1 { UNROLLED } else { 3 };
        let fits =
            stride == other && stride <= 2 && down.max(across) <= widest && window.dilations.iter().all(|&d| d == 1);
        let threads = batch * height.div_ceil(SIDE) * width.div_ceil(SIDE) * channels / pack;
        Ok((rule && fits && pack > 1).then_some(([down, across, stride], threads)))
    }

    fn source(&self, y: &Operand, pack: usize, block: Option<[i64; 3]>) -> Result<String> {
        let (ty, last) = (self.ty, y.layout == Layout::ChannelsLast);
        let (out, call) = match self.rule {
            Rule::Indices => ("int64", format!("pool_indices<{ty}, {last}>")),
            Rule::Values(rule) => {
                let counts = self.attrs.contains_key("count_include_pad") && self.attrs.flag("count_include_pad");
                let kernel = pool::window(&self.attrs)?.kernel;
                let unrolled = kernel.last().copied().filter(|&extent| extent <= UNROLLED).unwrap_or(0);
                let call = match block {
                    Some([down, across, stride]) => {
                        format!("pool_block<{rule}, {ty}, {pack}, {down}, {across}, {stride}, {SIDE}, {counts}>")
                    }
                    None => format!("pool<{rule}, {ty}, {pack}, {unrolled}, {last}, {counts}>"),
                };
                (ty, call)
            }
        };
        let parameters = format!("{out}* y, const {ty}* x, const Window s");
        Ok(entry(
            &[SOURCE],
            "pooling",
            THREADS,
            &parameters,
            &format!("{call}(y, x, s);"),
        ))
    }

    /// `Window` of `pool.cu`.
    fn window(&self, x: &Operand, y: &Operand, pack: usize) -> Result<Vec<i64>> {
        let window = pool::window(&self.attrs)?;
        let extents = numbers(&x.shape[2..]);
        let out = numbers(&y.shape[2..]);
        let padding = (0..extents.len()).map(|a| window.padding(a, extents[a], out[a]));
        let (begin, behind): (Vec<i64>, Vec<i64>) = padding.unzip();
        let end: Vec<i64> = extents
            .iter()
            .zip(behind)
            .map(|(extent, behind)| extent + behind)
            .collect();
        let steps = numbers(&axes(x).strides);
        let counting = self.counting(&x.shape);
        let channels = y.shape[1] / if y.layout == Layout::ChannelsLast { pack } else { 1 };
        let mut words = vec![(y.elements() / pack) as i64, channels as i64];
        words.extend(padded(&out, 1));
        words.extend(steps[..2].iter().copied().chain(padded(&steps[2..], 0)));
        let lists = [
            (&extents, 1),
            (&window.kernel, 1),
            (&window.strides, 1),
            (&window.dilations, 1),
            (&begin, 0),
            (&end, 1),
        ];
        lists
            .into_iter()
            .for_each(|(list, filler)| words.extend(padded(list, filler)));
        words.extend(counting[..2].iter().copied().chain(padded(&counting[2..], 0)));
        let power = self.attrs.contains_key("p").then(|| self.attrs.int("p"));
        words.push(power.unwrap_or(0));
        Ok(words)
    }

    /// Launches by which MaxPool's indices count.
    fn counting(&self, shape: &[usize]) -> Vec<i64> {
        let mut steps = strides(shape);
        if matches!(self.rule, Rule::Indices) && self.attrs.flag("storage_order") {
            let mut step = 1;
            for (axis, &size) in shape.iter().enumerate().skip(2) {
                steps[axis] = step;
                step *= size;
            }
        }
        numbers(&steps)
    }
}

fn numbers(list: &[usize]) -> Vec<i64> {
    list.iter().map(|&number| number as i64).collect()
}

/// Numbers of spatial axes, with a filler for the axes before them that are not there.
fn padded(list: &[i64], filler: i64) -> impl Iterator<Item = i64> {
    std::iter::repeat_n(filler, AXES - list.len()).chain(list.iter().copied())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::attr::{Attr, attrs};
    use crate::network::dtype::DType;

    #[test]
    fn the_window_of_resnet() {
        let ints = |name, list: &[i64]| (name, Attr::Ints(list.to_vec()));
        let given = [
            ints("kernel_shape", &[3, 3]),
            ints("strides", &[2, 2]),
            ints("pads", &[1; 4]),
            ints("dilations", &[]),
            ("auto_pad", Attr::Text("NOTSET".into())),
        ];
        let pool = Pool {
            rule: Rule::Values("MaxPool"),
            ty: "float16",
            attrs: attrs(given),
        };
        let operand = |side| Operand::dense(DType::Float16, vec![32, 64, side, side], Layout::ChannelsLast);
        let (x, y) = (operand(112), operand(56));
        let words = pool.window(&x, &y, 8).unwrap();
        let expected: [&[i64]; 11] = [
            &[32 * 56 * 56 * 8, 8],
            &[1, 56, 56],
            &[112 * 112 * 64, 1, 0, 112 * 64, 64],
            &[1, 112, 112],
            &[1, 3, 3],
            &[1, 2, 2],
            &[1, 1, 1],
            &[0, 1, 1],
            &[1, 113, 113],
            &[64 * 112 * 112, 112 * 112, 0, 112, 1],
            &[0],
        ];
        assert_eq!(words, expected.concat());
        assert!(
            pool.source(&y, 8, None)
                .unwrap()
                .contains("pool<MaxPool, float16, 8, 3, true, false>")
        );
        let (block, threads) = pool.block(&y, 8).unwrap().unwrap();
        assert_eq!(threads, 32 * 28 * 28 * 8);
        assert!(
            pool.source(&y, 8, Some(block))
                .unwrap()
                .contains("pool_block<MaxPool, float16, 8, 3, 3, 2, 2, false>")
        );
        assert_eq!(pool.block(&y, 1).unwrap(), None);
    }
}
