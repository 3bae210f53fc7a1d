// WaveNet's gate tanh(warmth * a) * sigmoid(b): reads [..., 2 * width] and gives [..., width], in float or double.
//
// On the processor here. For a GPU: let getDeviceKinds give `DeviceKind::kHOST | DeviceKind::kCUDA`, keep what
// attachToDevice tells, and where it is kCUDA let `enqueue` launch a kernel into its stream instead of calling `gate`.
#include <cmath>
#include <cstring>
#include <stdexcept>

#include "neurenix/plugin.h"

using namespace neurenix;

namespace {

template <class T>
void gate(T const* x, T* y, int64_t rows, int64_t width, T warmth) {
    for (int64_t row = 0; row < rows; ++row, x += 2 * width, y += width) {
        for (int64_t i = 0; i < width; ++i) y[i] = std::tanh(warmth * x[i]) / (1 + std::exp(-x[width + i]));
    }
}

class Gate final : public IPluginV2DynamicExt {
  public:
    explicit Gate(double warmth) : warmth_(warmth) {}

    AsciiChar const* getPluginType() const override { return "Gate"; }
    AsciiChar const* getPluginVersion() const override { return "1"; }
    AsciiChar const* getPluginNamespace() const override { return "example"; }
    int32_t getNbOutputs() const override { return 1; }
    Gate* clone() const override { return new Gate(*this); }
    uint32_t getDeviceKinds() const override { return static_cast<uint32_t>(DeviceKind::kHOST); }

    size_t getSerializationSize() const override { return sizeof(warmth_); }
    void serialize(void* buffer) const override { std::memcpy(buffer, &warmth_, sizeof(warmth_)); }

    DimsExprs getOutputDimensions(int32_t, DimsExprs const* inputs, int32_t nbInputs, IExprBuilder& builder) override {
        if (nbInputs != 1 || inputs[0].nbDims < 1) throw std::invalid_argument("Gate takes one tensor with dimensions");
        DimsExprs shape = inputs[0];
        auto const*& last = shape.d[shape.nbDims - 1];
        last = builder.operation(DimensionOperation::kFLOOR_DIV, *last, *builder.constant(2));
        return shape;
    }

    DataType getOutputDataType(int32_t, DataType const* inputTypes, int32_t) const override { return inputTypes[0]; }

    bool supportsFormatCombination(int32_t pos, PluginTensorDesc const* inOut, int32_t, int32_t) override {
        return pos > 0 ? inOut[pos].type == inOut[0].type
                       : inOut[0].type == DataType::kFLOAT || inOut[0].type == DataType::kDOUBLE;
    }

    void configurePlugin(DynamicPluginTensorDesc const* in, int32_t, DynamicPluginTensorDesc const*, int32_t) override {
        Dims const& dims = in[0].desc.dims;
        int64_t columns = dims.d[dims.nbDims - 1];
        if (columns % 2 != 0) throw std::invalid_argument("Gate takes an even number of columns");
        width_ = columns / 2;
        rows_ = 1;
        for (int32_t i = 0; i + 1 < dims.nbDims; ++i) rows_ *= dims.d[i];
    }

    int32_t enqueue(PluginTensorDesc const* inputDesc, PluginTensorDesc const*, void const* const* inputs,
                    void* const* outputs, void*, cudaStream_t) override {
        if (inputDesc[0].type == DataType::kDOUBLE) {
            gate(static_cast<double const*>(inputs[0]), static_cast<double*>(outputs[0]), rows_, width_, warmth_);
        } else {
            gate(static_cast<float const*>(inputs[0]), static_cast<float*>(outputs[0]), rows_, width_,
                 static_cast<float>(warmth_));
        }
        return 0;
    }

  private:
    double warmth_;
    int64_t rows_ = 0;
    int64_t width_ = 0;
};

class GateCreator final : public IPluginCreator {
  public:
    AsciiChar const* getPluginName() const override { return "Gate"; }
    AsciiChar const* getPluginVersion() const override { return "1"; }
    AsciiChar const* getPluginNamespace() const override { return "example"; }
    PluginFieldCollection const* getFieldNames() override { return &declared_; }

    Gate* createPlugin(AsciiChar const*, PluginFieldCollection const* fc) override {
        if (fc->nbFields == 0) return new Gate(1.0);
        // Neurenix refuses other names and types than those of getFieldNames.
        if (fc->fields[0].length != 1) throw std::invalid_argument("warmth is one number");
        return new Gate(*static_cast<double const*>(fc->fields[0].data));
    }

    Gate* deserializePlugin(AsciiChar const*, void const* data, size_t length) override {
        double warmth;
        if (length != sizeof(warmth)) throw std::invalid_argument("the file does not hold a Gate");
        std::memcpy(&warmth, data, sizeof(warmth));
        return new Gate(warmth);
    }

  private:
    PluginField field_{"warmth", nullptr, PluginFieldType::kFLOAT64, 1};
    PluginFieldCollection declared_{1, &field_};
};

REGISTER_TENSORRT_PLUGIN(GateCreator);

}  // namespace
