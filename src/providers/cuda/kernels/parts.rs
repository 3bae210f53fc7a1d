//! Concat and Split: at best the parts are written or read where they lie, else they are copied, all of them at once.

use super::launch::fields;
use super::words::divisor;
use super::{Answer, Gpu};
use crate::error::{Error, Result};
use crate::network::attr::Read;
use crate::network::dim::Dim;
use crate::plan::layout::{Layout, Operand};
use crate::plan::{Alias, Call, Form, Instance, Kernel, Launcher, Prepared, Request};
use crate::providers::common::operand_strides::{axes, coalesce};
use crate::providers::common::scope::{Scope, uniform_forms};
use crate::providers::cuda::compile::{EntryPoint, compiled};
use crate::providers::cuda::device::{Arguments, Grid};
use std::sync::Arc;

const SOURCE: &str = include_str!("../../../../kernels/parts.cu");
/// `PARTS`, `THREADS` and `EACH` of `parts.cu`.
const PARTS: usize = 16;
const THREADS: u32 = 256;
const EACH: usize = 4;
/// Axes of a box: runs, what they lie in, and what that lies in.
const AXES: usize = 3;

/// Concat and Split in both layouts.
pub fn offer(scope: &Scope, gpu: &Arc<Gpu>) -> Answer {
    let split = match scope.op() {
        "Concat" => false,
        "Split" => true,
        _ => return Ok(vec![]),
    };
    let ty = scope.output_type(0);
    let Ok(axis) = ty.axis(scope.layer().attrs.int("axis")) else {
        return Ok(vec![]);
    };
    let inputs: Vec<usize> = (0..scope.layer().inputs.len()).collect();
    let kernel = Joint {
        split,
        axis,
        parts: if split {
            scope.layer().outputs.len()
        } else {
            inputs.len()
        },
        layouts: [Layout::Plain, Layout::ChannelsLast]
            .into_iter()
            .filter(|layout| layout.fits(ty.rank()))
            .collect(),
        gpu: gpu.clone(),
    };
    Ok(vec![scope.alone(kernel, &inputs)])
}

struct Joint {
    split: bool,
    axis: usize,
    parts: usize,
    layouts: Vec<Layout>,
    gpu: Arc<Gpu>,
}

impl Kernel for Joint {
    fn name(&self) -> String {
        if self.split { "Split" } else { "Concat" }.into()
    }

    fn identity(&self) -> String {
        format!("{} {}", self.name(), self.axis)
    }

    fn forms(&self) -> Vec<Form> {
        let [inputs, outputs] = if self.split { [1, self.parts] } else { [self.parts, 1] };
        uniform_forms(&self.layouts, inputs, outputs)
    }

    fn alias(&self, _form: &Form) -> Alias {
        if self.split {
            Alias::Split(self.axis, Dim::default())
        } else {
            Alias::Concat(self.axis)
        }
    }

    fn takes_slices(&self, _form: &Form) -> (bool, bool) {
        (true, true)
    }

    fn prepare(&self, request: &Request) -> Result<Prepared> {
        let (whole, parts) = if self.split {
            (&request.inputs[0], request.outputs)
        } else {
            (&request.outputs[0], request.inputs)
        };
        let mut moves = vec![];
        let mut start = 0;
        for (number, part) in parts.iter().enumerate() {
            if !part.in_place && !part.is_empty() {
                let there = Side {
                    number: 0,
                    start: start * axes(whole).strides[self.axis],
                    strides: ordered(&axes(whole).strides, whole.layout),
                };
                let own = Side {
                    number,
                    start: 0,
                    strides: ordered(&axes(part).strides, part.layout),
                };
                let sizes = ordered(&part.shape, part.layout);
                let [to, from] = if self.split { [own, there] } else { [there, own] };
                moves.push(Move::new(part, sizes, to, from)?);
            }
            start += part.shape[self.axis];
        }
        let function = self.gpu.compiler.entry(SOURCE, "parts", 0);
        let how = format!("{} parts copied at once", moves.len());
        let launcher = Moving {
            function: function.clone(),
            moves,
        };
        Ok(compiled([function], Instance::new(how, launcher)))
    }
}

/// What is said of each axis, in the order of memory.
pub fn ordered(of_axes: &[usize], layout: Layout) -> Vec<usize> {
    let mut ordered = of_axes.to_vec();
    if layout == Layout::ChannelsLast {
        ordered[1..].rotate_left(1);
    }
    ordered
}

/// One side of a copy: which operand, and where in it, in elements.
struct Side {
    number: usize,
    start: usize,
    strides: Vec<usize>,
}

/// A box that is copied; everything in bytes but the counts of `sizes`, whose last is a run of bytes too.
#[derive(Debug, PartialEq)]
struct Move {
    sizes: [usize; AXES],
    to: ByteSide,
    from: ByteSide,
}

/// A [`Side`] in bytes.
#[derive(Debug, PartialEq)]
struct ByteSide {
    number: usize,
    start: usize,
    /// Along the axes but the last, whose bytes lie side by side.
    strides: [usize; AXES - 1],
}

impl Move {
    fn new(part: &Operand, sizes: Vec<usize>, to: Side, from: Side) -> Result<Self> {
        let (mut sizes, mut strides) = coalesce(&sizes, &[&to.strides, &from.strides]);
        // Where single elements stand apart, each is a run.
        if strides.iter().any(|s| s.last() != Some(&1)) {
            sizes.push(1);
            strides.iter_mut().for_each(|s| s.push(1));
        }
        let lead = AXES.checked_sub(sizes.len()).ok_or_else(|| {
            Error::internal("a part lies along too many axes")
                .expected(format!("{AXES} axes"))
                .got(part.describe())
        })?;
        let bytes = part.dtype.size();
        let mut all = [1; AXES];
        all[lead..].copy_from_slice(&sizes);
        all[AXES - 1] *= bytes;
        let in_bytes = |side: &Side, own: &[usize]| {
            let mut strides = [0; AXES - 1];
            (lead..AXES - 1).for_each(|axis| strides[axis] = own[axis - lead] * bytes);
            ByteSide {
                number: side.number,
                start: side.start * bytes,
                strides,
            }
        };
        // A pack has at least an element, so that there are no more packs, and they lie no further apart.
        let apart = strides.iter().flatten().copied();
        fields(apart.chain([part.elements()]).map(|count| count as i64))?;
        Ok(Self {
            sizes: all,
            to: in_bytes(&to, &strides[0]),
            from: in_bytes(&from, &strides[1]),
        })
    }

    /// `Part` of `parts.cu`, from a block on, and how many blocks it takes.
    fn words(&self, call: &Call, first: usize) -> (Vec<i32>, usize) {
        let to = call.outputs[self.to.number].wrapping_add(self.to.start).addr();
        let from = call.inputs[self.from.number].wrapping_add(self.from.start).addr();
        let strides = [self.to.strides, self.from.strides].concat();
        let bytes = super::words::pack(1, strides.iter().copied().chain([to, from, self.sizes[AXES - 1]]));
        let run = self.sizes[AXES - 1] / bytes;
        let packs = self.sizes[0] * self.sizes[1] * run;
        let mut words: Vec<i64> = [to, from].iter().flat_map(|&a| [a as i64, (a >> 32) as i64]).collect();
        words.extend([first as i64, packs as i64]);
        words.extend(divisor(run));
        words.extend(divisor(self.sizes[1]));
        words.extend(strides.iter().map(|stride| (stride / bytes) as i64));
        words.extend([bytes as i64, 0]);
        // The lower half of each: of addresses the upper one follows, and everything else has no other.
        let words = words.into_iter().map(|word| word as i32).collect();
        (words, packs.div_ceil(THREADS as usize * EACH))
    }
}

struct Moving {
    function: EntryPoint,
    moves: Vec<Move>,
}

impl Launcher for Moving {
    fn launch(&mut self, call: &Call) -> Result<()> {
        for moves in self.moves.chunks(PARTS) {
            let mut words = vec![moves.len() as i32, 0];
            let mut blocks = 0;
            for part in moves {
                let (more, taken) = part.words(call, blocks);
                words.extend(more);
                blocks += taken;
            }
            // The driver copies as many bytes as the parameter has.
            words.resize(2 + PARTS * WORDS, 0);
            let mut arguments = Arguments::default();
            arguments.fields(&words);
            let grid = Grid {
                blocks: [blocks as u32, 1, 1],
                threads: THREADS,
            };
            // SAFETY: the source declares one parameter, whose addresses the planner vouches for.
            unsafe { self.function.launch(grid, &arguments, call.stream)? };
        }
        Ok(())
    }
}

/// Words of `Part`.
const WORDS: usize = 18;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::dtype::DType;

    fn moved(whole: &Operand, part: &Operand, axis: usize, start: usize) -> Move {
        let to = Side {
            number: 0,
            start: start * axes(whole).strides[axis],
            strides: ordered(&axes(whole).strides, whole.layout),
        };
        let from = Side {
            number: 1,
            start: 0,
            strides: ordered(&axes(part).strides, part.layout),
        };
        Move::new(part, ordered(&part.shape, part.layout), to, from).unwrap()
    }

    #[test]
    fn parts_are_runs_of_bytes() {
        let dense = |shape: &[usize], layout| Operand::dense(DType::Float16, shape.to_vec(), layout);
        let (whole, part) = (dense(&[2, 8, 5, 5], Layout::Plain), dense(&[2, 3, 5, 5], Layout::Plain));
        let one = moved(&whole, &part, 1, 5);
        assert_eq!((one.sizes, one.to.start, one.to.strides), ([1, 2, 150], 250, [0, 400]));
        let (whole, part) = (
            dense(&[2, 8, 5, 5], Layout::ChannelsLast),
            dense(&[2, 3, 5, 5], Layout::ChannelsLast),
        );
        let one = moved(&whole, &part, 1, 5);
        assert_eq!((one.sizes, one.to.start, one.from.strides), ([1, 50, 6], 10, [0, 6]));
        let slice = Operand {
            parent_channels: Some(9),
            ..dense(&[2, 8, 5, 4], Layout::ChannelsLast)
        };
        let one = moved(&dense(&[2, 8, 9, 4], Layout::ChannelsLast), &slice, 2, 2);
        assert_eq!((one.sizes, one.to.start), ([2, 20, 16], 128));
        assert_eq!((one.to.strides, one.from.strides), ([576, 16], [360, 18]));
    }

    #[test]
    fn single_elements_are_runs_too() {
        let column = |size| Operand::dense(DType::Float32, vec![6, size], Layout::Plain);
        let one = moved(&column(2), &column(1), 1, 1);
        assert_eq!(
            (one.sizes, one.to.strides, one.from.strides),
            ([1, 6, 4], [0, 8], [0, 4])
        );
    }
}
