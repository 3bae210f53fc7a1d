#include "cpu/convolution.h"

#include "cpu/team.h"
#include "neurenix/src/providers/cpu/bridge.rs.h"

namespace neurenix::cpu {

template <typename Forward>
static std::unique_ptr<Primitive> create(const Convolution& spec, const Options& options, const WeightFormat* given,
                                         dnnl::algorithm algorithm) {
    const TeamSize team(options.threads);
    const auto bias = vector_descriptor(spec.bias, spec.dst.dims[1]);
    const auto describe = [&](const dnnl::memory::desc& weights, bool allow_empty) {
        return typename Forward::primitive_desc(engine(), dnnl::prop_kind::forward_inference, algorithm,
                                                descriptor(spec.src), weights, bias, descriptor(spec.dst),
                                                dims(spec.strides), dims(spec.dilations), dims(spec.begin),
                                                dims(spec.end), attributes(options), allow_empty);
    };
    const auto desc = describe_with_weights(given, spec.weights, describe);
    const auto weights = std::make_shared<WeightFormat>(descriptor(spec.weights), desc.weights_desc());
    Primitive::Inputs inputs{
        {DNNL_ARG_SRC, desc.src_desc()}, {DNNL_ARG_WEIGHTS, desc.weights_desc()}, {DNNL_ARG_BIAS, bias}};
    append_quantization(options, desc.weights_desc(), inputs);
    return std::make_unique<Primitive>(desc, inputs, weights);
}

std::unique_ptr<Primitive> convolution(const Convolution& spec, const Options& options,
                                       std::shared_ptr<WeightFormat> given) {
    using dnnl::algorithm;
    return spec.transposed
               ? create<dnnl::deconvolution_forward>(spec, options, given.get(), algorithm::deconvolution_direct)
               : create<dnnl::convolution_forward>(spec, options, given.get(), algorithm::convolution_direct);
}

}  // namespace neurenix::cpu
