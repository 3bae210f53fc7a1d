// A model of the repository: its engines, one for each kind of instance.
#ifndef NEURENIX_TRITON_MODEL_H_
#define NEURENIX_TRITON_MODEL_H_

#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "config.h"
#include "engine.h"
#include "triton/core/tritonbackend.h"

namespace neurenix::triton {

class Model {
  public:
    // Reads the configuration, puts in what it lacks, and checks it. Throws Failure.
    explicit Model(TRITONBACKEND_Model* model);

    const Config& config() const { return config_; }
    // Whether an instance runs before its first request.
    bool warms_up() const { return warms_up_; }
    // The engine on this GPU, or for -1 on the processor. Instances share it, and its weights; the last one closes it.
    std::shared_ptr<Engine> engine(int32_t device);
    // Lets go of the engine that was opened for the configuration: instances have theirs.
    void has_instances() { opened_.reset(); }

  private:
    std::string find_file(const std::string& folder) const;
    Config read_config() const;
    // Takes inputs and outputs that the configuration lacks from the engine, or says what is to be written.
    void complete_config();

    TRITONBACKEND_Model* model_;
    std::string path_;
    Config config_;
    bool warms_up_ = true;
    std::shared_ptr<Engine> opened_;
    std::mutex mutex_;
    std::map<int32_t, std::weak_ptr<Engine>> engines_;
};

}  // namespace neurenix::triton

#endif  // NEURENIX_TRITON_MODEL_H_
