// A plan that is open: what it takes and gives, its inspector and its refitter.
#include "double.h"
#include "partial.h"

namespace tensorrt_double {
namespace {

class Inspector : public IEngineInspector, public PartialEngineInspector {
  public:
    explicit Inspector(const std::string& text) : text_(text) { mImpl = this; }

    const char* getEngineInformation(LayerInformationFormat) const noexcept override {
        return take("inspector") ? nullptr : text_.c_str();
    }

  private:
    const std::string& text_;
};

class Engine : public ICudaEngine, public PartialCudaEngine {
  public:
    Engine(std::shared_ptr<const Plan> plan, ILogger& logger) : plan_(std::move(plan)), logger_(logger) {
        mImpl = this;
        count("live engine");
    }
    ~Engine() noexcept override { count("dead engine"); }

    const Plan& plan() const { return *plan_; }
    ILogger& logger() const { return logger_; }

    IExecutionContext* createExecutionContext(ExecutionContextAllocationStrategy strategy) noexcept override {
        if (strategy != ExecutionContextAllocationStrategy::kUSER_MANAGED) {
            refuse(logger_, "the double gives no memory to contexts");
            return nullptr;
        }
        if (!take("context")) return make_context(*this, plan_, logger_);
        refuse(logger_, "the double gives no context");
        return nullptr;
    }

    std::int32_t getNbIOTensors() const noexcept override { return static_cast<std::int32_t>(plan_->ports.size()); }
    const char* getIOTensorName(std::int32_t at) const noexcept override {
        return at >= 0 && at < getNbIOTensors() ? plan_->ports[static_cast<std::size_t>(at)].name.c_str() : nullptr;
    }
    Dims getTensorShape(const char* name) const noexcept override {
        const Port* port = find(name);
        return port == nullptr ? Dims{-1, {}} : dims_of(port->shape);
    }
    DataType getTensorDataType(const char* name) const noexcept override { return dtype_of(find(name)->dtype); }
    TensorLocation getTensorLocation(const char*) const noexcept override { return TensorLocation::kDEVICE; }
    bool isShapeInferenceIO(const char*) const noexcept override { return false; }
    TensorIOMode getTensorIOMode(const char* name) const noexcept override {
        const Port* port = find(name);
        if (port == nullptr) return TensorIOMode::kNONE;
        return port->input ? TensorIOMode::kINPUT : TensorIOMode::kOUTPUT;
    }
    TensorFormat getTensorFormat(const char*) const noexcept override {
        return setting("layout") != 0 ? TensorFormat::kHWC8 : TensorFormat::kLINEAR;
    }
    const char* getTensorFormatDesc(const char*) const noexcept override { return "channels last, eight at a time"; }

    std::int32_t getNbOptimizationProfiles() const noexcept override {
        return static_cast<std::int32_t>(plan_->ports.front().profiles.size() / 3);
    }
    Dims getProfileShape(const char* name, std::int32_t profile, OptProfileSelector which) const noexcept override {
        const Port* port = find(name);
        const auto at = static_cast<std::size_t>(profile) * 3 + static_cast<std::size_t>(which);
        return port == nullptr || at >= port->profiles.size() ? Dims{-1, {}} : dims_of(port->profiles[at]);
    }
    const std::int64_t* getProfileTensorValuesV2(const char*, std::int32_t,
                                                 OptProfileSelector) const noexcept override {
        return nullptr;
    }
    std::int64_t getDeviceMemorySizeForProfileV2(std::int32_t) const noexcept override { return 1 << 20; }

    IEngineInspector* createEngineInspector() const noexcept override { return new Inspector(plan_->layers); }
    std::int32_t getNbLayers() const noexcept override { return 0; }

    bool isRefittable() const noexcept override { return plan_->refittable; }
    std::int64_t getStreamableWeightsSize() const noexcept override {
        return static_cast<std::int64_t>(plan_->weights.size());
    }
    bool setWeightStreamingBudgetV2(std::int64_t bytes) noexcept override {
        count("budget");
        if (bytes >= 0 && bytes <= getStreamableWeightsSize()) return true;
        return refuse(logger_, "the double streams no weights beyond what there are");
    }

  private:
    const Port* find(const char* name) const {
        for (const Port& port : plan_->ports) {
            if (port.name == name) return &port;
        }
        return nullptr;
    }

    std::shared_ptr<const Plan> plan_;
    ILogger& logger_;
};

}  // namespace

ICudaEngine* make_engine(std::shared_ptr<const Plan> plan, ILogger& logger) {
    return new Engine(std::move(plan), logger);
}

}  // namespace tensorrt_double
