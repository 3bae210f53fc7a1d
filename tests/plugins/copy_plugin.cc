// A plugin for tests/plugins/test_gpu.py: a copy, by the driver that the process has open where it runs on a GPU.
#include <dlfcn.h>

#include <cstring>
#include <stdexcept>

#include "neurenix/plugin.h"

using namespace neurenix;

namespace {

class Copy final : public IPluginV2DynamicExt {
  public:
    explicit Copy(bool isCapturable) : isCapturable_(isCapturable) {}

    AsciiChar const* getPluginType() const override { return "Copy"; }
    AsciiChar const* getPluginVersion() const override { return "1"; }
    int32_t getNbOutputs() const override { return 1; }
    Copy* clone() const override { return new Copy(*this); }
    uint32_t getDeviceKinds() const override { return DeviceKind::kHOST | DeviceKind::kCUDA; }
    bool isCapturable() const override { return isCapturable_; }
    size_t getSerializationSize() const override { return 1; }
    void serialize(void* buffer) const override { std::memcpy(buffer, &isCapturable_, 1); }
    DimsExprs getOutputDimensions(int32_t, DimsExprs const* in, int32_t, IExprBuilder&) override { return in[0]; }
    DataType getOutputDataType(int32_t, DataType const* types, int32_t) const override { return types[0]; }
    bool supportsFormatCombination(int32_t pos, PluginTensorDesc const* inOut, int32_t, int32_t) override {
        return inOut[pos].type == DataType::kFLOAT;
    }
    void attachToDevice(DeviceKind kind, int32_t) override {
        if (kind == DeviceKind::kHOST) return;
        void* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
        if (driver == nullptr) throw std::runtime_error("the driver is not open");
        copy_ = reinterpret_cast<decltype(copy_)>(dlsym(driver, "cuMemcpyAsync"));
    }
    void configurePlugin(DynamicPluginTensorDesc const* in, int32_t, DynamicPluginTensorDesc const*, int32_t) override {
        bytes_ = sizeof(float);
        for (int32_t i = 0; i < in[0].desc.dims.nbDims; ++i) bytes_ *= static_cast<size_t>(in[0].desc.dims.d[i]);
    }
    int32_t enqueue(PluginTensorDesc const*, PluginTensorDesc const*, void const* const* inputs, void* const* outputs,
                    void*, cudaStream_t stream) override {
        if (copy_ != nullptr) return copy_(outputs[0], inputs[0], bytes_, stream);
        std::memcpy(outputs[0], inputs[0], bytes_);
        return 0;
    }

  private:
    bool isCapturable_;
    size_t bytes_ = 0;
    int (*copy_)(void*, void const*, size_t, cudaStream_t) = nullptr;
};

class CopyCreator final : public IPluginCreator {
  public:
    AsciiChar const* getPluginName() const override { return "Copy"; }
    AsciiChar const* getPluginVersion() const override { return "1"; }
    PluginFieldCollection const* getFieldNames() override { return &declared_; }
    Copy* createPlugin(AsciiChar const*, PluginFieldCollection const* fc) override {
        return new Copy(fc->nbFields > 0 && *static_cast<int32_t const*>(fc->fields[0].data) != 0);
    }
    Copy* deserializePlugin(AsciiChar const*, void const* data, size_t length) override {
        return new Copy(length == 1 && *static_cast<char const*>(data) != 0);
    }

  private:
    PluginField field_{"capturable", nullptr, PluginFieldType::kINT32, 1};
    PluginFieldCollection declared_{1, &field_};
};

REGISTER_TENSORRT_PLUGIN(CopyCreator);

}  // namespace
