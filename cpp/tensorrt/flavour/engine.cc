#include "tensorrt/flavour/engine.h"

#include <stdexcept>

#include "tensorrt/flavour/call.h"
#include "tensorrt/flavour/context.h"

namespace neurenix::tensorrt::NEURENIX_FLAVOUR {
namespace {

using namespace nvinfer1;
using Held = std::lock_guard<std::mutex>;

ShapeRange range(const char* name, const Dims& min, const Dims& opt, const Dims& max) {
    return {name, extents_of(min), extents_of(opt), extents_of(max)};
}

// The values of an input that tells shapes; none where this version does not tell.
void add_values(const ICudaEngine& engine, const char* name, std::int32_t profile, rust::Vec<ShapeRange>& all) {
#if NEURENIX_RTX || NEURENIX_SHAPE >= 11
    const auto ask = [&](OptProfileSelector which) { return engine.getProfileTensorValuesV2(name, profile, which); };
#elif NEURENIX_SHAPE == 10
    const auto ask = [&](OptProfileSelector which) { return engine.getProfileTensorValues(name, profile, which); };
#endif
#if NEURENIX_SHAPE >= 10
    const Dims shape = engine.getTensorShape(name);
    std::int64_t count = 1;
    for (std::int32_t axis = 0; axis < shape.nbDims; ++axis) count *= shape.d[axis];
    const auto read = [&](OptProfileSelector which) {
        const auto* values = ask(which);
        rust::Vec<std::int64_t> found;
        for (std::int64_t at = 0; values != nullptr && at < count; ++at) found.push_back(values[at]);
        return found;
    };
    all.push_back(
        {name, read(OptProfileSelector::kMIN), read(OptProfileSelector::kOPT), read(OptProfileSelector::kMAX)});
#else
    static_cast<void>(engine), static_cast<void>(name), static_cast<void>(profile), static_cast<void>(all);
#endif
}

rust::Vec<rust::String> texts(const std::vector<const char*>& names, std::int32_t count) {
    rust::Vec<rust::String> found;
    for (std::int32_t at = 0; at < count && at < static_cast<std::int32_t>(names.size()); ++at) {
        found.push_back(rust::String::lossy(names[at]));
    }
    return found;
}

}  // namespace

FlavourEngine::FlavourEngine(void* create_runtime, void* create_refitter, rust::Slice<const std::uint8_t> plan,
                             rust::Box<Sink> sink)
    : logger_(std::move(sink)),
      create_refitter_(create_refitter),
      runtime_(create_runtime, logger_),
      engine_(runtime_.open(plan)) {}

void FlavourEngine::fail(const std::string& otherwise) const { throw std::runtime_error(logger_.errors(otherwise)); }

rust::Vec<IoInfo> FlavourEngine::tensors() const {
    rust::Vec<IoInfo> all;
    for (std::int32_t at = 0; at < engine_->getNbIOTensors(); ++at) {
        const char* name = engine_->getIOTensorName(at);
        if (name == nullptr) fail("the plan has an input or output without a name");
        all.push_back(tensor(name));
    }
    if (all.empty()) fail("the plan has no inputs and no outputs");
    return all;
}

IoInfo FlavourEngine::tensor(const char* name) const {
    IoInfo info{};
    info.name = name;
    info.dtype = name_of(engine_->getTensorDataType(name));
    info.shape = extents_of(engine_->getTensorShape(name));
    info.is_input = engine_->getTensorIOMode(name) == TensorIOMode::kINPUT;
    info.on_host = engine_->getTensorLocation(name) == TensorLocation::kHOST;
    info.is_shape = engine_->isShapeInferenceIO(name);
    if (engine_->getTensorFormat(name) != TensorFormat::kLINEAR) {
        info.layout = rust::String::lossy(engine_->getTensorFormatDesc(name));
    }
    for (std::int32_t profile = 0; info.is_input && profile < profiles(); ++profile) {
        const auto shape = [&](OptProfileSelector which) { return engine_->getProfileShape(name, profile, which); };
        info.profiles.push_back(range(name, shape(OptProfileSelector::kMIN), shape(OptProfileSelector::kOPT),
                                      shape(OptProfileSelector::kMAX)));
        if (info.is_shape) add_values(*engine_, name, profile, info.values);
    }
    return info;
}

std::int64_t FlavourEngine::device_memory(std::int32_t profile) const {
#if NEURENIX_AT_LEAST(100100, 10000)
    return engine_->getDeviceMemorySizeForProfileV2(profile);
#elif NEURENIX_SHAPE == 10
    return static_cast<std::int64_t>(engine_->getDeviceMemorySizeForProfile(profile));
#else
    static_cast<void>(profile);
    return static_cast<std::int64_t>(engine_->getDeviceMemorySize());
#endif
}

rust::String FlavourEngine::layers() const {
    const Held held(lock_);
    logger_.errors("");
    const std::unique_ptr<IEngineInspector> inspector(engine_->createEngineInspector());
    if (!inspector) fail("the library gives no inspector");
    const char* text = inspector->getEngineInformation(LayerInformationFormat::kJSON);
    if (text == nullptr) fail("the inspector says nothing");
    return rust::String::lossy(text);
}

std::int64_t FlavourEngine::streamable_weights() const {
#if NEURENIX_SHAPE >= 10
    return engine_->getStreamableWeightsSize();
#else
    throw std::invalid_argument("this version of TensorRT streams no weights");
#endif
}

void FlavourEngine::set_weight_budget(std::int64_t bytes) const {
    const Held held(lock_);
    logger_.errors("");
    const auto all = streamable_weights();
    if (bytes < 0) bytes = all;
#if NEURENIX_AT_LEAST(100100, 10000)
    const bool set = engine_->setWeightStreamingBudgetV2(bytes);
#elif NEURENIX_SHAPE == 10
    const bool set = engine_->setWeightStreamingBudget(bytes);
#else
    const bool set = false;
#endif
    if (!set) fail("TensorRT does not take this budget for weights");
}

std::unique_ptr<IRefitter> FlavourEngine::refitter() const {
    if (!engine_->isRefittable()) throw std::invalid_argument("the plan was not built with refittable weights");
    logger_.errors("");
    const auto create = reinterpret_cast<void* (*)(void*, void*, std::int32_t)>(create_refitter_);
    std::unique_ptr<IRefitter> refitter(
        create == nullptr ? nullptr : static_cast<IRefitter*>(create(engine_.get(), &logger_, NV_TENSORRT_VERSION)));
    if (!refitter) fail("the library gives no refitter");
    return refitter;
}

rust::Vec<rust::String> FlavourEngine::weight_names() const {
    const Held held(lock_);
    const auto refitter = this->refitter();
    std::vector<const char*> names(static_cast<std::size_t>(std::max(0, refitter->getAllWeights(0, nullptr))));
    return texts(names, refitter->getAllWeights(static_cast<std::int32_t>(names.size()), names.data()));
}

rust::Vec<rust::String> FlavourEngine::refit(rust::Slice<const WeightsSpec> weights) const {
    const Held held(lock_);
    const auto refitter = this->refitter();
    for (const WeightsSpec& given : weights) {
        const auto name = static_cast<std::string>(given.name);
        if (!refitter->setNamedWeights(name.c_str(), weights_of(given))) {
            fail("TensorRT does not take weights of this name, count or dtype: " + name);
        }
    }
    std::vector<const char*> missing(static_cast<std::size_t>(std::max(0, refitter->getMissingWeights(0, nullptr))));
    if (!missing.empty()) {
        return texts(missing, refitter->getMissingWeights(static_cast<std::int32_t>(missing.size()), missing.data()));
    }
    if (!refitter->refitCudaEngine()) fail("TensorRT does not replace the weights and gives no reason");
    return {};
}

std::unique_ptr<Context> FlavourEngine::context() const {
    const Held held(lock_);
    logger_.errors("");
#if NEURENIX_SHAPE >= 10
    std::unique_ptr<IExecutionContext> made(
        engine_->createExecutionContext(ExecutionContextAllocationStrategy::kUSER_MANAGED));
#else
    std::unique_ptr<IExecutionContext> made(engine_->createExecutionContextWithoutDeviceMemory());
#endif
    if (!made) fail("TensorRT gives no context and no reason");
    return std::make_unique<FlavourContext>(std::move(made), engine_->getNbIOTensors(), logger_);
}

}  // namespace neurenix::tensorrt::NEURENIX_FLAVOUR
