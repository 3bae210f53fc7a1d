#pragma once
#include <memory>

#include "cpu/primitive.h"

namespace neurenix::cpu {

struct Convolution;

// A convolution, or a transposed one. Keeps `given` as the weights' format where that is no slower than asking anew.
std::unique_ptr<Primitive> convolution(const Convolution& spec, const Options& options,
                                       std::shared_ptr<WeightFormat> given);

}  // namespace neurenix::cpu
