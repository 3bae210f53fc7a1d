#pragma once
#include <cstdint>
#include <memory>

#include "rust/cxx.h"

namespace neurenix::tensorrt {

struct LayerSpec;
struct BuildSpec;
struct ProfileSpec;
struct TensorInfo;
struct Sink;

// A network that is being built with one flavour of TensorRT. What TensorRT refuses is thrown with what it logged.
class Session {
  public:
    virtual ~Session() = default;

    // Gives the number of the new tensor.
    virtual std::uint32_t add_input(rust::Str name, rust::Str dtype, rust::Slice<const std::int64_t> dims) = 0;
    // Gives the numbers of the layer's outputs. The weights must live until the plan is built.
    virtual rust::Vec<std::uint32_t> add_layer(const LayerSpec& spec) = 0;
    // Gives the number of a new loop, which its boundary layers name.
    virtual std::uint32_t add_loop(rust::Str name) = 0;
    // The same for a conditional.
    virtual std::uint32_t add_conditional(rust::Str name) = 0;
    // Says what the output of a recurrence is in the next step.
    virtual void set_next(std::uint32_t recurrence, std::uint32_t next) = 0;
    virtual void mark_output(std::uint32_t tensor, rust::Str name) = 0;
    // Says what TensorRT makes of a tensor.
    virtual TensorInfo tensor(std::uint32_t tensor) const = 0;
    // Whether this flavour has a builder flag: "STRIP_PLAN".
    virtual bool has_flag(rust::Str name) const = 0;
    // Builds the plan.
    virtual rust::Vec<std::uint8_t> build(const BuildSpec& spec) = 0;
    // What the last build measured; nothing where this version keeps none.
    virtual rust::Slice<const std::uint8_t> timing_cache() const = 0;
};

}  // namespace neurenix::tensorrt
