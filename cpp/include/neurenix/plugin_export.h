// Puts the classes of neurenix/plugin.h, which includes this file, behind the table of neurenix/plugin_abi.h.
#ifndef NEURENIX_PLUGIN_EXPORT_H_
#define NEURENIX_PLUGIN_EXPORT_H_

#include <cstring>
#include <deque>
#include <exception>
#include <memory>
#include <new>
#include <stdexcept>
#include <vector>

// Hidden: two libraries in one process must not share what is here.
#pragma GCC visibility push(hidden)
namespace neurenix::detail {

using Make = IPluginCreator& (*)();

inline std::vector<Make>& creators() {
    static std::vector<Make> all;
    return all;
}

inline bool add(Make make) {
    creators().push_back(make);
    return true;
}

// What this file finds wrong, rather than the plugin.
struct Wrong final : std::runtime_error {
    using std::runtime_error::runtime_error;
};

inline void put(neurenix_answers const* answers, int32_t what, char const* text) {
    text = text == nullptr ? "" : text;
    answers->put(answers->host, what, text, std::strlen(text));
}

// Runs `body`; what it throws becomes an answer that names the method.
template <class Body>
int32_t guarded(char const* method, neurenix_answers const* answers, Body body) noexcept {
    auto fail = [&](char const* how, char const* what, int32_t status) {
        put(answers, NEURENIX_ANSWER_ERROR, method);
        put(answers, NEURENIX_ANSWER_ERROR, how);
        put(answers, NEURENIX_ANSWER_ERROR, what);
        return status;
    };
    try {
        body();
        return NEURENIX_OK;
    } catch (std::bad_alloc const&) {
        return fail(" ran out of memory", "", NEURENIX_OUT_OF_MEMORY);
    } catch (Wrong const& error) {
        return fail(": ", error.what(), NEURENIX_FAILED);
    } catch (std::exception const& error) {
        return fail(" threw an exception: ", error.what(), NEURENIX_FAILED);
    } catch (...) {
        return fail(" threw something that is no std::exception", "", NEURENIX_FAILED);
    }
}

struct Destroy {
    void operator()(IPluginV2* plugin) const { plugin->destroy(); }
};

// What stands behind a pointer of the table.
struct Instance {
    std::unique_ptr<IPluginV2DynamicExt, Destroy> plugin;
    std::vector<PluginTensorDesc> inputs;
    std::vector<PluginTensorDesc> outputs;
    bool isInitialized = false;

    explicit Instance(IPluginV2* made) : plugin(dynamic_cast<IPluginV2DynamicExt*>(made)) {
        if (plugin == nullptr) {
            if (made != nullptr) made->destroy();
            throw Wrong(made == nullptr ? "it gave null" : "it gave no IPluginV2DynamicExt");
        }
    }
};

inline Instance& at(void* plugin) { return *static_cast<Instance*>(plugin); }

inline IPluginCreator& creator(int32_t at) { return creators().at(static_cast<size_t>(at))(); }

inline PluginTensorDesc described(neurenix_tensor const& tensor) {
    PluginTensorDesc desc;
    desc.type = static_cast<DataType>(tensor.dtype);
    desc.dims.nbDims = tensor.rank;
    for (int32_t i = 0; i < tensor.rank; ++i) desc.dims.d[i] = tensor.dims[i];
    return desc;
}

inline std::vector<PluginTensorDesc> described(neurenix_tensor const* tensors, int32_t count) {
    std::vector<PluginTensorDesc> made;
    for (int32_t i = 0; i < count; ++i) made.push_back(described(tensors[i]));
    return made;
}

inline std::vector<DynamicPluginTensorDesc> ranges(std::vector<PluginTensorDesc> const& tensors) {
    std::vector<DynamicPluginTensorDesc> made;
    for (PluginTensorDesc const& desc : tensors) made.push_back({desc, desc.dims, desc.dims, desc.dims});
    return made;
}

struct Expr final : IDimensionExpr {
    neurenix_expr value;
    explicit Expr(neurenix_expr value) : value(value) {}
    bool isConstant() const override { return value.is_constant != 0; }
    int64_t getConstantValue() const override { return isConstant() ? value.constant : INT64_MIN; }
};

class ExprBuilder final : public IExprBuilder {
  public:
    explicit ExprBuilder(neurenix_exprs const& host) : host_(host) {}

    IDimensionExpr const* own(neurenix_expr value) { return &made_.emplace_back(value); }

    IDimensionExpr const* constant(int64_t value) override {
        neurenix_expr made;
        return kept(host_.constant(host_.host, value, &made), made);
    }

    IDimensionExpr const* operation(DimensionOperation op, IDimensionExpr const& first,
                                    IDimensionExpr const& second) override {
        neurenix_expr made;
        int32_t number = static_cast<int32_t>(op);
        return kept(host_.operation(host_.host, number, known(&first).id, known(&second).id, &made), made);
    }

    // The value of a dimension that this builder made.
    neurenix_expr const& known(IDimensionExpr const* expr) const {
        for (Expr const& own : made_) {
            if (&own == expr) return own.value;
        }
        throw Wrong("a dimension is none of those that it was given or that its IExprBuilder made");
    }

  private:
    IDimensionExpr const* kept(int32_t status, neurenix_expr value) {
        if (status != NEURENIX_OK) throw std::invalid_argument("these dimensions can't be calculated with");
        return own(value);
    }

    neurenix_exprs const& host_;
    std::deque<Expr> made_;
};

inline int32_t describe(int32_t number, neurenix_answers const* answers) {
    return guarded("its creator", answers, [&] {
        IPluginCreator& of = creator(number);
        put(answers, NEURENIX_ANSWER_NAME, of.getPluginName());
        put(answers, NEURENIX_ANSWER_VERSION, of.getPluginVersion());
        put(answers, NEURENIX_ANSWER_NAMESPACE, of.getPluginNamespace());
        PluginFieldCollection const* declared = of.getFieldNames();
        for (int32_t i = 0; declared != nullptr && i < declared->nbFields; ++i) {
            PluginField const& field = declared->fields[i];
            put(answers, NEURENIX_ANSWER_FIELD + static_cast<int32_t>(field.type), field.name);
        }
    });
}

inline int32_t create(int32_t number, char const* layer, neurenix_field const* fields, int32_t count, void** plugin,
                      neurenix_answers const* answers) {
    return guarded("createPlugin", answers, [&] {
        std::deque<Dims> shapes;
        std::vector<PluginField> given;
        for (int32_t i = 0; i < count; ++i) {
            given.emplace_back(fields[i].name, fields[i].data, static_cast<PluginFieldType>(fields[i].type),
                               fields[i].length);
            PluginField& field = given.back();
            if (field.type != PluginFieldType::kDIMS) continue;
            if (field.length > Dims::MAX_DIMS) throw Wrong("a shape has more than 8 dimensions");
            Dims& shape = shapes.emplace_back();
            shape.nbDims = field.length;
            if (field.length > 0) std::memcpy(shape.d, field.data, sizeof(int64_t) * field.length);
            field.data = &shape;
            field.length = 1;
        }
        PluginFieldCollection collection{count, given.data()};
        *plugin = new Instance(creator(number).createPlugin(layer, &collection));
    });
}

inline int32_t deserialize(int32_t number, char const* layer, void const* data, size_t size, void** plugin,
                           neurenix_answers const* answers) {
    return guarded("deserializePlugin", answers,
                   [&] { *plugin = new Instance(creator(number).deserializePlugin(layer, data, size)); });
}

inline int32_t clone(void* plugin, void** made, neurenix_answers const* answers) {
    return guarded("clone", answers, [&] { *made = new Instance(at(plugin).plugin->clone()); });
}

inline void destroy(void* plugin) {
    neurenix_answers nobody{nullptr, [](void*, int32_t, void const*, size_t) {}};
    guarded("terminate", &nobody, [&] {
        if (at(plugin).isInitialized) at(plugin).plugin->terminate();
    });
    guarded("destroy", &nobody, [&] { delete &at(plugin); });
}

inline int32_t serialize(void* plugin, neurenix_answers const* answers) {
    return guarded("serialize", answers, [&] {
        std::vector<char> bytes(at(plugin).plugin->getSerializationSize());
        at(plugin).plugin->serialize(bytes.data());
        answers->put(answers->host, NEURENIX_ANSWER_BYTES, bytes.data(), bytes.size());
    });
}

inline int32_t traits(void* plugin, int32_t* outputs, uint32_t* devices, int32_t* isCapturable,
                      neurenix_answers const* answers) {
    return guarded("getNbOutputs, getDeviceKinds or isCapturable", answers, [&] {
        *outputs = at(plugin).plugin->getNbOutputs();
        *devices = at(plugin).plugin->getDeviceKinds();
        *isCapturable = at(plugin).plugin->isCapturable();
    });
}

inline int32_t infer(void* plugin, int32_t output, neurenix_shape const* shapes, int32_t const* dtypes, int32_t inputs,
                     neurenix_exprs const* exprs, neurenix_shape* shape, int32_t* dtype,
                     neurenix_answers const* answers) {
    int32_t status = guarded("getOutputDimensions", answers, [&] {
        ExprBuilder builder(*exprs);
        std::vector<DimsExprs> given(static_cast<size_t>(inputs));
        for (int32_t i = 0; i < inputs; ++i) {
            given[i].nbDims = shapes[i].rank;
            for (int32_t j = 0; j < shapes[i].rank; ++j) given[i].d[j] = builder.own(shapes[i].dims[j]);
        }
        DimsExprs found = at(plugin).plugin->getOutputDimensions(output, given.data(), inputs, builder);
        shape->rank = found.nbDims;
        // The host refuses a rank that is none.
        if (found.nbDims > Dims::MAX_DIMS) return;
        for (int32_t j = 0; j < found.nbDims; ++j) shape->dims[j] = builder.known(found.d[j]);
    });
    if (status != NEURENIX_OK) return status;
    return guarded("getOutputDataType", answers, [&] {
        std::vector<DataType> types;
        for (int32_t i = 0; i < inputs; ++i) types.push_back(static_cast<DataType>(dtypes[i]));
        *dtype = static_cast<int32_t>(at(plugin).plugin->getOutputDataType(output, types.data(), inputs));
    });
}

inline int32_t supports(void* plugin, int32_t pos, neurenix_tensor const* tensors, int32_t inputs, int32_t outputs,
                        int32_t* isSupported, neurenix_answers const* answers) {
    return guarded("supportsFormatCombination", answers, [&] {
        std::vector<PluginTensorDesc> all = described(tensors, inputs + outputs);
        *isSupported = at(plugin).plugin->supportsFormatCombination(pos, all.data(), inputs, outputs);
    });
}

inline int32_t prepare(void* plugin, uint32_t device, int32_t ordinal, neurenix_tensor const* inputs,
                       int32_t inputCount, neurenix_tensor const* outputs, int32_t outputCount, size_t* workspace,
                       neurenix_answers const* answers) {
    Instance& self = at(plugin);
    int32_t status = guarded("configurePlugin", answers, [&] {
        self.inputs = described(inputs, inputCount);
        self.outputs = described(outputs, outputCount);
        self.plugin->attachToDevice(static_cast<DeviceKind>(device), ordinal);
        self.plugin->configurePlugin(ranges(self.inputs).data(), inputCount, ranges(self.outputs).data(), outputCount);
    });
    if (status != NEURENIX_OK) return status;
    status = guarded("initialize", answers, [&] {
        int32_t found = self.plugin->initialize();
        if (found != 0) throw Wrong("it gave " + std::to_string(found) + " instead of 0");
        self.isInitialized = true;
    });
    if (status != NEURENIX_OK) return status;
    return guarded("getWorkspaceSize", answers, [&] {
        *workspace = self.plugin->getWorkspaceSize(self.inputs.data(), inputCount, self.outputs.data(), outputCount);
    });
}

inline int32_t enqueue(void* plugin, void const* const* inputs, void* const* outputs, void* workspace, void* stream,
                       neurenix_answers const* answers) {
    return guarded("enqueue", answers, [&] {
        Instance& self = at(plugin);
        int32_t found = self.plugin->enqueue(self.inputs.data(), self.outputs.data(), inputs, outputs, workspace,
                                             static_cast<cudaStream_t>(stream));
        if (found != 0) throw Wrong("it gave " + std::to_string(found) + " instead of 0");
    });
}

inline int32_t count() { return static_cast<int32_t>(creators().size()); }

inline neurenix_plugin_table const table = {
    NEURENIX_PLUGIN_ABI_VERSION,
    sizeof(neurenix_plugin_table),
    count,
    describe,
    create,
    deserialize,
    clone,
    destroy,
    serialize,
    traits,
    infer,
    supports,
    prepare,
    enqueue,
};

}  // namespace neurenix::detail
#pragma GCC visibility pop

// `used`: it is in the library although nobody there calls it.
extern "C" __attribute__((used, visibility("default"))) inline neurenix_plugin_table const* neurenix_plugin_entry() {
    return &neurenix::detail::table;
}

#endif  // NEURENIX_PLUGIN_EXPORT_H_
