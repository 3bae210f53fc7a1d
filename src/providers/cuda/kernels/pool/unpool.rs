//! MaxUnpool.

use super::{AXES, THREADS, numbers};
use crate::error::{Error, Result};
use crate::network::attr::{Attr, Attrs};
use crate::network::ops::{pool, strides};
use crate::plan::layout::Layout;
use crate::plan::{Prepared, Request};
use crate::providers::common::Why;
use crate::providers::common::scope::{Scope, uniform_forms};
use crate::providers::cuda::device::Grid;
use crate::providers::cuda::kernels::launch::{DeviceCheck, KernelLaunch, Launches, fields, sourced};
use crate::providers::cuda::kernels::packs::entry;
use crate::providers::cuda::kernels::pointwise::code::element;
use crate::providers::cuda::kernels::{Answer, Gpu};
use std::sync::Arc;

const SOURCE: &str = include_str!("../../../../../kernels/unpool.cu");

/// MaxUnpool in the plain layout.
pub fn offer(scope: &Scope, gpu: &Arc<Gpu>) -> Answer {
    let out = scope.output_type(0);
    let Some(ty) = element(out.dtype) else {
        return Err(Why::new(format!("there is no pooling of {}", out.dtype)));
    };
    if out.rank() > AXES + 2 {
        return Err(Why::new("there are more than three spatial axes"));
    }
    let unpool = Unpool {
        ty,
        attrs: scope.layer().attrs.clone(),
        given: scope.input(2).is_some(),
    };
    let identity = format!("{:?}", unpool.attrs);
    let make = move |gpu: &Gpu, request: &Request| unpool.instance(gpu, request);
    let kernel = sourced(scope.op(), &identity, uniform_forms(&[Layout::Plain], 2, 1), gpu, make);
    Ok(vec![scope.alone(kernel, &[0, 1])])
}

struct Unpool {
    /// The element type.
    ty: &'static str,
    attrs: Attrs,
    /// Whether the shape of the result is given, over which the indices do not count then.
    given: bool,
}

impl Unpool {
    fn instance(&self, gpu: &Gpu, request: &Request) -> Result<Prepared> {
        let (x, out) = (&request.inputs[0], request.outputs[0].shape.clone());
        let counted = if self.given {
            pooled(&self.attrs, &x.shape)?
        } else {
            out.clone()
        };
        let results: usize = out.iter().product();
        let mut words = [x.elements(), results, out.len()].map(|n| n as i64).to_vec();
        for (list, filler) in [(&counted, 1), (&out, 1), (&strides(&counted), 1), (&strides(&out), 0)] {
            words.extend(
                numbers(list)
                    .into_iter()
                    .chain(std::iter::repeat_n(filler, AXES + 2 - list.len())),
            );
        }
        let words = fields(words)?;
        let ty = self.ty;
        let launch = |name: &str, body: &str, items: usize| -> Result<KernelLaunch> {
            let parameters =
                format!("{ty}* y, const {ty}* x, const int64* indices, int32* owners, const Unpool s, int64* flag");
            let source = entry(&[SOURCE], name, THREADS, &parameters, body);
            Ok(KernelLaunch::new(
                gpu.compiler.entry(&source, name, 0),
                Grid::over(items, THREADS)?,
                words.clone(),
            ))
        };
        let mut launches = vec![launch("clear", "unpool_clear(owners, s);", results)?];
        if !x.is_empty() {
            launches.push(launch(
                "claim",
                "unpool_claim(owners, indices, s, flag);",
                x.elements(),
            )?);
        }
        launches.push(launch("give", "unpool_give(y, x, owners, s);", results)?);
        let meaning = move |index: i64| {
            Error::shape("an index is out of range")
                .expected(format!("a place in {counted:?} that is in {out:?} too"))
                .got(index.to_string())
        };
        Ok(Prepared::from(Launches {
            launches,
            workspace: results * size_of::<i32>(),
            device_check: Some(DeviceCheck {
                flag: gpu.device.flag()?,
                meaning: Box::new(meaning),
            }),
            how: "the last element of each place".into(),
        }))
    }
}

/// The shape that was pooled.
fn pooled(attrs: &Attrs, x: &[usize]) -> Result<Vec<usize>> {
    let mut attrs = attrs.clone();
    attrs.insert("auto_pad".into(), Attr::Text("NOTSET".into()));
    attrs.insert("dilations".into(), Attr::Ints(vec![]));
    let window = pool::window(&attrs)?;
    let mut shape = x.to_vec();
    for (axis, size) in shape[2..].iter_mut().enumerate() {
        let pads = window.begin[axis] + window.end[axis];
        let extent = (*size as i64 - 1) * window.strides[axis] + window.kernel[axis] - pads;
        *size = usize::try_from(extent).unwrap_or(0);
    }
    Ok(shape)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::attr::attrs;

    #[test]
    fn the_indices_count_over_what_was_pooled() {
        let ints = |name, list: &[i64]| (name, Attr::Ints(list.to_vec()));
        let given = [
            ints("kernel_shape", &[3, 2]),
            ints("strides", &[2, 2]),
            ints("pads", &[1, 0, 1, 0]),
        ];
        assert_eq!(pooled(&attrs(given), &[1, 2, 4, 5]).unwrap(), [1, 2, 7, 10]);
    }
}
