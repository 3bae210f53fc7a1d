// A plugin for tests/plugins/test_libraries.py: y = numbers[0] * x + numbers[1] + whole by way of its workspace, and
// the number of rows. It fails in the way that its field `how` says.
#include <cstring>
#include <new>
#include <stdexcept>
#include <string>

#include "neurenix/plugin.h"

// The spelling of code that was written for TensorRT.
namespace nvinfer1 = neurenix;
using namespace nvinfer1;

namespace {

struct Values {
    float numbers[2] = {1, 0};
    int32_t whole = 0;
    char how[32] = {};
};

class Probe final : public nvinfer1::IPluginV2DynamicExt {
  public:
    explicit Probe(Values const& values) : values_(values) {}

    bool is(char const* how) const { return std::strcmp(values_.how, how) == 0; }
    void fail(char const* method) const {
        if (is(method)) throw std::runtime_error("as it was told");
    }

    AsciiChar const* getPluginType() const noexcept override { return "Probe"; }
    AsciiChar const* getPluginVersion() const noexcept override { return "2"; }
    int32_t getNbOutputs() const noexcept override { return is("no outputs") ? 0 : 2; }
    uint32_t getDeviceKinds() const override {
        return is("cuda alone") ? static_cast<uint32_t>(DeviceKind::kCUDA) : DeviceKind::kHOST | DeviceKind::kCUDA;
    }

    Probe* clone() const override {
        fail("clone");
        return is("no clone") ? nullptr : new Probe(*this);
    }
    size_t getSerializationSize() const override { return sizeof(values_); }
    void serialize(void* buffer) const override {
        fail("serialize");
        std::memcpy(buffer, &values_, sizeof(values_));
    }
    int32_t initialize() override { return is("initialize") ? 7 : 0; }

    DimsExprs getOutputDimensions(int32_t index, DimsExprs const* inputs, int32_t, IExprBuilder& builder) override {
        fail("getOutputDimensions");
        if (is("compare")) builder.operation(DimensionOperation::kLESS, *inputs[0].d[0], *builder.constant(2));
        if (is("int")) throw 42;
        DimsExprs shape;
        if (index == 1) return shape;
        shape = inputs[0];
        if (is("rank")) shape.nbDims = 9;
        if (is("null dim")) shape.d[0] = nullptr;
        if (is("shape")) shape.d[0] = builder.constant(-3);
        return shape;
    }
    DataType getOutputDataType(int32_t index, DataType const* inputTypes, int32_t) const override {
        fail("getOutputDataType");
        if (is("dtype")) return static_cast<DataType>(77);
        return index == 1 ? DataType::kINT64 : inputTypes[0];
    }
    bool supportsFormatCombination(int32_t pos, PluginTensorDesc const* inOut, int32_t, int32_t) override {
        fail("supportsFormatCombination");
        return inOut[pos].type == (pos == 2 ? DataType::kINT64 : DataType::kFLOAT);
    }
    void configurePlugin(DynamicPluginTensorDesc const* in, int32_t, DynamicPluginTensorDesc const*, int32_t) override {
        fail("configurePlugin");
        rows_ = in[0].desc.dims.d[0];
        count_ = rows_ * in[0].desc.dims.d[1];
    }
    size_t getWorkspaceSize(PluginTensorDesc const*, int32_t, PluginTensorDesc const*, int32_t) const override {
        if (is("getWorkspaceSize")) throw std::bad_alloc();
        return sizeof(float) * static_cast<size_t>(count_);
    }
    int32_t enqueue(PluginTensorDesc const*, PluginTensorDesc const*, void const* const* inputs, void* const* outputs,
                    void* workspace, cudaStream_t) override {
        auto const* x = static_cast<float const*>(inputs[0]);
        auto *between = static_cast<float*>(workspace), *y = static_cast<float*>(outputs[0]);
        if (is("sometimes") && x[0] < 0) throw std::domain_error("less than nothing");
        if (is("status")) return 3;
        for (int64_t i = 0; i < count_; ++i) between[i] = values_.numbers[0] * x[i];
        for (int64_t i = 0; i < count_; ++i) y[i] = between[i] + values_.numbers[1] + static_cast<float>(values_.whole);
        *static_cast<int64_t*>(outputs[1]) = rows_;
        return 0;
    }

  private:
    Values values_;
    int64_t rows_ = 0;
    int64_t count_ = 0;
};

class ProbeCreator final : public nvinfer1::IPluginCreator {
  public:
    AsciiChar const* getPluginName() const noexcept override { return "Probe"; }
    AsciiChar const* getPluginVersion() const noexcept override { return "2"; }
    PluginFieldCollection const* getFieldNames() noexcept override { return &declared_; }

    IPluginV2* createPlugin(AsciiChar const*, PluginFieldCollection const* fc) override {
        Values values;
        for (int32_t i = 0; i < fc->nbFields; ++i) {
            PluginField const& field = fc->fields[i];
            std::string name = field.name;
            if (name == "numbers" && field.length == 2) std::memcpy(values.numbers, field.data, sizeof(values.numbers));
            if (name == "whole") values.whole = *static_cast<int32_t const*>(field.data);
            if (name == "how") std::strncpy(values.how, static_cast<char const*>(field.data), sizeof(values.how) - 1);
        }
        auto made = new Probe(values);
        if (made->is("createPlugin")) throw std::runtime_error("as it was told");
        return made;
    }
    IPluginV2* deserializePlugin(AsciiChar const*, void const* data, size_t length) override {
        Values values;
        if (length != sizeof(values)) throw std::invalid_argument("these are no values");
        std::memcpy(&values, data, length);
        return new Probe(values);
    }

  private:
    PluginField fields_[3] = {
        {"numbers", nullptr, PluginFieldType::kFLOAT32, 2},
        {"whole", nullptr, PluginFieldType::kINT32, 1},
        {"how", nullptr, PluginFieldType::kCHAR, 0},
    };
    PluginFieldCollection declared_{3, fields_};
};

REGISTER_TENSORRT_PLUGIN(ProbeCreator);

}  // namespace
