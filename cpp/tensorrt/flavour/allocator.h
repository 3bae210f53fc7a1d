#pragma once
#include "neurenix/src/providers/tensorrt/bridge.rs.h"
#include "tensorrt/flavour/version.h"

namespace neurenix::tensorrt::NEURENIX_FLAVOUR {

// Asks the other side for the memory of an output.
class Allocator : public nvinfer1::IOutputAllocator {
  public:
    explicit Allocator(rust::Box<Collector> collector) : collector_(std::move(collector)) {}

#if NEURENIX_SHAPE >= 10
    void* reallocateOutputAsync(const char* tensor, void* current, std::uint64_t size, std::uint64_t alignment,
                                cudaStream_t stream) override;
#endif
#if NEURENIX_SHAPE == 8
    void* reallocateOutput(const char* tensor, void* current, std::uint64_t size,
                           std::uint64_t alignment) noexcept override;
#endif
    void notifyShape(const char* tensor, const nvinfer1::Dims& dims) noexcept override;

  private:
    void* ask(void* current, std::uint64_t size, std::uint64_t alignment, cudaStream_t stream);

    rust::Box<Collector> collector_;
};

}  // namespace neurenix::tensorrt::NEURENIX_FLAVOUR
