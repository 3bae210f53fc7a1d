#include "tensorrt/flavour/session.h"

#include <stdexcept>

#include "tensorrt/flavour/config.h"
#include "tensorrt/flavour/engine.h"
#include "tensorrt/flavour/layers.h"
#include "tensorrt/flavours.h"

namespace neurenix::tensorrt::NEURENIX_FLAVOUR {
namespace {

using nvinfer1::NetworkDefinitionCreationFlag;

constexpr std::uint32_t network_flags() {
#if NEURENIX_SHAPE == 8
    return 1U << static_cast<std::uint32_t>(NetworkDefinitionCreationFlag::kEXPLICIT_BATCH);
#elif NEURENIX_SHAPE == 10
    return 1U << static_cast<std::uint32_t>(NetworkDefinitionCreationFlag::kSTRONGLY_TYPED);
#else
    // Every network is strongly typed.
    return 0;
#endif
}

}  // namespace

FlavourSession::FlavourSession(void* create_builder, rust::Box<Sink> sink) : logger_(std::move(sink)) {
    const auto create = reinterpret_cast<void* (*)(void*, std::int32_t)>(create_builder);
    builder_.reset(static_cast<nvinfer1::IBuilder*>(create(&logger_, NV_TENSORRT_VERSION)));
    if (!builder_) fail("the library gives no builder");
    network_.reset(builder_->createNetworkV2(network_flags()));
    if (!network_) fail("the library gives no network");
}

void FlavourSession::fail(const std::string& otherwise) { throw std::runtime_error(logger_.errors(otherwise)); }

std::uint32_t FlavourSession::keep(nvinfer1::ITensor* tensor, nvinfer1::ILayer* producer) {
    made_.tensors.push_back(tensor);
    made_.producers.push_back(producer);
    return static_cast<std::uint32_t>(made_.tensors.size() - 1);
}

std::uint32_t FlavourSession::add_input(rust::Str name, rust::Str dtype, rust::Slice<const std::int64_t> dims) {
    const auto text = static_cast<std::string>(name);
    const auto type = named<nvinfer1::DataType>(static_cast<std::string>(dtype));
    nvinfer1::ITensor* tensor = network_->addInput(text.c_str(), type, dims_of(dims.data(), dims.size()));
    if (tensor == nullptr) fail("TensorRT does not take this input");
    return keep(tensor, nullptr);
}

rust::Vec<std::uint32_t> FlavourSession::add_layer(const LayerSpec& spec) {
    const Call call(spec, made_);
    logger_.errors("");
    nvinfer1::ILayer* layer = adder(static_cast<std::string>(spec.kind))(*network_, call);
    if (layer == nullptr) fail("TensorRT does not take this layer");
    layer->setName(static_cast<std::string>(spec.name).c_str());
    layer->setMetadata(static_cast<std::string>(spec.metadata).c_str());
    for (const WeightsSpec& given : spec.weights) {
        if (!given.name.empty())
            network_->setWeightsName(weights_of(given), static_cast<std::string>(given.name).c_str());
    }
    rust::Vec<std::uint32_t> outputs;
    for (std::int32_t at = 0; at < layer->getNbOutputs(); ++at) {
        nvinfer1::ITensor* output = layer->getOutput(at);
        // A layer whose inputs do not fit tells so only when its shapes are asked for.
        if (output == nullptr || output->getDimensions().nbDims < 0)
            fail("TensorRT finds no shape for the layer's output");
        // RTX 1.7.1 builds no loop with a tensor whose type nobody has asked for: "has an invalid inferred type".
        static_cast<void>(output->getType());
        outputs.push_back(keep(output, layer));
    }
    return outputs;
}

std::uint32_t FlavourSession::add_loop(rust::Str name) {
    nvinfer1::ILoop* loop = network_->addLoop();
    if (loop == nullptr) fail("TensorRT gives no loop");
    loop->setName(static_cast<std::string>(name).c_str());
    made_.loops.push_back(loop);
    return static_cast<std::uint32_t>(made_.loops.size() - 1);
}

std::uint32_t FlavourSession::add_conditional(rust::Str name) {
    nvinfer1::IIfConditional* conditional = network_->addIfConditional();
    if (conditional == nullptr) fail("TensorRT gives no conditional");
    conditional->setName(static_cast<std::string>(name).c_str());
    made_.conditionals.push_back(conditional);
    return static_cast<std::uint32_t>(made_.conditionals.size() - 1);
}

void FlavourSession::set_next(std::uint32_t recurrence, std::uint32_t next) {
    nvinfer1::ILayer* layer = made_.producers.at(recurrence);
    if (layer == nullptr || layer->getType() != nvinfer1::LayerType::kRECURRENCE)
        throw std::invalid_argument("only a recurrence has a next value");
    layer->setInput(1, *made_.tensors.at(next));
}

void FlavourSession::mark_output(std::uint32_t tensor, rust::Str name) {
    nvinfer1::ITensor& marked = *made_.tensors.at(tensor);
    marked.setName(static_cast<std::string>(name).c_str());
    network_->markOutput(marked);
}

TensorInfo FlavourSession::tensor(std::uint32_t tensor) const {
    const nvinfer1::ITensor& found = *made_.tensors.at(tensor);
    return {found.getName(), name_of(found.getType()), extents_of(found.getDimensions())};
}

bool FlavourSession::has_flag(rust::Str name) const {
    return has<nvinfer1::BuilderFlag>(static_cast<std::string>(name));
}

rust::Vec<std::uint8_t> FlavourSession::build(const BuildSpec& spec) {
    logger_.errors("");
    const Config config(*builder_, *network_, spec, logger_);
    const std::unique_ptr<nvinfer1::IHostMemory> plan(builder_->buildSerializedNetwork(*network_, config.raw()));
    if (config.cancelled()) throw std::runtime_error("the build was cancelled");
    if (!plan || plan->size() == 0) fail("TensorRT gives no plan and no reason");
    measured_ = config.measured();
    rust::Vec<std::uint8_t> bytes;
    bytes.reserve(plan->size());
    const auto* first = static_cast<const std::uint8_t*>(plan->data());
    std::copy(first, first + plan->size(), std::back_inserter(bytes));
    return bytes;
}

namespace {

// A library may have more functions than its headers name, at the ends of the tables, as long as the interfaces keep
// their shape.
bool fits(std::int32_t library) {
    if (library < NV_TENSORRT_VERSION) return false;
#if NEURENIX_RTX
    return NEURENIX_SHAPE == 10 ? library < 10500 : library < 20000;
#elif NEURENIX_SHAPE == 8
    return library < 9000;
#else
    return library < (NEURENIX_SHAPE + 1) * 10000;
#endif
}

std::unique_ptr<Session> open(void* create_builder, rust::Box<Sink> sink) {
    return std::make_unique<FlavourSession>(create_builder, std::move(sink));
}

std::unique_ptr<Engine> run(void* create_runtime, void* create_refitter, rust::Slice<const std::uint8_t> plan,
                            rust::Box<Sink> sink) {
    return std::make_unique<FlavourEngine>(create_runtime, create_refitter, plan, std::move(sink));
}

#define NEURENIX_QUOTE(name) #name
#define NEURENIX_TEXT(name) NEURENIX_QUOTE(name)

}  // namespace

// Declared in tensorrt/flavours.cc.
Flavour flavour();
Flavour flavour() { return {NEURENIX_TEXT(NEURENIX_FLAVOUR), NV_TENSORRT_VERSION, NEURENIX_RTX != 0, fits, open, run}; }

}  // namespace neurenix::tensorrt::NEURENIX_FLAVOUR
