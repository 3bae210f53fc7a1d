// A network of NVIDIA's builder in words: what its layers are and have, as the getters of TensorRT tell.
#include <map>
#include <sstream>
#include <stdexcept>

#include "double.h"

namespace tensorrt_double {
namespace {

using namespace nvinfer1;

// The properties of one layer, as members of a JSON object.
class Properties {
  public:
    explicit Properties(std::string& blob) : blob_(blob) {}

    void put(const char* name, const std::string& json) { text_ += std::string(", \"") + name + "\": " + json; }
    void number(const char* name, double value) {
        std::ostringstream text;
        text.precision(17);
        text << value;
        put(name, text.str());
    }
    template <typename Enum>
    void choice(const char* name, Enum value) {
        put(name, std::to_string(static_cast<int>(value)));
    }
    void flag(const char* name, bool value) { put(name, value ? "true" : "false"); }
    void dims(const char* name, const Dims& dims) {
        // Less than no dimensions: not set.
        if (dims.nbDims < 0) return put(name, "null");
        std::string all;
        for (std::int32_t axis = 0; axis < dims.nbDims; ++axis) {
            all += (axis == 0 ? "" : ", ") + std::to_string(dims.d[axis]);
        }
        put(name, "[" + all + "]");
    }
    void order(const char* name, const Permutation& order) {
        std::string all;
        for (std::int32_t axis = 0; axis < Dims::MAX_DIMS; ++axis) {
            all += (axis == 0 ? "" : ", ") + std::to_string(order.order[axis]);
        }
        put(name, "[" + all + "]");
    }
    void weights(const char* name, const Weights& weights) {
        if (weights.count == 0) return put(name, "null");
        const std::string dtype = name_of(weights.type);
        put(name,
            "[" + quoted(dtype) + ", " + std::to_string(blob_.size()) + ", " + std::to_string(weights.count) + "]");
        blob_.append(static_cast<const char*>(weights.values),
                     static_cast<std::size_t>(weights.count) * bytes_of(dtype));
    }
    const std::string& text() const { return text_; }

  private:
    std::string& blob_;
    std::string text_;
};

template <typename Layer>
void window(const Layer& layer, Properties& p) {
    p.dims("kernel", layer.getKernelSizeNd());
    p.dims("strides", layer.getStrideNd());
    p.dims("dilations", layer.getDilationNd());
    p.dims("before", layer.getPrePadding());
    p.dims("after", layer.getPostPadding());
    p.choice("padding_mode", layer.getPaddingMode());
    p.number("groups", static_cast<double>(layer.getNbGroups()));
    p.number("maps", static_cast<double>(layer.getNbOutputMaps()));
    p.weights("weights", layer.getKernelWeights());
    p.weights("bias", layer.getBiasWeights());
}

void pooling(const IPoolingLayer& layer, Properties& p) {
    p.choice("type", layer.getPoolingType());
    p.dims("kernel", layer.getWindowSizeNd());
    p.dims("strides", layer.getStrideNd());
    p.dims("before", layer.getPrePadding());
    p.dims("after", layer.getPostPadding());
    p.choice("padding_mode", layer.getPaddingMode());
    p.flag("excludes_padding", layer.getAverageCountExcludesPadding());
}

void resize(const IResizeLayer& layer, Properties& p) {
    float scales[Dims::MAX_DIMS];
    // -1 where they are not set; else it wants to be asked for as many as there are.
    const std::int32_t count = layer.getScales(0, nullptr);
    if (count > 0) layer.getScales(count, scales);
    std::string all;
    for (std::int32_t axis = 0; axis < count; ++axis) all += (axis == 0 ? "" : ", ") + std::to_string(scales[axis]);
    p.put("scales", count > 0 ? "[" + all + "]" : "null");
    p.dims("shape", layer.getOutputDimensions());
    p.choice("mode", layer.getResizeMode());
    p.choice("coordinates", layer.getCoordinateTransformation());
    p.choice("selector", layer.getSelectorForSinglePixel());
    p.choice("rounding", layer.getNearestRounding());
    p.number("cubic", layer.getCubicCoeff());
}

void shuffle(const IShuffleLayer& layer, Properties& p) {
    p.order("first", layer.getFirstTranspose());
    p.order("second", layer.getSecondTranspose());
    p.dims("shape", layer.getReshapeDimensions());
    p.flag("zero_copies", layer.getZeroIsPlaceholder());
}

void normalization(const INormalizationLayer& layer, Properties& p) {
    p.number("epsilon", layer.getEpsilon());
    p.number("axes", layer.getAxes());
    p.number("groups", static_cast<double>(layer.getNbGroups()));
    p.flag("by_channel", layer.isV2());
}

template <typename Layer>
const Layer& as(const ILayer& layer) {
    return static_cast<const Layer&>(layer);
}

// Numbers things, in the order in which they come up.
class Numbers {
  public:
    std::string of(const void* thing) {
        if (thing == nullptr) return "null";
        const auto number = all_.try_emplace(thing, all_.size()).first->second;
        return std::to_string(number);
    }

  private:
    std::map<const void*, std::size_t> all_;
};

// The dtype and the shape of what a layer gives, where ONNX wants to be told.
void type(const ITensor& tensor, Properties& p) {
    p.put("dtype", quoted(name_of(tensor.getType())));
    p.dims("extents", tensor.getDimensions());
}

// The same for what bounds a loop or a conditional, with the number of that; empty for any other layer.
std::string read_boundary(const ILayer& layer, Properties& p, Numbers& blocks) {
    switch (layer.getType()) {
        case LayerType::kTRIP_LIMIT:
            p.put("loop", blocks.of(as<ITripLimitLayer>(layer).getLoop()));
            p.choice("limit", as<ITripLimitLayer>(layer).getTripLimit());
            return "TripLimit";
        case LayerType::kITERATOR:
            p.put("loop", blocks.of(as<IIteratorLayer>(layer).getLoop()));
            p.number("axis", as<IIteratorLayer>(layer).getAxis());
            p.flag("reverse", as<IIteratorLayer>(layer).getReverse());
            return "Iterator";
        case LayerType::kRECURRENCE:
            p.put("loop", blocks.of(as<IRecurrenceLayer>(layer).getLoop()));
            type(*layer.getOutput(0), p);
            return "Recurrence";
        case LayerType::kLOOP_OUTPUT:
            p.put("loop", blocks.of(as<ILoopOutputLayer>(layer).getLoop()));
            p.choice("output", as<ILoopOutputLayer>(layer).getLoopOutput());
            p.number("axis", as<ILoopOutputLayer>(layer).getAxis());
            type(*layer.getInput(0), p);
            return "LoopOutput";
        case LayerType::kCONDITION:
            p.put("conditional", blocks.of(as<IConditionLayer>(layer).getConditional()));
            return "Condition";
        case LayerType::kCONDITIONAL_INPUT:
            p.put("conditional", blocks.of(as<IIfConditionalInputLayer>(layer).getConditional()));
            return "ConditionalInput";
        case LayerType::kCONDITIONAL_OUTPUT:
            p.put("conditional", blocks.of(as<IIfConditionalOutputLayer>(layer).getConditional()));
            type(*layer.getOutput(0), p);
            return "ConditionalOutput";
        default:
            return "";
    }
}

// Gives the kind of a layer, and writes down what it has.
std::string read_layer(const ILayer& layer, Properties& p, Numbers& blocks) {
    switch (layer.getType()) {
        case LayerType::kACTIVATION:
            p.choice("type", as<IActivationLayer>(layer).getActivationType());
            p.number("alpha", as<IActivationLayer>(layer).getAlpha());
            p.number("beta", as<IActivationLayer>(layer).getBeta());
            return "Activation";
        case LayerType::kUNARY:
            p.choice("operation", as<IUnaryLayer>(layer).getOperation());
            return "Unary";
        case LayerType::kELEMENTWISE:
            p.choice("operation", as<IElementWiseLayer>(layer).getOperation());
            return "ElementWise";
        case LayerType::kPARAMETRIC_RELU:
            return "ParametricReLU";
        case LayerType::kSELECT:
            return "Select";
        case LayerType::kCAST:
            p.put("to", quoted(name_of(as<ICastLayer>(layer).getToType())));
            return "Cast";
        case LayerType::kIDENTITY:
            return "Identity";
        case LayerType::kCONVOLUTION:
            window(as<IConvolutionLayer>(layer), p);
            return "Convolution";
        case LayerType::kDECONVOLUTION:
            window(as<IDeconvolutionLayer>(layer), p);
            return "Deconvolution";
        case LayerType::kPOOLING:
            pooling(as<IPoolingLayer>(layer), p);
            return "Pooling";
        case LayerType::kMATRIX_MULTIPLY:
            p.choice("left", as<IMatrixMultiplyLayer>(layer).getOperation(0));
            p.choice("right", as<IMatrixMultiplyLayer>(layer).getOperation(1));
            return "MatrixMultiply";
        case LayerType::kSOFTMAX:
            p.number("axes", as<ISoftMaxLayer>(layer).getAxes());
            return "SoftMax";
        case LayerType::kREDUCE:
            p.choice("operation", as<IReduceLayer>(layer).getOperation());
            p.number("axes", as<IReduceLayer>(layer).getReduceAxes());
            p.flag("keep", as<IReduceLayer>(layer).getKeepDimensions());
            return "Reduce";
        case LayerType::kTOPK:
            p.choice("operation", as<ITopKLayer>(layer).getOperation());
            p.number("k", as<ITopKLayer>(layer).getK());
            p.number("axes", as<ITopKLayer>(layer).getReduceAxes());
            return "TopK";
        case LayerType::kNORMALIZATION:
            normalization(as<INormalizationLayer>(layer), p);
            return "Normalization";
        case LayerType::kCUMULATIVE:
            p.flag("exclusive", as<ICumulativeLayer>(layer).getExclusive());
            p.flag("reverse", as<ICumulativeLayer>(layer).getReverse());
            return "Cumulative";
        case LayerType::kLRN:
            p.number("window", static_cast<double>(as<ILRNLayer>(layer).getWindowSize()));
            p.number("alpha", as<ILRNLayer>(layer).getAlpha());
            p.number("beta", as<ILRNLayer>(layer).getBeta());
            p.number("k", as<ILRNLayer>(layer).getK());
            return "LRN";
        case LayerType::kCONSTANT:
            p.dims("shape", as<IConstantLayer>(layer).getDimensions());
            p.weights("weights", as<IConstantLayer>(layer).getWeights());
            return "Constant";
        case LayerType::kSHAPE:
            return "Shape";
        case LayerType::kSHUFFLE:
            shuffle(as<IShuffleLayer>(layer), p);
            return "Shuffle";
        case LayerType::kSLICE:
            p.dims("start", as<ISliceLayer>(layer).getStart());
            p.dims("size", as<ISliceLayer>(layer).getSize());
            p.dims("stride", as<ISliceLayer>(layer).getStride());
            p.choice("mode", as<ISliceLayer>(layer).getMode());
            return "Slice";
        case LayerType::kCONCATENATION:
            p.number("axis", as<IConcatenationLayer>(layer).getAxis());
            return "Concatenation";
        case LayerType::kGATHER:
            p.number("axis", as<IGatherLayer>(layer).getGatherAxis());
            p.number("batch", as<IGatherLayer>(layer).getNbElementWiseDims());
            p.choice("mode", as<IGatherLayer>(layer).getMode());
            return "Gather";
        case LayerType::kSCATTER:
            p.number("axis", as<IScatterLayer>(layer).getAxis());
            p.choice("mode", as<IScatterLayer>(layer).getMode());
            return "Scatter";
        case LayerType::kONE_HOT:
            p.number("axis", as<IOneHotLayer>(layer).getAxis());
            return "OneHot";
        case LayerType::kRESIZE:
            resize(as<IResizeLayer>(layer), p);
            return "Resize";
        case LayerType::kGRID_SAMPLE:
            p.choice("mode", as<IGridSampleLayer>(layer).getInterpolationMode());
            p.choice("border", as<IGridSampleLayer>(layer).getSampleMode());
            p.flag("align_corners", as<IGridSampleLayer>(layer).getAlignCorners());
            return "GridSample";
        case LayerType::kFILL:
            p.choice("operation", as<IFillLayer>(layer).getOperation());
            p.put("to", quoted(name_of(as<IFillLayer>(layer).getToType())));
            return "Fill";
        case LayerType::kREVERSE_SEQUENCE:
            p.number("batch_axis", as<IReverseSequenceLayer>(layer).getBatchAxis());
            p.number("time_axis", as<IReverseSequenceLayer>(layer).getSequenceAxis());
            return "ReverseSequence";
        case LayerType::kQUANTIZE:
            p.number("axis", as<IQuantizeLayer>(layer).getAxis());
            p.put("to", quoted(name_of(as<IQuantizeLayer>(layer).getToType())));
            return "Quantize";
        case LayerType::kDEQUANTIZE:
            p.number("axis", as<IDequantizeLayer>(layer).getAxis());
            p.put("to", quoted(name_of(as<IDequantizeLayer>(layer).getToType())));
            return "Dequantize";
        case LayerType::kNON_ZERO:
            return "NonZero";
        case LayerType::kNMS:
            p.choice("format", as<INMSLayer>(layer).getBoundingBoxFormat());
            return "NMS";
        default: {
            const std::string boundary = read_boundary(layer, p, blocks);
            return boundary.empty() ? "layer " + std::to_string(static_cast<int>(layer.getType())) : boundary;
        }
    }
}

template <typename Count, typename Get>
std::string list(Count count, Get get) {
    std::string all;
    for (std::int32_t at = 0; at < count; ++at) all += (at == 0 ? "" : ", ") + get(at);
    return "[" + all + "]";
}

std::string port_json(const ITensor& tensor, Numbers& numbers) {
    const Dims dims = tensor.getDimensions();
    const std::string shape = list(dims.nbDims, [&](std::int32_t axis) { return std::to_string(dims.d[axis]); });
    return "{\"name\": " + quoted(tensor.getName()) + ", \"tensor\": " + numbers.of(&tensor) +
           ", \"dtype\": " + quoted(name_of(tensor.getType())) + ", \"shape\": " + shape + "}";
}

Port port_of(const ITensor& tensor, bool input, const std::vector<IOptimizationProfile*>& profiles) {
    Port port{tensor.getName(), name_of(tensor.getType()), extents_of(tensor.getDimensions()), input, {}};
    for (const auto* profile : profiles) {
        for (const auto which : {OptProfileSelector::kMIN, OptProfileSelector::kOPT, OptProfileSelector::kMAX}) {
            const Dims set = input ? profile->getDimensions(tensor.getName(), which) : Dims{-1, {}};
            port.profiles.push_back(set.nbDims < 0 ? port.shape : extents_of(set));
        }
    }
    if (profiles.empty()) port.profiles.assign(3, port.shape);
    return port;
}

}  // namespace

Plan describe(const INetworkDefinition& network, const std::vector<IOptimizationProfile*>& profiles) {
    Plan plan;
    Numbers numbers, blocks;
    std::string layers, told;
    for (std::int32_t at = 0; at < network.getNbLayers(); ++at) {
        const ILayer& layer = *network.getLayer(at);
        Properties properties(plan.weights);
        const std::string kind = read_layer(layer, properties, blocks);
        const auto inputs = list(layer.getNbInputs(), [&](auto i) { return numbers.of(layer.getInput(i)); });
        const auto ranks = list(layer.getNbInputs(), [&](auto i) {
            return std::to_string(layer.getInput(i) == nullptr ? 0 : layer.getInput(i)->getDimensions().nbDims);
        });
        properties.put("ranks", ranks);
        if (layer.getNbOutputs() > 0) properties.number("rank", layer.getOutput(0)->getDimensions().nbDims);
        const auto outputs = list(layer.getNbOutputs(), [&](auto i) { return numbers.of(layer.getOutput(i)); });
        layers += std::string(at == 0 ? "" : ", ") + "{\"kind\": " + quoted(kind) +
                  ", \"name\": " + quoted(layer.getName()) + ", \"inputs\": " + inputs + ", \"outputs\": " + outputs +
                  properties.text() + "}";
        told += std::string(at == 0 ? "" : ", ") + "{\"Name\": " + quoted(layer.getName()) +
                ", \"LayerType\": " + quoted(kind) + ", \"Metadata\": " + quoted(layer.getMetadata()) + "}";
    }
    const auto input = [&](std::int32_t at) -> const ITensor& { return *network.getInput(at); };
    const auto output = [&](std::int32_t at) -> const ITensor& { return *network.getOutput(at); };
    plan.network =
        "{\"inputs\": " + list(network.getNbInputs(), [&](auto at) { return port_json(input(at), numbers); }) +
        ", \"layers\": [" + layers +
        "], \"outputs\": " + list(network.getNbOutputs(), [&](auto at) { return port_json(output(at), numbers); }) +
        "}";
    plan.layers = "{\"Layers\": [" + told + "]}";
    for (std::int32_t at = 0; at < network.getNbInputs(); ++at)
        plan.ports.push_back(port_of(input(at), true, profiles));
    for (std::int32_t at = 0; at < network.getNbOutputs(); ++at)
        plan.ports.push_back(port_of(output(at), false, profiles));
    return plan;
}

}  // namespace tensorrt_double
