// Opens an engine file, runs it on zeros of the shapes that it was optimised for, and says what came out and how fast.
#include <neurenix/neurenix.h>

#include <chrono>
#include <cstdio>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

void check(nrx_status status) {
    if (status != NRX_OK) throw std::runtime_error(nrx_last_error());
}

struct Close {
    void operator()(nrx_engine* engine) const { nrx_engine_close(engine); }
    void operator()(nrx_context* context) const { nrx_context_destroy(context); }
};
using Engine = std::unique_ptr<nrx_engine, Close>;
using Context = std::unique_ptr<nrx_context, Close>;

Engine open(const char* path) {
    nrx_engine* engine = nullptr;
    check(nrx_engine_open(path, nullptr, &engine));
    return Engine(engine);
}

Context context_of(const Engine& engine) {
    nrx_context* context = nullptr;
    check(nrx_context_create(engine.get(), &context));
    return Context(context);
}

void print(const nrx_tensor_info& tensor) {
    std::string shape;
    for (uint32_t axis = 0; axis < tensor.rank; ++axis) {
        const bool is_fixed = tensor.symbols[axis] == nullptr;
        shape += (axis > 0 ? ", " : "") + (is_fixed ? std::to_string(tensor.dims[axis]) : tensor.symbols[axis]);
    }
    std::printf("%s: %s (%s)\n", tensor.name, nrx_dtype_name(tensor.dtype), shape.c_str());
}

void run(const char* path) {
    const Engine engine = open(path);
    const Context context = context_of(engine);
    nrx_engine_info info = NRX_ENGINE_INFO_INIT;
    check(nrx_engine_get_info(engine.get(), &info));

    // A binding is an address: the arrays live as long as calls read them.
    std::vector<std::vector<char>> inputs;
    for (uint32_t at = 0; at < info.inputs; ++at) {
        nrx_tensor_info input = NRX_TENSOR_INFO_INIT;
        check(nrx_engine_get_tensor(engine.get(), NRX_INPUT, at, &input));
        print(input);
        std::vector<int64_t> dims(input.rank);
        check(nrx_engine_get_profile_shape(engine.get(), 0, at, NRX_OPT, dims.data(), dims.size()));
        size_t bytes = nrx_dtype_size(input.dtype);
        for (const int64_t extent : dims) bytes *= static_cast<size_t>(extent);
        inputs.emplace_back(bytes);
        check(nrx_context_set_input(context.get(), at, input.dtype, dims.data(), dims.size(), inputs.back().data(),
                                    bytes, NRX_HOST));
    }
    // Outputs that are not bound come in memory of the context's.
    check(nrx_context_run(context.get()));
    for (uint32_t at = 0; at < info.outputs; ++at) {
        nrx_tensor_info output = NRX_TENSOR_INFO_INIT;
        nrx_array_info array = NRX_ARRAY_INFO_INIT;
        check(nrx_engine_get_tensor(engine.get(), NRX_OUTPUT, at, &output));
        check(nrx_context_get_output(context.get(), at, &array));
        std::string shape;
        for (uint32_t axis = 0; axis < array.rank; ++axis) {
            shape += (axis > 0 ? ", " : "") + std::to_string(array.dims[axis]);
        }
        std::printf("%s: %zu bytes (%s)\n", output.name, array.bytes, shape.c_str());
    }

    constexpr int kRuns = 100;
    const auto begun = std::chrono::steady_clock::now();
    for (int at = 0; at < kRuns; ++at) check(nrx_context_run(context.get()));
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begun;
    std::printf("%.3f ms a run\n", took.count() / kRuns);
}

}  // namespace

int main(int count, char** arguments) {
    if (count != 2) {
        std::fprintf(stderr, "usage: %s ENGINE\n", arguments[0]);
        return 2;
    }
    try {
        run(arguments[1]);
    } catch (const std::exception& error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
    return 0;
}
