#pragma once
#include <string>

#include "tensorrt/flavour/call.h"

namespace neurenix::tensorrt::NEURENIX_FLAVOUR {

// Adds one layer to a network; null where TensorRT refuses.
using Adder = nvinfer1::ILayer* (*)(nvinfer1::INetworkDefinition&, const Call&);

// What adds a layer of TensorRT's name: "Convolution". Throws if this version has none such.
Adder adder(const std::string& kind);

// layers/pointwise.cc
nvinfer1::ILayer* add_activation(nvinfer1::INetworkDefinition& network, const Call& call);
nvinfer1::ILayer* add_unary(nvinfer1::INetworkDefinition& network, const Call& call);
nvinfer1::ILayer* add_elementwise(nvinfer1::INetworkDefinition& network, const Call& call);
nvinfer1::ILayer* add_parametric_relu(nvinfer1::INetworkDefinition& network, const Call& call);
nvinfer1::ILayer* add_select(nvinfer1::INetworkDefinition& network, const Call& call);
nvinfer1::ILayer* add_cast(nvinfer1::INetworkDefinition& network, const Call& call);
nvinfer1::ILayer* add_identity(nvinfer1::INetworkDefinition& network, const Call& call);
// layers/convolution.cc
nvinfer1::ILayer* add_convolution(nvinfer1::INetworkDefinition& network, const Call& call);
nvinfer1::ILayer* add_deconvolution(nvinfer1::INetworkDefinition& network, const Call& call);
nvinfer1::ILayer* add_pooling(nvinfer1::INetworkDefinition& network, const Call& call);
// layers/product.cc
nvinfer1::ILayer* add_matrix_multiply(nvinfer1::INetworkDefinition& network, const Call& call);
// layers/rows.cc
nvinfer1::ILayer* add_softmax(nvinfer1::INetworkDefinition& network, const Call& call);
nvinfer1::ILayer* add_reduce(nvinfer1::INetworkDefinition& network, const Call& call);
nvinfer1::ILayer* add_top_k(nvinfer1::INetworkDefinition& network, const Call& call);
nvinfer1::ILayer* add_normalization(nvinfer1::INetworkDefinition& network, const Call& call);
nvinfer1::ILayer* add_cumulative(nvinfer1::INetworkDefinition& network, const Call& call);
nvinfer1::ILayer* add_lrn(nvinfer1::INetworkDefinition& network, const Call& call);
// layers/movement.cc
nvinfer1::ILayer* add_constant(nvinfer1::INetworkDefinition& network, const Call& call);
nvinfer1::ILayer* add_shape(nvinfer1::INetworkDefinition& network, const Call& call);
nvinfer1::ILayer* add_shuffle(nvinfer1::INetworkDefinition& network, const Call& call);
nvinfer1::ILayer* add_slice(nvinfer1::INetworkDefinition& network, const Call& call);
nvinfer1::ILayer* add_concatenation(nvinfer1::INetworkDefinition& network, const Call& call);
nvinfer1::ILayer* add_gather(nvinfer1::INetworkDefinition& network, const Call& call);
nvinfer1::ILayer* add_scatter(nvinfer1::INetworkDefinition& network, const Call& call);
nvinfer1::ILayer* add_one_hot(nvinfer1::INetworkDefinition& network, const Call& call);
nvinfer1::ILayer* add_non_zero(nvinfer1::INetworkDefinition& network, const Call& call);
nvinfer1::ILayer* add_linspace(nvinfer1::INetworkDefinition& network, const Call& call);
nvinfer1::ILayer* add_reverse_sequence(nvinfer1::INetworkDefinition& network, const Call& call);
// layers/sampling.cc
nvinfer1::ILayer* add_resize(nvinfer1::INetworkDefinition& network, const Call& call);
nvinfer1::ILayer* add_grid_sample(nvinfer1::INetworkDefinition& network, const Call& call);
// layers/quantization.cc
nvinfer1::ILayer* add_quantize(nvinfer1::INetworkDefinition& network, const Call& call);
nvinfer1::ILayer* add_dequantize(nvinfer1::INetworkDefinition& network, const Call& call);
// layers/control.cc
nvinfer1::ILayer* add_trip_limit(nvinfer1::INetworkDefinition& network, const Call& call);
nvinfer1::ILayer* add_iterator(nvinfer1::INetworkDefinition& network, const Call& call);
nvinfer1::ILayer* add_recurrence(nvinfer1::INetworkDefinition& network, const Call& call);
nvinfer1::ILayer* add_loop_output(nvinfer1::INetworkDefinition& network, const Call& call);
nvinfer1::ILayer* add_condition(nvinfer1::INetworkDefinition& network, const Call& call);
nvinfer1::ILayer* add_conditional_input(nvinfer1::INetworkDefinition& network, const Call& call);
nvinfer1::ILayer* add_conditional_output(nvinfer1::INetworkDefinition& network, const Call& call);
// layers/nms.cc
nvinfer1::ILayer* add_nms(nvinfer1::INetworkDefinition& network, const Call& call);
// layers/plugin.cc
nvinfer1::ILayer* add_plugin(nvinfer1::INetworkDefinition& network, const Call& call);

}  // namespace neurenix::tensorrt::NEURENIX_FLAVOUR
