// The boundaries of loops and conditionals. What lies between them is layers like any other.
#include "tensorrt/flavour/layers.h"

namespace neurenix::tensorrt::NEURENIX_FLAVOUR {

using namespace nvinfer1;

ILayer* add_trip_limit(INetworkDefinition&, const Call& call) {
    return call.loop().addTripLimit(call.tensor(0), call.value<TripLimit>("limit"));
}

ILayer* add_iterator(INetworkDefinition&, const Call& call) {
    return call.loop().addIterator(call.tensor(0), static_cast<std::int32_t>(call.number("axis")),
                                   call.flag("reverse"));
}

// Its next value, input 1, is set when the layers inside of the loop are there.
ILayer* add_recurrence(INetworkDefinition&, const Call& call) { return call.loop().addRecurrence(call.tensor(0)); }

// Input 1 is the number of steps, where their values are joined.
ILayer* add_loop_output(INetworkDefinition&, const Call& call) {
    ILoopOutputLayer* layer = call.loop().addLoopOutput(call.tensor(0), call.value<LoopOutput>("output"),
                                                        static_cast<std::int32_t>(call.number("axis")));
    if (layer == nullptr) return nullptr;
    if (ITensor* steps = call.optional(1)) layer->setInput(1, *steps);
    return layer;
}

ILayer* add_condition(INetworkDefinition&, const Call& call) { return call.conditional().setCondition(call.tensor(0)); }

ILayer* add_conditional_input(INetworkDefinition&, const Call& call) {
    return call.conditional().addInput(call.tensor(0));
}

ILayer* add_conditional_output(INetworkDefinition&, const Call& call) {
    return call.conditional().addOutput(call.tensor(0), call.tensor(1));
}

}  // namespace neurenix::tensorrt::NEURENIX_FLAVOUR
