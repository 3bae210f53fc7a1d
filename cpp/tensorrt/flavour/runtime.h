#pragma once
#include <memory>

#include "tensorrt/flavour/logger.h"

namespace neurenix::tensorrt::NEURENIX_FLAVOUR {

// What opens plans.
class Runtime {
  public:
    // The function is createInferRuntime_INTERNAL.
    Runtime(void* create_runtime, Logger& logger);

    // Throws what is wrong with a plan: before TensorRT opens it, as far as this version can tell.
    std::unique_ptr<nvinfer1::ICudaEngine> open(rust::Slice<const std::uint8_t> plan);

  private:
    void check(rust::Slice<const std::uint8_t> plan) const;

    Logger& logger_;
    std::unique_ptr<nvinfer1::IRuntime> runtime_;
};

}  // namespace neurenix::tensorrt::NEURENIX_FLAVOUR
