#pragma once
#include <memory>
#include <string>
#include <vector>

#include "tensorrt/flavour/logger.h"

namespace neurenix::tensorrt::NEURENIX_FLAVOUR {

// How a plan is built.
class Config {
  public:
    // Throws what this version has not, or TensorRT refuses.
    Config(nvinfer1::IBuilder& builder, nvinfer1::INetworkDefinition& network, const BuildSpec& spec, Logger& logger);

    nvinfer1::IBuilderConfig& raw() const { return *config_; }
    bool cancelled() const;
    // What the build measured, for the next one.
    std::vector<std::uint8_t> measured() const;

  private:
    void flags(const BuildSpec& spec);
    void capabilities(const BuildSpec& spec, Logger& logger);
    void compatibility(const std::string& level);
    void profile(nvinfer1::IBuilder& builder, const ProfileSpec& spec, Logger& logger);

    std::unique_ptr<nvinfer1::IBuilderConfig> config_;
#if NEURENIX_SHAPE >= 10
    std::unique_ptr<Monitor> monitor_;
#endif
#if !NEURENIX_RTX
    std::unique_ptr<nvinfer1::ITimingCache> cache_;
#endif
};

}  // namespace neurenix::tensorrt::NEURENIX_FLAVOUR
