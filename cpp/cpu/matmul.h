#pragma once
#include <memory>

#include "cpu/primitive.h"

namespace neurenix::cpu {

struct Matmul;

// A batch of matrix products; `b` is a constant to pack where the spec says so, in `given` if that serves.
std::unique_ptr<Primitive> matmul(const Matmul& spec, const Options& options, std::shared_ptr<WeightFormat> given);

}  // namespace neurenix::cpu
