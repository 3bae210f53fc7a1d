#pragma once
#include <memory>

#include "cpu/primitive.h"

namespace neurenix::cpu {

enum class ReductionKind : std::uint8_t;

// Reduces the axes in which `dst` has extent 1.
std::unique_ptr<Primitive> reduction(const TensorDesc& src, const TensorDesc& dst, ReductionKind kind,
                                     const Options& options);

}  // namespace neurenix::cpu
