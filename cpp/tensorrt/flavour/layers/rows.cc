#include <stdexcept>

#include "tensorrt/flavour/layers.h"

namespace neurenix::tensorrt::NEURENIX_FLAVOUR {

using namespace nvinfer1;

ILayer* add_softmax(INetworkDefinition& network, const Call& call) {
    ISoftMaxLayer* layer = network.addSoftMax(call.tensor(0));
    if (layer != nullptr) layer->setAxes(call.axes("axes"));
    return layer;
}

ILayer* add_reduce(INetworkDefinition& network, const Call& call) {
    return network.addReduce(call.tensor(0), call.value<ReduceOperation>("operation"), call.axes("axes"),
                             call.flag("keep_dimensions"));
}

ILayer* add_top_k(INetworkDefinition& network, const Call& call) {
    ITopKLayer* layer = network.addTopK(call.tensor(0), call.value<TopKOperation>("operation"),
                                        static_cast<std::int32_t>(call.number("k")), call.axes("axes"));
    if (layer == nullptr) return nullptr;
    // A number of elements that comes with a call.
    if (ITensor* k = call.optional(1)) layer->setInput(1, *k);
    return layer;
}

ILayer* add_normalization(INetworkDefinition& network, const Call& call) {
    INormalizationLayer* layer;
#if NEURENIX_AT_LEAST(110000, 10500)
    // Scale and bias of each channel, also where channels are normalized in groups.
    layer = network.addNormalizationV2(call.tensor(0), call.tensor(1), call.tensor(2), call.axes("axes"));
#else
    layer = network.addNormalization(call.tensor(0), call.tensor(1), call.tensor(2), call.axes("axes"));
#endif
    if (layer == nullptr) return nullptr;
    layer->setEpsilon(call.real("epsilon"));
    layer->setNbGroups(call.number("groups"));
    return layer;
}

ILayer* add_cumulative(INetworkDefinition& network, const Call& call) {
#if NEURENIX_AT_LEAST(100900, 10300)
    return network.addCumulative(call.tensor(0), call.tensor(1), CumulativeOperation::kSUM, call.flag("exclusive"),
                                 call.flag("reverse"));
#else
    static_cast<void>(network);
    static_cast<void>(call);
    throw std::invalid_argument("this version of TensorRT has no cumulative sums");
#endif
}

ILayer* add_lrn(INetworkDefinition& network, const Call& call) {
    return network.addLRN(call.tensor(0), call.number("window"), call.real("alpha"), call.real("beta"), call.real("k"));
}

}  // namespace neurenix::tensorrt::NEURENIX_FLAVOUR
