#include "tensorrt/flavour/config.h"

#include <stdexcept>

#include "tensorrt/flavour/call.h"

namespace neurenix::tensorrt::NEURENIX_FLAVOUR {
namespace {

using namespace nvinfer1;

#if NEURENIX_RTX
ComputeCapability capability(const std::string& name) {
    if (name == "7.5") return ComputeCapability::kSM75;
    if (name == "8.0") return ComputeCapability::kSM80;
    if (name == "8.6") return ComputeCapability::kSM86;
    if (name == "8.9") return ComputeCapability::kSM89;
    if (name == "12.0") return ComputeCapability::kSM120;
    if (name == "current") return ComputeCapability::kCURRENT;
    throw std::invalid_argument("this TensorRT-RTX builds for compute capability 7.5, 8.0, 8.6, 8.9 and 12.0, not " +
                                name);
}
#endif

}  // namespace

Config::Config(IBuilder& builder, INetworkDefinition&, const BuildSpec& spec, Logger& logger)
    : config_(builder.createBuilderConfig()) {
    if (!config_) throw std::runtime_error(logger.errors("the library gives no configuration"));
    if (spec.workspace != 0) config_->setMemoryPoolLimit(MemoryPoolType::kWORKSPACE, spec.workspace);
    config_->setBuilderOptimizationLevel(spec.optimization_level);
    config_->setProfilingVerbosity(ProfilingVerbosity::kDETAILED);
    flags(spec);
    capabilities(spec, logger);
    compatibility(static_cast<std::string>(spec.compatibility));
#if !NEURENIX_RTX
    // An empty cache is one to fill; TensorRT-RTX has none.
    cache_.reset(config_->createTimingCache(spec.timing_cache.data(), spec.timing_cache.size()));
    if (!cache_) throw std::runtime_error(logger.errors("this is no timing cache of TensorRT"));
    // One of another GPU or version is left aside.
    config_->setTimingCache(*cache_, true);
#endif
#if NEURENIX_SHAPE >= 10
    monitor_ = std::make_unique<Monitor>(logger.sink());
    config_->setProgressMonitor(monitor_.get());
#endif
    for (const ProfileSpec& one : spec.profiles) profile(builder, one, logger);
}

bool Config::cancelled() const {
#if NEURENIX_SHAPE >= 10
    return monitor_->cancelled();
#else
    return false;
#endif
}

std::vector<std::uint8_t> Config::measured() const {
#if NEURENIX_RTX
    return {};
#else
    const std::unique_ptr<IHostMemory> bytes(cache_->serialize());
    const auto* first = bytes ? static_cast<const std::uint8_t*>(bytes->data()) : nullptr;
    return first == nullptr ? std::vector<std::uint8_t>() : std::vector<std::uint8_t>(first, first + bytes->size());
#endif
}

void Config::compatibility(const std::string& level) {
    if (level != "NONE") config_->setHardwareCompatibilityLevel(named<HardwareCompatibilityLevel>(level));
}

void Config::flags(const BuildSpec& spec) {
    for (const auto& name : spec.cleared) config_->clearFlag(named<BuilderFlag>(static_cast<std::string>(name)));
    for (const auto& name : spec.flags) config_->setFlag(named<BuilderFlag>(static_cast<std::string>(name)));
}

void Config::capabilities(const BuildSpec& spec, Logger& logger) {
    if (spec.capabilities.empty()) return;
#if NEURENIX_RTX
    bool taken = config_->setNbComputeCapabilities(static_cast<std::int32_t>(spec.capabilities.size()));
    std::int32_t at = 0;
    for (const auto& name : spec.capabilities) {
        taken = taken && config_->setComputeCapability(capability(static_cast<std::string>(name)), at++);
    }
    if (!taken) throw std::runtime_error(logger.errors("TensorRT-RTX does not take these compute capabilities"));
#else
    static_cast<void>(logger);
    throw std::invalid_argument(
        "TensorRT builds for the GPU at hand; only TensorRT-RTX builds for named compute capabilities");
#endif
}

void Config::profile(IBuilder& builder, const ProfileSpec& spec, Logger& logger) {
    IOptimizationProfile* profile = builder.createOptimizationProfile();
    if (profile == nullptr) throw std::runtime_error(logger.errors("the library gives no profile"));
    for (const ShapeRange& range : spec.shapes) {
        const auto name = static_cast<std::string>(range.name);
        const auto set = [&](OptProfileSelector which, const rust::Vec<std::int64_t>& shape) {
            return profile->setDimensions(name.c_str(), which, dims_of(shape.data(), shape.size()));
        };
        if (!set(OptProfileSelector::kMIN, range.min) || !set(OptProfileSelector::kOPT, range.opt) ||
            !set(OptProfileSelector::kMAX, range.max)) {
            throw std::runtime_error(logger.errors("TensorRT does not take the shapes of input " + name));
        }
    }
    if (config_->addOptimizationProfile(profile) < 0) {
        throw std::runtime_error(logger.errors("TensorRT does not take the profile"));
    }
}

}  // namespace neurenix::tensorrt::NEURENIX_FLAVOUR
