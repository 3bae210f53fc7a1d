#include "tensorrt/flavour/layers.h"

namespace neurenix::tensorrt::NEURENIX_FLAVOUR {

using namespace nvinfer1;

ILayer* add_activation(INetworkDefinition& network, const Call& call) {
    IActivationLayer* layer = network.addActivation(call.tensor(0), call.value<ActivationType>("type"));
    if (layer == nullptr) return nullptr;
    if (call.has("alpha")) layer->setAlpha(call.real("alpha"));
    if (call.has("beta")) layer->setBeta(call.real("beta"));
    return layer;
}

ILayer* add_unary(INetworkDefinition& network, const Call& call) {
    return network.addUnary(call.tensor(0), call.value<UnaryOperation>("operation"));
}

ILayer* add_elementwise(INetworkDefinition& network, const Call& call) {
    return network.addElementWise(call.tensor(0), call.tensor(1), call.value<ElementWiseOperation>("operation"));
}

ILayer* add_parametric_relu(INetworkDefinition& network, const Call& call) {
    return network.addParametricReLU(call.tensor(0), call.tensor(1));
}

ILayer* add_select(INetworkDefinition& network, const Call& call) {
    return network.addSelect(call.tensor(0), call.tensor(1), call.tensor(2));
}

ILayer* add_cast(INetworkDefinition& network, const Call& call) {
    return network.addCast(call.tensor(0), call.value<DataType>("to"));
}

ILayer* add_identity(INetworkDefinition& network, const Call& call) { return network.addIdentity(call.tensor(0)); }

}  // namespace neurenix::tensorrt::NEURENIX_FLAVOUR
