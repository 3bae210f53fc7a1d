#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tensorrt/context.h"
#include "tensorrt/flavour/allocator.h"
#include "tensorrt/flavour/logger.h"

namespace neurenix::tensorrt::NEURENIX_FLAVOUR {

// Keeps the times of the layers of one call.
class Profiler : public nvinfer1::IProfiler {
  public:
    void reportLayerTime(const char* layer, float milliseconds) noexcept override;
    rust::Vec<LayerTime> take();

  private:
    std::vector<std::pair<std::string, float>> times_;
};

// The state of one call.
class FlavourContext : public Context {
  public:
    FlavourContext(std::unique_ptr<nvinfer1::IExecutionContext> context, std::int32_t tensors, Logger& logger)
        : logger_(logger), tensors_(tensors), context_(std::move(context)) {}

    void set_profile(std::int32_t profile, std::size_t stream) override;
    void set_shape(rust::Str tensor, rust::Slice<const std::int64_t> dims) override;
    rust::Vec<std::int64_t> shape(rust::Str tensor) const override;
    rust::Vec<rust::String> infer() override;
    std::int64_t memory() override;
    std::int64_t max_bytes(rust::Str output) const override;
    bool capturable(std::size_t stream) const override;
    void set_memory(std::size_t address, std::size_t bytes) override;
    void set_address(rust::Str tensor, std::size_t address) override;
    void collect(rust::Str output, rust::Box<Collector> collector) override;
    void enqueue(std::size_t stream) override;
    void profile_layers(bool wanted) override;
    rust::Vec<LayerTime> times() override;

  private:
    // Throws what TensorRT logged.
    [[noreturn]] void fail(const std::string& otherwise) const;

    Logger& logger_;
    std::int32_t tensors_;
    // What the context may call outlives it.
    Profiler profiler_;
    std::map<std::string, std::unique_ptr<Allocator>> allocators_;
    std::unique_ptr<nvinfer1::IExecutionContext> context_;
};

}  // namespace neurenix::tensorrt::NEURENIX_FLAVOUR
