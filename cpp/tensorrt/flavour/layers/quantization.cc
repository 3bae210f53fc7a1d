#include "tensorrt/flavour/layers.h"

namespace neurenix::tensorrt::NEURENIX_FLAVOUR {
namespace {

using namespace nvinfer1;

template <typename Layer>
Layer* along(Layer* layer, const Call& call) {
    if (layer != nullptr && call.has("axis")) layer->setAxis(static_cast<std::int32_t>(call.number("axis")));
    return layer;
}

}  // namespace

ILayer* add_quantize(INetworkDefinition& network, const Call& call) {
#if NEURENIX_SHAPE >= 10
    return along(network.addQuantize(call.tensor(0), call.tensor(1), call.value<DataType>("to")), call);
#else
    return along(network.addQuantize(call.tensor(0), call.tensor(1)), call);
#endif
}

ILayer* add_dequantize(INetworkDefinition& network, const Call& call) {
#if NEURENIX_SHAPE >= 10
    return along(network.addDequantize(call.tensor(0), call.tensor(1), call.value<DataType>("to")), call);
#else
    return along(network.addDequantize(call.tensor(0), call.tensor(1)), call);
#endif
}

}  // namespace neurenix::tensorrt::NEURENIX_FLAVOUR
