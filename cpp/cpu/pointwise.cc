#include "cpu/pointwise.h"

#include "cpu/team.h"
#include "neurenix/src/providers/cpu/bridge.rs.h"

namespace neurenix::cpu {

std::unique_ptr<Primitive> pointwise(const TensorDesc& src, const TensorDesc& dst, const PostOp& first,
                                     const Options& options) {
    const TeamSize team(options.threads);
    const auto binary = binary_algorithm(first.kind);
    if (binary != dnnl::algorithm::undef) {
        const auto operand = descriptor(first.operand);
        const dnnl::binary::primitive_desc desc(engine(), binary, descriptor(src), operand, descriptor(dst),
                                                attributes(options));
        const Primitive::Inputs inputs{{DNNL_ARG_SRC_0, desc.src_desc(0)}, {DNNL_ARG_SRC_1, operand}};
        return std::make_unique<Primitive>(desc, inputs);
    }
    const dnnl::eltwise_forward::primitive_desc desc(engine(), dnnl::prop_kind::forward_inference,
                                                     eltwise_algorithm(first.kind), descriptor(src), descriptor(dst),
                                                     first.alpha, first.beta, attributes(options));
    return std::make_unique<Primitive>(desc, Primitive::Inputs{{DNNL_ARG_SRC, desc.src_desc()}});
}

}  // namespace neurenix::cpu
