// NVIDIA's builder, whose plans get words of the double behind their bytes.
#include <cstring>

#include "double.h"

namespace tensorrt_double {
namespace {

using namespace nvinfer1;

class Memory : public IHostMemory, public apiv::VHostMemory {
  public:
    explicit Memory(std::string bytes) : bytes_(std::move(bytes)) { mImpl = this; }

    void* data() const noexcept override { return const_cast<char*>(bytes_.data()); }
    std::size_t size() const noexcept override { return bytes_.size(); }
    DataType type() const noexcept override { return DataType::kINT8; }

  private:
    std::string bytes_;
};

// Whether NVIDIA's builder has none of a network's layers: what is read of it is all that there is then.
bool is_beyond(const INetworkDefinition& network) {
    for (std::int32_t at = 0; at < network.getNbLayers(); ++at) {
        const LayerType type = network.getLayer(at)->getType();
        if (type == LayerType::kNMS || type == LayerType::kNON_ZERO) return true;
    }
    return false;
}

class Builder : public IBuilder, public apiv::VBuilder {
  public:
    Builder(IBuilder* real, ILogger& logger) : real_(real), logger_(logger) { mImpl = this; }

    IOptimizationProfile* createOptimizationProfile() noexcept override {
        IOptimizationProfile* made = real_->createOptimizationProfile();
        if (made != nullptr) profiles_.push_back(made);
        return made;
    }

    IHostMemory* buildSerializedNetwork(INetworkDefinition& network, IBuilderConfig& config) noexcept override {
        count("build");
        Plan plan;
        try {
            plan = describe(network, profiles_);
        } catch (const std::exception& error) {
            refuse(logger_, error.what());
            return nullptr;
        }
        // NVIDIA's needs a GPU for these.
        plan.refittable = config.getFlag(BuilderFlag::kREFIT);
        if (plan.refittable) config.clearFlag(BuilderFlag::kREFIT);
        if (is_beyond(network)) return new Memory(std::string(64, '-') + write(plan));
        const std::unique_ptr<IHostMemory> built(real_->buildSerializedNetwork(network, config));
        if (!built) return nullptr;
        const std::string bytes(static_cast<const char*>(built->data()), built->size());
        return new Memory(bytes + write(plan));
    }

    std::int32_t getMaxDLABatchSize() const noexcept override { return real_->getMaxDLABatchSize(); }
    std::int32_t getNbDLACores() const noexcept override { return real_->getNbDLACores(); }
    void setGpuAllocator(IGpuAllocator* allocator) noexcept override { real_->setGpuAllocator(allocator); }
    IBuilderConfig* createBuilderConfig() noexcept override { return real_->createBuilderConfig(); }
    INetworkDefinition* createNetworkV2(NetworkDefinitionCreationFlags flags) noexcept override {
        return real_->createNetworkV2(flags);
    }
    void setErrorRecorder(IErrorRecorder* recorder) noexcept override { real_->setErrorRecorder(recorder); }
    IErrorRecorder* getErrorRecorder() const noexcept override { return real_->getErrorRecorder(); }
    void reset() noexcept override { real_->reset(); }
    bool isNetworkSupported(const INetworkDefinition& network, const IBuilderConfig& config) const noexcept override {
        return real_->isNetworkSupported(network, config);
    }
    ILogger* getLogger() const noexcept override { return real_->getLogger(); }
    bool setMaxThreads(std::int32_t threads) noexcept override { return real_->setMaxThreads(threads); }
    std::int32_t getMaxThreads() const noexcept override { return real_->getMaxThreads(); }
    IPluginRegistry& getPluginRegistry() noexcept override { return real_->getPluginRegistry(); }
    bool buildSerializedNetworkToStream(INetworkDefinition& network, IBuilderConfig& config,
                                        IStreamWriter& writer) noexcept override {
        return real_->buildSerializedNetworkToStream(network, config, writer);
    }

  private:
    std::unique_ptr<IBuilder> real_;
    ILogger& logger_;
    std::vector<IOptimizationProfile*> profiles_;
};

}  // namespace

IBuilder* make_builder(void* real, ILogger& logger) { return new Builder(static_cast<IBuilder*>(real), logger); }

}  // namespace tensorrt_double
