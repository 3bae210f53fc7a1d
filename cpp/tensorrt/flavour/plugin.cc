#include "tensorrt/flavour/plugin.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <exception>
#include <stdexcept>
#include <utility>

#if NEURENIX_PLUGINS
namespace neurenix::tensorrt::NEURENIX_FLAVOUR {

using nvinfer1::DataType;
using nvinfer1::Dims;
using nvinfer1::DimsExprs;
using nvinfer1::DynamicPluginTensorDesc;
using nvinfer1::PluginCapabilityType;
using nvinfer1::PluginField;
using nvinfer1::PluginFieldCollection;
using nvinfer1::PluginFieldType;
using nvinfer1::PluginTensorDesc;

namespace {

// The device whose context is current: TensorRT makes it so before it calls.
constexpr std::int32_t kCurrent = -1;

// What a function of the table says beside its status.
struct Answers {
    std::string error, bytes;
    neurenix_answers face{this, put};

    static void put(void* host, std::int32_t what, void const* bytes, std::size_t size) {
        auto& self = *static_cast<Answers*>(host);
        std::string* to = what == NEURENIX_ANSWER_ERROR   ? &self.error
                          : what == NEURENIX_ANSWER_BYTES ? &self.bytes
                                                          : nullptr;
        if (to != nullptr) to->append(static_cast<char const*>(bytes), size);
    }
};

// Calls the table; what it refuses is thrown.
template <class Ask>
std::string ask(Ask call) {
    Answers answers;
    if (call(&answers.face) != NEURENIX_OK) throw std::runtime_error(answers.error);
    return answers.bytes;
}

Handle duplicate(neurenix_plugin_table const& table, void* plugin) {
    void* made = nullptr;
    ask([&](auto* to) { return table.clone(plugin, &made, to); });
    return {table, made};
}

neurenix_tensor tensor(DataType type, Dims const& dims) {
    neurenix_tensor made{};
    if (dims.nbDims > NEURENIX_MAX_DIMS) throw std::runtime_error("a tensor has too many dimensions");
    made.rank = dims.nbDims;
    made.dtype = static_cast<std::int32_t>(type);
    std::copy_n(dims.d, dims.nbDims, made.dims);
    return made;
}

std::vector<neurenix_tensor> tensors(PluginTensorDesc const* all, std::int32_t count) {
    std::vector<neurenix_tensor> made;
    for (std::int32_t i = 0; i < count; ++i) made.push_back(tensor(all[i].type, all[i].dims));
    return made;
}

// The least, expected or greatest shapes.
std::vector<neurenix_tensor> tensors(DynamicPluginTensorDesc const* all, std::int32_t count,
                                     Dims DynamicPluginTensorDesc::* which) {
    std::vector<neurenix_tensor> made;
    for (std::int32_t i = 0; i < count; ++i) made.push_back(tensor(all[i].desc.type, all[i].*which));
    return made;
}

// Dimensions that TensorRT calculates, by number.
struct Exprs {
    nvinfer1::IExprBuilder& builder;
    std::vector<nvinfer1::IDimensionExpr const*> known;
    neurenix_exprs face{this, constant, operation};

    neurenix_expr add(nvinfer1::IDimensionExpr const* expr) {
        if (expr == nullptr) throw std::runtime_error("TensorRT has no such dimension");
        known.push_back(expr);
        auto const id = static_cast<std::uint32_t>(known.size() - 1);
        if (!expr->isConstant()) return {0, id, 0};
        return {expr->getConstantValue(), id, 1};
    }

    neurenix_shape shape(DimsExprs const& dims) {
        neurenix_shape made{};
        made.rank = dims.nbDims;
        if (dims.nbDims > NEURENIX_MAX_DIMS) throw std::runtime_error("a tensor has too many dimensions");
        for (std::int32_t i = 0; i < dims.nbDims; ++i) made.dims[i] = add(dims.d[i]);
        return made;
    }

    DimsExprs read(neurenix_shape const& shape) const {
        DimsExprs made{};
        if (shape.rank < 0 || shape.rank > Dims::MAX_DIMS) throw std::runtime_error("an output has no rank");
        made.nbDims = shape.rank;
        for (std::int32_t i = 0; i < shape.rank; ++i) made.d[i] = known.at(shape.dims[i].id);
        return made;
    }

    template <class Make>
    static std::int32_t answer(void* host, neurenix_expr* made, Make make) noexcept {
        try {
            auto& self = *static_cast<Exprs*>(host);
            *made = self.add(make(self));
            return NEURENIX_OK;
        } catch (std::exception const&) {
            return NEURENIX_FAILED;
        }
    }

    static std::int32_t constant(void* host, std::int64_t value, neurenix_expr* made) {
        return answer(host, made, [=](Exprs& self) { return self.builder.constant(value); });
    }

    static std::int32_t operation(void* host, std::int32_t op, std::uint32_t first, std::uint32_t second,
                                  neurenix_expr* made) {
        return answer(host, made, [=](Exprs& self) {
            auto const step = static_cast<nvinfer1::DimensionOperation>(op);
            return self.builder.operation(step, *self.known.at(first), *self.known.at(second));
        });
    }
};

// Stands for every dimension where only the dtypes are asked for.
struct NoExprs {
    static std::int32_t constant(void*, std::int64_t, neurenix_expr* made) {
        *made = {};
        return NEURENIX_OK;
    }
    static std::int32_t operation(void*, std::int32_t, std::uint32_t, std::uint32_t, neurenix_expr* made) {
        *made = {};
        return NEURENIX_OK;
    }
};

}  // namespace

template <class Body>
std::int32_t Plugin::guarded(char const* method, Body body) const noexcept {
    try {
        body();
        return 0;
    } catch (std::exception const& error) {
        // Their text has room for less than a line.
        if (recorder_ != nullptr) {
            auto const text = std::string(method) + ": " + error.what();
            recorder_->reportError(nvinfer1::ErrorCode::kINTERNAL_ERROR, text.substr(0, 120).c_str());
        }
        return -1;
    }
}

Plugin::Plugin(Handle handle) : handle_(std::move(handle)), ready_(handle_.table(), nullptr) {
    std::uint32_t devices = 0;
    std::int32_t capturable = 0;
    ask([&](auto* to) { return handle_.table().traits(handle_.get(), &outputs_, &devices, &capturable, to); });
    if ((devices & NEURENIX_DEVICE_CUDA) == 0) throw std::runtime_error("the plugin does not run on a GPU");
}

std::unique_ptr<Plugin> Plugin::copy(neurenix_plugin_table const& table, void* plugin) {
    return std::make_unique<Plugin>(duplicate(table, plugin));
}

nvinfer1::IPluginCapability* Plugin::getCapabilityInterface(PluginCapabilityType type) noexcept {
    switch (type) {
        case PluginCapabilityType::kCORE:
            return static_cast<nvinfer1::IPluginV3OneCore*>(this);
        case PluginCapabilityType::kBUILD:
            return static_cast<nvinfer1::IPluginV3OneBuild*>(this);
        case PluginCapabilityType::kRUNTIME:
            return static_cast<nvinfer1::IPluginV3OneRuntime*>(this);
    }
    return nullptr;
}

nvinfer1::IPluginV3* Plugin::clone() noexcept {
    std::unique_ptr<Plugin> made;
    guarded("clone", [&] {
        made = copy(handle_.table(), handle_.get());
        made->recorder_ = recorder_;
    });
    return made.release();
}

std::int32_t Plugin::configurePlugin(DynamicPluginTensorDesc const*, std::int32_t, DynamicPluginTensorDesc const*,
                                     std::int32_t) noexcept {
    // A clone is made ready for concrete shapes, which come later.
    return 0;
}

std::int32_t Plugin::getOutputDataTypes(DataType* types, std::int32_t outputs, DataType const* inputTypes,
                                        std::int32_t inputs) const noexcept {
    return guarded("getOutputDataTypes", [&] {
        // Shapes without dimensions: the dtypes do not depend on them.
        std::vector<neurenix_shape> const shapes(static_cast<std::size_t>(inputs));
        std::vector<std::int32_t> given;
        for (std::int32_t i = 0; i < inputs; ++i) given.push_back(static_cast<std::int32_t>(inputTypes[i]));
        neurenix_exprs const none{nullptr, NoExprs::constant, NoExprs::operation};
        for (std::int32_t i = 0; i < outputs; ++i) {
            neurenix_shape shape{};
            std::int32_t type = 0;
            ask([&](auto* to) {
                return handle_.table().infer(handle_.get(), i, shapes.data(), given.data(), inputs, &none, &shape,
                                             &type, to);
            });
            types[i] = static_cast<DataType>(type);
        }
    });
}

std::int32_t Plugin::getOutputShapes(DimsExprs const* in, std::int32_t inputs, DimsExprs const*,
                                     std::int32_t shapeInputCount, DimsExprs* out, std::int32_t outputs,
                                     nvinfer1::IExprBuilder& builder) noexcept {
    return guarded("getOutputShapes", [&] {
        if (shapeInputCount != 0) throw std::runtime_error("there are no shape inputs here");
        for (std::int32_t i = 0; i < outputs; ++i) {
            Exprs exprs{builder, {}};
            std::vector<neurenix_shape> shapes;
            for (std::int32_t j = 0; j < inputs; ++j) shapes.push_back(exprs.shape(in[j]));
            // The dtypes are asked for by themselves.
            std::vector<std::int32_t> const types(static_cast<std::size_t>(inputs));
            neurenix_shape shape{};
            std::int32_t type = 0;
            ask([&](auto* to) {
                return handle_.table().infer(handle_.get(), i, shapes.data(), types.data(), inputs, &exprs.face, &shape,
                                             &type, to);
            });
            out[i] = exprs.read(shape);
        }
    });
}

bool Plugin::supportsFormatCombination(std::int32_t pos, DynamicPluginTensorDesc const* inOut, std::int32_t inputs,
                                       std::int32_t outputs) noexcept {
    std::int32_t supported = 0;
    guarded("supportsFormatCombination", [&] {
        if (inOut[pos].desc.format != nvinfer1::TensorFormat::kLINEAR) return;
        std::vector<neurenix_tensor> all;
        // What is behind `pos` is not settled.
        for (std::int32_t i = 0; i <= pos; ++i) all.push_back(tensor(inOut[i].desc.type, inOut[i].desc.dims));
        all.resize(static_cast<std::size_t>(inputs + outputs));
        ask([&](auto* to) {
            return handle_.table().supports(handle_.get(), pos, all.data(), inputs, outputs, &supported, to);
        });
    });
    return supported != 0;
}

Handle Plugin::prepared(std::vector<neurenix_tensor> const& in, std::vector<neurenix_tensor> const& out,
                        std::size_t& workspace) const {
    Handle made = duplicate(handle_.table(), handle_.get());
    ask([&](auto* to) {
        return made.table().prepare(made.get(), NEURENIX_DEVICE_CUDA, kCurrent, in.data(),
                                    static_cast<std::int32_t>(in.size()), out.data(),
                                    static_cast<std::int32_t>(out.size()), &workspace, to);
    });
    return made;
}

std::size_t Plugin::getWorkspaceSize(DynamicPluginTensorDesc const* in, std::int32_t inputs,
                                     DynamicPluginTensorDesc const* out, std::int32_t outputs) const noexcept {
    std::size_t most = 0;
    guarded("getWorkspaceSize", [&] {
        // The shapes of a profile: the greatest need not be where most is needed.
        for (auto which :
             {&DynamicPluginTensorDesc::min, &DynamicPluginTensorDesc::opt, &DynamicPluginTensorDesc::max}) {
            std::size_t needed = 0;
            prepared(tensors(in, inputs, which), tensors(out, outputs, which), needed);
            most = std::max(most, needed);
        }
    });
    return most;
}

std::int32_t Plugin::onShapeChange(PluginTensorDesc const* in, std::int32_t inputs, PluginTensorDesc const* out,
                                   std::int32_t outputs) noexcept {
    return guarded("onShapeChange", [&] {
        std::size_t workspace = 0;
        ready_ = prepared(tensors(in, inputs), tensors(out, outputs), workspace);
    });
}

std::int32_t Plugin::enqueue(PluginTensorDesc const*, PluginTensorDesc const*, void const* const* inputs,
                             void* const* outputs, void* workspace, cudaStream_t stream) noexcept {
    return guarded("enqueue", [&] {
        if (ready_.get() == nullptr) throw std::runtime_error("the plugin was told no shapes");
        ask([&](auto* to) { return ready_.table().enqueue(ready_.get(), inputs, outputs, workspace, stream, to); });
    });
}

nvinfer1::IPluginV3* Plugin::attachToContext(nvinfer1::IPluginResourceContext* context) noexcept {
    if (context != nullptr) recorder_ = context->getErrorRecorder();
    return clone();
}

PluginFieldCollection const* Plugin::getFieldsToSerialize() noexcept {
    auto const status = guarded("getFieldsToSerialize", [&] {
        written_ = ask([&](auto* to) { return handle_.table().serialize(handle_.get(), to); });
        auto const size = static_cast<std::int32_t>(written_.size());
        fields_ = {PluginField("plugin", written_.data(), PluginFieldType::kCHAR, size)};
        collection_ = {1, fields_.data()};
    });
    return status == 0 ? &collection_ : nullptr;
}

nvinfer1::IPluginV3* PluginCreator::createPlugin(char const* name, PluginFieldCollection const* fields,
                                                 nvinfer1::TensorRTPhase) noexcept {
    try {
        for (std::int32_t i = 0; fields != nullptr && i < fields->nbFields; ++i) {
            PluginField const& field = fields->fields[i];
            if (field.name == nullptr || std::strcmp(field.name, "plugin") != 0) continue;
            void* made = nullptr;
            auto const size = static_cast<std::size_t>(std::max(field.length, 0));
            ask([&](auto* to) {
                return table_.deserialize(0, name == nullptr ? "" : name, field.data, size, &made, to);
            });
            return std::make_unique<Plugin>(Handle(table_, made)).release();
        }
    } catch (std::exception const&) {
        // The table keeps the reason; TensorRT says that the plan can't be opened.
    }
    return nullptr;
}

bool register_plugins(nvinfer1::IPluginRegistry& registry, neurenix_plugin_table const& table) {
    if (registry.getCreator(kPluginName, kPluginVersion, kPluginNamespace) != nullptr) return true;
    // Registries keep pointers until the process ends.
    static PluginCreator creator(table);
    return registry.registerCreator(creator, kPluginNamespace);
}

}  // namespace neurenix::tensorrt::NEURENIX_FLAVOUR
#endif
