#pragma once
#include <cstddef>
#include <memory>

#include "cpu/primitive.h"

namespace neurenix::cpu {

std::unique_ptr<Primitive> reorder_between(const dnnl::memory::desc& from, const dnnl::memory::desc& to,
                                           std::size_t threads);

// Copies a tensor into another layout or element type.
std::unique_ptr<Primitive> reorder(const TensorDesc& from, const TensorDesc& to, std::size_t threads);

}  // namespace neurenix::cpu
