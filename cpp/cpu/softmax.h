#pragma once
#include <memory>

#include "cpu/primitive.h"

namespace neurenix::cpu {

struct Softmax;

// Softmax along an axis, or its logarithm.
std::unique_ptr<Primitive> softmax(const Softmax& spec, const Options& options);

}  // namespace neurenix::cpu
