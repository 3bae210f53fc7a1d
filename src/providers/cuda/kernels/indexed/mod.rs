//! Gather and scatter: runs of elements that indices name, read or written.

mod gather;
mod runs;
mod scatter;

use super::launch::DeviceCheck;
use super::{Answer, Gpu};
use crate::error::{Error, Result};
use crate::network::attr::Read;
use crate::network::dtype::DType;
use crate::network::ops::indexing;
use crate::providers::common::Why;
use crate::providers::common::indexed::Rule;
use crate::providers::common::scope::Scope;
use runs::Runs;
use std::sync::Arc;

/// What `gather.cu` and `scatter.cu` both need.
const INDICES: &str = include_str!("../../../../../kernels/indices.cuh");
/// Threads of a block.
const THREADS: u32 = 256;

/// Gather, GatherElements, GatherND, ScatterElements and ScatterND.
pub fn offer(scope: &Scope, gpu: &Arc<Gpu>) -> Answer {
    let (Some(rule), Some(x)) = (Rule::of(scope), scope.input_type(0)) else {
        return Ok(vec![]);
    };
    let attrs = &scope.layer().attrs;
    if scope.op().starts_with("Gather") {
        return Ok(vec![scope.alone(gather::kernel(scope.op(), rule, gpu), &[0, 1])]);
    }
    let reduction = attrs.text("reduction");
    if reduction != "none" && x.dtype.narrow().is_some() {
        return Err(Why::new(format!("{} is only stored, not computed with", x.dtype)));
    }
    let kernel = scatter::Scatter {
        name: scope.op(),
        rule,
        fold: scatter::fold(reduction),
        gpu: gpu.clone(),
    };
    Ok(vec![scope.alone(kernel, &[0, 1, 2])])
}

/// The check that the numbers of each index are within the extents of the axes that they count along.
///
/// # Errors
/// If the driver refuses.
fn device_check(gpu: &Gpu, extents: Vec<usize>) -> Result<DeviceCheck> {
    Ok(DeviceCheck {
        flag: gpu.device.flag()?,
        meaning: Box::new(move |found| out_of_range(found, &extents)),
    })
}

/// What `refuse` of `indices.cuh` left: the index, and which of its numbers it is.
fn out_of_range(found: i64, extents: &[usize]) -> Error {
    let numbers = extents.len() as i64;
    let (index, which) = (found.div_euclid(numbers), found.rem_euclid(numbers));
    match indexing::index(index, extents[which as usize]) {
        Err(error) => error,
        Ok(_) => Error::internal("a kernel refused an index that is in range"),
    }
}

/// The C++ type of indices.
fn index_type(dtype: DType) -> &'static str {
    super::pointwise::code::element(dtype).unwrap_or("int64")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_that_is_wrong_is_told() {
        let said = |found: i64, extents: &[usize]| {
            let error = out_of_range(found, extents);
            error
                .parts()
                .map(|(_, text)| text.to_string())
                .collect::<Vec<_>>()
                .join(" ")
        };
        let same = |index: i64, extent: usize| {
            let error = indexing::index(index, extent).unwrap_err();
            error
                .parts()
                .map(|(_, text)| text.to_string())
                .collect::<Vec<_>>()
                .join(" ")
        };
        assert_eq!(said(-9, &[7]), same(-9, 7));
        assert_eq!(said(-9 * 3 + 2, &[100, 100, 5]), same(-9, 5));
        assert_eq!(said(9 * 2, &[4, 100]), same(9, 4));
    }
}
