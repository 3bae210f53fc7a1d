#pragma once
#include <cstddef>
#include <cstring>
#include <memory>

#include "cpu/descriptor.h"

namespace neurenix::cpu {

class Primitive;

// How a primitive wants its constant weights to lie, and how they lie in the model. Immutable.
class WeightFormat {
  public:
    WeightFormat(dnnl::memory::desc source, dnnl::memory::desc packed)
        : source_(std::move(source)), packed_(std::move(packed)) {}

    std::size_t source_bytes() const noexcept { return source_.get_size(); }
    std::size_t packed_bytes() const noexcept { return packed_.get_size(); }
    bool equals(const WeightFormat& other) const noexcept { return packed_ == other.packed_; }
    const dnnl::memory::desc& packed() const noexcept { return packed_; }

    // Brings weights from the model's layout to this one.
    std::unique_ptr<Primitive> packer(std::size_t threads) const;

  private:
    dnnl::memory::desc source_;
    dnnl::memory::desc packed_;
};

// Describes a primitive with the weights in `given`'s format, or, where that is refused or would run oneDNN's plain
// reference loops, in the format that oneDNN likes best. `describe` takes the weights' descriptor.
template <typename Describe>
auto describe_with_weights(const WeightFormat* given, const TensorDesc& weights, Describe describe) {
    if (given != nullptr) {
        auto desc = describe(given->packed(), /*allow_empty=*/true);
        if (desc && std::strstr(desc.impl_info_str(), "ref") == nullptr) return desc;
    }
    return describe(any_format(weights), /*allow_empty=*/false);
}

}  // namespace neurenix::cpu
