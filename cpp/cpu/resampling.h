#pragma once
#include <memory>

#include "cpu/primitive.h"

namespace neurenix::cpu {

struct Resampling;

// Nearest or linear interpolation over the spatial axes, pixel centres at halves.
std::unique_ptr<Primitive> resampling(const Resampling& spec, const Options& options);

}  // namespace neurenix::cpu
