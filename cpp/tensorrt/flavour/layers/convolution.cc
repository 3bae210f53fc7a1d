#include "tensorrt/flavour/layers.h"

namespace neurenix::tensorrt::NEURENIX_FLAVOUR {
namespace {

using namespace nvinfer1;

// What convolutions and their transposes have in common.
template <typename Layer>
void set_window(Layer& layer, const Call& call) {
    layer.setStrideNd(call.dims("strides"));
    layer.setDilationNd(call.dims("dilations"));
    layer.setPrePadding(call.dims("pre_padding"));
    layer.setPostPadding(call.dims("post_padding"));
    layer.setNbGroups(call.number("groups"));
    // Weights that a Dequantize gives come as tensors.
    if (ITensor* kernel = call.optional(1)) layer.setInput(1, *kernel);
    if (ITensor* bias = call.optional(2)) layer.setInput(2, *bias);
}

}  // namespace

ILayer* add_convolution(INetworkDefinition& network, const Call& call) {
    IConvolutionLayer* layer = network.addConvolutionNd(call.tensor(0), call.number("maps"), call.dims("kernel"),
                                                        call.weights(0), call.weights(1));
    if (layer != nullptr) set_window(*layer, call);
    return layer;
}

ILayer* add_deconvolution(INetworkDefinition& network, const Call& call) {
    IDeconvolutionLayer* layer = network.addDeconvolutionNd(call.tensor(0), call.number("maps"), call.dims("kernel"),
                                                            call.weights(0), call.weights(1));
    if (layer != nullptr) set_window(*layer, call);
    return layer;
}

ILayer* add_pooling(INetworkDefinition& network, const Call& call) {
    IPoolingLayer* layer = network.addPoolingNd(call.tensor(0), call.value<PoolingType>("type"), call.dims("kernel"));
    if (layer == nullptr) return nullptr;
    layer->setStrideNd(call.dims("strides"));
    layer->setPrePadding(call.dims("pre_padding"));
    layer->setPostPadding(call.dims("post_padding"));
    layer->setPaddingMode(call.flag("round_up") ? PaddingMode::kEXPLICIT_ROUND_UP : PaddingMode::kEXPLICIT_ROUND_DOWN);
    layer->setAverageCountExcludesPadding(!call.flag("count_padding"));
    return layer;
}

}  // namespace neurenix::tensorrt::NEURENIX_FLAVOUR
