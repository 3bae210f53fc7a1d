#include "tensorrt/flavour/call.h"

#include <stdexcept>

namespace neurenix::tensorrt::NEURENIX_FLAVOUR {

nvinfer1::Dims dims_of(const std::int64_t* values, std::size_t count) {
    nvinfer1::Dims dims{};
    if (count > nvinfer1::Dims::MAX_DIMS) {
        throw std::invalid_argument("TensorRT has tensors of at most " + std::to_string(nvinfer1::Dims::MAX_DIMS) +
                                    " dimensions");
    }
    dims.nbDims = static_cast<std::int32_t>(count);
    for (std::size_t axis = 0; axis < count; ++axis) dims.d[axis] = static_cast<decltype(+dims.d[0])>(values[axis]);
    return dims;
}

rust::Vec<std::int64_t> extents_of(const nvinfer1::Dims& dims) {
    rust::Vec<std::int64_t> found;
    for (std::int32_t axis = 0; axis < dims.nbDims; ++axis) found.push_back(dims.d[axis]);
    return found;
}

nvinfer1::Weights weights_of(const WeightsSpec& given) {
    // Where there are no numbers TensorRT wants no address either.
    const auto* values = given.count == 0 ? nullptr : reinterpret_cast<const void*>(given.address);
    return {named<nvinfer1::DataType>(static_cast<std::string>(given.dtype)), values,
            static_cast<std::int64_t>(given.count)};
}

nvinfer1::ITensor& Call::tensor(std::size_t index) const {
    nvinfer1::ITensor* found = optional(index);
    if (found == nullptr) throw std::invalid_argument("input " + std::to_string(index) + " is missing");
    return *found;
}

nvinfer1::ITensor* Call::optional(std::size_t index) const {
    if (index >= spec_.inputs.size() || spec_.inputs[index] < 0) return nullptr;
    return made_.tensors.at(static_cast<std::size_t>(spec_.inputs[index]));
}

const Property* Call::find(const char* name) const {
    for (const Property& property : spec_.properties) {
        if (property.name == name) return &property;
    }
    return nullptr;
}

const Property& Call::get(const char* name) const {
    const Property* found = find(name);
    if (found == nullptr) throw std::invalid_argument(std::string("property ") + name + " is missing");
    return *found;
}

std::string Call::word(const char* name) const { return static_cast<std::string>(get(name).words.at(0)); }

std::int64_t Call::number(const char* name) const { return get(name).ints.at(0); }

std::vector<float> Call::reals(const char* name) const {
    const auto& values = get(name).floats;
    return {values.begin(), values.end()};
}

nvinfer1::Dims Call::dims(const char* name) const {
    const auto& values = get(name).ints;
    return dims_of(values.data(), values.size());
}

std::uint32_t Call::axes(const char* name) const {
    std::uint32_t mask = 0;
    for (const std::int64_t axis : get(name).ints) mask |= 1U << static_cast<unsigned>(axis);
    return mask;
}

nvinfer1::Permutation Call::permutation(const char* name) const {
    nvinfer1::Permutation order{};
    const nvinfer1::Dims given = dims(name);
    for (std::int32_t axis = 0; axis < given.nbDims; ++axis)
        order.order[axis] = static_cast<std::int32_t>(given.d[axis]);
    return order;
}

nvinfer1::Weights Call::weights(std::size_t index) const {
    if (index >= spec_.weights.size()) return {nvinfer1::DataType::kFLOAT, nullptr, 0};
    return weights_of(spec_.weights[index]);
}

}  // namespace neurenix::tensorrt::NEURENIX_FLAVOUR
