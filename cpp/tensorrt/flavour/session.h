#pragma once
#include <memory>
#include <string>
#include <vector>

#include "tensorrt/flavour/call.h"
#include "tensorrt/flavour/logger.h"
#include "tensorrt/session.h"

namespace neurenix::tensorrt::NEURENIX_FLAVOUR {

// A network of this flavour.
class FlavourSession : public Session {
  public:
    FlavourSession(void* create_builder, rust::Box<Sink> sink);

    std::uint32_t add_input(rust::Str name, rust::Str dtype, rust::Slice<const std::int64_t> dims) override;
    rust::Vec<std::uint32_t> add_layer(const LayerSpec& spec) override;
    std::uint32_t add_loop(rust::Str name) override;
    std::uint32_t add_conditional(rust::Str name) override;
    void set_next(std::uint32_t recurrence, std::uint32_t next) override;
    void mark_output(std::uint32_t tensor, rust::Str name) override;
    TensorInfo tensor(std::uint32_t tensor) const override;
    bool has_flag(rust::Str name) const override;
    rust::Vec<std::uint8_t> build(const BuildSpec& spec) override;
    rust::Slice<const std::uint8_t> timing_cache() const override { return {measured_.data(), measured_.size()}; }

  private:
    std::uint32_t keep(nvinfer1::ITensor* tensor, nvinfer1::ILayer* producer);
    // Throws what TensorRT logged.
    [[noreturn]] void fail(const std::string& otherwise);

    // The logger outlives whatever may log.
    Logger logger_;
    std::unique_ptr<nvinfer1::IBuilder> builder_;
    std::unique_ptr<nvinfer1::INetworkDefinition> network_;
    Made made_;
    std::vector<std::uint8_t> measured_;
};

}  // namespace neurenix::tensorrt::NEURENIX_FLAVOUR
