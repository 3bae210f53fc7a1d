#include "engine.h"

#include "error.h"

namespace neurenix::triton {

namespace {

struct Closer {
    void operator()(nrx_engine* engine) const { nrx_engine_close(engine); }
};

}  // namespace

Engine::Engine(const std::string& path, const nrx_options& options) {
    nrx_engine* opened = nullptr;
    check(nrx_engine_open(path.c_str(), &options, &opened));
    std::unique_ptr<nrx_engine, Closer> engine(opened);
    handle_ = opened;
    check(nrx_engine_get_info(handle_, &info_));
    inputs_ = ports(NRX_INPUT, info_.inputs);
    outputs_ = ports(NRX_OUTPUT, info_.outputs);
    rows_ = find_rows();
    // The destructor closes it from here on.
    engine.release();
}

std::vector<Port> Engine::ports(nrx_side side, uint32_t count) const {
    std::vector<Port> found;
    for (uint32_t index = 0; index < count; ++index) {
        nrx_tensor_info info = NRX_TENSOR_INFO_INIT;
        check(nrx_engine_get_tensor(handle_, side, index, &info));
        const std::optional<DType> dtype = dtype_of(info.dtype);
        if (!dtype) {
            throw unsupported("tensor '" + std::string(info.name) + "' is of " + nrx_dtype_name(info.dtype) +
                              ", which Triton has no type for: add a Cast to the model");
        }
        Port port{info.name, *dtype, {info.dims, info.dims + info.rank}, {}};
        for (uint32_t axis = 0; axis < info.rank; ++axis) {
            port.symbols.emplace_back(info.symbols[axis] != nullptr ? info.symbols[axis] : "");
        }
        found.push_back(std::move(port));
    }
    return found;
}

std::vector<int64_t> Engine::profile_shape(uint32_t profile, uint32_t input, nrx_bound bound) const {
    std::vector<int64_t> dims(inputs_.at(input).dims.size());
    check(nrx_engine_get_profile_shape(handle_, profile, input, bound, dims.data(), dims.size()));
    return dims;
}

std::vector<Rows> Engine::find_rows() const {
    if (inputs_.empty() || shapes_by_data()) return {};
    const std::string symbol = inputs_[0].symbols.empty() ? "" : inputs_[0].symbols[0];
    if (symbol.empty()) return {};
    for (const auto* side : {&inputs_, &outputs_}) {
        for (const Port& port : *side) {
            if (port.symbols.empty() || port.symbols[0] != symbol) return {};
            // A model that mixes its rows, as one with a shape of (n, n) would, is no batch of anything.
            for (size_t axis = 1; axis < port.symbols.size(); ++axis) {
                if (port.symbols[axis] == symbol) return {};
            }
        }
    }
    std::vector<Rows> found;
    for (uint32_t profile = 0; profile < info_.profiles; ++profile) {
        const auto first = [&](nrx_bound bound) { return profile_shape(profile, 0, bound)[0]; };
        found.push_back({first(NRX_MIN), first(NRX_OPT), first(NRX_MAX)});
    }
    return found;
}

}  // namespace neurenix::triton
