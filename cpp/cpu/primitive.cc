#include "cpu/primitive.h"

#include <optional>
#include <stdexcept>

#include "cpu/signals.h"

namespace neurenix::cpu {

Primitive::Primitive(const dnnl::primitive_desc_base& desc, const Inputs& inputs, std::shared_ptr<WeightFormat> fixed)
    : primitive_(desc.get()),
      stream_(engine()),
      implementation_(desc.impl_info_str()),
      moves_stack_pointer_(moves_stack_pointer(implementation_)),
      scratchpad_bytes_(desc.scratchpad_desc().get_size()),
      weights_(std::move(fixed)) {
    for (const auto& [argument, descriptor] : inputs) {
        if (!descriptor.is_zero()) append(argument, descriptor);
    }
    const dnnl::post_ops chain = desc.get_primitive_attr().get_post_ops();
    for (int at = 0; at < chain.len(); ++at) {
        if (chain.kind(at) != dnnl::primitive::kind::binary) continue;
        dnnl::algorithm algorithm;
        dnnl::memory::desc operand;
        chain.get_params_binary(at, algorithm, operand);
        append(DNNL_ARG_ATTR_MULTIPLE_POST_OP(at) | DNNL_ARG_SRC_1, operand);
    }
    append(DNNL_ARG_DST, desc.dst_desc());
    append(DNNL_ARG_SCRATCHPAD, desc.scratchpad_desc());
}

void Primitive::append(int argument, const dnnl::memory::desc& desc) {
    memories_.emplace_back(desc, engine(), nullptr);
    args_.push_back({argument, memories_.back().get()});
}

void Primitive::execute(rust::Slice<const std::size_t> addresses) {
    if (addresses.size() != args_.size()) throw std::runtime_error("invalid_arguments: wrong number of addresses");
    for (std::size_t at = 0; at < args_.size(); ++at) {
        dnnl_memory_set_data_handle(args_[at].memory, reinterpret_cast<void*>(addresses[at]));
    }
    const auto count = static_cast<int>(args_.size());
    std::optional<SignalsBlocked> blocked;
    if (moves_stack_pointer_) blocked.emplace();
    dnnl::error::wrap_c_api(dnnl_primitive_execute(primitive_.get(), stream_.get(), count, args_.data()),
                            "could not execute a primitive");
}

}  // namespace neurenix::cpu
