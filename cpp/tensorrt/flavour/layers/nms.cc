#include "tensorrt/flavour/layers.h"

namespace neurenix::tensorrt::NEURENIX_FLAVOUR {

using namespace nvinfer1;

// Inputs: boxes, scores, the most boxes of a class (a scalar of INT32), then the thresholds (scalars of FLOAT).
ILayer* add_nms(INetworkDefinition& network, const Call& call) {
#if NEURENIX_AT_LEAST(101400, 10300)
    INMSLayer* layer = network.addNMS(call.tensor(0), call.tensor(1), call.tensor(2), DataType::kINT32);
#else
    INMSLayer* layer = network.addNMS(call.tensor(0), call.tensor(1), call.tensor(2));
#endif
    if (layer == nullptr) return nullptr;
    layer->setBoundingBoxFormat(call.value<BoundingBoxFormat>("format"));
    for (std::int32_t at = 3; at < 5; ++at) layer->setInput(at, call.tensor(static_cast<std::size_t>(at)));
    return layer;
}

}  // namespace neurenix::tensorrt::NEURENIX_FLAVOUR
