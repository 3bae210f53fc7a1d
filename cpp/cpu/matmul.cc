#include "cpu/matmul.h"

#include "cpu/team.h"
#include "neurenix/src/providers/cpu/bridge.rs.h"

namespace neurenix::cpu {

// The bias of a matmul has as many axes as its output, all but the last of extent 1.
static dnnl::memory::desc bias_descriptor(const Matmul& spec) {
    if (spec.bias == ElementType::Absent) return dnnl::memory::desc();
    dnnl::memory::dims extent(spec.dst.dims.size(), 1);
    extent.back() = spec.dst.dims[spec.dst.dims.size() - 1];
    const dnnl::memory::dims strides(extent.size(), 1);
    return dnnl::memory::desc(extent, data_type(spec.bias), strides);
}

std::unique_ptr<Primitive> matmul(const Matmul& spec, const Options& options, std::shared_ptr<WeightFormat> given) {
    const TeamSize team(options.threads);
    const auto bias = bias_descriptor(spec);
    const auto describe = [&](const dnnl::memory::desc& b, bool allow_empty) {
        return dnnl::matmul::primitive_desc(engine(), descriptor(spec.a), b, bias, descriptor(spec.dst),
                                            attributes(options), allow_empty);
    };
    const auto desc = spec.pack_b ? describe_with_weights(given.get(), spec.b, describe)
                                  : describe(descriptor(spec.b), /*allow_empty=*/false);
    const auto weights =
        spec.pack_b ? std::make_shared<WeightFormat>(descriptor(spec.b), desc.weights_desc()) : nullptr;
    Primitive::Inputs inputs{
        {DNNL_ARG_SRC, desc.src_desc()}, {DNNL_ARG_WEIGHTS, desc.weights_desc()}, {DNNL_ARG_BIAS, bias}};
    append_quantization(options, desc.weights_desc(), inputs);
    return std::make_unique<Primitive>(desc, inputs, weights);
}

}  // namespace neurenix::cpu
