#include "cpu/reorder.h"

#include "cpu/team.h"

namespace neurenix::cpu {

std::unique_ptr<Primitive> reorder_between(const dnnl::memory::desc& from, const dnnl::memory::desc& to,
                                           std::size_t threads) {
    const TeamSize team(threads);
    dnnl::primitive_attr attr;
    attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    const dnnl::reorder::primitive_desc desc(engine(), from, engine(), to, attr);
    return std::make_unique<Primitive>(desc, Primitive::Inputs{{DNNL_ARG_FROM, from}});
}

std::unique_ptr<Primitive> reorder(const TensorDesc& from, const TensorDesc& to, std::size_t threads) {
    return reorder_between(descriptor(from), descriptor(to), threads);
}

}  // namespace neurenix::cpu
