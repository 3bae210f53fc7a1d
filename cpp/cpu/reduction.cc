#include "cpu/reduction.h"

#include "cpu/team.h"
#include "neurenix/src/providers/cpu/bridge.rs.h"

namespace neurenix::cpu {

static dnnl::algorithm algorithm(ReductionKind kind) {
    switch (kind) {
        case ReductionKind::Sum:
            return dnnl::algorithm::reduction_sum;
        case ReductionKind::Max:
            return dnnl::algorithm::reduction_max;
        case ReductionKind::Min:
            return dnnl::algorithm::reduction_min;
        default:
            return dnnl::algorithm::reduction_mean;
    }
}

std::unique_ptr<Primitive> reduction(const TensorDesc& src, const TensorDesc& dst, ReductionKind kind,
                                     const Options& options) {
    const TeamSize team(options.threads);
    const dnnl::reduction::primitive_desc desc(engine(), algorithm(kind), descriptor(src), descriptor(dst), 0.0F, 0.0F,
                                               attributes(options));
    return std::make_unique<Primitive>(desc, Primitive::Inputs{{DNNL_ARG_SRC, desc.src_desc()}});
}

}  // namespace neurenix::cpu
