// Requests as the engine's arrays: what comes in, and where results go.
#ifndef NEURENIX_TRITON_BATCH_H_
#define NEURENIX_TRITON_BATCH_H_

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "engine.h"
#include "error.h"
#include "triton/core/tritonbackend.h"

namespace neurenix::triton {

// A piece of memory that Triton gave.
struct Piece {
    void* data = nullptr;
    uint64_t bytes = 0;
    // NRX_HOST, or the number of a GPU.
    int32_t device = NRX_HOST;
};

// What a request has for one input.
struct Given {
    std::vector<int64_t> shape;
    uint64_t bytes = 0;
    std::vector<Piece> pieces;

    // Whether the engine can read it where it is.
    bool in_place(size_t alignment) const;
    bool on_host() const;
    void copy_to(char* to) const;
};

// A request, its response, and what went wrong with it.
class Job {
  public:
    // Throws nothing: what is wrong with the request stands in `failure`.
    Job(TRITONBACKEND_Request* request, const Engine& engine, bool batched);

    // Reports and answers, once; the request and the response are gone then.
    void finish(TRITONBACKEND_ModelInstance* instance, uint64_t begun, uint64_t started, uint64_t done);

    void fail(const Failure& failure) { failure_ = failure; }
    // Whether its client has gone.
    bool is_cancelled() const;
    bool failed() const { return failure_.has_value(); }
    const std::vector<Given>& inputs() const { return inputs_; }
    // How many rows it brings; 1 where the model has no batches.
    int64_t rows() const { return rows_; }
    bool wants(const std::string& output) const { return outputs_.count(output) != 0; }
    // Whether both may run in one call.
    bool fits(const Job& other) const;
    // Room for a result in the response, once for each output: protocols keep what they gave. Throws Failure.
    Piece output(const Port& port, const std::vector<int64_t>& shape, uint64_t bytes);

  private:
    void read(const Engine& engine, bool batched);
    Given read_input(const Port& port) const;

    TRITONBACKEND_Request* request_;
    TRITONBACKEND_Response* response_ = nullptr;
    std::optional<Failure> failure_;
    std::vector<Given> inputs_;
    std::set<std::string> outputs_;
    int64_t rows_ = 1;
};

// Memory that grows, for arrays that are put together or taken apart.
class Staging {
  public:
    // Throws Failure where there is not so much.
    char* reserve(size_t bytes);

  private:
    struct Free {
        void operator()(void* address) const { std::free(address); }
    };
    std::unique_ptr<char, Free> memory_;
    size_t bytes_ = 0;
};

// Nanoseconds of the clock that Triton's statistics use.
uint64_t now();

}  // namespace neurenix::triton

#endif  // NEURENIX_TRITON_BATCH_H_
