// Calls the functions of a wrapped plugin as TensorRT does, without TensorRT, and prints what they give.
#include <cstring>
#include <deque>
#include <iostream>
#include <memory>

#include "tensorrt/flavour/plugin.h"

using namespace nvinfer1;
using neurenix::tensorrt::NEURENIX_FLAVOUR::Plugin;
using neurenix::tensorrt::NEURENIX_FLAVOUR::PluginCreator;

extern "C" neurenix_plugin_table const* neurenix_plugin_entry();

namespace {

// A dimension as text.
class Expr final : public IDimensionExpr, apiv::VDimensionExpr {
  public:
    Expr(std::string text, int64_t value) : text(std::move(text)), value(value) { mImpl = this; }
    bool isConstant() const override { return value >= 0; }
    int64_t getConstantValue() const override { return value; }
    bool isSizeTensor() const override { return false; }

    std::string const text;
    int64_t const value;
};

class Builder final : public IExprBuilder, apiv::VExprBuilder {
  public:
    Builder() { mImpl = this; }
    Expr const* made(std::string text, int64_t value = -1) { return &all_.emplace_back(std::move(text), value); }
    IDimensionExpr const* constant(int64_t value) override { return made(std::to_string(value), value); }
    IDimensionExpr const* operation(DimensionOperation op, IDimensionExpr const& a, IDimensionExpr const& b) override {
        auto const text = [](IDimensionExpr const& expr) { return static_cast<Expr const&>(expr).text; };
        return made("op" + std::to_string(static_cast<int>(op)) + "(" + text(a) + ", " + text(b) + ")");
    }
    IDimensionExpr const* declareSizeTensor(int32_t, IDimensionExpr const&, IDimensionExpr const&) override {
        return nullptr;
    }

  private:
    std::deque<Expr> all_;
};

class Recorder final : public IErrorRecorder {
  public:
    int32_t getNbErrors() const noexcept override { return 0; }
    ErrorCode getErrorCode(int32_t) const noexcept override { return ErrorCode::kSUCCESS; }
    ErrorDesc getErrorDesc(int32_t) const noexcept override { return ""; }
    bool hasOverflowed() const noexcept override { return false; }
    void clear() noexcept override {}
    bool reportError(ErrorCode, ErrorDesc text) noexcept override {
        std::cout << "error: " << text << "\n";
        return true;
    }
    RefCount incRefCount() noexcept override { return 1; }
    RefCount decRefCount() noexcept override { return 1; }
};

class Context final : public IPluginResourceContext {
  public:
    IGpuAllocator* getGpuAllocator() const noexcept override { return nullptr; }
    IErrorRecorder* getErrorRecorder() const noexcept override { return &recorder; }
    mutable Recorder recorder;
};

PluginTensorDesc described(DataType type, std::initializer_list<int64_t> dims,
                           TensorFormat format = TensorFormat::kLINEAR) {
    PluginTensorDesc made{};
    for (int64_t extent : dims) made.dims.d[made.dims.nbDims++] = extent;
    made.type = type;
    made.format = format;
    return made;
}

DynamicPluginTensorDesc ranged(PluginTensorDesc desc, int64_t least, int64_t most) {
    DynamicPluginTensorDesc made{desc, desc.dims, desc.dims, desc.dims};
    made.min.d[0] = least;
    made.opt.d[0] = made.max.d[0] = most;
    return made;
}

template <class Part>
Part& part(IPluginV3& plugin, PluginCapabilityType type) {
    return *static_cast<Part*>(plugin.getCapabilityInterface(type));
}

void build(IPluginV3& plugin) {
    auto& core = part<IPluginV3OneCore>(plugin, PluginCapabilityType::kCORE);
    std::cout << "name: " << core.getPluginName() << " " << core.getPluginVersion() << " " << core.getPluginNamespace()
              << "\n";
    auto& build = part<IPluginV3OneBuild>(plugin, PluginCapabilityType::kBUILD);
    DataType const given[]{DataType::kFLOAT};
    DataType types[2]{};
    std::cout << "outputs: " << build.getNbOutputs() << " " << build.getOutputDataTypes(types, 2, given, 1);
    for (DataType type : types) std::cout << " " << static_cast<int>(type);
    Builder builder;
    DimsExprs in{}, out[2]{};
    in.nbDims = 2;
    in.d[0] = builder.made("rows");
    in.d[1] = builder.made("columns");
    std::cout << "\nshapes: " << build.getOutputShapes(&in, 1, nullptr, 0, out, 2, builder);
    for (DimsExprs const& dims : out) {
        std::cout << " [";
        for (int32_t i = 0; i < dims.nbDims; ++i)
            std::cout << (i == 0 ? "" : ", ") << static_cast<Expr const*>(dims.d[i])->text;
        std::cout << "]";
    }
    std::cout << "\nwith shape inputs: " << build.getOutputShapes(&in, 1, &in, 1, out, 2, builder) << "\nsupports:";
    for (auto [x, y, z, format] :
         {std::tuple{DataType::kFLOAT, DataType::kFLOAT, DataType::kINT32, TensorFormat::kLINEAR},
          std::tuple{DataType::kHALF, DataType::kHALF, DataType::kINT32, TensorFormat::kLINEAR},
          std::tuple{DataType::kFLOAT, DataType::kFLOAT, DataType::kFLOAT, TensorFormat::kLINEAR},
          std::tuple{DataType::kFLOAT, DataType::kFLOAT, DataType::kINT32, TensorFormat::kHWC}}) {
        DynamicPluginTensorDesc const all[]{ranged(described(x, {-1, 4}, format), 1, 8),
                                            ranged(described(y, {-1, 2}, format), 1, 8),
                                            ranged(described(z, {-1}, format), 1, 8)};
        std::cout << " ";
        for (int32_t pos = 0; pos < 3; ++pos) std::cout << build.supportsFormatCombination(pos, all, 1, 2);
    }
    auto const x = ranged(described(DataType::kFLOAT, {-1, 4}), 1, 8);
    DynamicPluginTensorDesc const outputs[]{ranged(described(DataType::kFLOAT, {-1, 2}), 1, 8),
                                            ranged(described(DataType::kINT32, {-1}), 1, 8)};
    std::cout << "\nworkspace: " << build.configurePlugin(&x, 1, outputs, 2) << " "
              << build.getWorkspaceSize(&x, 1, outputs, 2) << "\n";
}

void run(IPluginV3OneRuntime& runtime, int64_t rows) {
    auto const x = described(DataType::kFLOAT, {rows, 3});
    PluginTensorDesc const outputs[]{described(DataType::kFLOAT, {rows, 2}), described(DataType::kINT32, {rows})};
    std::vector<float> in, half(static_cast<size_t>(rows * 2));
    for (int64_t i = 0; i < rows * 3; ++i) in.push_back(static_cast<float>(i));
    std::vector<int32_t> index(static_cast<size_t>(rows));
    void const* from[]{in.data()};
    void* to[]{half.data(), index.data()};
    int32_t const told = runtime.onShapeChange(&x, 1, outputs, 2);
    int32_t const done = runtime.enqueue(&x, outputs, from, to, nullptr, nullptr);
    std::cout << "run: " << told << " " << done;
    for (float value : half) std::cout << " " << value;
    for (int32_t value : index) std::cout << " " << value;
    std::cout << "\n";
}

}  // namespace

int main() {
    neurenix_plugin_table const& table = *neurenix_plugin_entry();
    PluginCreator creator(table);
    float const by = 0.5F;
    PluginField const fields[]{{"other", nullptr, PluginFieldType::kINT32, 0},
                               {"plugin", &by, PluginFieldType::kCHAR, sizeof(by)}};
    PluginFieldCollection const written{2, fields}, damaged{1, fields};
    PluginField const tooShort{"plugin", &by, PluginFieldType::kCHAR, 1};
    PluginFieldCollection const torn{1, &tooShort};
    for (PluginFieldCollection const* odd : {&damaged, &torn})
        std::cout << "damaged: " << (creator.createPlugin("layer", odd, TensorRTPhase::kRUNTIME) == nullptr) << "\n";
    std::unique_ptr<IPluginV3> plugin(creator.createPlugin("layer", &written, TensorRTPhase::kRUNTIME));
    build(*plugin);

    std::unique_ptr<IPluginV3> copy(plugin->clone());
    auto const* kept = part<IPluginV3OneRuntime>(*copy, PluginCapabilityType::kRUNTIME).getFieldsToSerialize();
    float again = 0;
    std::memcpy(&again, kept->fields[0].data, sizeof(again));
    std::cout << "kept: " << kept->nbFields << " " << kept->fields[0].name << " " << again << "\n";

    Context context;
    auto& runtime = part<IPluginV3OneRuntime>(*plugin, PluginCapabilityType::kRUNTIME);
    std::unique_ptr<IPluginV3> attached(runtime.attachToContext(&context));
    auto& mine = part<IPluginV3OneRuntime>(*attached, PluginCapabilityType::kRUNTIME);
    int32_t const early = mine.enqueue(nullptr, nullptr, nullptr, nullptr, nullptr, nullptr);
    std::cout << "before: " << early << "\n";
    for (int64_t rows : {2, 13, 1}) run(mine, rows);
}
