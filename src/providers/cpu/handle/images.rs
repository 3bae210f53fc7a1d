//! Slices along the channels of a batch, image by image.
//!
//! oneDNN runs its reference loops on tensors with gaps. In the plain and the blocked layout the channels of one image
//! lie together, so a slice has gaps between images alone: a primitive for one image, run once for each, is fast.
use super::{Desc, Options, PostOp};
use crate::error::{Error, Result};

/// How many images there are, and how far apart they lie in each argument, in bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Images {
    pub count: usize,
    src: usize,
    operands: Vec<usize>,
    dst: usize,
}

impl Images {
    /// Reduces the descriptions to one image each, where one of them is a slice that needs it.
    pub fn split(src: &mut Desc, dst: &mut Desc, options: &mut Options) -> Option<Self> {
        let count = dst.images();
        let operands = || options.post.iter().filter_map(PostOp::operand);
        let sliced = [&*src, &*dst]
            .into_iter()
            .chain(operands())
            .any(Desc::has_gaps_between_images);
        if !sliced || count == 1 || src.images() != count {
            return None;
        }
        let images = Self {
            count,
            src: src.image_bytes(),
            operands: operands().map(Desc::image_bytes).collect(),
            dst: dst.image_bytes(),
        };
        src.take_one_image();
        dst.take_one_image();
        options
            .post
            .iter_mut()
            .filter_map(PostOp::operand_mut)
            .for_each(Desc::take_one_image);
        Some(images)
    }

    /// The steps of all arguments of a primitive: src, constants, operands, dst, workspace.
    pub fn steps(&self, arguments: usize) -> Result<Vec<usize>> {
        let constants = arguments.checked_sub(3 + self.operands.len());
        let constants = constants.ok_or_else(|| Error::internal("a primitive with too few arguments"))?;
        let mut steps = vec![self.src];
        steps.resize(1 + constants, 0);
        steps.extend(&self.operands);
        steps.extend([self.dst, 0]);
        Ok(steps)
    }
}
