#include "cpu/layer_norm.h"

#include "cpu/team.h"
#include "neurenix/src/providers/cpu/bridge.rs.h"

namespace neurenix::cpu {

std::unique_ptr<Primitive> layer_norm(const LayerNorm& spec, const Options& options) {
    using dnnl::normalization_flags;
    const TeamSize team(options.threads);
    auto flags = normalization_flags::none;
    if (spec.scale) flags |= normalization_flags::use_scale;
    if (spec.shift) flags |= normalization_flags::use_shift;
    const dnnl::layer_normalization_forward::primitive_desc desc(engine(), dnnl::prop_kind::forward_inference,
                                                                 descriptor(spec.src), descriptor(spec.dst),
                                                                 spec.epsilon, flags, attributes(options));
    const auto length = spec.src.dims[spec.src.dims.size() - 1];
    const auto vector = [&](bool present) {
        return vector_descriptor(present ? ElementType::F32 : ElementType::Absent, length);
    };
    const Primitive::Inputs inputs{
        {DNNL_ARG_SRC, desc.src_desc()}, {DNNL_ARG_SCALE, vector(spec.scale)}, {DNNL_ARG_SHIFT, vector(spec.shift)}};
    return std::make_unique<Primitive>(desc, inputs);
}

}  // namespace neurenix::cpu
