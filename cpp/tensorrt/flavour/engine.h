#pragma once
#include <memory>
#include <mutex>
#include <string>

#include "tensorrt/engine.h"
#include "tensorrt/flavour/logger.h"
#include "tensorrt/flavour/runtime.h"

namespace neurenix::tensorrt::NEURENIX_FLAVOUR {

// A plan in the hands of this flavour.
class FlavourEngine : public Engine {
  public:
    // The functions are createInferRuntime_INTERNAL and createInferRefitter_INTERNAL.
    FlavourEngine(void* create_runtime, void* create_refitter, rust::Slice<const std::uint8_t> plan,
                  rust::Box<Sink> sink);

    rust::Vec<IoInfo> tensors() const override;
    std::int32_t profiles() const override { return engine_->getNbOptimizationProfiles(); }
    std::int64_t device_memory(std::int32_t profile) const override;
    rust::String layers() const override;
    std::int64_t streamable_weights() const override;
    void set_weight_budget(std::int64_t bytes) const override;
    rust::Vec<rust::String> weight_names() const override;
    rust::Vec<rust::String> refit(rust::Slice<const WeightsSpec> weights) const override;
    std::unique_ptr<Context> context() const override;

  private:
    IoInfo tensor(const char* name) const;
    std::unique_ptr<nvinfer1::IRefitter> refitter() const;
    // Throws what TensorRT logged.
    [[noreturn]] void fail(const std::string& otherwise) const;

    // The logger outlives whatever may log, and the runtime its engine.
    mutable Logger logger_;
    void* create_refitter_;
    Runtime runtime_;
    std::unique_ptr<nvinfer1::ICudaEngine> engine_;
    // What changes the engine, or makes something of it, does so alone.
    mutable std::mutex lock_;
};

}  // namespace neurenix::tensorrt::NEURENIX_FLAVOUR
