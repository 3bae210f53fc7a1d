#include "tensorrt/flavour/context.h"

#include <stdexcept>

#include "tensorrt/flavour/call.h"

namespace neurenix::tensorrt::NEURENIX_FLAVOUR {
namespace {

cudaStream_t stream_of(std::size_t address) { return reinterpret_cast<cudaStream_t>(address); }

}  // namespace

void Profiler::reportLayerTime(const char* layer, float milliseconds) noexcept {
    times_.emplace_back(layer == nullptr ? "" : layer, milliseconds);
}

rust::Vec<LayerTime> Profiler::take() {
    rust::Vec<LayerTime> all;
    for (const auto& [layer, milliseconds] : times_) all.push_back({rust::String::lossy(layer), milliseconds});
    times_.clear();
    return all;
}

void FlavourContext::fail(const std::string& otherwise) const { throw std::runtime_error(logger_.errors(otherwise)); }

void FlavourContext::set_profile(std::int32_t profile, std::size_t stream) {
    logger_.errors("");
    if (!context_->setOptimizationProfileAsync(profile, stream_of(stream))) {
        fail("TensorRT does not take profile " + std::to_string(profile));
    }
}

void FlavourContext::set_shape(rust::Str tensor, rust::Slice<const std::int64_t> dims) {
    logger_.errors("");
    const auto name = static_cast<std::string>(tensor);
    if (!context_->setInputShape(name.c_str(), dims_of(dims.data(), dims.size()))) {
        fail("TensorRT does not take the shape of this input");
    }
}

rust::Vec<std::int64_t> FlavourContext::shape(rust::Str tensor) const {
    logger_.errors("");
    const nvinfer1::Dims dims = context_->getTensorShape(static_cast<std::string>(tensor).c_str());
    if (dims.nbDims < 0) fail("TensorRT finds no shape for this tensor");
    return extents_of(dims);
}

rust::Vec<rust::String> FlavourContext::infer() {
    logger_.errors("");
    std::vector<const char*> names(static_cast<std::size_t>(tensors_));
    const std::int32_t missing = context_->inferShapes(tensors_, names.data());
    if (missing < 0) fail("TensorRT finds that the shapes do not fit");
    rust::Vec<rust::String> found;
    for (std::int32_t at = 0; at < missing && at < tensors_; ++at) found.push_back(rust::String::lossy(names[at]));
    return found;
}

std::int64_t FlavourContext::memory() {
#if NEURENIX_SHAPE >= 10
    logger_.errors("");
    const auto bytes = static_cast<std::int64_t>(context_->updateDeviceMemorySizeForShapes());
    // 0 is both an error and a network that needs none.
    const std::string said = bytes == 0 ? logger_.errors("") : "";
    if (!said.empty()) throw std::runtime_error(said);
    return bytes;
#else
    return -1;
#endif
}

std::int64_t FlavourContext::max_bytes(rust::Str output) const {
    return context_->getMaxOutputSize(static_cast<std::string>(output).c_str());
}

bool FlavourContext::capturable(std::size_t stream) const {
#if NEURENIX_RTX
    return context_->isStreamCapturable(stream_of(stream));
#else
    // Others tell only by failing.
    static_cast<void>(stream);
    return true;
#endif
}

void FlavourContext::set_memory(std::size_t address, std::size_t bytes) {
    logger_.errors("");
#if NEURENIX_AT_LEAST(100100, 10000)
    context_->setDeviceMemoryV2(reinterpret_cast<void*>(address), static_cast<std::int64_t>(bytes));
#else
    static_cast<void>(bytes);
    context_->setDeviceMemory(reinterpret_cast<void*>(address));
#endif
    const std::string said = logger_.errors("");
    if (!said.empty()) throw std::runtime_error(said);
}

void FlavourContext::set_address(rust::Str tensor, std::size_t address) {
    logger_.errors("");
    const auto name = static_cast<std::string>(tensor);
    if (!context_->setTensorAddress(name.c_str(), reinterpret_cast<void*>(address))) {
        fail("TensorRT does not take the address of this tensor");
    }
}

void FlavourContext::collect(rust::Str output, rust::Box<Collector> collector) {
    logger_.errors("");
    const auto name = static_cast<std::string>(output);
    auto allocator = std::make_unique<Allocator>(std::move(collector));
    if (!context_->setOutputAllocator(name.c_str(), allocator.get())) fail("TensorRT does not take the allocator");
    allocators_[name] = std::move(allocator);
}

void FlavourContext::enqueue(std::size_t stream) {
    logger_.errors("");
    if (!context_->enqueueV3(stream_of(stream))) fail("TensorRT does not run and gives no reason");
}

void FlavourContext::profile_layers(bool wanted) {
    context_->setProfiler(wanted ? &profiler_ : nullptr);
    // The times are asked for, so that a call does not wait for itself.
    if (wanted) context_->setEnqueueEmitsProfile(false);
}

rust::Vec<LayerTime> FlavourContext::times() {
    logger_.errors("");
    profiler_.take();
    if (!context_->reportToProfiler()) fail("TensorRT has no times of layers");
    return profiler_.take();
}

}  // namespace neurenix::tensorrt::NEURENIX_FLAVOUR
