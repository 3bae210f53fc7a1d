// An engine file that is open, and what Triton asks of it.
#ifndef NEURENIX_TRITON_ENGINE_H_
#define NEURENIX_TRITON_ENGINE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "dtypes.h"
#include "neurenix/neurenix.h"

namespace neurenix::triton {

// An input or output. Extents are -1 where calls give them; symbols then name them.
struct Port {
    std::string name;
    DType dtype;
    std::vector<int64_t> dims;
    std::vector<std::string> symbols;
};

// Least, expected and greatest number of rows of a profile.
struct Rows {
    int64_t min, opt, max;
};

class Engine {
  public:
    // Throws Failure where the file can't be opened, or has a dtype that Triton lacks.
    Engine(const std::string& path, const nrx_options& options);
    ~Engine() { nrx_engine_close(handle_); }
    Engine(const Engine&) = delete;
    Engine& operator=(const Engine&) = delete;

    nrx_engine* handle() const { return handle_; }
    const std::vector<Port>& inputs() const { return inputs_; }
    const std::vector<Port>& outputs() const { return outputs_; }
    uint32_t profiles() const { return info_.profiles; }
    bool shapes_by_data() const { return info_.shapes_by_data != 0; }
    const char* notes() const { return info_.notes; }

    std::vector<int64_t> profile_shape(uint32_t profile, uint32_t input, nrx_bound bound) const;
    // For each profile the rows of a batch; none where the first dimension of some input or output is something else.
    const std::vector<Rows>& rows() const { return rows_; }

  private:
    std::vector<Port> ports(nrx_side side, uint32_t count) const;
    std::vector<Rows> find_rows() const;

    nrx_engine* handle_ = nullptr;
    nrx_engine_info info_ = NRX_ENGINE_INFO_INIT;
    std::vector<Port> inputs_, outputs_;
    std::vector<Rows> rows_;
};

}  // namespace neurenix::triton

#endif  // NEURENIX_TRITON_ENGINE_H_
