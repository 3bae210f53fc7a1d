// A model's configuration: what it says, whether it fits the engine, and what is put in where it says nothing.
#ifndef NEURENIX_TRITON_CONFIG_H_
#define NEURENIX_TRITON_CONFIG_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "engine.h"

namespace neurenix::triton {

struct Config {
    // An input or output; dims are those that the engine gets, without the rows of a batch.
    struct Tensor {
        std::string name, type;
        std::vector<int64_t> dims;
    };

    // Throws Failure for what is not configuration, or asks for sequence batching.
    static Config read(const std::string& json);

    // The configuration of an engine, as JSON: its tensors, the greatest batch, and dynamic batching for it.
    static std::string complete(const Engine& engine);

    // Throws Failure, with what the engine has and what stands here, where the two do not fit.
    void check_against(const Engine& engine) const;

    // Whether nothing of the engine is described, so that all of it is to be put in.
    bool is_empty() const { return inputs.empty() && outputs.empty() && max_batch == 0; }

    int64_t max_batch = 0;
    std::vector<Tensor> inputs, outputs;
    std::string file;
    // The GPU of the first instances, or -1 for the processor.
    int32_t device = -1;
    std::map<std::string, std::string> parameters;
};

}  // namespace neurenix::triton

#endif  // NEURENIX_TRITON_CONFIG_H_
