//! Reductions over any axes, and ArgMax and ArgMin, from both layouts.

use super::ROWS;
use super::l2_norm;
use super::of_8_bits;
use super::softmax::Tile;
use super::team::Team;
use super::walk::Walk;
use crate::error::{Error, Result};
use crate::network::attr::Read;
use crate::network::dtype::DType;
use crate::network::ops::reduce;
use crate::plan::layout::{Layout, Operand};
use crate::plan::{Form, Prepared, Request, Tactic};
use crate::providers::common::Why;
use crate::providers::common::fn_kernel::FnKernel;
use crate::providers::common::scope::Scope;
use crate::providers::cuda::device::Grid;
use crate::providers::cuda::kernels::launch::{KernelLaunch, Launches, fields, sourced};
use crate::providers::cuda::kernels::packs::{entry, in_packs, pack};
use crate::providers::cuda::kernels::pointwise::code::element;
use crate::providers::cuda::kernels::{Answer, Gpu};
use std::sync::Arc;

const SOURCE: &str = include_str!("../../../../../kernels/reduce.cu");

/// Those that `reduce.cu` has a rule for.
const REDUCTIONS: [&str; 10] = [
    "ReduceSum",
    "ReduceMean",
    "ReduceMax",
    "ReduceMin",
    "ReduceProd",
    "ReduceL1",
    "ReduceL2",
    "ReduceSumSquare",
    "ReduceLogSum",
    "ReduceLogSumExp",
];

/// Reductions, ArgMax and ArgMin.
pub fn offer(scope: &Scope, gpu: &Arc<Gpu>) -> Answer {
    let (name, attrs) = (scope.op(), &scope.layer().attrs);
    let arg = ["ArgMax", "ArgMin"].contains(&name);
    let Some(x) = scope.input_type(0).filter(|_| arg || REDUCTIONS.contains(&name)) else {
        return Ok(vec![]);
    };
    let Some(ty) = element(x.dtype) else {
        return Err(Why::new(format!("there is no reduction of {}", x.dtype)));
    };
    if x.dtype == DType::UInt64 && name == "ReduceMean" {
        return Err(Why::new("sums of uint64 wrap"));
    }
    if x.dtype.is_int() && name == "ReduceL2" {
        return Err(Why::new("roots of integers are taken in float64"));
    }
    let axes = match arg {
        true => x.axis(attrs.int("axis")).map(|axis| vec![axis]),
        false => reduce::axes(attrs, x),
    };
    let axes = axes.map_err(|e| Why::new(e.message()))?;
    let rule = match arg {
        true => format!("Arg<{ty}, {}, {}>", name == "ArgMax", attrs.flag("select_last_index")),
        false => format!("{name}<{ty}>"),
    };
    let keeps = attrs.flag("keepdims");
    let reduction = Reduction {
        rule,
        axes,
        keeps,
        arg,
        pair: arg || name == "ReduceLogSumExp",
    };
    let whole = match name {
        "ReduceL2" => l2_norm::offer(scope, gpu, &reduction.axes),
        _ => of_8_bits::offer(scope, gpu, &reduction),
    };
    let alone = scope.alone(reduction.kernel(name, x.rank(), gpu), &[0]);
    Ok(whole.into_iter().chain([alone]).collect())
}

/// The result of channels last is plain, or lies as the input does if it has its rank.
fn forms(rank: usize, same_rank: bool) -> Vec<Form> {
    let last = Layout::ChannelsLast;
    let pairs = [(Layout::Plain, Layout::Plain), (last, last), (last, Layout::Plain)];
    let fits = |(from, to): &(Layout, Layout)| from.fits(rank) && (*to == Layout::Plain || same_rank);
    let form = |(from, to)| Form {
        tactic: Tactic::ONLY,
        inputs: vec![from],
        outputs: vec![to],
    };
    pairs.into_iter().filter(fits).map(form).collect()
}

#[derive(Clone)]
pub(super) struct Reduction {
    /// What `reduce.cu` has for it.
    rule: String,
    axes: Vec<usize>,
    keeps: bool,
    arg: bool,
    /// Whether two numbers are kept of those that were seen.
    pair: bool,
}

impl Reduction {
    /// By another rule.
    pub fn by(&self, rule: String) -> Self {
        Self { rule, ..self.clone() }
    }

    /// The kernel, for tensors of so many axes.
    pub fn kernel(self, name: &str, rank: usize, gpu: &Arc<Gpu>) -> FnKernel {
        let forms = forms(rank, self.keeps || self.axes.is_empty());
        let identity = format!("{:?} keepdims {}", self.axes, self.keeps);
        sourced(name, &identity, forms, gpu, move |gpu: &Gpu, request: &Request| {
            self.instance(gpu, request)
        })
    }

    fn instance(&self, gpu: &Gpu, request: &Request) -> Result<Prepared> {
        let (x, y) = (&request.inputs[0], &request.outputs[0]);
        let walk = Walk::of(x, y, &self.axes, self.keeps)?;
        if self.arg && walk.length() == 0 {
            return Err(Error::shape("an empty dimension has no greatest or least element").got(x.describe()));
        }
        in_packs(pack(x.dtype, walk.packed()), |pack| self.launches(gpu, x, &walk, pack))
    }

    fn launches(&self, gpu: &Gpu, x: &Operand, walk: &Walk, pack: usize) -> Result<Launches> {
        let plan = Plan::of(walk, pack, gpu.device.multiprocessors)?;
        let (results, length) = (walk.results(), walk.length());
        let head = [results, length, plan.team, plan.parts, plan.part];
        let numbers = head.into_iter().chain(walk.fields()).map(|n| n as i64);
        let numbers = fields(numbers.collect::<Vec<_>>())?;
        let name = if walk.rows { "reduce_rows" } else { "reduce_columns" };
        let even = walk.reduced.len() < 2;
        let block = if walk.rows {
            format!(", {}", plan.block)
        } else {
            String::new()
        };
        let split = plan.parts > 1;
        let partial = if split { "partial" } else { "nullptr" };
        let body = format!("{name}<R, {pack}, {even}{block}>(y, x, {partial}, s);");
        let mut launches = vec![self.launch(gpu, &body, split, (plan.grid, plan.bound), &numbers)?];
        if split {
            let grid = Grid::over(results * 32, JOINING)?;
            launches.push(self.launch(gpu, "reduce_parts<R>(y, partial, s);", true, (grid, JOINING), &numbers)?);
        }
        Ok(Launches {
            launches,
            workspace: if split {
                results * plan.parts * self.bytes(x.dtype)
            } else {
                0
            },
            device_check: None,
            how: plan.how,
        })
    }

    fn launch(
        &self,
        gpu: &Gpu,
        body: &str,
        split: bool,
        (grid, bound): (Grid, u32),
        numbers: &[i32],
    ) -> Result<KernelLaunch> {
        let rule = &self.rule;
        let partial = if split {
            format!("{rule}::Acc* partial, ")
        } else {
            String::new()
        };
        let parameters = format!("{rule}::Out* y, const {rule}::In* x, {partial}const Walk s");
        let body = format!("typedef {rule} R;\n    {body}");
        let source = entry(&[ROWS, SOURCE], "reduction", bound, &parameters, &body);
        Ok(KernelLaunch::new(
            gpu.compiler.entry(&source, "reduction", 0),
            grid,
            numbers.to_vec(),
        ))
    }

    /// Bytes of what is kept of the elements that were seen.
    fn bytes(&self, dtype: DType) -> usize {
        let one = match dtype {
            DType::Float32 | DType::Float16 | DType::BFloat16 => 4,
            _ => 8,
        };
        one * (1 + self.pair as usize)
    }
}

/// Who computes a reduction.
#[derive(Debug)]
struct Plan {
    grid: Grid,
    /// Threads that share a row, or next to each other.
    team: usize,
    /// Whether a block has a row.
    block: bool,
    parts: usize,
    part: usize,
    /// The most threads of a block, whatever the shapes.
    bound: u32,
    how: String,
}

/// Parts of a reduction, at most: those of one are joined by a warp.
const MOST_PARTS: usize = 1024;
/// Threads of a block whose warps join parts.
const JOINING: u32 = 128;

impl Plan {
    fn of(walk: &Walk, pack: usize, multiprocessors: u32) -> Result<Self> {
        if walk.rows {
            Self::rows(walk, pack, multiprocessors)
        } else {
            Self::columns(walk, pack, multiprocessors)
        }
    }

    fn rows(walk: &Walk, pack: usize, multiprocessors: u32) -> Result<Self> {
        /// Packs that a thread has at least before a row is split, and at most where there are enough rows.
        const PACKS: usize = 4;
        let team = Team::of(walk.results(), walk.length().div_ceil(pack), PACKS, multiprocessors);
        let grid = team.grid(walk.results())?;
        Ok(Self {
            team: team.size,
            block: team.is_block(),
            bound: team.bound(),
            ..Self::split(
                walk.length(),
                grid,
                team.size * PACKS * pack,
                multiprocessors,
                team.describe(),
            )
        })
    }

    fn columns(walk: &Walk, pack: usize, multiprocessors: u32) -> Result<Self> {
        /// Rows that a thread has at least before a column is split.
        const ROWS: usize = 8;
        let tile = Tile::of(walk.width().div_ceil(pack), walk.length());
        let outer = walk.results() / walk.width().max(1);
        let grid = Grid::over(outer * tile.tiles * tile.threads(), tile.threads() as u32)?;
        Ok(Self {
            team: tile.lanes,
            bound: Tile::THREADS as u32,
            ..Self::split(walk.length(), grid, tile.depth * ROWS, multiprocessors, tile.describe())
        })
    }

    /// Splits the length into parts of a multiple of `least` where the blocks are too few.
    fn split(length: usize, mut grid: Grid, least: usize, multiprocessors: u32, mut how: String) -> Self {
        let wanted = (2 * multiprocessors as usize).div_ceil(grid.blocks[0].max(1) as usize);
        let wanted = wanted.min(MOST_PARTS);
        let mut part = length.div_ceil(wanted).next_multiple_of(least);
        let mut parts = length.div_ceil(part.max(1)).max(1);
        // A second kernel takes longer than twice as much work.
        if grid.blocks[0] >= multiprocessors || parts < 4 {
            (part, parts) = (length, 1);
        }
        grid.blocks[1] = parts as u32;
        if parts > 1 {
            how = format!("{how}, {parts} parts");
        }
        Self {
            grid,
            team: 1,
            block: false,
            bound: 0,
            parts,
            part,
            how,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(shape: &[usize], reduced: &[usize], layout: Layout, pack: usize) -> Plan {
        let kept = |axis| if reduced.contains(&axis) { 1 } else { shape[axis] };
        let operand = |shape| Operand::dense(DType::Float16, shape, layout);
        let y = operand((0..shape.len()).map(kept).collect());
        Plan::of(
            &Walk::of(&operand(shape.to_vec()), &y, reduced, true).unwrap(),
            pack,
            132,
        )
        .unwrap()
    }

    #[test]
    fn few_long_reductions_are_split() {
        let all = plan(&[1 << 24], &[0], Layout::Plain, 8);
        assert_eq!((all.team, all.block, all.parts, all.part), (512, true, 256, 65536));
        let columns = plan(&[100_000, 64], &[0], Layout::Plain, 8);
        assert_eq!((columns.team, columns.parts, columns.part), (8, 196, 512));
        assert_eq!(columns.grid.blocks, [1, 196, 1]);
    }

    #[test]
    fn others_are_not() {
        let pooled = plan(&[32, 2048, 7, 7], &[2, 3], Layout::ChannelsLast, 8);
        assert_eq!(
            (pooled.team, pooled.grid.threads, pooled.grid.blocks),
            (32, 256, [256, 1, 1])
        );
        assert_eq!((pooled.parts, pooled.part), (1, 49));
        let rows = plan(&[4096, 768], &[1], Layout::Plain, 8);
        assert_eq!((rows.team, rows.block, rows.parts), (32, false, 1));
        let empty = plan(&[3, 0], &[1], Layout::Plain, 8);
        assert_eq!((empty.parts, empty.part), (1, 0));
    }
}
