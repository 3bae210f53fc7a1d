#pragma once
// What of TensorRT's interfaces the double does not have: whoever asks for it ends the process, so that the tests see
// it.
#include <NvInfer.h>

#include <cstdio>
#include <cstdlib>

namespace tensorrt_double {

using namespace nvinfer1;

[[noreturn]] inline void lacks(const char* function) {
    std::fprintf(stderr, "the double of TensorRT has no %s\n", function);
    std::abort();
}

class PartialRuntime : public nvinfer1::apiv::VRuntime {
  public:
    IRuntime* getPImpl() noexcept override { lacks(__func__); }
    void setDLACore(int32_t) noexcept override { lacks(__func__); }
    int32_t getDLACore() const noexcept override { lacks(__func__); }
    int32_t getNbDLACores() const noexcept override { lacks(__func__); }
    void setGpuAllocator(IGpuAllocator*) noexcept override { lacks(__func__); }
    void setErrorRecorder(IErrorRecorder*) noexcept override { lacks(__func__); }
    IErrorRecorder* getErrorRecorder() const noexcept override { lacks(__func__); }
    bool setMaxThreads(int32_t) noexcept override { lacks(__func__); }
    int32_t getMaxThreads() const noexcept override { lacks(__func__); }
    void setTemporaryDirectory(char const*) noexcept override { lacks(__func__); }
    char const* getTemporaryDirectory() const noexcept override { lacks(__func__); }
    void setTempfileControlFlags(TempfileControlFlags) noexcept override { lacks(__func__); }
    TempfileControlFlags getTempfileControlFlags() const noexcept override { lacks(__func__); }
    IPluginRegistry& getPluginRegistry() noexcept override { lacks(__func__); }
    void setPluginRegistryParent(IPluginRegistry*) noexcept override { lacks(__func__); }
    IRuntime* loadRuntime(char const*) noexcept override { lacks(__func__); }
    void setEngineHostCodeAllowed(bool) noexcept override { lacks(__func__); }
    ICudaEngine* deserializeCudaEngineV2(IStreamReaderV2&) noexcept override { lacks(__func__); }
    void setDeferredWeightsLoading(bool) noexcept override { lacks(__func__); }
    bool getDeferredWeightsLoading() const noexcept override { lacks(__func__); }
    bool setDLAWorkspaceAllocationStrategy(DLAWorkspaceAllocationStrategy) noexcept override { lacks(__func__); }
    DLAWorkspaceAllocationStrategy getDLAWorkspaceAllocationStrategy() const noexcept override { lacks(__func__); }
};

class PartialCudaEngine : public nvinfer1::apiv::VCudaEngine {
  public:
    ICudaEngine* getPImpl() noexcept override { lacks(__func__); }
    IHostMemory* serialize() const noexcept override { lacks(__func__); }
    char const* getName() const noexcept override { lacks(__func__); }
    EngineCapability getEngineCapability() const noexcept override { lacks(__func__); }
    void setErrorRecorder(IErrorRecorder*) noexcept override { lacks(__func__); }
    IErrorRecorder* getErrorRecorder() const noexcept override { lacks(__func__); }
    TacticSources getTacticSources() const noexcept override { lacks(__func__); }
    ProfilingVerbosity getProfilingVerbosity() const noexcept override { lacks(__func__); }
    int32_t getTensorBytesPerComponent(char const*) const noexcept override { lacks(__func__); }
    int32_t getTensorComponentsPerElement(char const*) const noexcept override { lacks(__func__); }
    int32_t getTensorVectorizedDim(char const*) const noexcept override { lacks(__func__); }
    HardwareCompatibilityLevel getHardwareCompatibilityLevel() const noexcept override { lacks(__func__); }
    int32_t getNbAuxStreams() const noexcept override { lacks(__func__); }
    int32_t getTensorBytesPerComponentV2(char const*, int32_t) const noexcept override { lacks(__func__); }
    int32_t getTensorComponentsPerElementV2(char const*, int32_t) const noexcept override { lacks(__func__); }
    TensorFormat getTensorFormatV2(char const*, int32_t) const noexcept override { lacks(__func__); }
    char const* getTensorFormatDescV2(char const*, int32_t) const noexcept override { lacks(__func__); }
    int32_t getTensorVectorizedDimV2(char const*, int32_t) const noexcept override { lacks(__func__); }
    ISerializationConfig* createSerializationConfig() noexcept override { lacks(__func__); }
    IHostMemory* serializeWithConfig(ISerializationConfig&) const noexcept override { lacks(__func__); }
    IRefitter* createRefitter(ILogger&) noexcept override { lacks(__func__); }
    bool isDebugTensor(char const*) const noexcept override { lacks(__func__); }
    int64_t getWeightStreamingBudgetV2() const noexcept override { lacks(__func__); }
    int64_t getWeightStreamingAutomaticBudget() const noexcept override { lacks(__func__); }
    int64_t getWeightStreamingScratchMemorySize() const noexcept override { lacks(__func__); }
    int64_t getDeviceMemorySizeV2() const noexcept override { lacks(__func__); }
    IExecutionContext* createExecutionContextWithRuntimeConfig(IRuntimeConfig*) noexcept override { lacks(__func__); }
    IRuntimeConfig* createRuntimeConfig() noexcept override { lacks(__func__); }
    int64_t getEngineStat(EngineStat) const noexcept override { lacks(__func__); }
    char const* getAliasedInputTensor(char const*) const noexcept override { lacks(__func__); }
    bool areWeightsLoaded() const noexcept override { lacks(__func__); }
    bool loadWeights(void const*, int64_t) noexcept override { lacks(__func__); }
    bool loadWeightsAsync(IStreamReaderV2&, cudaStream_t) noexcept override { lacks(__func__); }
    bool unloadWeights() noexcept override { lacks(__func__); }
    IWeightsManager* createWeightsManager() noexcept override { lacks(__func__); }
};

class PartialExecutionContext : public nvinfer1::apiv::VExecutionContext {
  public:
    IExecutionContext* getPImpl() noexcept override { lacks(__func__); }
    void setDebugSync(bool) noexcept override { lacks(__func__); }
    bool getDebugSync() const noexcept override { lacks(__func__); }
    IProfiler* getProfiler() const noexcept override { lacks(__func__); }
    void setName(char const*) noexcept override { lacks(__func__); }
    char const* getName() const noexcept override { lacks(__func__); }
    void setDeviceMemory(void*) noexcept override { lacks(__func__); }
    int32_t getOptimizationProfile() const noexcept override { lacks(__func__); }
    bool allInputDimensionsSpecified() const noexcept override { lacks(__func__); }
    void setErrorRecorder(IErrorRecorder*) noexcept override { lacks(__func__); }
    IErrorRecorder* getErrorRecorder() const noexcept override { lacks(__func__); }
    bool executeV2(void* const*) noexcept override { lacks(__func__); }
    bool getEnqueueEmitsProfile() const noexcept override { lacks(__func__); }
    Dims getTensorStrides(char const*) const noexcept override { lacks(__func__); }
    void const* getTensorAddress(char const*) const noexcept override { lacks(__func__); }
    bool setInputTensorAddress(char const*, void const*) noexcept override { lacks(__func__); }
    bool setOutputTensorAddress(char const*, void*) noexcept override { lacks(__func__); }
    bool setInputConsumedEvent(cudaEvent_t) noexcept override { lacks(__func__); }
    cudaEvent_t getInputConsumedEvent() const noexcept override { lacks(__func__); }
    void* getOutputTensorAddress(char const*) const noexcept override { lacks(__func__); }
    IOutputAllocator* getOutputAllocator(char const*) noexcept override { lacks(__func__); }
    bool setTemporaryStorageAllocator(IGpuAllocator*) noexcept override { lacks(__func__); }
    IGpuAllocator* getTemporaryStorageAllocator() const noexcept override { lacks(__func__); }
    void setPersistentCacheLimit(size_t) noexcept override { lacks(__func__); }
    size_t getPersistentCacheLimit() const noexcept override { lacks(__func__); }
    bool setNvtxVerbosity(ProfilingVerbosity) noexcept override { lacks(__func__); }
    ProfilingVerbosity getNvtxVerbosity() const noexcept override { lacks(__func__); }
    void setAuxStreams(cudaStream_t*, int32_t) noexcept override { lacks(__func__); }
    bool setDebugListener(IDebugListener*) noexcept override { lacks(__func__); }
    IDebugListener* getDebugListener() noexcept override { lacks(__func__); }
    bool setTensorDebugState(char const*, bool) noexcept override { lacks(__func__); }
    bool getDebugState(char const*) const noexcept override { lacks(__func__); }
    bool setAllTensorsDebugState(bool) noexcept override { lacks(__func__); }
    IRuntimeConfig* getRuntimeConfig() const noexcept override { lacks(__func__); }
    bool setUnfusedTensorsDebugState(bool) noexcept override { lacks(__func__); }
    bool getUnfusedTensorsDebugState() const noexcept override { lacks(__func__); }
    bool setCommunicator(void*) noexcept override { lacks(__func__); }
};

class PartialEngineInspector : public nvinfer1::apiv::VEngineInspector {
  public:
    IEngineInspector* getPImpl() noexcept override { lacks(__func__); }
    bool setExecutionContext(IExecutionContext const*) noexcept override { lacks(__func__); }
    IExecutionContext const* getExecutionContext() const noexcept override { lacks(__func__); }
    char const* getLayerInformation(int32_t, LayerInformationFormat) const noexcept override { lacks(__func__); }
    void setErrorRecorder(IErrorRecorder*) noexcept override { lacks(__func__); }
    IErrorRecorder* getErrorRecorder() const noexcept override { lacks(__func__); }
};

class PartialRefitter : public nvinfer1::apiv::VRefitter {
  public:
    IRefitter* getPImpl() noexcept override { lacks(__func__); }
    bool setWeights(char const*, WeightsRole, const Weights) noexcept override { lacks(__func__); }
    int32_t getMissing(int32_t, char const**, WeightsRole*) noexcept override { lacks(__func__); }
    int32_t getAll(int32_t, char const**, WeightsRole*) noexcept override { lacks(__func__); }
    void setErrorRecorder(IErrorRecorder*) noexcept override { lacks(__func__); }
    IErrorRecorder* getErrorRecorder() const noexcept override { lacks(__func__); }
    ILogger* getLogger() const noexcept override { lacks(__func__); }
    bool setMaxThreads(int32_t) noexcept override { lacks(__func__); }
    int32_t getMaxThreads() const noexcept override { lacks(__func__); }
    bool setNamedWeightsWithLocation(char const*, Weights, TensorLocation) noexcept override { lacks(__func__); }
    Weights getNamedWeights(char const*) const noexcept override { lacks(__func__); }
    TensorLocation getWeightsLocation(char const*) const noexcept override { lacks(__func__); }
    bool unsetNamedWeights(char const*) noexcept override { lacks(__func__); }
    void setWeightsValidation(bool) noexcept override { lacks(__func__); }
    bool getWeightsValidation() const noexcept override { lacks(__func__); }
    bool refitCudaEngineAsync(cudaStream_t) noexcept override { lacks(__func__); }
    Weights getWeightsPrototype(char const*) const noexcept override { lacks(__func__); }
    bool releaseRefitResources() noexcept override { lacks(__func__); }
};

}  // namespace tensorrt_double
