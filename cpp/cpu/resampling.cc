#include "cpu/resampling.h"

#include "cpu/team.h"
#include "neurenix/src/providers/cpu/bridge.rs.h"

namespace neurenix::cpu {

std::unique_ptr<Primitive> resampling(const Resampling& spec, const Options& options) {
    const TeamSize team(options.threads);
    const auto algorithm = spec.linear ? dnnl::algorithm::resampling_linear : dnnl::algorithm::resampling_nearest;
    const dnnl::resampling_forward::primitive_desc desc(engine(), dnnl::prop_kind::forward_inference, algorithm,
                                                        descriptor(spec.src), descriptor(spec.dst),
                                                        attributes(options));
    return std::make_unique<Primitive>(desc, Primitive::Inputs{{DNNL_ARG_SRC, desc.src_desc()}});
}

}  // namespace neurenix::cpu
