#pragma once
#include "rust/cxx.h"

namespace neurenix::cpu {

// The version of the oneDNN library that is loaded, as "3.2.0".
rust::String onednn_version();

}  // namespace neurenix::cpu
