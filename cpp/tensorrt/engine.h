#pragma once
#include <cstdint>
#include <memory>

#include "tensorrt/context.h"

namespace neurenix::tensorrt {

struct IoInfo;
struct WeightsSpec;

// A plan that one flavour of TensorRT has opened. Calls may come from any thread. What TensorRT refuses is thrown with
// what it logged.
class Engine {
  public:
    virtual ~Engine() = default;

    virtual rust::Vec<IoInfo> tensors() const = 0;
    virtual std::int32_t profiles() const = 0;
    virtual std::int64_t device_memory(std::int32_t profile) const = 0;
    // What the inspector says, as JSON.
    virtual rust::String layers() const = 0;
    virtual std::int64_t streamable_weights() const = 0;
    // -1 keeps all weights on the GPU.
    virtual void set_weight_budget(std::int64_t bytes) const = 0;
    virtual rust::Vec<rust::String> weight_names() const = 0;
    // Gives the names of the weights that must be given too; if there are some, nothing was changed.
    virtual rust::Vec<rust::String> refit(rust::Slice<const WeightsSpec> weights) const = 0;
    // Lives no longer than the engine.
    virtual std::unique_ptr<Context> context() const = 0;
};

}  // namespace neurenix::tensorrt
