#pragma once
#include <memory>

#include "cpu/primitive.h"

namespace neurenix::cpu {

struct Pooling;

// The maximum or average over windows.
std::unique_ptr<Primitive> pooling(const Pooling& spec, const Options& options);

}  // namespace neurenix::cpu
