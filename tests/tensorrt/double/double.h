#pragma once
// A double of TensorRT-RTX: its builder is NVIDIA's own, and what that builds is "run" by functions that the test
// gives. Nothing of NVIDIA's runtime, and no GPU, has any part in it. What is said of the addresses it gets: they are
// the processor's, or those of the recorded device of tests/cuda/recorded.
#include <NvInfer.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace tensorrt_double {

// An input or output, as a test sees it; the extents and the data of an output are for the test to fill.
struct Tensor {
    const char* name;
    const char* dtype;
    std::int64_t rank;
    std::int64_t dims[8];
    const void* data;
};

// Runs a network, given as JSON and the bytes that it names, or only works the shapes out. Gives null, or what is
// wrong; what the outputs name lives until the thread calls again.
using Run = const char* (*)(const char* network, const void* weights, std::int64_t weight_bytes, Tensor* inputs,
                            std::int64_t input_count, Tensor* outputs, std::int64_t output_count,
                            std::int32_t only_shapes);

// What a test has set by `double_set`, or the environment (DOUBLE_SET="enqueue=1,shape=2"); 0 unless it has.
std::int64_t setting(const char* name);
// The same, for one that says how often: counts down where it is above 0.
bool take(const char* name);
// Counts a call.
void count(const char* name);
Run run();

// Logs an error, from another thread where the test wants that, and gives false.
bool refuse(nvinfer1::ILogger& logger, const std::string& why);

// An input or output of a plan.
struct Port {
    std::string name;
    std::string dtype;
    std::vector<std::int64_t> shape;
    bool input = false;
    // For each profile the least, expected and greatest shape.
    std::vector<std::vector<std::int64_t>> profiles;
};

// What stands behind the bytes of NVIDIA's builder in a plan of the double.
struct Plan {
    std::vector<Port> ports;
    bool refittable = false;
    // The network, for `Run`: JSON, and the bytes that it names.
    std::string network, weights;
    // What the inspector says.
    std::string layers;
};

std::string write(const Plan& plan);
// Null where the bytes are none.
std::shared_ptr<const Plan> read(const void* bytes, std::size_t size);

// The plan of a network; the profiles are those that its builder has made.
Plan describe(const nvinfer1::INetworkDefinition& network,
              const std::vector<nvinfer1::IOptimizationProfile*>& profiles);

std::size_t bytes_of(const std::string& dtype);
std::string name_of(nvinfer1::DataType dtype);
nvinfer1::DataType dtype_of(const std::string& name);
nvinfer1::Dims dims_of(const std::vector<std::int64_t>& extents);
std::vector<std::int64_t> extents_of(const nvinfer1::Dims& dims);
// A text as JSON has it.
std::string quoted(const std::string& text);

// The names of the weights of refittable plans: NVIDIA's network does not tell them, so a test does.
std::vector<std::string> weight_names();

nvinfer1::IBuilder* make_builder(void* real, nvinfer1::ILogger& logger);
nvinfer1::IRuntime* make_runtime(nvinfer1::ILogger& logger);
nvinfer1::ICudaEngine* make_engine(std::shared_ptr<const Plan> plan, nvinfer1::ILogger& logger);
nvinfer1::IRefitter* make_refitter(nvinfer1::ILogger& logger);
nvinfer1::IExecutionContext* make_context(const nvinfer1::ICudaEngine& engine, std::shared_ptr<const Plan> plan,
                                          nvinfer1::ILogger& logger);

}  // namespace tensorrt_double
