//! Attention of one head for some of its queries: keys in blocks, with a running greatest score and sum.

use super::product::{Matrix, PANEL, Panels, product};
use crate::network::dtype::DType;
use crate::providers::cpu::kernels::transpose_tile::transpose_tile;
use crate::providers::cpu::simd::{Vector, convert, map1, map2, math, multiversion};

/// Queries whose scores are worked on together; they stay in the first-level cache.
pub const QUERIES: usize = 24;
/// The most keys of a block.
pub const KEYS: usize = 256;
/// No vector is longer; rows of scratch memory are multiples of it.
pub const LANES: usize = 16;

/// Rows of numbers in memory.
#[derive(Clone, Copy)]
pub struct Rows {
    /// The first element of the first row.
    pub at: *const u8,
    /// The element type.
    pub dtype: DType,
    /// Elements from one row to the next, and within a row.
    pub steps: [usize; 2],
}

impl Rows {
    /// Row `i` from element `j` on.
    #[inline(always)]
    pub unsafe fn place(&self, i: usize, j: usize) -> *const u8 {
        // SAFETY: the caller's promise.
        unsafe { self.at.add((i * self.steps[0] + j * self.steps[1]) * self.dtype.size()) }
    }

    /// `n` elements of row `i` from element `j` on, as f32.
    #[inline(always)]
    unsafe fn read(&self, i: usize, j: usize, n: usize, to: *mut f32) {
        // SAFETY: the caller's promise.
        unsafe {
            match self.steps[1] {
                1 => convert::to_f32(self.dtype, self.place(i, j), to, n),
                _ => (0..n).for_each(|c| convert::to_f32(self.dtype, self.place(i, j + c), to.add(c), 1)),
            }
        }
    }
}

/// What all heads have in common.
#[derive(Debug, Clone, Copy)]
pub struct Rule {
    /// What scores are multiplied by.
    pub scale: f32,
    /// Where scores are capped; 0 for nowhere.
    pub softcap: f32,
    /// Whether a query sees no key behind its own place.
    pub causal: bool,
    /// Whether a query that sees no key gives NaN, not zeros.
    pub nan_if_blind: bool,
}

/// One head, some of its queries.
#[derive(Clone, Copy)]
pub struct Task {
    /// What all have in common.
    pub rule: Rule,
    /// Queries: the first of them, and how many.
    pub queries: [usize; 2],
    /// How many keys.
    pub keys: usize,
    /// The size of queries and keys, and of values.
    pub sizes: [usize; 2],
    /// Queries, keys, values.
    pub q: Rows,
    /// Keys.
    pub k: Rows,
    /// Values.
    pub v: Rows,
    /// What is added to scores, or which scores count, if anything.
    pub mask: Option<Rows>,
    /// The result.
    pub y: *mut u8,
    /// Its elements from one query to the next, and within.
    pub y_steps: [usize; 2],
}

/// Scratch memory of a task.
struct Scratch {
    q: *mut f32,
    y: *mut f32,
    k: *mut f32,
    v: *mut f32,
    scores: *mut f32,
    /// The greatest score of each query so far, and the sum of its weights.
    greatest: *mut f32,
    sums: *mut f32,
    line: *mut f32,
}

/// Elements of scratch memory that a task of so many queries needs, by part.
fn parts(queries: usize, [size, v_size]: [usize; 2]) -> [usize; 8] {
    let wide = v_size.next_multiple_of(LANES);
    let line = KEYS.max(LANES * size).max(wide);
    [
        queries * size,
        queries * wide,
        size * KEYS,
        KEYS * wide.next_multiple_of(PANEL),
        QUERIES * KEYS,
        queries,
        queries,
        line,
    ]
    .map(|n| n.next_multiple_of(LANES))
}

/// Bytes of scratch memory that a task of so many queries needs.
pub fn scratch_bytes(queries: usize, sizes: [usize; 2]) -> usize {
    parts(queries, sizes).iter().sum::<usize>() * 4
}

impl Scratch {
    unsafe fn new(at: *mut f32, queries: usize, sizes: [usize; 2]) -> Self {
        let mut at = at;
        let [q, y, k, v, scores, greatest, sums, line] = parts(queries, sizes).map(|n| {
            let part = at;
            // SAFETY: the scratch memory has room for all parts.
            at = unsafe { at.add(n) };
            part
        });
        Self {
            q,
            y,
            k,
            v,
            scores,
            greatest,
            sums,
            line,
        }
    }
}

multiversion! {
    /// Runs a task with scratch memory of [`scratch_bytes`].
    pub unsafe fn attend<V>(task: &Task, scratch: *mut f32) {
        let scratch = Scratch::new(scratch, task.queries[1], task.sizes);
        let [first, count] = task.queries;
        let [size, v_size] = task.sizes;
        let wide = v_size.next_multiple_of(LANES);
        let scale = V::splat(task.rule.scale);
        for i in 0..count {
            let row = scratch.q.add(i * size);
            task.q.read(first + i, 0, size, row);
            map1!(V, size, row, row, |x| x * scale);
            *scratch.greatest.add(i) = f32::NEG_INFINITY;
            *scratch.sums.add(i) = 0.0;
        }
        scratch.y.write_bytes(0, count * wide);
        let seen = if task.rule.causal { task.keys.min(first + count) } else { task.keys };
        let blocks = seen.div_ceil(KEYS).max(1);
        let step = seen.div_ceil(blocks).next_multiple_of(LANES);
        let mut start = 0;
        while start < seen {
            let keys = step.min(seen - start);
            let values = pack(task, &scratch, start, keys);
            let mut i = 0;
            while i < count {
                let rows = QUERIES.min(count - i);
                block::<V>(task, &scratch, [i, rows], [start, keys], values);
                i += rows;
            }
            start += keys;
        }
        finish::<V>(task, &scratch);
    }
}

/// Turns a block of keys, so that each vector has many keys; gives the values, copied where they would be slow to read.
unsafe fn pack(task: &Task, scratch: &Scratch, start: usize, keys: usize) -> Panels {
    let [size, v_size] = task.sizes;
    // SAFETY: the task's promise; the scratch memory holds KEYS keys and values.
    unsafe {
        for first in (0..keys).step_by(PANEL) {
            let (key, count) = (start + first, PANEL.min(keys - first));
            let to = scratch.k.add(first * size);
            if task.k.steps[0] == 1 {
                let turned = Rows {
                    steps: [task.k.steps[1], 1],
                    ..task.k
                };
                (0..size).for_each(|d| turned.read(d, key, count, to.add(d * PANEL)));
            } else {
                (0..count).step_by(LANES).for_each(|i| {
                    turn(&task.k, [key + i, LANES.min(count - i)], size, scratch.line, to.add(i));
                });
            }
        }
        if reads_well(&task.v, task.queries[1], v_size) {
            return Panels {
                at: task.v.place(start, 0).cast(),
                step: task.v.steps[0],
                panel: PANEL,
            };
        }
        let wide = v_size.next_multiple_of(LANES);
        let step = wide.min(PANEL);
        for key in 0..keys {
            for d in (0..wide).step_by(PANEL) {
                let (row, count) = (scratch.v.add(d * KEYS + key * step), PANEL.min(v_size - d));
                task.v.read(start + key, d, count, row);
                row.add(count).write_bytes(0, step.min(wide - d) - count);
            }
        }
        Panels {
            at: scratch.v,
            step,
            panel: KEYS * PANEL,
        }
    }
}

/// Whether values are whole vectors of f32, and their rows, where they are read often, do not all want the same few
/// lines of the first-level cache.
fn reads_well(v: &Rows, queries: usize, v_size: usize) -> bool {
    let collides = v.steps[0].is_multiple_of(256) && queries > 2 * QUERIES;
    v.dtype == DType::Float32 && v.steps[1] == 1 && v_size.is_multiple_of(LANES) && !collides
}

/// Up to [`LANES`] keys as columns of a panel.
unsafe fn turn(k: &Rows, [key, count]: [usize; 2], size: usize, line: *mut f32, to: *mut f32) {
    // SAFETY: the caller's promise; the line holds LANES keys.
    unsafe {
        let (from, step) = if k.dtype == DType::Float32 && k.steps[1] == 1 {
            (k.place(key, 0), k.steps[0])
        } else {
            (0..count).for_each(|i| k.read(key + i, 0, size, line.add(i * size)));
            (line.cast_const().cast(), size)
        };
        for d in (0..size).step_by(LANES) {
            let extent = (LANES.min(size - d), count);
            let to = to.add(d * PANEL).cast();
            transpose_tile(4, extent, from.add(d * 4), step as isize, to, PANEL as isize);
        }
    }
}

/// Some queries and a block of keys.
#[inline(always)]
unsafe fn block<V: Vector>(
    task: &Task,
    scratch: &Scratch,
    [first, rows]: [usize; 2],
    [start, keys]: [usize; 2],
    values: Panels,
) {
    let [size, v_size] = task.sizes;
    let wide = v_size.next_multiple_of(LANES);
    let place = task.queries[0] + first;
    // The keys that the last of these queries sees.
    let keys = if task.rule.causal {
        keys.min((place + rows).saturating_sub(start))
    } else {
        keys
    };
    // SAFETY: the task's promise; the scratch memory holds QUERIES rows of KEYS scores.
    unsafe {
        let q = Matrix {
            at: scratch.q.add(first * size).cast_const(),
            step: size,
        };
        let k = Panels {
            at: scratch.k,
            step: PANEL,
            panel: size * PANEL,
        };
        let scores = Matrix {
            at: scratch.scores,
            step: KEYS,
        };
        product::<V>([rows, size, keys], q, k, scores, false);
        for i in 0..rows {
            let row = scratch.scores.add(i * KEYS);
            score::<V>(task, row, place + i, [start, keys], scratch.line);
            let y = scratch.y.add((first + i) * wide);
            let (greatest, sum) = (&mut *scratch.greatest.add(first + i), &mut *scratch.sums.add(first + i));
            weigh::<V>(row, keys, greatest, sum, y, wide);
        }
        let weights = Matrix {
            at: scratch.scores.cast_const(),
            step: KEYS,
        };
        let y = Matrix {
            at: scratch.y.add(first * wide),
            step: wide,
        };
        product::<V>([rows, keys, v_size], weights, values, y, true);
    }
}

/// Caps and masks the scores of one query.
#[inline(always)]
unsafe fn score<V: Vector>(task: &Task, row: *mut f32, query: usize, [start, keys]: [usize; 2], line: *mut f32) {
    let hidden = V::splat(f32::NEG_INFINITY);
    // SAFETY: the row holds the scores, and the line KEYS numbers.
    unsafe {
        if task.rule.softcap != 0.0 {
            let (cap, over) = (V::splat(task.rule.softcap), V::splat(1.0 / task.rule.softcap));
            map1!(V, keys, row, row, |x| cap * math::tanh(x * over));
        }
        if let Some(mask) = &task.mask {
            let direct = mask.dtype == DType::Float32 && mask.steps[1] == 1;
            let numbers = match (direct, mask.steps[1]) {
                (true, _) => mask.place(query, start).cast(),
                (_, 0) => {
                    mask.read(query, start, 1, line);
                    let one = V::splat(*line);
                    map1!(V, keys, line, line, |_x| one);
                    line.cast_const()
                }
                _ => {
                    mask.read(query, start, keys, line);
                    line.cast_const()
                }
            };
            if mask.dtype == DType::Bool {
                map2!(V, keys, row, numbers, row, |x, m| V::select(
                    m.eq(V::splat(0.0)),
                    hidden,
                    x
                ));
            } else {
                map2!(V, keys, row, numbers, row, |x, m| x + m);
            }
        }
        if task.rule.causal {
            let seen = (query + 1).saturating_sub(start).min(keys);
            (seen..keys).for_each(|key| *row.add(key) = f32::NEG_INFINITY);
        }
    }
}

/// e^x for an x that is not above 0, to 3 units of the last place near 0 and a few more far below, where weights are
/// small; 0 where it would not be a normal number, which are slow to multiply.
#[inline(always)]
fn weight<V: Vector>(x: V) -> V {
    let t = x * V::splat(std::f32::consts::LOG2_E);
    let n = t.round();
    let f = t - n;
    let mut p = V::splat(POWERS_OF_TWO[0]);
    for c in &POWERS_OF_TWO[1..] {
        p = p.fma(f, V::splat(*c));
    }
    V::select(x.lt(V::splat(LEAST)), V::splat(0.0), p.scale(n))
}

/// 2^f for -0.5 <= f <= 0.5, to 1e-7: the best polynomial that touches it in 0.
const POWERS_OF_TWO: [f32; 6] = [
    0.001_330_060_7,
    0.009_669_691,
    0.055_505_585,
    0.240_222_83,
    std::f32::consts::LN_2,
    1.0,
];
/// The logarithm of the least normal number, rounded up.
const LEAST: f32 = -87.0;

/// Scores to weights; what was summed before shrinks where a greater score came.
#[inline(always)]
unsafe fn weigh<V: Vector>(row: *mut f32, keys: usize, greatest: &mut f32, sum: &mut f32, y: *mut f32, wide: usize) {
    // SAFETY: the row holds the scores, and `y` a result.
    unsafe {
        let most = most::<V>(row, keys).max(*greatest);
        // A query that sees nothing so far has weights of zero, not NaN.
        let base = if most == f32::NEG_INFINITY { 0.0 } else { most };
        let shift = V::splat(base);
        let mut total = V::splat(0.0);
        let mut i = 0;
        while i + V::LANES <= keys {
            let w = weight(V::load(row.add(i)) - shift);
            w.store(row.add(i));
            total = total + w;
            i += V::LANES;
        }
        let mut lanes = [0f32; LANES];
        total.store(lanes.as_mut_ptr());
        let mut total: f32 = lanes.iter().sum();
        if i < keys {
            weight(V::load_part(row.add(i), keys - i) - shift).store_part(row.add(i), keys - i);
            total += (i..keys).map(|i| *row.add(i)).sum::<f32>();
        }
        if most > *greatest && *greatest != f32::NEG_INFINITY {
            let shrink = (*greatest - base).exp();
            *sum *= shrink;
            let shrink = V::splat(shrink);
            map1!(V, wide, y, y, |v| v * shrink);
        }
        *sum += total;
        *greatest = most;
    }
}

/// The greatest of some numbers.
#[inline(always)]
unsafe fn most<V: Vector>(row: *const f32, n: usize) -> f32 {
    let mut lanes = [f32::NEG_INFINITY; LANES];
    let [mut even, mut odd] = [V::splat(f32::NEG_INFINITY); 2];
    let mut i = 0;
    // SAFETY: the indices stay below `n`.
    unsafe {
        while i + 2 * V::LANES <= n {
            even = V::load(row.add(i)).max(even);
            odd = V::load(row.add(i + V::LANES)).max(odd);
            i += 2 * V::LANES;
        }
        if i + V::LANES <= n {
            even = V::load(row.add(i)).max(even);
            i += V::LANES;
        }
        even.max(odd).store(lanes.as_mut_ptr());
        (i..n).fold(lanes.into_iter().fold(f32::NEG_INFINITY, f32::max), |m, i| {
            m.max(*row.add(i))
        })
    }
}

/// Divides by the sums of weights, and stores.
#[inline(always)]
unsafe fn finish<V: Vector>(task: &Task, scratch: &Scratch) {
    let v_size = task.sizes[1];
    let wide = v_size.next_multiple_of(LANES);
    for i in 0..task.queries[1] {
        // SAFETY: the task's promise.
        unsafe {
            let (row, sum) = (scratch.y.add(i * wide), *scratch.sums.add(i));
            if sum == 0.0 {
                // Of no keys at all a sum over nothing is left, which is 0.
                let nan = task.rule.nan_if_blind && task.keys > 0;
                let blind = if nan { f32::NAN } else { 0.0 };
                (0..v_size).for_each(|d| *row.add(d) = blind);
            } else {
                let factor = V::splat(1.0 / sum);
                map1!(V, v_size, row, row, |v| v * factor);
            }
            let dtype = task.q.dtype;
            let to = task.y.add((task.queries[0] + i) * task.y_steps[0] * dtype.size());
            match task.y_steps[1] {
                1 => convert::from_f32(dtype, row, to, v_size),
                step => {
                    (0..v_size).for_each(|d| convert::from_f32(dtype, row.add(d), to.add(d * step * dtype.size()), 1))
                }
            }
        }
    }
}
