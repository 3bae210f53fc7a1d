#include "cpu/descriptor.h"

#include <stdexcept>

#include "cpu/isa.h"
#include "neurenix/src/providers/cpu/bridge.rs.h"

namespace neurenix::cpu {

using dnnl::algorithm;
using dnnl::memory;

const dnnl::engine& engine() {
    static const dnnl::engine cpu = [] {
        limit_isa();
        return dnnl::engine(dnnl::engine::kind::cpu, 0);
    }();
    return cpu;
}

memory::data_type data_type(ElementType type) {
    switch (type) {
        case ElementType::F32:
            return memory::data_type::f32;
        case ElementType::F16:
            return memory::data_type::f16;
        case ElementType::BF16:
            return memory::data_type::bf16;
        case ElementType::S8:
            return memory::data_type::s8;
        case ElementType::U8:
            return memory::data_type::u8;
        case ElementType::S32:
            return memory::data_type::s32;
        default:
            return memory::data_type::undef;
    }
}

memory::dims dims(const rust::Vec<std::int64_t>& values) { return memory::dims(values.begin(), values.end()); }

// Blocks of 16 channels; a slice takes the strides of the tensor that it is a part of.
static memory::desc blocked_descriptor(const TensorDesc& tensor) {
    using tag = memory::format_tag;
    const memory::dims slice = dims(tensor.dims);
    if (slice.size() < 3 || slice.size() > 5) throw std::runtime_error("channel blocks need 3 to 5 axes");
    const tag tags[] = {tag::nCw16c, tag::nChw16c, tag::nCdhw16c};
    memory::dims whole = slice;
    whole[1] = tensor.parent_channels;
    const memory::desc parent(whole, data_type(tensor.dtype), tags[slice.size() - 3]);
    return whole == slice ? parent : parent.submemory_desc(slice, memory::dims(slice.size(), 0));
}

memory::desc descriptor(const TensorDesc& tensor) {
    if (tensor.blocked) return blocked_descriptor(tensor);
    return memory::desc(dims(tensor.dims), data_type(tensor.dtype), dims(tensor.strides));
}

memory::desc any_format(const TensorDesc& tensor) {
    return memory::desc(dims(tensor.dims), data_type(tensor.dtype), memory::format_tag::any);
}

memory::desc vector_descriptor(ElementType type, std::int64_t length) {
    if (type == ElementType::Absent) return memory::desc();
    return memory::desc({length}, data_type(type), memory::format_tag::a);
}

algorithm eltwise_algorithm(PostKind kind) {
    switch (kind) {
        case PostKind::Relu:
            return algorithm::eltwise_relu;
        case PostKind::Clip:
            return algorithm::eltwise_clip_v2;
        case PostKind::Swish:
            return algorithm::eltwise_swish;
        case PostKind::GeluErf:
            return algorithm::eltwise_gelu_erf;
        case PostKind::GeluTanh:
            return algorithm::eltwise_gelu_tanh;
        case PostKind::Sigmoid:
            return algorithm::eltwise_logistic;
        case PostKind::Tanh:
            return algorithm::eltwise_tanh;
        case PostKind::HardSwish:
            return algorithm::eltwise_hardswish;
        case PostKind::HardSigmoid:
            return algorithm::eltwise_hardsigmoid;
        case PostKind::Elu:
            return algorithm::eltwise_elu;
        case PostKind::Mish:
            return algorithm::eltwise_mish;
        case PostKind::Linear:
            return algorithm::eltwise_linear;
        case PostKind::Abs:
            return algorithm::eltwise_abs;
        case PostKind::Square:
            return algorithm::eltwise_square;
        case PostKind::Sqrt:
            return algorithm::eltwise_sqrt;
        case PostKind::Exp:
            return algorithm::eltwise_exp;
        case PostKind::Log:
            return algorithm::eltwise_log;
        case PostKind::Round:
            return algorithm::eltwise_round;
        default:
            return algorithm::undef;
    }
}

algorithm binary_algorithm(PostKind kind) {
    switch (kind) {
        case PostKind::Add:
            return algorithm::binary_add;
        case PostKind::Sub:
            return algorithm::binary_sub;
        case PostKind::Mul:
            return algorithm::binary_mul;
        case PostKind::Div:
            return algorithm::binary_div;
        default:
            return algorithm::undef;
    }
}

dnnl::primitive_attr attributes(const Options& options) {
    dnnl::post_ops chain;
    for (const PostOp& op : options.post) {
        if (op.kind == PostKind::Sum) {
            chain.append_sum(op.alpha, static_cast<std::int32_t>(op.beta), data_type(op.operand.dtype));
        } else if (binary_algorithm(op.kind) != algorithm::undef) {
            chain.append_binary(binary_algorithm(op.kind), descriptor(op.operand));
        } else {
            chain.append_eltwise(eltwise_algorithm(op.kind), op.alpha, op.beta);
        }
    }
    dnnl::primitive_attr attr;
    attr.set_post_ops(chain);
    const Quantization& by = options.quantization;
    if (by.src_scale) attr.set_scales_mask(DNNL_ARG_SRC, 0);
    if (by.weight_scales >= 0) attr.set_scales_mask(DNNL_ARG_WEIGHTS, by.weight_scales);
    if (by.dst_scale) attr.set_scales_mask(DNNL_ARG_DST, 0);
    if (by.src_zero) attr.set_zero_points_mask(DNNL_ARG_SRC, 0);
    if (by.dst_zero) attr.set_zero_points_mask(DNNL_ARG_DST, 0);
    attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    attr.set_fpmath_mode(dnnl::fpmath_mode::strict);
    return attr;
}

void append_quantization(const Options& options, const dnnl::memory::desc& weights,
                         std::vector<std::pair<int, dnnl::memory::desc>>& inputs) {
    const Quantization& by = options.quantization;
    const memory::desc scale({1}, memory::data_type::f32, memory::format_tag::a);
    const memory::desc zero({1}, memory::data_type::s32, memory::format_tag::a);
    if (by.src_scale) inputs.emplace_back(DNNL_ARG_ATTR_SCALES | DNNL_ARG_SRC, scale);
    if (by.weight_scales >= 0) {
        memory::dim count = 1;
        for (int axis = 0; axis < weights.get_ndims(); ++axis) {
            if (by.weight_scales >> axis & 1) count *= weights.get_dims()[axis];
        }
        inputs.emplace_back(DNNL_ARG_ATTR_SCALES | DNNL_ARG_WEIGHTS,
                            memory::desc({count}, memory::data_type::f32, memory::format_tag::a));
    }
    if (by.dst_scale) inputs.emplace_back(DNNL_ARG_ATTR_SCALES | DNNL_ARG_DST, scale);
    if (by.src_zero) inputs.emplace_back(DNNL_ARG_ATTR_ZERO_POINTS | DNNL_ARG_SRC, zero);
    if (by.dst_zero) inputs.emplace_back(DNNL_ARG_ATTR_ZERO_POINTS | DNNL_ARG_DST, zero);
}

}  // namespace neurenix::cpu
