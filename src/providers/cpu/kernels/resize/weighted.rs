//! Linear and cubic: rows are resampled along the last axis into a ring, and those of the ring blended along the axis
//! before. More axes than these two are resampled one by one beforehand.

use super::Axis;
use super::table::Table;
use crate::error::Result;
use crate::network::dtype::DType;
use crate::plan::{Call, Instance, Launcher, Prepared};
use crate::providers::cpu::kernels::parallel::{self, Shared};
use crate::providers::cpu::kernels::scratch::Scratch;
use crate::providers::cpu::simd::{Vector, convert, multiversion};
use std::ops::Range;

/// Bytes that a thread should at least write.
const GRAIN: usize = 64 << 10;

/// Takes the innermost axes away that are neither resampled nor have gaps; gives their number of elements.
pub fn dense_tail(axes: &mut Vec<Axis>) -> usize {
    let mut run = 1;
    while let Some(axis) = axes.last() {
        let alone = axis.sizes == [1, 1];
        if axis.table.is_some() || !(alone || axis.strides == [run, run]) {
            break;
        }
        run *= axis.sizes[1];
        axes.pop();
    }
    run
}

/// One pass over a tensor of f32 or narrower.
struct Pass {
    dtypes: [DType; 2],
    outer: Vec<Axis>,
    /// The axis before the last, along which rows are blended; an extent of 1 where there is none.
    down: Axis,
    blend: Table,
    /// The last axis that is resampled.
    along: Axis,
    spread: Table,
    /// Neighbours that are resampled together.
    run: usize,
    rows: usize,
    grain: usize,
    /// The ring, a row of the result and a row of the source.
    scratch: Scratch,
}

struct Weighted {
    passes: Vec<Pass>,
    /// Bytes of each of the two intermediate tensors.
    between: usize,
}

/// An instance for these axes.
pub fn instance(axes: Vec<Axis>, dtype: DType, threads: usize) -> Prepared {
    let plain = Weighted::new(&axes, dtype, [false, false], threads);
    // A pass resamples its last two axes. Gaps of a slice can leave others behind the one that it is meant for.
    let whole = |made: &Weighted| {
        made.passes
            .iter()
            .all(|pass| pass.outer.iter().all(|axis| axis.table.is_none()))
    };
    let tried = [[true, false], [false, true]]
        .into_iter()
        .map(|dense| Weighted::new(&axes, dtype, dense, threads));
    let found = std::iter::once(plain).chain(tried).find(whole);
    let found = found.unwrap_or_else(|| Weighted::new(&axes, dtype, [true, true], threads));
    let scratch = found.passes.iter().map(|pass| pass.scratch.workspace());
    let workspace = found.between * 2 + scratch.max().unwrap_or(0);
    Instance::new("weighted neighbours", found)
        .with_workspace(workspace)
        .into()
}

impl Weighted {
    /// The passes for these axes; `dense`: whether source and target are copied to and from dense tensors.
    fn new(axes: &[Axis], dtype: DType, dense: [bool; 2], threads: usize) -> Self {
        let last = axes.iter().rposition(|a| a.table.is_some());
        let resampled = |a: &usize| axes[*a].table.is_some();
        let mut early: Vec<usize> = (0..axes.len()).filter(resampled).collect();
        // The last pass takes the last axis and, where it is resampled, the one before.
        early.retain(|&a| Some(a) != last && Some(a + 1) != last);
        let mut chosen: Vec<Vec<usize>> = early.iter().map(|&axis| vec![axis]).collect();
        chosen.push((0..axes.len()).filter(|axis| !early.contains(axis)).collect());
        if dense[0] {
            chosen.insert(0, vec![]);
        }
        if dense[1] {
            chosen.push(vec![]);
        }
        let mut shape: Vec<usize> = axes.iter().map(|a| a.sizes[0]).collect();
        let (mut passes, mut between) = (vec![], 0);
        let end = chosen.len() - 1;
        for (number, chosen) in chosen.iter().enumerate() {
            let mut one = steps(axes, &mut shape, |axis| chosen.contains(&axis));
            let mut dtypes = [DType::Float32; 2];
            for (side, outermost) in [(0, number == 0), (1, number == end)] {
                if outermost {
                    keep_strides(&mut one, axes, side);
                    dtypes[side] = dtype;
                }
            }
            if number < end {
                between = between.max(shape.iter().product::<usize>() * size_of::<f32>());
            }
            passes.push(Pass::new(one, dtypes, threads));
        }
        let between = between.next_multiple_of(64);
        Self { passes, between }
    }
}

/// The axes of a pass between dense tensors that resamples the chosen ones; `shape` becomes that of its result.
fn steps(axes: &[Axis], shape: &mut [usize], chosen: impl Fn(usize) -> bool) -> Vec<Axis> {
    let mut pass: Vec<Axis> = vec![];
    let mut strides = [1, 1];
    for (i, axis) in axes.iter().enumerate().rev() {
        let table = axis.table.clone().filter(|_| chosen(i));
        let sizes = [shape[i], if table.is_some() { axis.sizes[1] } else { shape[i] }];
        pass.push(Axis { sizes, strides, table });
        strides = [0, 1].map(|side| strides[side] * sizes[side]);
        shape[i] = sizes[1];
    }
    pass.reverse();
    pass
}

fn keep_strides(pass: &mut [Axis], axes: &[Axis], side: usize) {
    pass.iter_mut()
        .zip(axes)
        .for_each(|(p, a)| p.strides[side] = a.strides[side]);
}

impl Pass {
    fn new(mut axes: Vec<Axis>, dtypes: [DType; 2], threads: usize) -> Pass {
        let run = dense_tail(&mut axes);
        let single = Axis {
            sizes: [1, 1],
            strides: [run, run],
            table: None,
        };
        let table = |a: &Axis| a.table.clone().unwrap_or_else(|| Table::identity(a.sizes[1]));
        let along = axes.pop().unwrap_or(single.clone());
        let down = axes.pop().unwrap_or(single);
        let rows = axes.iter().map(|a| a.sizes[1]).product::<usize>() * down.sizes[1];
        let row = run * along.sizes[1];
        let (blend, spread) = (table(&down), table(&along));
        let held = (blend.taps + 1) * run * spread.out + run * along.sizes[0];
        Pass {
            dtypes,
            scratch: Scratch::new(held * size_of::<f32>(), threads, rows),
            blend,
            spread,
            rows: if row == 0 { 0 } else { rows },
            grain: (GRAIN / (row * size_of::<f32>()).max(1)).max(1),
            outer: axes,
            down,
            along,
            run,
        }
    }

    /// Elements of a row of the result.
    fn width(&self) -> usize {
        self.run * self.spread.out
    }

    /// Where the rows of an index along the outer axes start, in source and target.
    fn outer(&self, mut number: usize) -> [usize; 2] {
        let mut at = [0, 0];
        for axis in self.outer.iter().rev() {
            let i = number % axis.sizes[1];
            number /= axis.sizes[1];
            at[0] += i * axis.strides[0];
            at[1] += i * axis.strides[1];
        }
        at
    }

    /// Computes rows of the result.
    ///
    /// # Safety
    /// The operands of the pass must lie at the addresses, and its scratch memory at `workspace`.
    unsafe fn rows(&self, [source, target, workspace]: [*mut u8; 3], range: Range<usize>) {
        let (source, width, slots) = (source.cast_const(), self.width(), self.blend.taps);
        self.scratch.with(workspace, |scratch| {
            let ring = scratch.cast::<f32>();
            // SAFETY: the scratch memory holds the ring, a row of the result and a row of the source, in this order.
            let (whole, packed) = unsafe { (ring.add(slots * width), ring.add((slots + 1) * width)) };
            let mut held: Vec<Option<(usize, usize)>> = vec![None; slots];
            let mut terms: Vec<Term> = vec![(std::ptr::null(), 0.0); slots];
            for number in range {
                let (group, row) = (number / self.blend.out, number % self.blend.out);
                let [from, to] = self.outer(group);
                for (k, term) in terms.iter_mut().enumerate() {
                    let (place, weight) = self.blend.tap(row, k);
                    let slot = place % slots;
                    // SAFETY: the caller's promise; the slot lies in the ring.
                    unsafe {
                        let kept = ring.add(slot * width);
                        if held[slot] != Some((group, place)) {
                            self.spread(source, from + place * self.down.strides[0], packed, kept);
                            held[slot] = Some((group, place));
                        }
                        *term = (kept.cast_const(), weight);
                    }
                }
                // SAFETY: as above; rows of the target are written by one thread each.
                unsafe { self.finish(&terms, target, to + row * self.down.strides[1], whole) };
            }
        });
    }

    /// Resamples one row of the source along the last axis.
    ///
    /// # Safety
    /// The row must be readable from element `at` of `source` on, `packed` hold one, and `to` a row of the result.
    unsafe fn spread(&self, source: *const u8, at: usize, packed: *mut f32, to: *mut f32) {
        let (size, dtype) = (self.dtypes[0].size(), self.dtypes[0]);
        let (count, stride) = (self.along.sizes[0], self.along.strides[0]);
        // SAFETY: the caller's promise.
        unsafe {
            let from = source.add(at * size);
            let row = match (dtype, stride == self.run) {
                (DType::Float32, true) => from.cast::<f32>(),
                (_, true) => {
                    convert::to_f32(dtype, from, packed, count * self.run);
                    packed.cast_const()
                }
                (_, false) => {
                    for i in 0..count {
                        convert::to_f32(dtype, from.add(i * stride * size), packed.add(i * self.run), self.run);
                    }
                    packed.cast_const()
                }
            };
            match (self.along.table.is_some(), self.run) {
                (false, _) => std::ptr::copy_nonoverlapping(row, to, self.width()),
                (true, 1) => elements(&self.spread, row, to),
                (true, _) => runs(&self.spread, self.run, row, to),
            }
        }
    }

    /// Blends rows of the ring into a row of the target.
    ///
    /// # Safety
    /// `terms` and `whole` must hold rows; the row must be writable from element `at` of `target` on.
    unsafe fn finish(&self, terms: &[Term], target: *mut u8, at: usize, whole: *mut f32) {
        let (size, dtype) = (self.dtypes[1].size(), self.dtypes[1]);
        let (width, stride) = (self.width(), self.along.strides[1]);
        // SAFETY: the caller's promise.
        unsafe {
            let to = target.add(at * size);
            let dense = stride == self.run || self.spread.out == 1;
            if dense && dtype == DType::Float32 {
                return blend(terms, to.cast(), width);
            }
            blend(terms, whole, width);
            if dense {
                return convert::from_f32(dtype, whole, to, width);
            }
            for i in 0..self.spread.out {
                convert::from_f32(dtype, whole.add(i * self.run), to.add(i * stride * size), self.run);
            }
        }
    }
}

/// A row, and its weight in a sum.
type Term = (*const f32, f32);

multiversion! {
    /// Sums `n` elements of rows, weighted.
    unsafe fn blend<V>(terms: &[Term], to: *mut f32, n: usize) {
        mix::<V>(terms, to, n)
    }
}

#[inline(always)]
unsafe fn mix<V: Vector>(terms: &[Term], to: *mut f32, n: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        match *terms {
            [(row, 1.0)] => std::ptr::copy_nonoverlapping(row, to, n),
            [a] => sum::<V>(&[a], to, n),
            // Of a known length, the loops over terms unroll.
            [a, b] => sum::<V>(&[a, b], to, n),
            [a, b, c, d] => sum::<V>(&[a, b, c, d], to, n),
            _ => sum::<V>(terms, to, n),
        }
    }
}

#[inline(always)]
unsafe fn sum<V: Vector>(terms: &[Term], to: *mut f32, n: usize) {
    let mut i = 0;
    // SAFETY: the caller's promise: rows and target hold `n` elements.
    unsafe {
        while i < n {
            let rest = n - i;
            let load = |row: *const f32| match rest >= V::LANES {
                true => V::load(row.add(i)),
                false => V::load_part(row.add(i), rest),
            };
            let mut sum = load(terms[0].0) * V::splat(terms[0].1);
            for &(row, weight) in &terms[1..] {
                sum = load(row).fma(V::splat(weight), sum);
            }
            match rest >= V::LANES {
                true => sum.store(to.add(i)),
                false => sum.store_part(to.add(i), rest),
            }
            i += V::LANES;
        }
    }
}

multiversion! {
    /// Resamples a row of single elements.
    unsafe fn elements<V>(table: &Table, from: *const f32, to: *mut f32) {
        let _ = V::LANES;
        let (places, weights) = (table.places.as_ptr(), table.weights.as_ptr());
        let n = table.out;
        let tap = |at: usize| *from.add(*places.add(at) as usize) * *weights.add(at);
        match table.taps {
            1 => (0..n).for_each(|i| to.add(i).write(tap(i))),
            2 => (0..n).for_each(|i| to.add(i).write(tap(i) + tap(n + i))),
            4 => (0..n).for_each(|i| to.add(i).write(tap(i) + tap(n + i) + (tap(2 * n + i) + tap(3 * n + i)))),
            taps => (0..n).for_each(|i| to.add(i).write((0..taps).map(|k| tap(k * n + i)).sum())),
        }
    }
}

multiversion! {
    /// Resamples a row of runs of neighbours.
    unsafe fn runs<V>(table: &Table, run: usize, from: *const f32, to: *mut f32) {
        let mut terms: Vec<Term> = vec![(std::ptr::null(), 0.0); table.taps];
        for i in 0..table.out {
            for (k, term) in terms.iter_mut().enumerate() {
                let (place, weight) = table.tap(i, k);
                *term = (from.add(place * run), weight);
            }
            mix::<V>(&terms, to.add(i * run), run);
        }
    }
}

impl Launcher for Weighted {
    fn launch(&mut self, call: &Call) -> Result<()> {
        let (between, last) = (self.between, self.passes.len() - 1);
        let call = Shared(call);
        for (i, pass) in self.passes.iter().enumerate() {
            parallel::over(pass.rows, pass.grain, |range| {
                let call = call.get();
                let buffer = |i: usize| call.workspace.wrapping_add(i % 2 * between);
                let source = if i == 0 {
                    call.inputs[0].cast_mut()
                } else {
                    buffer(i - 1)
                };
                let target = if i == last { call.outputs[0] } else { buffer(i) };
                let scratch = call.workspace.wrapping_add(2 * between);
                // SAFETY: the planner gives addresses that hold the operands of the request, and the workspace two of
                // the largest tensors between passes, then the scratch memory of one pass.
                unsafe { pass.rows([source, target, scratch], range) }
            })?;
        }
        Ok(())
    }
}
