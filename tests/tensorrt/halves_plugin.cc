// A plugin for tests/tensorrt/test_hosted.py: half of the columns times a number, and where each row came from. It
// calculates in the processor's memory, and says that this is a GPU's.
#include <cstring>
#include <stdexcept>

#include "neurenix/plugin.h"

using namespace neurenix;

namespace {

class Halves final : public IPluginV2DynamicExt {
  public:
    explicit Halves(float by) : by_(by) {}

    AsciiChar const* getPluginType() const override { return "Halves"; }
    AsciiChar const* getPluginVersion() const override { return "1"; }
    int32_t getNbOutputs() const override { return 2; }
    Halves* clone() const override { return new Halves(by_); }
    size_t getSerializationSize() const override { return sizeof(by_); }
    void serialize(void* buffer) const override { std::memcpy(buffer, &by_, sizeof(by_)); }
    DimsExprs getOutputDimensions(int32_t index, DimsExprs const* in, int32_t, IExprBuilder& builder) override {
        DimsExprs made = in[0];
        if (in[0].nbDims == 0) return made;
        if (index == 0)
            made.d[1] = builder.operation(DimensionOperation::kCEIL_DIV, *in[0].d[1], *builder.constant(2));
        else
            made.nbDims = 1;
        return made;
    }
    DataType getOutputDataType(int32_t index, DataType const* types, int32_t) const override {
        return index == 0 ? types[0] : DataType::kINT32;
    }
    bool supportsFormatCombination(int32_t pos, PluginTensorDesc const* inOut, int32_t, int32_t) override {
        return inOut[pos].type == (pos == 2 ? DataType::kINT32 : DataType::kFLOAT);
    }
    void configurePlugin(DynamicPluginTensorDesc const* in, int32_t, DynamicPluginTensorDesc const*, int32_t) override {
        rows_ = in[0].desc.dims.d[0];
        columns_ = in[0].desc.dims.d[1];
    }
    size_t getWorkspaceSize(PluginTensorDesc const* inputs, int32_t, PluginTensorDesc const*, int32_t) const override {
        // The least shape needs the most.
        return static_cast<size_t>(1000 - inputs[0].dims.d[0]);
    }
    int32_t enqueue(PluginTensorDesc const*, PluginTensorDesc const*, void const* const* inputs, void* const* outputs,
                    void*, cudaStream_t) override {
        if (rows_ == 13) throw std::runtime_error("thirteen rows are too many");
        int64_t const half = (columns_ + 1) / 2;
        for (int64_t row = 0; row < rows_; ++row) {
            for (int64_t i = 0; i < half; ++i)
                static_cast<float*>(outputs[0])[row * half + i] =
                    by_ * static_cast<float const*>(inputs[0])[row * columns_ + i];
            static_cast<int32_t*>(outputs[1])[row] = static_cast<int32_t>(row);
        }
        return 0;
    }

  private:
    float by_;
    int64_t rows_ = 0, columns_ = 0;
};

class HalvesCreator final : public IPluginCreator {
  public:
    AsciiChar const* getPluginName() const override { return "Halves"; }
    AsciiChar const* getPluginVersion() const override { return "1"; }
    PluginFieldCollection const* getFieldNames() override { return &declared_; }
    Halves* createPlugin(AsciiChar const*, PluginFieldCollection const*) override { return new Halves(1.0F); }
    Halves* deserializePlugin(AsciiChar const*, void const* data, size_t length) override {
        float by = 0;
        if (length != sizeof(by)) throw std::runtime_error("it is damaged");
        std::memcpy(&by, data, length);
        return new Halves(by);
    }

  private:
    PluginFieldCollection declared_{};
};

REGISTER_TENSORRT_PLUGIN(HalvesCreator);

}  // namespace
