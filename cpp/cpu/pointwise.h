#pragma once
#include <memory>

#include "cpu/primitive.h"

namespace neurenix::cpu {

struct PostOp;

// A chain of post-ops as a primitive of its own: `first` is done on `src` itself.
std::unique_ptr<Primitive> pointwise(const TensorDesc& src, const TensorDesc& dst, const PostOp& first,
                                     const Options& options);

}  // namespace neurenix::cpu
