#pragma once
#include <string>

#include "tensorrt/flavour/version.h"

namespace neurenix::tensorrt::NEURENIX_FLAVOUR {

// The value of an enum by TensorRT's own name without the k: "RELU". Numbers differ between versions, names do not.
// Throws if this version has none of that name.
template <typename Enum>
Enum named(const std::string& name);

// Whether this version has a value of that name.
template <typename Enum>
bool has(const std::string& name);

// The name of an element type.
std::string name_of(nvinfer1::DataType dtype);

}  // namespace neurenix::tensorrt::NEURENIX_FLAVOUR
