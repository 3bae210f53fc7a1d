//! Element strides of operands in any layout, slices and broadcasts included.

use crate::error::{Error, Result};
use crate::plan::layout::{Layout, Operand};

pub use crate::plan::layout::{Axes, BLOCK, axes};

/// The extents of a tensor in the order of memory; in blocks, channels count twice: blocks, and 16 within.
pub fn space(shape: &[usize], layout: Layout) -> Vec<usize> {
    let arrange = |channels: &[usize], last: usize| [&shape[..1], channels, &shape[2..], &[last]].concat();
    match layout {
        Layout::Plain => shape.to_vec(),
        Layout::ChannelsLast => arrange(&[], shape[1]),
        Layout::Blocked16 => arrange(&[shape[1].div_ceil(BLOCK)], BLOCK),
    }
}

/// The element strides of an operand along [`space`]`(shape, layout)`; 0 where it is broadcast.
///
/// # Errors
/// If the operand does not broadcast to the shape, or can't be seen so: blocks in another order, or channels that
/// would be read beyond their end.
pub fn strides(operand: &Operand, shape: &[usize], layout: Layout) -> Result<Vec<usize>> {
    let lead = shape.len().checked_sub(operand.shape.len());
    let fits = |lead: usize| (0..operand.shape.len()).all(|a| [1, shape[a + lead]].contains(&operand.shape[a]));
    let lead = lead.filter(|&lead| fits(lead)).ok_or_else(|| {
        Error::internal("operand does not broadcast")
            .expected(format!("{shape:?}"))
            .got(operand.describe())
    })?;
    let own = axes(operand);
    let along = |axis: usize| {
        let own_axis = axis.checked_sub(lead)?;
        let broadcast = operand.shape[own_axis] == 1 && shape[axis] != 1;
        (!broadcast).then(|| own.strides[own_axis])
    };
    let stride = |axis: usize| along(axis).unwrap_or(0);
    let all: Vec<usize> = (0..shape.len()).map(stride).collect();
    let arrange = |channels: &[usize]| [&all[..1], channels, &all[2..], &all[1..2]].concat();
    let blocked = operand.layout == Layout::Blocked16;
    match layout {
        Layout::Plain if !blocked => Ok(all),
        Layout::ChannelsLast if !blocked => Ok(arrange(&[])),
        Layout::Blocked16 if blocked || all[1] == 0 || shape[1].is_multiple_of(BLOCK) => {
            let block = match (blocked, along(1)) {
                (_, None) => 0,
                (true, _) => own.block,
                (false, Some(stride)) => BLOCK * stride,
            };
            Ok(arrange(&[block]))
        }
        _ => Err(Error::internal("operand can't be seen in this layout")
            .expected(layout.to_string())
            .got(operand.describe())),
    }
}

/// Joins neighbouring axes that every set of strides walks through evenly; drops axes of extent 1.
///
/// There is always at least one axis left.
pub fn coalesce(sizes: &[usize], strides: &[&[usize]]) -> (Vec<usize>, Vec<Vec<usize>>) {
    let mut out_sizes: Vec<usize> = vec![];
    let mut out: Vec<Vec<usize>> = vec![vec![]; strides.len()];
    for (axis, &size) in sizes.iter().enumerate() {
        if size == 1 {
            continue;
        }
        let even = |(s, o): (&&[usize], &Vec<usize>)| o.last() == Some(&(s[axis] * size));
        let joins = !out_sizes.is_empty() && strides.iter().zip(&out).all(even);
        if joins {
            *out_sizes.last_mut().unwrap_or(&mut 1) *= size;
        } else {
            out_sizes.push(size);
        }
        for (s, o) in strides.iter().zip(&mut out) {
            if joins {
                o.pop();
            }
            o.push(s[axis]);
        }
    }
    if out_sizes.is_empty() {
        out_sizes.push(1);
        out.iter_mut().for_each(|o| o.push(1));
    }
    (out_sizes, out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::dtype::DType;

    fn operand(shape: &[usize], layout: Layout, parent: Option<usize>) -> Operand {
        Operand {
            parent_channels: parent,
            ..Operand::dense(DType::Float32, shape.to_vec(), layout)
        }
    }

    #[test]
    fn dense_operands_are_one_run_in_their_own_layout() {
        for layout in Layout::ALL {
            let operand = operand(&[2, 20, 3, 5], layout, None);
            let sizes = space(&operand.shape, layout);
            let strides = strides(&operand, &operand.shape, layout).unwrap();
            let (sizes, strides) = coalesce(&sizes, &[&strides]);
            assert_eq!(
                (sizes, strides),
                (vec![2 * layout.padded_channels(20) * 15], vec![vec![1]])
            );
        }
    }

    #[test]
    fn slices_and_broadcasts_have_gaps_and_zeros() {
        let shape = [2, 32, 3, 5];
        let slice = operand(&shape, Layout::Blocked16, Some(64));
        assert_eq!(
            strides(&slice, &shape, Layout::Blocked16).unwrap(),
            [960, 240, 80, 16, 1]
        );
        let slice = operand(&shape, Layout::ChannelsLast, Some(64));
        assert_eq!(
            strides(&slice, &shape, Layout::ChannelsLast).unwrap(),
            [960, 320, 64, 1]
        );
        let gate = operand(&[2, 32, 1, 1], Layout::Blocked16, None);
        assert_eq!(strides(&gate, &shape, Layout::Blocked16).unwrap(), [32, 16, 0, 0, 1]);
        let bias = operand(&[32, 1, 1], Layout::Plain, None);
        assert_eq!(strides(&bias, &shape, Layout::ChannelsLast).unwrap(), [0, 0, 0, 1]);
        let bias = operand(&[20, 1, 1], Layout::Plain, None);
        assert!(strides(&bias, &[2, 20, 3, 5], Layout::Blocked16).is_err());
    }
}
