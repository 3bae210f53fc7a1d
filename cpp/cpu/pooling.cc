#include "cpu/pooling.h"

#include "cpu/team.h"
#include "neurenix/src/providers/cpu/bridge.rs.h"

namespace neurenix::cpu {

static dnnl::algorithm algorithm(PoolingKind kind) {
    switch (kind) {
        case PoolingKind::Average:
            return dnnl::algorithm::pooling_avg_exclude_padding;
        case PoolingKind::AverageWithPadding:
            return dnnl::algorithm::pooling_avg_include_padding;
        default:
            return dnnl::algorithm::pooling_max;
    }
}

std::unique_ptr<Primitive> pooling(const Pooling& spec, const Options& options) {
    const TeamSize team(options.threads);
    const dnnl::pooling_forward::primitive_desc desc(engine(), dnnl::prop_kind::forward_inference, algorithm(spec.kind),
                                                     descriptor(spec.src), descriptor(spec.dst), dims(spec.strides),
                                                     dims(spec.kernel), dims(spec.dilations), dims(spec.begin),
                                                     dims(spec.end), attributes(options));
    return std::make_unique<Primitive>(desc, Primitive::Inputs{{DNNL_ARG_SRC, desc.src_desc()}});
}

}  // namespace neurenix::cpu
