#include "tensorrt/flavour/runtime.h"

#include <stdexcept>

#include "tensorrt/flavour/plugin.h"

namespace neurenix::tensorrt::NEURENIX_FLAVOUR {
namespace {

#if NEURENIX_RTX
// Why a plan is not valid here, in words.
std::string reasons(std::uint64_t diagnostics) {
    using Why = nvinfer1::EngineInvalidityDiagnostics;
    static const std::pair<Why, const char*> all[]{
        {Why::kVERSION_MISMATCH, "another version of TensorRT-RTX built it"},
        {Why::kUNSUPPORTED_CC, "it was built for GPUs of other compute capabilities"},
        {Why::kOLD_CUDA_DRIVER, "the NVIDIA driver is too old for it"},
        {Why::kOLD_CUDA_RUNTIME, "the CUDA runtime is too old for it"},
        {Why::kINSUFFICIENT_GPU_MEMORY, "the GPU has too little memory"},
        {Why::kMALFORMED_ENGINE, "its bytes are damaged, or are no plan of TensorRT-RTX"},
        {Why::kCUDA_ERROR, "CUDA fails"},
    };
    std::string found;
    for (const auto& [bit, text] : all) {
        if ((diagnostics & static_cast<std::uint64_t>(bit)) != 0)
            found += (found.empty() ? "" : "; ") + std::string(text);
    }
    return found.empty() ? "TensorRT-RTX calls it invalid and does not say why" : found;
}
#endif

}  // namespace

Runtime::Runtime(void* create_runtime, Logger& logger) : logger_(logger) {
    const auto create = reinterpret_cast<void* (*)(void*, std::int32_t)>(create_runtime);
    logger_.errors("");
    runtime_.reset(static_cast<nvinfer1::IRuntime*>(create(&logger_, NV_TENSORRT_VERSION)));
    if (!runtime_) throw std::runtime_error(logger_.errors("the library gives no runtime"));
#if NEURENIX_PLUGINS
    register_hosted_plugins(runtime_->getPluginRegistry());
#endif
    // Code for the processor, which a plan may carry, stays forbidden: that is what a runtime starts with.
}

void Runtime::check(rust::Slice<const std::uint8_t> plan) const {
#if NEURENIX_RTX
    const auto header = runtime_->getEngineHeaderSize();
    if (static_cast<std::int64_t>(plan.size()) < header) {
        throw std::runtime_error("it has " + std::to_string(plan.size()) + " bytes, and the header of a plan " +
                                 std::to_string(header));
    }
    std::uint64_t diagnostics = 0;
    const auto validity =
        runtime_->getEngineValidity(plan.data(), static_cast<std::int64_t>(plan.size()), &diagnostics);
    if (validity == nvinfer1::EngineValidity::kINVALID) throw std::runtime_error(logger_.errors(reasons(diagnostics)));
#else
    // Other versions compare only while they open it.
    static_cast<void>(plan);
#endif
}

std::unique_ptr<nvinfer1::ICudaEngine> Runtime::open(rust::Slice<const std::uint8_t> plan) {
    check(plan);
    std::unique_ptr<nvinfer1::ICudaEngine> engine(runtime_->deserializeCudaEngine(plan.data(), plan.size()));
    if (!engine) throw std::runtime_error(logger_.errors("TensorRT does not take it and gives no reason"));
    return engine;
}

}  // namespace neurenix::tensorrt::NEURENIX_FLAVOUR
