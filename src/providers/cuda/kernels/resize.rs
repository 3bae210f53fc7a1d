//! Resize: along each axis a table of neighbours and weights that the op itself gives.

use super::launch::fields;
use super::parts::ordered;
use super::pointwise::code::element;
use super::words::{bits, divisor, pack};
use super::{Answer, Gpu};
use crate::device::Memory;
use crate::error::{Error, Result};
use crate::network::array::Array;
use crate::network::attr::{Attrs, Read};
use crate::network::dim::{Binding, Dim};
use crate::network::dtype::DType;
use crate::network::ops::resize::{Resampling, Weights};
use crate::plan::layout::{Layout, Operand};
use crate::plan::{Call, Form, Instance, Kernel, Launcher, Prepared, Request};
use crate::providers::common::Why;
use crate::providers::common::operand_strides::axes;
use crate::providers::common::scope::{Scope, uniform_forms};
use crate::providers::cuda::compile::{EntryPoint, compiled_then};
use crate::providers::cuda::device::{Arguments, DeviceMemory, Grid};
use std::sync::Arc;

const SOURCE: &str = include_str!("../../../../kernels/resize.cu");
/// Threads of a block.
const THREADS: u32 = 256;

/// Resize in both layouts, of every dtype where elements are taken as they are.
pub fn offer(scope: &Scope, gpu: &Arc<Gpu>) -> Answer {
    if scope.op() != "Resize" {
        return Ok(vec![]);
    }
    let (attrs, ty) = (&scope.layer().attrs, scope.output_type(0));
    let nearest = attrs.text("mode") == "nearest";
    if !nearest && !ty.dtype.is_float() {
        return Err(Why::new(format!("{} is not interpolated", ty.dtype)));
    }
    let given = |index: usize| scope.input_type(index).is_some_and(|t| !t.elements().is(0));
    let numbers = |index: usize| scope.constant(index).map(Array::to_f64).filter(|list| !list.is_empty());
    let crops = attrs.text("coordinate_transformation_mode") == "tf_crop_and_resize";
    if crops && given(1) && scope.constant(1).is_none() {
        return Err(Why::new("the region of interest comes with the call"));
    }
    if given(2) && scope.constant(2).is_none() {
        return Err(Why::new("the scales come with the call"));
    }
    let keeps_ratio = attrs.text("keep_aspect_ratio_policy") != "stretch" && scope.input(3).is_some();
    let sizes = scope.value(3).filter(|_| keeps_ratio).map(<[_]>::to_vec);
    if keeps_ratio && sizes.is_none() {
        return Err(Why::new("the scale that keeps the aspect ratio depends on data"));
    }
    let layouts = [Layout::Plain, Layout::ChannelsLast].into_iter();
    let kernel = Resize {
        attrs: attrs.clone(),
        nearest,
        region: numbers(1).filter(|_| crops),
        scales: numbers(2),
        sizes,
        layouts: layouts.filter(|layout| layout.fits(ty.rank())).collect(),
        gpu: gpu.clone(),
    };
    Ok(vec![scope.alone(kernel, &[0])])
}

struct Resize {
    attrs: Attrs,
    nearest: bool,
    region: Option<Vec<f64>>,
    scales: Option<Vec<f64>>,
    /// The sizes, where one scale follows from them.
    sizes: Option<Vec<Dim>>,
    layouts: Vec<Layout>,
    gpu: Arc<Gpu>,
}

/// One axis; strides in elements.
#[derive(Debug, Clone, PartialEq)]
struct Axis {
    /// Extents in source and target.
    sizes: [usize; 2],
    /// Strides in source and target.
    strides: [usize; 2],
    /// The neighbours of each element, as many for each; none where the axis stays as it is.
    table: Option<Vec<Vec<(i32, f64)>>>,
}

/// The table of what the op gives, unless it leaves an axis of this extent as it is.
fn table(elements: Vec<Option<Weights>>, extent: usize) -> Option<Vec<Vec<(i32, f64)>>> {
    let of = |element: Option<Weights>| -> Vec<(i32, f64)> {
        let Some(all) = element else { return vec![(-1, 0.0)] };
        let weighty = all.iter().filter(|(_, weight)| *weight != 0.0);
        let taps: Vec<_> = weighty.map(|&(place, weight)| (place as i32, weight)).collect();
        if taps.is_empty() { vec![(0, 0.0)] } else { taps }
    };
    let mut table: Vec<_> = elements.into_iter().map(of).collect();
    let same = |(i, taps): (usize, &Vec<(i32, f64)>)| *taps == [(i as i32, 1.0)];
    if table.len() == extent && table.iter().enumerate().all(same) {
        return None;
    }
    let most = table.iter().map(Vec::len).max().unwrap_or(1);
    for taps in &mut table {
        let filler = (taps[0].0, 0.0);
        taps.resize(most, filler);
    }
    Some(table)
}

/// Axes in the order of memory, as few as they can be; the elements of the last one lie side by side in the target.
fn joined(axes: Vec<Axis>) -> Vec<Axis> {
    let mut found: Vec<Axis> = vec![];
    for axis in axes.into_iter().rev() {
        if axis.table.is_none() && axis.sizes == [1, 1] {
            continue;
        }
        let joins = |inner: &Axis| {
            let even = |side: usize| axis.strides[side] == inner.strides[side] * inner.sizes[side];
            axis.table.is_none() && inner.table.is_none() && even(0) && even(1)
        };
        match found.last_mut().filter(|inner| joins(inner)) {
            Some(inner) => (0..2).for_each(|side| inner.sizes[side] *= axis.sizes[side]),
            None => found.push(axis),
        }
    }
    found.reverse();
    if found
        .last()
        .is_none_or(|last| last.table.is_none() && last.strides != [1, 1])
    {
        found.push(Axis {
            sizes: [1, 1],
            strides: [1, 1],
            table: None,
        });
    }
    found
}

impl Kernel for Resize {
    fn name(&self) -> String {
        "Resize".into()
    }

    fn identity(&self) -> String {
        format!(
            "Resize {:?} {:?} {:?} {:?}",
            self.attrs, self.region, self.scales, self.sizes
        )
    }

    fn forms(&self) -> Vec<Form> {
        uniform_forms(&self.layouts, 1, 1)
    }

    fn takes_slices(&self, _form: &Form) -> (bool, bool) {
        (true, true)
    }

    fn prepare(&self, request: &Request) -> Result<Prepared> {
        let (from, to) = (&request.inputs[0], &request.outputs[0]);
        if from.is_empty() {
            return Err(Error::shape("an input without elements can't be resampled").got(format!("{:?}", from.shape)));
        }
        let axes = joined(self.axes(from, to, request.binding)?);
        let count = axes.len();
        let last = &axes[count - 1];
        let outer = axes[..count - 1].iter().map(|axis| axis.strides[1]);
        let taken = match &last.table {
            Some(_) => 1,
            None => pack(to.dtype.size(), outer.chain([last.sizes[1]])),
        };
        let items = to.elements() / taken;
        let (words, taps) = words(&axes, taken, items);
        let function = self
            .gpu
            .compiler
            .entry(&self.source(to.dtype, taken, count), "resampling", 0);
        let outside = Array::scalar(to.dtype, self.attrs.float("extrapolation_value"));
        let mut word = [0; 8];
        word[..outside.bytes().len()].copy_from_slice(outside.bytes());
        let (grid, words, taps) = (
            Grid::over(items, THREADS)?,
            fields(words)?,
            bytes(&taps, self.wide(to.dtype)),
        );
        let how = format!("tables of neighbours, {taken} elements a thread");
        let gpu = self.gpu.clone();
        Ok(compiled_then([function.clone()], move || {
            let launcher = Resampled {
                function,
                grid,
                words,
                taps: gpu.device.upload(&taps)?,
                outside: i64::from_le_bytes(word),
            };
            Ok(Instance::new(how, launcher))
        }))
    }
}

impl Resize {
    /// The axes in the order of memory.
    fn axes(&self, from: &Operand, to: &Operand, binding: &Binding) -> Result<Vec<Axis>> {
        let sizes = self.sizes.as_ref().map(|dims| {
            let sizes = dims.iter().map(|d| d.eval(binding).map(|size| size as f64));
            sizes.collect::<Result<Vec<_>>>()
        });
        let resampling = Resampling {
            attrs: &self.attrs,
            shape: &from.shape,
            out: &to.shape,
            roi: self.region.clone(),
            scales: self.scales.clone(),
            sizes: sizes.transpose()?,
        };
        let (read, written) = (axes(from).strides, axes(to).strides);
        let axis = |a: usize| Axis {
            sizes: [from.shape[a], to.shape[a]],
            strides: [read[a], written[a]],
            table: None,
        };
        let mut all: Vec<Axis> = (0..to.shape.len()).map(axis).collect();
        for (axis, taps) in resampling.taps()? {
            all[axis].table = table(taps, from.shape[axis]);
        }
        let order = ordered(&(0..all.len()).collect::<Vec<_>>(), to.layout);
        Ok(order.into_iter().map(|axis| all[axis].clone()).collect())
    }

    /// Whether weights have 64 bits.
    fn wide(&self, dtype: DType) -> bool {
        !self.nearest && dtype == DType::Float64
    }

    fn source(&self, dtype: DType, pack: usize, axes: usize) -> String {
        let weight = if self.wide(dtype) { "double" } else { "float" };
        let (ty, call) = if self.nearest {
            (bits(dtype), format!("nearest<{}, {pack}, {axes}>", bits(dtype)))
        } else {
            let ty = element(dtype).unwrap_or("float");
            (ty, format!("weighted<{ty}, {pack}, {axes}, {weight}>"))
        };
        format!(
            "{SOURCE}\nextern \"C\" __global__ void __launch_bounds__({THREADS}) resampling({ty}* y, const {ty}* x, \
             const Tap<{weight}>* taps, {ty} outside, const __grid_constant__ Resampling<{axes}> shape) {{\n    \
             {call}(y, x, taps, outside, shape);\n}}\n"
        )
    }
}

/// `Resampling` of `resize.cu`, for packs of so many elements, and all tables one after another.
fn words(axes: &[Axis], pack: usize, items: usize) -> (Vec<i64>, Vec<(i32, f64)>) {
    let (mut words, mut taps) = (vec![items as i64], vec![]);
    for (i, axis) in axes.iter().enumerate() {
        let packs = if i + 1 == axes.len() { pack } else { 1 };
        words.extend(divisor(axis.sizes[1] / packs));
        words.extend([axis.strides[1] as i64, axis.strides[0] as i64, taps.len() as i64]);
        let table = axis.table.as_deref().unwrap_or_default();
        words.push(table.first().map_or(0, Vec::len) as i64);
        taps.extend(table.iter().flatten());
    }
    (words, taps)
}

/// `Tap`s of `resize.cu`.
fn bytes(taps: &[(i32, f64)], wide: bool) -> Vec<u8> {
    let one = |&(place, weight): &(i32, f64)| match wide {
        true => [i64::from(place).to_le_bytes(), weight.to_le_bytes()].concat(),
        false => [place.to_le_bytes(), (weight as f32).to_le_bytes()].concat(),
    };
    taps.iter().flat_map(one).collect()
}

struct Resampled {
    function: EntryPoint,
    grid: Grid,
    words: Vec<i32>,
    taps: DeviceMemory,
    /// What lies outside of the source: an element, in the lower bytes.
    outside: i64,
}

impl Launcher for Resampled {
    fn launch(&mut self, call: &Call) -> Result<()> {
        let mut arguments = Arguments::of(call);
        arguments
            .address(self.taps.address())
            .number(self.outside)
            .fields(&self.words);
        // SAFETY: these are the parameters that the source declares, for operands that the planner vouches for; the tables
        // live as long as the instance.
        unsafe { self.function.launch(self.grid, &arguments, call.stream) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stays_as_it_is_has_no_table() {
        let same = vec![Some(vec![(0, 1.0)]), Some(vec![(1, 1.0), (2, 0.0)])];
        assert_eq!(table(same.clone(), 2), None);
        let kept = table(same, 3).unwrap();
        assert_eq!(kept, [[(0, 1.0)], [(1, 1.0)]]);
        let outside = table(vec![None, Some(vec![(0, 0.5), (1, 0.5)])], 2).unwrap();
        assert_eq!(outside, [[(-1, 0.0), (-1, 0.0)], [(0, 0.5), (1, 0.5)]]);
    }

    #[test]
    fn neighbouring_axes_without_tables_are_one() {
        let axis = |sizes, strides, table: bool| Axis {
            sizes,
            strides,
            table: table.then(|| vec![vec![(0, 1.0)]; 4]),
        };
        let planes = vec![
            axis([2, 2], [12, 24], false),
            axis([3, 3], [4, 8], false),
            axis([2, 4], [2, 2], true),
            axis([2, 2], [1, 1], false),
        ];
        let few = joined(planes.clone());
        assert_eq!(few.len(), 3);
        assert_eq!((few[0].sizes, few[0].strides), ([6, 6], [4, 8]));
        let (words, taps) = words(&few, 2, 24);
        assert_eq!((words.len(), taps.len()), (1 + 3 * 7, 4));
        assert_eq!(words[8..15], [&divisor(4)[..], &[2, 2, 0, 1]].concat());
    }
}
