//! How the elements of a tensor lie in memory.

use crate::network::dim::Dim;
use crate::network::dtype::DType;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The order of the elements of a tensor. Axis 1 is the channel axis, as ONNX has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Layout {
    /// Row-major.
    Plain,
    /// Channels innermost (NHWC); for rank 3 and above.
    ChannelsLast,
    /// Channels in blocks of 16 innermost (nChw16c), padded to whole blocks; for rank 3 and above. Every kernel that
    /// writes it writes zeros into the padding, and may count on zeros there when it reads.
    Blocked16,
}

impl Layout {
    /// Every layout, the plain one first.
    pub const ALL: [Layout; 3] = [Layout::Plain, Layout::ChannelsLast, Layout::Blocked16];

    /// Whether a tensor of this rank can lie so.
    pub fn fits(self, rank: usize) -> bool {
        self == Layout::Plain || rank >= 3
    }

    /// The axes of a tensor of this rank in the order of memory, the innermost last; `None` where blocks part one of them.
    pub fn order(self, rank: usize) -> Option<Vec<usize>> {
        match self {
            Layout::Plain => Some((0..rank).collect()),
            Layout::ChannelsLast if rank >= 3 => Some([0].into_iter().chain(2..rank).chain([1]).collect()),
            _ => None,
        }
    }

    /// Whether a tensor of this shape keeps its memory where it is brought to another layout: only dimensions of 1 change places.
    pub fn is_bitcast(self, to: Self, shape: &[Dim]) -> bool {
        let dense = self != to && ![self, to].contains(&Layout::Blocked16);
        let (channels, pixels) = (shape.get(1), shape.get(2..).unwrap_or_default());
        dense && (channels.is_none_or(|dim| dim.is(1)) || pixels.iter().all(|dim| dim.is(1)))
    }

    /// How many channels the memory holds for this many.
    pub fn padded_channels(self, channels: usize) -> usize {
        if self == Layout::Blocked16 {
            channels.next_multiple_of(16)
        } else {
            channels
        }
    }

    /// Bytes of a dense tensor.
    pub fn bytes(self, dtype: DType, shape: &[usize]) -> usize {
        let channels = shape.get(1).copied().unwrap_or(1);
        let others: usize = shape
            .iter()
            .enumerate()
            .filter(|(axis, _)| *axis != 1)
            .map(|(_, &d)| d)
            .product();
        others * self.padded_channels(channels) * dtype.size()
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Layout::Plain => "plain",
            Layout::ChannelsLast => "channels_last",
            Layout::Blocked16 => "blocked16",
        })
    }
}

/// One operand of a kernel at concrete shapes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Operand {
    /// The element type.
    pub dtype: DType,
    /// The extent of each dimension.
    pub shape: Vec<usize>,
    /// The order of the elements.
    pub layout: Layout,
    /// When the operand is a slice along the channels of a larger tensor: how many channels that one has.
    pub parent_channels: Option<usize>,
    /// It lies where the kernel puts its result: an input of Concat or an output of Split that needs no copy, or an
    /// input whose memory the output takes.
    pub in_place: bool,
}

impl Operand {
    /// A dense operand.
    pub fn dense(dtype: DType, shape: Vec<usize>, layout: Layout) -> Self {
        Self {
            dtype,
            shape,
            layout,
            parent_channels: None,
            in_place: false,
        }
    }

    /// The number of elements.
    pub fn elements(&self) -> usize {
        self.shape.iter().product()
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.shape.contains(&0)
    }

    /// Bytes when dense.
    pub fn bytes(&self) -> usize {
        self.layout.bytes(self.dtype, &self.shape)
    }

    /// Bytes from its first element to its last, and what is between them where it is a slice.
    pub fn reach(&self) -> usize {
        let mut shape = self.shape.clone();
        if let Some(parent) = self.parent_channels {
            shape[1] = parent;
        }
        self.layout.bytes(self.dtype, &shape)
    }

    /// As a timing cache writes it.
    pub fn describe(&self) -> String {
        let shape: Vec<_> = self.shape.iter().map(usize::to_string).collect();
        let slice = self
            .parent_channels
            .map(|parent| format!(" of {parent}"))
            .unwrap_or_default();
        format!("{}[{}]{}{slice}", self.dtype, shape.join("x"), self.layout)
    }
}

/// Channels in a block of [`Layout::Blocked16`].
pub const BLOCK: usize = 16;

/// Element strides of an operand's axes; in blocks, that of channels counts within a block.
pub struct Axes {
    /// One per axis.
    pub strides: Vec<usize>,
    /// From one block of 16 channels to the next.
    pub block: usize,
}

/// The strides of an operand's own axes.
pub fn axes(operand: &Operand) -> Axes {
    let shape = &operand.shape;
    let rank = shape.len();
    let channels = operand
        .parent_channels
        .unwrap_or_else(|| shape.get(1).copied().unwrap_or(1));
    let mut strides = vec![1; rank];
    if operand.layout == Layout::Plain || rank < 3 {
        for axis in (1..rank).rev() {
            let size = if axis == 1 { channels } else { shape[axis] };
            strides[axis - 1] = strides[axis] * size;
        }
        let block = BLOCK * strides.get(1).copied().unwrap_or(0);
        return Axes { strides, block };
    }
    let blocked = operand.layout == Layout::Blocked16;
    let mut stride = if blocked { BLOCK } else { channels };
    for axis in (2..rank).rev() {
        strides[axis] = stride;
        stride *= shape[axis];
    }
    let block = if blocked { stride } else { BLOCK };
    strides[0] = if blocked {
        stride / BLOCK * operand.layout.padded_channels(channels)
    } else {
        stride
    };
    Axes { strides, block }
}

impl Operand {
    /// How far a channel lies behind the first one, in elements.
    pub fn channel(&self, number: usize) -> usize {
        let axes = axes(self);
        match self.layout {
            Layout::Blocked16 => number / BLOCK * axes.block + number % BLOCK,
            _ => number * axes.strides[1],
        }
    }

    /// For each element, row-major, how far it lies behind the first one, in elements.
    pub fn places(&self) -> Vec<usize> {
        let strides = axes(self).strides;
        let mut places = vec![0];
        for (axis, &extent) in self.shape.iter().enumerate() {
            let steps: Vec<usize> = match axis {
                1 => (0..extent).map(|channel| self.channel(channel)).collect(),
                _ => (0..extent).map(|index| index * strides[axis]).collect(),
            };
            places = places
                .iter()
                .flat_map(|at| steps.iter().map(move |step| at + step))
                .collect();
        }
        places
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dimensions_of_one_change_places_for_nothing() {
        let bitcast = |from: Layout, to: Layout, shape: &[i64]| {
            let shape: Vec<Dim> = shape.iter().map(|&extent| extent.into()).collect();
            from.is_bitcast(to, &shape)
        };
        let (plain, last) = (Layout::Plain, Layout::ChannelsLast);
        assert!(bitcast(plain, last, &[8, 1, 5, 6]) && bitcast(last, plain, &[8, 64, 1, 1]));
        assert!(!bitcast(plain, last, &[8, 2, 1, 6]) && !bitcast(plain, plain, &[8, 1, 5]));
        assert!(!bitcast(plain, Layout::Blocked16, &[8, 1, 5, 6]));
    }
}
