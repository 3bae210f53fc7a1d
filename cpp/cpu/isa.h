#pragma once

namespace neurenix::cpu {

// Keeps oneDNN from instructions that the processor names but that fault here. Call before its first primitive.
void limit_isa();

}  // namespace neurenix::cpu
