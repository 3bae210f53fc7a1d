#include "cpu/softmax.h"

#include "cpu/team.h"
#include "neurenix/src/providers/cpu/bridge.rs.h"

namespace neurenix::cpu {

std::unique_ptr<Primitive> softmax(const Softmax& spec, const Options& options) {
    const TeamSize team(options.threads);
    const auto algorithm = spec.logarithm ? dnnl::algorithm::softmax_log : dnnl::algorithm::softmax_accurate;
    const dnnl::softmax_forward::primitive_desc desc(engine(), dnnl::prop_kind::forward_inference, algorithm,
                                                     descriptor(spec.src), descriptor(spec.dst),
                                                     static_cast<int>(spec.axis), attributes(options));
    return std::make_unique<Primitive>(desc, Primitive::Inputs{{DNNL_ARG_SRC, desc.src_desc()}});
}

}  // namespace neurenix::cpu
