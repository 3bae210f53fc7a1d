#pragma once
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "cpu/descriptor.h"
#include "cpu/weight_format.h"

namespace neurenix::cpu {

// A oneDNN primitive with its memory objects: created once, then called with addresses.
class Primitive {
  public:
    using Inputs = std::vector<std::pair<int, dnnl::memory::desc>>;

    // `inputs` come first in a call's addresses, then the operands of binary post-ops, the output, the scratchpad.
    // `fixed` is the weights' format, for primitives that have one.
    Primitive(const dnnl::primitive_desc_base& desc, const Inputs& inputs,
              std::shared_ptr<WeightFormat> fixed = nullptr);

    std::size_t arguments() const noexcept { return args_.size(); }
    std::size_t scratchpad_bytes() const noexcept { return scratchpad_bytes_; }
    rust::String implementation() const { return implementation_; }
    std::shared_ptr<WeightFormat> weight_format() const noexcept { return weights_; }
    void execute(rust::Slice<const std::size_t> addresses);

  private:
    void append(int argument, const dnnl::memory::desc& desc);

    dnnl::primitive primitive_;
    dnnl::stream stream_;
    std::string implementation_;
    bool moves_stack_pointer_;
    std::size_t scratchpad_bytes_;
    std::shared_ptr<WeightFormat> weights_;
    std::vector<dnnl::memory> memories_;
    std::vector<dnnl_exec_arg_t> args_;
};

}  // namespace neurenix::cpu
