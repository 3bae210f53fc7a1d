#include "tensorrt/flavour/layers.h"

namespace neurenix::tensorrt::NEURENIX_FLAVOUR {

using namespace nvinfer1;

ILayer* add_resize(INetworkDefinition& network, const Call& call) {
    IResizeLayer* layer = network.addResize(call.tensor(0));
    if (layer == nullptr) return nullptr;
    if (call.has("scales")) {
        std::vector<float> scales = call.reals("scales");
        layer->setScales(scales.data(), static_cast<std::int32_t>(scales.size()));
    }
    if (call.has("shape")) layer->setOutputDimensions(call.dims("shape"));
    if (ITensor* shape = call.optional(1)) layer->setInput(1, *shape);
    layer->setResizeMode(call.value<InterpolationMode>("mode"));
    layer->setCoordinateTransformation(call.value<ResizeCoordinateTransformation>("coordinates"));
    if (call.flag("upper")) layer->setSelectorForSinglePixel(ResizeSelector::kUPPER);
    if (call.has("rounding")) layer->setNearestRounding(call.value<ResizeRoundMode>("rounding"));
    if (call.has("cubic")) layer->setCubicCoeff(call.real("cubic"));
    return layer;
}

ILayer* add_grid_sample(INetworkDefinition& network, const Call& call) {
    IGridSampleLayer* layer = network.addGridSample(call.tensor(0), call.tensor(1));
    if (layer == nullptr) return nullptr;
    layer->setInterpolationMode(call.value<InterpolationMode>("mode"));
    layer->setSampleMode(call.value<SampleMode>("border"));
    layer->setAlignCorners(call.flag("align_corners"));
    return layer;
}

}  // namespace neurenix::tensorrt::NEURENIX_FLAVOUR
