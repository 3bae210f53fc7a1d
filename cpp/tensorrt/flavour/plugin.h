#pragma once
// A plugin behind the table of neurenix/plugin_abi.h as a plugin of TensorRT's third generation. Knows nothing of Rust.
#include <memory>
#include <string>
#include <vector>

#include "include/neurenix/plugin_abi.h"
#include "tensorrt/flavour/version.h"

// TensorRT-RTX has the classes of plugins, and no function that adds one to a network.
#define NEURENIX_PLUGINS (!NEURENIX_RTX && NEURENIX_SHAPE >= 10)

#if NEURENIX_PLUGINS
namespace neurenix::tensorrt::NEURENIX_FLAVOUR {

// Plugins of every kind have these names in TensorRT: what they are stands in their field.
inline constexpr char const* kPluginName = "NeurenixPlugin";
inline constexpr char const* kPluginVersion = "1";
inline constexpr char const* kPluginNamespace = "neurenix";

// An object of the table, which it destroys.
class Handle {
  public:
    Handle(neurenix_plugin_table const& table, void* plugin) : table_(&table), plugin_(plugin) {}
    Handle(Handle&& other) noexcept : table_(other.table_), plugin_(other.plugin_) { other.plugin_ = nullptr; }
    Handle& operator=(Handle&& other) noexcept {
        std::swap(plugin_, other.plugin_);
        std::swap(table_, other.table_);
        return *this;
    }
    ~Handle() {
        if (plugin_ != nullptr) table_->destroy(plugin_);
    }

    neurenix_plugin_table const& table() const { return *table_; }
    void* get() const { return plugin_; }

  private:
    neurenix_plugin_table const* table_;
    void* plugin_;
};

// What goes wrong is a status, and stands in the recorder of the context where there is one.
class Plugin final : public nvinfer1::IPluginV3,
                     public nvinfer1::IPluginV3OneCore,
                     public nvinfer1::IPluginV3OneBuild,
                     public nvinfer1::IPluginV3OneRuntime {
  public:
    explicit Plugin(Handle handle);
    // A plugin like this one of the table; throws what the table says.
    static std::unique_ptr<Plugin> copy(neurenix_plugin_table const& table, void* plugin);

    nvinfer1::IPluginCapability* getCapabilityInterface(nvinfer1::PluginCapabilityType type) noexcept override;
    nvinfer1::IPluginV3* clone() noexcept override;

    char const* getPluginName() const noexcept override { return kPluginName; }
    char const* getPluginVersion() const noexcept override { return kPluginVersion; }
    char const* getPluginNamespace() const noexcept override { return kPluginNamespace; }

    std::int32_t configurePlugin(nvinfer1::DynamicPluginTensorDesc const* in, std::int32_t inputs,
                                 nvinfer1::DynamicPluginTensorDesc const* out, std::int32_t outputs) noexcept override;
    std::int32_t getOutputDataTypes(nvinfer1::DataType* types, std::int32_t outputs,
                                    nvinfer1::DataType const* inputTypes, std::int32_t inputs) const noexcept override;
    std::int32_t getOutputShapes(nvinfer1::DimsExprs const* in, std::int32_t inputs,
                                 nvinfer1::DimsExprs const* shapeInputs, std::int32_t shapeInputCount,
                                 nvinfer1::DimsExprs* out, std::int32_t outputs,
                                 nvinfer1::IExprBuilder& builder) noexcept override;
    bool supportsFormatCombination(std::int32_t pos, nvinfer1::DynamicPluginTensorDesc const* inOut,
                                   std::int32_t inputs, std::int32_t outputs) noexcept override;
    std::int32_t getNbOutputs() const noexcept override { return outputs_; }
    std::size_t getWorkspaceSize(nvinfer1::DynamicPluginTensorDesc const* in, std::int32_t inputs,
                                 nvinfer1::DynamicPluginTensorDesc const* out,
                                 std::int32_t outputs) const noexcept override;

    std::int32_t onShapeChange(nvinfer1::PluginTensorDesc const* in, std::int32_t inputs,
                               nvinfer1::PluginTensorDesc const* out, std::int32_t outputs) noexcept override;
    std::int32_t enqueue(nvinfer1::PluginTensorDesc const* in, nvinfer1::PluginTensorDesc const* out,
                         void const* const* inputs, void* const* outputs, void* workspace,
                         cudaStream_t stream) noexcept override;
    nvinfer1::IPluginV3* attachToContext(nvinfer1::IPluginResourceContext* context) noexcept override;
    nvinfer1::PluginFieldCollection const* getFieldsToSerialize() noexcept override;

  private:
    template <class Body>
    std::int32_t guarded(char const* method, Body body) const noexcept;
    // A clone that is ready for these shapes, and the scratch memory that it needs.
    Handle prepared(std::vector<neurenix_tensor> const& in, std::vector<neurenix_tensor> const& out,
                    std::size_t& workspace) const;

    Handle handle_;
    Handle ready_;
    std::int32_t outputs_ = 0;
    nvinfer1::IErrorRecorder* recorder_ = nullptr;
    std::string written_;
    std::vector<nvinfer1::PluginField> fields_;
    nvinfer1::PluginFieldCollection collection_{};
};

// Makes plugins again when a plan is opened.
class PluginCreator final : public nvinfer1::IPluginCreatorV3One {
  public:
    explicit PluginCreator(neurenix_plugin_table const& table) : table_(table) {}

    nvinfer1::IPluginV3* createPlugin(char const* name, nvinfer1::PluginFieldCollection const* fields,
                                      nvinfer1::TensorRTPhase phase) noexcept override;
    nvinfer1::PluginFieldCollection const* getFieldNames() noexcept override { return &declared_; }
    char const* getPluginName() const noexcept override { return kPluginName; }
    char const* getPluginVersion() const noexcept override { return kPluginVersion; }
    char const* getPluginNamespace() const noexcept override { return kPluginNamespace; }

  private:
    neurenix_plugin_table const& table_;
    nvinfer1::PluginField field_{"plugin", nullptr, nvinfer1::PluginFieldType::kCHAR, 0};
    nvinfer1::PluginFieldCollection declared_{1, &field_};
};

// Lets a registry of TensorRT make plugins of this table, once.
bool register_plugins(nvinfer1::IPluginRegistry& registry, neurenix_plugin_table const& table);

// The same for the plugins of this process: whoever opens plans calls it for the registry of the runtime. In
// layers/plugin.cc.
bool register_hosted_plugins(nvinfer1::IPluginRegistry& registry);

}  // namespace neurenix::tensorrt::NEURENIX_FLAVOUR
#endif
