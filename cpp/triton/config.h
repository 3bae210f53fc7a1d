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

    // Throws Failure for what is not configuration, or asks for what no engine does, as sequence batching.
    static Config read(const std::string& json);

    // Whether it says nothing of the inputs or of the outputs that the engine has.
    bool lacks_ports(const Engine& engine) const;
    // What is put in from the engine, as JSON: inputs or outputs where there are none, dynamic batching, and the
    // greatest batch where nothing at all is said. Throws Failure where the batch that is given does not fit.
    std::string completed(const Engine& engine) const;
    // The inputs and outputs that it lacks, as one would write them.
    std::string missing(const Engine& engine) const;

    // Throws Failure, with what the engine has and what stands here, where the two do not fit.
    void check_against(const Engine& engine) const;

    // A parameter's value, or null where it is not given.
    const std::string* parameter(const std::string& name) const;

    // The JSON that this was read from.
    std::string source;
    int64_t max_batch = 0;
    std::vector<Tensor> inputs, outputs;
    std::string file;
    // The GPU of the first instances, or -1 for the processor.
    int32_t device = -1;
    std::map<std::string, std::string> parameters;

  private:
    void check_batch(const Engine& engine) const;
    // The greatest batch: as it is given, or the engine's where nothing is described.
    int64_t rows_for(const Engine& engine) const;
};

}  // namespace neurenix::triton

#endif  // NEURENIX_TRITON_CONFIG_H_
