#pragma once
#include <functional>
#include <string>
#include <vector>

#include "neurenix/src/providers/tensorrt/bridge.rs.h"
#include "tensorrt/flavour/names.h"

namespace neurenix::tensorrt::NEURENIX_FLAVOUR {

nvinfer1::Dims dims_of(const std::int64_t* values, std::size_t count);
rust::Vec<std::int64_t> extents_of(const nvinfer1::Dims& dims);
// Where they are; the numbers are not copied.
nvinfer1::Weights weights_of(const WeightsSpec& given);

// What a network has so far, by number.
struct Made {
    std::vector<nvinfer1::ITensor*> tensors;
    // What gives each tensor; null for inputs of the network.
    std::vector<nvinfer1::ILayer*> producers;
    std::vector<nvinfer1::ILoop*> loops;
    std::vector<nvinfer1::IIfConditional*> conditionals;
};

// What a layer is made of, read by name. Whatever is missing is thrown.
class Call {
  public:
    Call(const LayerSpec& spec, const Made& made) : spec_(spec), made_(made) {}

    std::size_t inputs() const { return spec_.inputs.size(); }
    nvinfer1::ITensor& tensor(std::size_t index) const;
    // Null where it is left out.
    nvinfer1::ITensor* optional(std::size_t index) const;

    bool has(const char* name) const { return find(name) != nullptr; }
    std::string word(const char* name) const;
    template <typename Enum>
    Enum value(const char* name) const {
        return named<Enum>(word(name));
    }
    std::int64_t number(const char* name) const;
    bool flag(const char* name) const { return number(name) != 0; }
    float real(const char* name) const { return reals(name).at(0); }
    std::vector<float> reals(const char* name) const;
    nvinfer1::Dims dims(const char* name) const;
    std::uint32_t axes(const char* name) const;
    // As a permutation of at most Dims::MAX_DIMS dimensions.
    nvinfer1::Permutation permutation(const char* name) const;
    // None where they are left out.
    nvinfer1::Weights weights(std::size_t index) const;
    // The loop that it is a boundary of.
    nvinfer1::ILoop& loop() const { return *made_.loops.at(static_cast<std::size_t>(number("loop"))); }
    // The conditional that it is a boundary of.
    nvinfer1::IIfConditional& conditional() const {
        return *made_.conditionals.at(static_cast<std::size_t>(number("conditional")));
    }

  private:
    const Property* find(const char* name) const;
    const Property& get(const char* name) const;

    const LayerSpec& spec_;
    const Made& made_;
};

}  // namespace neurenix::tensorrt::NEURENIX_FLAVOUR
