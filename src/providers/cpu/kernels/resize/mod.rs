//! Resize: axis after axis, each a table of neighbours and weights that the op itself gives.

mod nearest;
mod table;
mod weighted;

use super::scope::{Scope, uniform_forms};
use super::{Answer, Why, operand_strides};
use crate::error::{Error, Result};
use crate::network::array::Array;
use crate::network::attr::{Attrs, Read};
use crate::network::dim::{Binding, Dim};
use crate::network::dtype::DType;
use crate::network::ops::resize::Resampling;
use crate::plan::layout::{Layout, Operand};
use crate::plan::{Form, Kernel, Prepared, Request};
use table::Table;

/// Resize in every layout that does not split a resampled axis.
pub fn offer(scope: &Scope) -> Answer {
    if scope.op() != "Resize" {
        return Ok(vec![]);
    }
    let (attrs, ty) = (&scope.layer().attrs, scope.output_type(0));
    if attrs.text("coordinate_transformation_mode") == "tf_crop_and_resize" {
        return Err(Why::new("tf_crop_and_resize fills in what lies outside of the input"));
    }
    let nearest = attrs.text("mode") == "nearest";
    if !nearest && (!ty.dtype.is_float() || ty.dtype == DType::Float64) {
        return Err(Why::new(format!("{} can't be interpolated in f32", ty.dtype)));
    }
    let keeps_ratio = attrs.text("keep_aspect_ratio_policy") != "stretch" && scope.input(3).is_some();
    let sizes = scope.value(3).filter(|_| keeps_ratio).map(<[_]>::to_vec);
    if keeps_ratio && sizes.is_none() {
        return Err(Why::new("the scale that keeps the aspect ratio depends on data"));
    }
    if scope.constant(2).is_none() && scope.input_type(2).is_some_and(|t| !t.elements().is(0)) {
        return Err(Why::new("the scales come with the call"));
    }
    let scales = scope.constant(2).map(Array::to_f64).filter(|s| !s.is_empty());
    let keeps_channels = ty.rank() >= 3 && keeps_channels(scope, scales.as_deref());
    let fits = |l: &Layout| *l == Layout::Plain || keeps_channels;
    let kernel = Resize {
        attrs: attrs.clone(),
        nearest,
        scales,
        sizes,
        layouts: Layout::ALL.into_iter().filter(fits).collect(),
    };
    Ok(vec![scope.alone(kernel, &[0])])
}

/// Whether channels stay what they are: a scale that is not 1 may move them even where there are as many after it.
fn keeps_channels(scope: &Scope, scales: Option<&[f64]>) -> bool {
    let ty = scope.output_type(0);
    let is_channels = |axis: &i64| ty.axis(*axis).is_ok_and(|a| a == 1);
    let named = match scope.layer().attrs.ints("axes") {
        [] => Some(1),
        axes => axes.iter().position(is_channels),
    };
    match (named, scales) {
        (None, _) => true,
        (Some(at), Some(scales)) => scales[at] == 1.0,
        (Some(_), None) => scope.input_type(0).is_some_and(|x| x.shape[1] == ty.shape[1]),
    }
}

struct Resize {
    attrs: Attrs,
    nearest: bool,
    scales: Option<Vec<f64>>,
    /// The sizes, where one scale follows from them.
    sizes: Option<Vec<Dim>>,
    layouts: Vec<Layout>,
}

impl Kernel for Resize {
    fn name(&self) -> String {
        "Resize".into()
    }

    fn identity(&self) -> String {
        format!("Resize {:?} {:?} {:?}", self.attrs, self.scales, self.sizes)
    }

    fn forms(&self) -> Vec<Form> {
        uniform_forms(&self.layouts, 1, 1)
    }

    fn takes_slices(&self, _form: &Form) -> (bool, bool) {
        (true, true)
    }

    fn prepare(&self, request: &Request) -> Result<Prepared> {
        let (from, to) = (&request.inputs[0], &request.outputs[0]);
        if from.elements() == 0 && to.elements() != 0 {
            return Err(Error::shape("an input without elements can't be resampled").got(format!("{:?}", from.shape)));
        }
        let axes = self.axes(from, to, request.binding)?;
        Ok(match self.nearest {
            true => nearest::instance(axes, to.dtype.size()),
            false => weighted::instance(axes, to.dtype, request.threads),
        })
    }
}

/// One axis in the order of memory.
#[derive(Clone)]
struct Axis {
    /// Extents, and element strides, in source and target.
    sizes: [usize; 2],
    strides: [usize; 2],
    /// How it is resampled; none where it is not.
    table: Option<Table>,
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
            roi: None,
            scales: self.scales.clone(),
            sizes: sizes.transpose()?,
        };
        let mut tables = vec![None; to.shape.len()];
        if to.elements() > 0 {
            for (axis, taps) in resampling.taps()? {
                tables[axis] = Some(Table::new(&taps)?).filter(|t| !t.is_identity(from.shape[axis]));
            }
        }
        let layout = to.layout;
        let (sizes, to_sizes) = (
            operand_strides::space(&from.shape, layout),
            operand_strides::space(&to.shape, layout),
        );
        let strides = operand_strides::strides(from, &from.shape, layout)?;
        let to_strides = operand_strides::strides(to, &to.shape, layout)?;
        let place = |axis: usize| match (layout, axis) {
            (Layout::ChannelsLast, 1) => sizes.len() - 1,
            (Layout::ChannelsLast, 2..) => axis - 1,
            _ => axis,
        };
        let axis = |i: usize| Axis {
            sizes: [sizes[i], to_sizes[i]],
            strides: [strides[i], to_strides[i]],
            table: None,
        };
        let mut axes: Vec<Axis> = (0..sizes.len()).map(axis).collect();
        for (axis, table) in tables.into_iter().enumerate() {
            axes[place(axis)].table = table;
        }
        Ok(axes)
    }
}

#[cfg(test)]
mod tests;
