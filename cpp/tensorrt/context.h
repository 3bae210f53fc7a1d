#pragma once
#include <cstddef>
#include <cstdint>

#include "rust/cxx.h"

namespace neurenix::tensorrt {

struct Collector;
struct LayerTime;

// The state of one call of an engine; one call at a time. Its scratch memory is the caller's.
class Context {
  public:
    virtual ~Context() = default;

    virtual void set_profile(std::int32_t profile, std::size_t stream) = 0;
    virtual void set_shape(rust::Str tensor, rust::Slice<const std::int64_t> dims) = 0;
    virtual rust::Vec<std::int64_t> shape(rust::Str tensor) const = 0;
    // Gives the names of the inputs that are missing for the shapes of the outputs.
    virtual rust::Vec<rust::String> infer() = 0;
    // The bytes of scratch memory for the shapes that are set; -1 where this version can't tell.
    virtual std::int64_t memory() = 0;
    // At most how many bytes an output has; -1 where TensorRT can't tell.
    virtual std::int64_t max_bytes(rust::Str output) const = 0;
    virtual bool capturable(std::size_t stream) const = 0;
    virtual void set_memory(std::size_t address, std::size_t bytes) = 0;
    virtual void set_address(rust::Str tensor, std::size_t address) = 0;
    virtual void collect(rust::Str output, rust::Box<Collector> collector) = 0;
    virtual void enqueue(std::size_t stream) = 0;
    virtual void profile_layers(bool wanted) = 0;
    // How long each layer of the last call took.
    virtual rust::Vec<LayerTime> times() = 0;
};

}  // namespace neurenix::tensorrt
