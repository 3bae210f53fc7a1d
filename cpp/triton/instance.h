// An instance of a model: one context, in which one batch runs at a time.
#ifndef NEURENIX_TRITON_INSTANCE_H_
#define NEURENIX_TRITON_INSTANCE_H_

#include <memory>
#include <optional>
#include <vector>

#include "batch.h"
#include "engine.h"
#include "model.h"
#include "triton/core/tritonbackend.h"
#include "watch.h"

namespace neurenix::triton {

class Instance {
  public:
    // Throws Failure where the engine can't be opened on the instance's device.
    Instance(TRITONBACKEND_ModelInstance* instance, Model& model);
    ~Instance() { nrx_context_destroy(context_); }
    Instance(const Instance&) = delete;
    Instance& operator=(const Instance&) = delete;

    // Runs requests, answers and releases them.
    void execute(TRITONBACKEND_Request** requests, uint32_t count);

  private:
    using Group = std::vector<Job*>;

    std::vector<Group> groups(std::vector<Job>& jobs) const;
    // Runs a group and answers those that went well. Where it fails, its requests run again, each alone.
    void run(const Group& group, uint64_t begun);
    // Decides what becomes of a group whose run failed.
    void settle(const Group& group, const Failure& failure, uint64_t begun);
    void compute(const Group& group, uint64_t& started, uint64_t& done);
    void bind_inputs(const Group& group, int64_t rows);
    // Binds outputs: straight into the only response where that can be, else into staging memory.
    void bind_outputs(const Group& group, int64_t rows);
    // Gives every request its rows. What one of them has no room for is its own failure.
    void answer(const Group& group, int64_t rows);
    void give(Job& job, uint32_t index, const std::vector<int64_t>& shape, const char* data, uint64_t bytes);
    nrx_array_info output(uint32_t index) const;
    // As many rows as a profile holds, at least so many.
    int64_t padded(int64_t rows) const;
    void warm_up();

    TRITONBACKEND_ModelInstance* instance_;
    std::shared_ptr<Engine> engine_;
    nrx_context* context_ = nullptr;
    int64_t most_rows_;
    std::vector<Staging> staged_inputs_, staged_outputs_;
    // The room of each output in the only response of the call, and whether the engine writes there.
    std::vector<std::optional<Piece>> rooms_;
    std::vector<bool> direct_;
    Watch watch_;
};

}  // namespace neurenix::triton

#endif  // NEURENIX_TRITON_INSTANCE_H_
