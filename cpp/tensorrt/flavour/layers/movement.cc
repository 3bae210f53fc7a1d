#include <vector>

#include "tensorrt/flavour/layers.h"

namespace neurenix::tensorrt::NEURENIX_FLAVOUR {

using namespace nvinfer1;

ILayer* add_constant(INetworkDefinition& network, const Call& call) {
    return network.addConstant(call.dims("shape"), call.weights(0));
}

ILayer* add_shape(INetworkDefinition& network, const Call& call) { return network.addShape(call.tensor(0)); }

ILayer* add_shuffle(INetworkDefinition& network, const Call& call) {
    IShuffleLayer* layer = network.addShuffle(call.tensor(0));
    if (layer == nullptr) return nullptr;
    if (call.has("order")) layer->setFirstTranspose(call.permutation("order"));
    // Extents are extents: 0 is an empty dimension, not one to copy.
    layer->setZeroIsPlaceholder(false);
    if (call.has("shape")) layer->setReshapeDimensions(call.dims("shape"));
    if (ITensor* shape = call.optional(1)) layer->setInput(1, *shape);
    return layer;
}

// Inputs 1, 2, 3 stand for start, size and stride where those come with a call; 4 is what fills.
ILayer* add_slice(INetworkDefinition& network, const Call& call) {
    ISliceLayer* layer = network.addSlice(call.tensor(0), call.dims("start"), call.dims("size"), call.dims("stride"));
    if (layer == nullptr) return nullptr;
    layer->setMode(call.value<SampleMode>("mode"));
    for (std::int32_t at = 1; at < 5; ++at) {
        if (ITensor* given = call.optional(static_cast<std::size_t>(at))) layer->setInput(at, *given);
    }
    return layer;
}

ILayer* add_concatenation(INetworkDefinition& network, const Call& call) {
    std::vector<ITensor*> parts;
    for (std::size_t at = 0; at < call.inputs(); ++at) parts.push_back(&call.tensor(at));
    IConcatenationLayer* layer = network.addConcatenation(parts.data(), static_cast<std::int32_t>(parts.size()));
    if (layer != nullptr) layer->setAxis(static_cast<std::int32_t>(call.number("axis")));
    return layer;
}

ILayer* add_gather(INetworkDefinition& network, const Call& call) {
    IGatherLayer* layer = network.addGatherV2(call.tensor(0), call.tensor(1), call.value<GatherMode>("mode"));
    if (layer == nullptr) return nullptr;
    if (call.has("axis")) layer->setGatherAxis(static_cast<std::int32_t>(call.number("axis")));
    if (call.has("batch")) layer->setNbElementWiseDims(static_cast<std::int32_t>(call.number("batch")));
    return layer;
}

ILayer* add_scatter(INetworkDefinition& network, const Call& call) {
    IScatterLayer* layer =
        network.addScatter(call.tensor(0), call.tensor(1), call.tensor(2), call.value<ScatterMode>("mode"));
    if (layer != nullptr && call.has("axis")) layer->setAxis(static_cast<std::int32_t>(call.number("axis")));
    return layer;
}

ILayer* add_one_hot(INetworkDefinition& network, const Call& call) {
    return network.addOneHot(call.tensor(0), call.tensor(1), call.tensor(2),
                             static_cast<std::int32_t>(call.number("axis")));
}

// The indices, as INT32, of what is true.
ILayer* add_non_zero(INetworkDefinition& network, const Call& call) { return network.addNonZero(call.tensor(0)); }

// Numbers from a start in equal steps: input 0 is the shape, 1 the start (a scalar), 2 the steps (one for each axis).
ILayer* add_linspace(INetworkDefinition& network, const Call& call) {
    const std::int64_t any = 1;
#if NEURENIX_SHAPE >= 10
    IFillLayer* layer = network.addFill(dims_of(&any, 1), FillOperation::kLINSPACE, call.value<DataType>("dtype"));
#else
    IFillLayer* layer = network.addFill(dims_of(&any, 1), FillOperation::kLINSPACE);
#endif
    if (layer == nullptr) return nullptr;
    for (std::int32_t at = 0; at < 3; ++at) layer->setInput(at, call.tensor(static_cast<std::size_t>(at)));
    return layer;
}

ILayer* add_reverse_sequence(INetworkDefinition& network, const Call& call) {
    IReverseSequenceLayer* layer = network.addReverseSequence(call.tensor(0), call.tensor(1));
    if (layer == nullptr) return nullptr;
    layer->setBatchAxis(static_cast<std::int32_t>(call.number("batch_axis")));
    layer->setSequenceAxis(static_cast<std::int32_t>(call.number("time_axis")));
    return layer;
}

}  // namespace neurenix::tensorrt::NEURENIX_FLAVOUR
