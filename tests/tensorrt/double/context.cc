// The state of one call: checks what TensorRT demands of its caller, and lets the test run the network.
#include <algorithm>
#include <cstring>
#include <limits>
#include <map>

#include "device.h"
#include "double.h"
#include "partial.h"

namespace tensorrt_double {
namespace {

using Extents = std::vector<std::int64_t>;

std::size_t elements(const Extents& extents) {
    std::size_t count = 1;
    for (const auto extent : extents) count *= static_cast<std::size_t>(std::max<std::int64_t>(extent, 0));
    return count;
}

Tensor tensor_of(const Port& port, const Extents& extents, const void* data) {
    Tensor tensor{port.name.c_str(), port.dtype.c_str(), static_cast<std::int64_t>(extents.size()), {}, data};
    std::copy(extents.begin(), extents.end(), tensor.dims);
    return tensor;
}

// What a call reads and writes, as it was when it was put into the stream.
struct Call {
    struct Operand {
        const Port* port;
        Extents extents;
        void* address;
        IOutputAllocator* allocator;
    };
    std::shared_ptr<const Plan> plan;
    std::vector<Operand> inputs, outputs;
    void* scratch;
    std::size_t scratch_bytes;
    void* stream;

    // What is wrong; empty if it ran.
    std::string run() const;

  private:
    std::string give(const Operand& output, const Tensor& result) const;
};

std::string Call::run() const {
    const Run function = tensorrt_double::run();
    if (function == nullptr) return "the test has given the double nothing to run";
    if (scratch_bytes > 0) {
        void* there = backing(scratch, scratch_bytes);
        if (there == nullptr) return "the scratch memory is not the device's";
        // Whoever keeps anything there loses it.
        std::memset(there, 0xCD, scratch_bytes);
    }
    std::vector<Tensor> given, results;
    for (const Operand& input : inputs) {
        const void* there = backing(input.address, elements(input.extents) * bytes_of(input.port->dtype));
        if (there == nullptr) return "input " + input.port->name + " is not in the device's memory";
        given.push_back(tensor_of(*input.port, input.extents, there));
    }
    for (const Operand& output : outputs) results.push_back(tensor_of(*output.port, {}, nullptr));
    const char* wrong = function(
        plan->network.c_str(), plan->weights.data(), static_cast<std::int64_t>(plan->weights.size()), given.data(),
        static_cast<std::int64_t>(given.size()), results.data(), static_cast<std::int64_t>(results.size()), 0);
    for (std::size_t at = 0; wrong == nullptr && at < outputs.size(); ++at) {
        const std::string missing = give(outputs[at], results[at]);
        if (!missing.empty()) return missing;
    }
    return wrong == nullptr ? "" : wrong;
}

std::string Call::give(const Operand& output, const Tensor& result) const {
    const Extents extents(result.dims, result.dims + result.rank);
    const std::size_t bytes = elements(extents) * bytes_of(output.port->dtype);
    void* address = output.address;
    if (output.allocator != nullptr) {
        // TensorRT may ask for too little first.
        if (setting("reallocate") != 0) {
            address = output.allocator->reallocateOutputAsync(result.name, address, 1, 256, nullptr);
        }
        address = output.allocator->reallocateOutputAsync(result.name, address, std::max<std::size_t>(bytes, 1), 256,
                                                          static_cast<cudaStream_t>(stream));
        output.allocator->notifyShape(result.name, dims_of(extents));
    }
    void* there = address == nullptr ? nullptr : backing(address, bytes);
    if (there == nullptr) return "output " + output.port->name + " has no memory on the device";
    std::memcpy(there, result.data, bytes);
    const bool nan = setting("nan") != 0 && output.port->dtype == "FLOAT";
    for (std::size_t at = 0; nan && at < bytes / 4; ++at) {
        static_cast<float*>(there)[at] = std::numeric_limits<float>::quiet_NaN();
    }
    const bool off = setting("wrong") != 0 && output.port->dtype == "FLOAT";
    for (std::size_t at = 0; off && at < bytes / 4; ++at) static_cast<float*>(there)[at] += 1;
    return "";
}

class Context : public IExecutionContext, public PartialExecutionContext {
  public:
    Context(const ICudaEngine& engine, std::shared_ptr<const Plan> plan, ILogger& logger)
        : engine_(engine), plan_(std::move(plan)), logger_(logger) {
        mImpl = this;
        count("live context");
    }
    ~Context() noexcept override { count("dead context"); }

    const ICudaEngine& getEngine() const noexcept override { return engine_; }

    bool setOptimizationProfileAsync(std::int32_t profile, cudaStream_t) noexcept override {
        if (take("profile")) return refuse(logger_, "the double refuses profile " + std::to_string(profile));
        if (profile < 0 || profile >= engine_.getNbOptimizationProfiles()) return refuse(logger_, "no such profile");
        profile_ = profile;
        shapes_.clear();
        return true;
    }

    bool setInputShape(const char* name, const Dims& dims) noexcept override {
        if (take("shape")) return refuse(logger_, std::string("the double refuses the shape of ") + name);
        const Port* port = find(name);
        if (port == nullptr || !port->input) return refuse(logger_, std::string("no input ") + name);
        const Extents extents = extents_of(dims);
        const auto& least = port->profiles[static_cast<std::size_t>(profile_) * 3];
        const auto& most = port->profiles[static_cast<std::size_t>(profile_) * 3 + 2];
        bool inside = extents.size() == least.size();
        for (std::size_t axis = 0; inside && axis < extents.size(); ++axis) {
            inside = least[axis] <= extents[axis] && extents[axis] <= most[axis];
        }
        if (!inside) return refuse(logger_, std::string("the shape of ") + name + " is outside of the profile");
        shapes_[name] = extents;
        return true;
    }

    Dims getTensorShape(const char* name) const noexcept override {
        const Port* port = find(name);
        if (port == nullptr) return Dims{-1, {}};
        if (port->input) {
            const auto set = shapes_.find(name);
            return dims_of(set == shapes_.end() ? port->shape : set->second);
        }
        Dims dims = dims_of(port->shape);
        for (const auto& [output, extents] : missing() == 0 ? results() : std::map<std::string, Extents>{}) {
            if (output == port->name) dims = dims_of(extents);
        }
        // As if it depended on data.
        if (setting("unknown") != 0 && dims.nbDims > 0) dims.d[0] = -1;
        if (setting("wrong_shape") != 0 && dims.nbDims > 0) dims.d[0] += 1;
        return dims;
    }

    std::int32_t inferShapes(std::int32_t room, const char** names) noexcept override {
        if (take("infer")) {
            refuse(logger_, "the double finds no shapes");
            return -1;
        }
        return missing(room, names);
    }

    std::size_t updateDeviceMemorySizeForShapes() noexcept override {
        if (take("memory")) {
            refuse(logger_, "the double does not know how much memory");
            return 0;
        }
        return missing() == 0 ? scratch() : 0;
    }

    void setDeviceMemoryV2(void* memory, std::int64_t size) noexcept override {
        scratch_ = memory;
        scratch_bytes_ = size;
        if (reinterpret_cast<std::uintptr_t>(memory) % 256 != 0) refuse(logger_, "scratch memory that is not aligned");
    }

    bool setTensorAddress(const char* name, void* address) noexcept override {
        if (take("address")) return refuse(logger_, std::string("the double refuses the address of ") + name);
        if (find(name) == nullptr) return refuse(logger_, std::string("no input or output ") + name);
        if (reinterpret_cast<std::uintptr_t>(address) % 256 != 0) {
            return refuse(logger_, std::string("the address of ") + name + " is not a multiple of 256");
        }
        addresses_[name] = address;
        return true;
    }

    bool setOutputAllocator(const char* name, IOutputAllocator* allocator) noexcept override {
        if (take("allocator")) return refuse(logger_, std::string("the double refuses the allocator of ") + name);
        allocators_[name] = allocator;
        return true;
    }

    std::int64_t getMaxOutputSize(const char* name) const noexcept override {
        const Dims dims = getTensorShape(name);
        const Extents extents = extents_of(dims);
        if (std::any_of(extents.begin(), extents.end(), [](auto extent) { return extent < 0; })) return -1;
        return static_cast<std::int64_t>(elements(extents) * bytes_of(find(name)->dtype));
    }

    bool isStreamCapturable(cudaStream_t) const noexcept override {
        return setting("uncapturable") == 0 && setting("unknown") == 0;
    }

    bool enqueueV3(cudaStream_t stream) noexcept override {
        count("enqueue");
        if (setting("skip") > 0 && take("skip")) return go(stream);
        if (take("enqueue")) return refuse(logger_, "the double does not run");
        return go(stream);
    }

    void setProfiler(IProfiler* profiler) noexcept override { profiler_ = profiler; }
    void setEnqueueEmitsProfile(bool) noexcept override {}
    bool reportToProfiler() const noexcept override {
        if (profiler_ == nullptr || take("report")) return refuse(logger_, "the double has no times");
        profiler_->reportLayerTime("the whole network", 0.5F);
        return true;
    }

  private:
    const Port* find(const std::string& name) const {
        for (const Port& port : plan_->ports) {
            if (port.name == name) return &port;
        }
        return nullptr;
    }

    bool is_set(const Port& port) const {
        const bool dynamic = std::count(port.shape.begin(), port.shape.end(), -1) > 0;
        return !port.input || !dynamic || shapes_.count(port.name) != 0;
    }

    std::int32_t missing(std::int32_t room = 0, const char** names = nullptr) const {
        std::int32_t found = 0;
        for (const Port& port : plan_->ports) {
            if (is_set(port)) continue;
            if (found < room) names[found] = port.name.c_str();
            ++found;
        }
        return found;
    }

    Extents shape_of(const Port& input) const {
        const auto set = shapes_.find(input.name);
        return set == shapes_.end() ? input.shape : set->second;
    }

    // More where the inputs are larger.
    std::size_t scratch() const {
        std::size_t all = 0;
        for (const Port& port : plan_->ports) all += port.input ? elements(shape_of(port)) : 0;
        return 256 + all;
    }

    // The shapes of the outputs for the shapes that are set.
    std::map<std::string, Extents> results() const {
        std::map<std::string, Extents> found;
        std::vector<Tensor> given, asked;
        for (const Port& port : plan_->ports) {
            if (port.input) given.push_back(tensor_of(port, shape_of(port), nullptr));
            if (!port.input) asked.push_back(tensor_of(port, {}, nullptr));
        }
        const Run function = tensorrt_double::run();
        const char* wrong = function == nullptr ? "the test has given the double nothing to run"
                                                : function(plan_->network.c_str(), plan_->weights.data(),
                                                           static_cast<std::int64_t>(plan_->weights.size()),
                                                           given.data(), static_cast<std::int64_t>(given.size()),
                                                           asked.data(), static_cast<std::int64_t>(asked.size()), 1);
        if (wrong != nullptr) {
            refuse(logger_, wrong);
            return found;
        }
        for (const Tensor& one : asked) found[one.name] = {one.dims, one.dims + one.rank};
        return found;
    }

    bool go(cudaStream_t stream) {
        if (missing() != 0) return refuse(logger_, "not all shapes are set");
        Call call{plan_, {}, {}, scratch_, scratch(), stream};
        if (scratch_ == nullptr || scratch_bytes_ < static_cast<std::int64_t>(call.scratch_bytes)) {
            return refuse(logger_, "the scratch memory is too small");
        }
        const auto shapes = results();
        for (const Port& port : plan_->ports) {
            const auto address = addresses_.find(port.name);
            const auto allocator = allocators_.find(port.name);
            Call::Operand operand{&port, port.input ? shape_of(port) : Extents{},
                                  address == addresses_.end() ? nullptr : address->second,
                                  allocator == allocators_.end() ? nullptr : allocator->second};
            if (operand.address == nullptr && operand.allocator == nullptr) {
                return refuse(logger_, port.name + " has no address");
            }
            (port.input ? call.inputs : call.outputs).push_back(operand);
        }
        // What a graph repeats later is no part of this call.
        struct State {
            bool is_over = false;
            std::string wrong;
        };
        const auto state = std::make_shared<State>();
        const auto work = [call, state] {
            const std::string found = call.run();
            if (!state->is_over) {
                state->wrong = found;
            } else if (!found.empty()) {
                misused("TensorRT in a graph: " + found);
            }
        };
        if (!in_stream(stream, work)) return refuse(logger_, "the stream is none");
        state->is_over = true;
        return state->wrong.empty() || refuse(logger_, state->wrong);
    }

    const ICudaEngine& engine_;
    std::shared_ptr<const Plan> plan_;
    ILogger& logger_;
    std::int32_t profile_ = 0;
    std::map<std::string, Extents> shapes_;
    std::map<std::string, void*> addresses_;
    std::map<std::string, IOutputAllocator*> allocators_;
    void* scratch_ = nullptr;
    std::int64_t scratch_bytes_ = 0;
    IProfiler* profiler_ = nullptr;
};

}  // namespace

IExecutionContext* make_context(const ICudaEngine& engine, std::shared_ptr<const Plan> plan, ILogger& logger) {
    return new Context(engine, std::move(plan), logger);
}

}  // namespace tensorrt_double
