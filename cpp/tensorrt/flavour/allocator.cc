#include "tensorrt/flavour/allocator.h"

namespace neurenix::tensorrt::NEURENIX_FLAVOUR {

void* Allocator::ask(void* current, std::uint64_t size, std::uint64_t alignment, cudaStream_t stream) {
    return reinterpret_cast<void*>(reallocate(*collector_, reinterpret_cast<std::size_t>(current), size, alignment,
                                              reinterpret_cast<std::size_t>(stream)));
}

#if NEURENIX_SHAPE >= 10
void* Allocator::reallocateOutputAsync(const char*, void* current, std::uint64_t size, std::uint64_t alignment,
                                       cudaStream_t stream) {
    return ask(current, size, alignment, stream);
}
#else
void* Allocator::reallocateOutput(const char*, void* current, std::uint64_t size, std::uint64_t alignment) noexcept {
    return ask(current, size, alignment, nullptr);
}
#endif

void Allocator::notifyShape(const char*, const nvinfer1::Dims& dims) noexcept {
    std::int64_t extents[nvinfer1::Dims::MAX_DIMS]{};
    const std::int32_t rank = std::min(std::max(dims.nbDims, 0), nvinfer1::Dims::MAX_DIMS);
    for (std::int32_t axis = 0; axis < rank; ++axis) extents[axis] = dims.d[axis];
    tell_shape(*collector_, {extents, static_cast<std::size_t>(rank)});
}

}  // namespace neurenix::tensorrt::NEURENIX_FLAVOUR
