// Plugins in C++ for Neurenix, in the shape of TensorRT's IPluginV2DynamicExt and IPluginCreator.
//
// Derive a plugin and its creator, and end the file with REGISTER_TENSORRT_PLUGIN(MyCreator). Build it as a shared
// library against this header alone (C++17; no library to link) and load it with `trt.load_plugin_library(path)`. Code
// written for TensorRT finds its names after `namespace nvinfer1 = neurenix;`.
//
// Methods may throw: exceptions become errors that name the plugin and the method (an override that says noexcept still
// ends the process). Calls of one object never overlap; each context works on a `clone` of its own.
#ifndef NEURENIX_PLUGIN_H_
#define NEURENIX_PLUGIN_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "neurenix/plugin_abi.h"

struct CUstream_st;
typedef struct CUstream_st* cudaStream_t;

namespace neurenix {

using AsciiChar = char;

// TensorRT's numbers; from kDOUBLE on they are Neurenix's own.
enum class DataType : int32_t {
    kFLOAT = 0,
    kHALF = 1,
    kINT8 = 2,
    kINT32 = 3,
    kBOOL = 4,
    kUINT8 = 5,
    kFP8 = 6,
    kBF16 = 7,
    kINT64 = 8,
    kDOUBLE = 100,
    kINT16 = 101,
    kUINT16 = 102,
    kUINT32 = 103,
    kUINT64 = 104,
};

// Plugins meet row-major tensors alone.
enum class TensorFormat : int32_t { kLINEAR = 0 };
using PluginFormat = TensorFormat;

struct Dims {
    static constexpr int32_t MAX_DIMS = NEURENIX_MAX_DIMS;
    int32_t nbDims = 0;
    int64_t d[MAX_DIMS] = {};
};

enum class DimensionOperation : int32_t {
    kSUM = 0,
    kPROD = 1,
    kMAX = 2,
    kMIN = 3,
    kSUB = 4,
    kEQUAL = 5,
    kLESS = 6,
    kFLOOR_DIV = 7,
    kCEIL_DIV = 8,
};

// A dimension: a constant, or an expression of sizes that calls tell. An IExprBuilder makes and owns them.
class IDimensionExpr {
  public:
    virtual bool isConstant() const = 0;
    // INT64_MIN where it is no constant.
    virtual int64_t getConstantValue() const = 0;

  protected:
    virtual ~IDimensionExpr() = default;
};

struct DimsExprs {
    int32_t nbDims = 0;
    IDimensionExpr const* d[Dims::MAX_DIMS] = {};
};

// Makes dimensions, which hold while the call of getOutputDimensions lasts.
class IExprBuilder {
  public:
    virtual IDimensionExpr const* constant(int64_t value) = 0;
    // Throws for what can't be expressed: kEQUAL and kLESS take constants alone.
    virtual IDimensionExpr const* operation(DimensionOperation op, IDimensionExpr const& first,
                                            IDimensionExpr const& second) = 0;

  protected:
    virtual ~IExprBuilder() = default;
};

// A tensor; a dimension that only a call tells is -1.
struct PluginTensorDesc {
    Dims dims;
    DataType type = DataType::kFLOAT;
    TensorFormat format = TensorFormat::kLINEAR;
    float scale = 1.0F;
};

struct DynamicPluginTensorDesc {
    PluginTensorDesc desc;
    Dims min;
    Dims max;
    Dims opt;
};

enum class PluginFieldType : int32_t {
    kFLOAT16 = 0,
    kFLOAT32 = 1,
    kFLOAT64 = 2,
    kINT8 = 3,
    kINT16 = 4,
    kINT32 = 5,
    kCHAR = 6,
    kDIMS = 7,
    kUNKNOWN = 8,
    kBF16 = 9,
    kINT64 = 10,
};

// A typed value with a name. Behind a kCHAR stands a zero that `length` does not count; kDIMS are `Dims`.
struct PluginField {
    AsciiChar const* name;
    void const* data;
    PluginFieldType type;
    int32_t length;

    PluginField(AsciiChar const* name = nullptr, void const* data = nullptr,
                PluginFieldType type = PluginFieldType::kUNKNOWN, int32_t length = 0)
        : name(name), data(data), type(type), length(length) {}
};

struct PluginFieldCollection {
    int32_t nbFields = 0;
    PluginField const* fields = nullptr;
};

// Where pointers that a plugin gets lead to; the values are bits.
enum class DeviceKind : uint32_t { kHOST = NEURENIX_DEVICE_HOST, kCUDA = NEURENIX_DEVICE_CUDA };

constexpr uint32_t operator|(DeviceKind a, DeviceKind b) { return static_cast<uint32_t>(a) | static_cast<uint32_t>(b); }

class IPluginV2 {
  public:
    virtual ~IPluginV2() = default;

    virtual AsciiChar const* getPluginType() const = 0;
    virtual AsciiChar const* getPluginVersion() const = 0;
    virtual int32_t getNbOutputs() const = 0;
    virtual IPluginV2* clone() const = 0;

    // What an engine file keeps. `serialize` writes as many bytes as getSerializationSize says.
    virtual size_t getSerializationSize() const = 0;
    virtual void serialize(void* buffer) const = 0;

    // Before the first and after the last run of a clone; anything but 0 is a failure.
    virtual int32_t initialize() { return 0; }
    virtual void terminate() {}
    virtual void destroy() { delete this; }

    virtual void setPluginNamespace(AsciiChar const* pluginNamespace) { namespace_ = pluginNamespace; }
    virtual AsciiChar const* getPluginNamespace() const { return namespace_.c_str(); }

  private:
    std::string namespace_;
};

class IPluginV2DynamicExt : public IPluginV2 {
  public:
    IPluginV2DynamicExt* clone() const override = 0;

    virtual DimsExprs getOutputDimensions(int32_t outputIndex, DimsExprs const* inputs, int32_t nbInputs,
                                          IExprBuilder& exprBuilder) = 0;
    virtual DataType getOutputDataType(int32_t index, DataType const* inputTypes, int32_t nbInputs) const = 0;

    // Whether it takes the type of inOut[pos], given those before it.
    virtual bool supportsFormatCombination(int32_t pos, PluginTensorDesc const* inOut, int32_t nbInputs,
                                           int32_t nbOutputs) = 0;

    // Concrete shapes: desc, min, opt and max are the same. Shapes that change configure the next clone.
    virtual void configurePlugin(DynamicPluginTensorDesc const* in, int32_t nbInputs,
                                 DynamicPluginTensorDesc const* out, int32_t nbOutputs) = 0;
    virtual size_t getWorkspaceSize(PluginTensorDesc const* inputs, int32_t nbInputs, PluginTensorDesc const* outputs,
                                    int32_t nbOutputs) const {
        (void)inputs, (void)nbInputs, (void)outputs, (void)nbOutputs;
        return 0;
    }

    // Anything but 0 is a failure. On the host the work is done when it returns, and `stream` is null.
    virtual int32_t enqueue(PluginTensorDesc const* inputDesc, PluginTensorDesc const* outputDesc,
                            void const* const* inputs, void* const* outputs, void* workspace, cudaStream_t stream) = 0;

    // Neurenix's own: the kinds of devices whose pointers `enqueue` takes.
    virtual uint32_t getDeviceKinds() const { return static_cast<uint32_t>(DeviceKind::kCUDA); }
    // Neurenix's own: tells a clone, before configurePlugin, where it will run.
    virtual void attachToDevice(DeviceKind kind, int32_t ordinal) { (void)kind, (void)ordinal; }
    // Neurenix's own: `enqueue` only puts work into its stream, always the same, so that a CUDA graph may record it.
    virtual bool isCapturable() const { return false; }
};

class IPluginCreator {
  public:
    virtual ~IPluginCreator() = default;

    virtual AsciiChar const* getPluginName() const = 0;
    virtual AsciiChar const* getPluginVersion() const = 0;
    // The fields that createPlugin reads, with their types: values are converted to them, other names are refused.
    // Without any, all fields come, in types that follow from the values (int32 and float for plain numbers).
    virtual PluginFieldCollection const* getFieldNames() = 0;
    virtual IPluginV2* createPlugin(AsciiChar const* name, PluginFieldCollection const* fc) = 0;
    // The plugin of what `serialize` wrote: the bytes come from a file, and may be damaged.
    virtual IPluginV2* deserializePlugin(AsciiChar const* name, void const* serialData, size_t serialLength) = 0;

    virtual void setPluginNamespace(AsciiChar const* pluginNamespace) { namespace_ = pluginNamespace; }
    virtual AsciiChar const* getPluginNamespace() const { return namespace_.c_str(); }

  private:
    std::string namespace_;
};

}  // namespace neurenix

#include "neurenix/plugin_export.h"

// Adds a creator, which needs no arguments, to those of the library. Stands in a source file, once for each creator.
#define REGISTER_TENSORRT_PLUGIN(Creator)                                                    \
    static const bool NEURENIX_JOIN(neurenixRegistered, __COUNTER__) __attribute__((used)) = \
        ::neurenix::detail::add([]() -> ::neurenix::IPluginCreator& {                        \
            static Creator creator;                                                          \
            return creator;                                                                  \
        })
#define NEURENIX_JOIN(a, b) NEURENIX_JOIN_EXPANDED(a, b)
#define NEURENIX_JOIN_EXPANDED(a, b) a##b

#endif  // NEURENIX_PLUGIN_H_
