#include "tensorrt/flavour/layers.h"

#include <map>
#include <stdexcept>

namespace neurenix::tensorrt::NEURENIX_FLAVOUR {

Adder adder(const std::string& kind) {
    static const std::map<std::string, Adder> all{
        {"Activation", add_activation},
        {"Unary", add_unary},
        {"ElementWise", add_elementwise},
        {"ParametricReLU", add_parametric_relu},
        {"Select", add_select},
        {"Cast", add_cast},
        {"Identity", add_identity},
        {"Convolution", add_convolution},
        {"Deconvolution", add_deconvolution},
        {"Pooling", add_pooling},
        {"MatrixMultiply", add_matrix_multiply},
        {"SoftMax", add_softmax},
        {"Reduce", add_reduce},
        {"TopK", add_top_k},
        {"Normalization", add_normalization},
        {"Cumulative", add_cumulative},
        {"LRN", add_lrn},
        {"Constant", add_constant},
        {"Shape", add_shape},
        {"Shuffle", add_shuffle},
        {"Slice", add_slice},
        {"Concatenation", add_concatenation},
        {"Gather", add_gather},
        {"Scatter", add_scatter},
        {"OneHot", add_one_hot},
        {"NonZero", add_non_zero},
        {"Linspace", add_linspace},
        {"ReverseSequence", add_reverse_sequence},
        {"Resize", add_resize},
        {"GridSample", add_grid_sample},
        {"Quantize", add_quantize},
        {"Dequantize", add_dequantize},
        {"TripLimit", add_trip_limit},
        {"Iterator", add_iterator},
        {"Recurrence", add_recurrence},
        {"LoopOutput", add_loop_output},
        {"Condition", add_condition},
        {"ConditionalInput", add_conditional_input},
        {"ConditionalOutput", add_conditional_output},
        {"NMS", add_nms},
        {"PluginV3", add_plugin},
    };
    const auto found = all.find(kind);
    if (found == all.end()) throw std::invalid_argument("there is no layer " + kind);
    return found->second;
}

}  // namespace neurenix::tensorrt::NEURENIX_FLAVOUR
