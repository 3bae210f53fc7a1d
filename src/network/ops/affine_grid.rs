//! AffineGrid.

use crate::error::{Error, Result};
use crate::network::array::Array;
use crate::network::attr::{Preset, Read, attr};
use crate::network::op::{Evaluate, Infer, Lowering, OpDef, TensorType};
use crate::network::ops::{gather, indexing, values};

/// Places for GridSample that affine maps give (ONNX AffineGrid).
pub static DEF: OpDef = OpDef {
    name: "AffineGrid",
    doc: "theta [N, 2, 3] or [N, 3, 4] applied to each place of an image of a size [N, C, (D,) H, W] whose sides run from \
          -1 to 1; x comes first (ONNX AffineGrid)",
    inputs: &["theta", "size"],
    attrs: &[attr(
        "align_corners",
        Preset::Int(0),
        "-1 and 1 are the centres of the outermost elements instead of their outer edges",
    )],
    infer,
    evaluate,
    lowering: Lowering::WIDE,
    ..OpDef::PLAIN
};

fn infer(infer: &Infer) -> Result<Vec<TensorType>> {
    let (theta, size) = (infer.input(0)?, gather::index_tensor(infer, 1)?);
    let axes = match theta.shape.as_slice() {
        [_, rows, columns] if rows.is(2) && columns.is(3) => 2,
        [_, rows, columns] if rows.is(3) && columns.is(4) => 3,
        _ => 0,
    };
    if axes == 0 || !theta.dtype.is_float() || size.rank() != 1 || !size.elements().is(axes + 2) {
        return Err(Error::shape("theta and the size do not fit")
            .expected("floating-point [N, 2, 3] and 4 integers, or [N, 3, 4] and 5")
            .got(format!("{} and {}", theta.describe(), size.describe())));
    }
    let mut shape = values::target(infer, 1)?;
    infer.require_equal(&theta.shape[0], &shape[0], "there is one theta per image")?;
    shape[0] = theta.shape[0].clone();
    shape.remove(1);
    shape.push(axes.into());
    Ok(vec![TensorType::new(theta.dtype, shape)])
}

fn evaluate(e: &Evaluate) -> Result<Vec<Array>> {
    let (theta, shape) = (e.input(0)?.to_f64(), &e.outputs[0].1);
    let sizes = &shape[1..shape.len() - 1];
    let axes = sizes.len();
    let align = e.attrs.flag("align_corners");
    let along = |i: usize, size: usize| match align {
        true if size > 1 => 2.0 * i as f64 / (size - 1) as f64 - 1.0,
        // Of one element, the only one is in the middle.
        true => 0.0,
        false => (2.0 * i as f64 + 1.0) / size as f64 - 1.0,
    };
    let positions = indexing::positions(sizes);
    let mut out = Vec::with_capacity(shape.iter().product());
    for theta in theta.chunks(axes * (axes + 1)) {
        for position in &positions {
            for row in theta.chunks(axes + 1) {
                // The last axis comes first in a row.
                let terms = (0..axes).map(|k| row[k] * along(position[axes - 1 - k], sizes[axes - 1 - k]));
                out.push(terms.sum::<f64>() + row[axes]);
            }
        }
    }
    e.output(&out)
}
