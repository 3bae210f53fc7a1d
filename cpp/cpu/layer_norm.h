#pragma once
#include <memory>

#include "cpu/primitive.h"

namespace neurenix::cpu {

struct LayerNorm;

// Normalises the last axis; f32 scale and shift are inputs where the spec says so.
std::unique_ptr<Primitive> layer_norm(const LayerNorm& spec, const Options& options);

}  // namespace neurenix::cpu
