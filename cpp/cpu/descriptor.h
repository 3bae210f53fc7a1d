#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "dnnl.hpp"
#include "dnnl_debug.h"
#include "rust/cxx.h"

namespace neurenix::cpu {

struct TensorDesc;
struct Options;
enum class ElementType : std::uint8_t;
enum class PostKind : std::uint8_t;

// oneDNN's engine for the processor: one for the process.
const dnnl::engine& engine();

dnnl::memory::data_type data_type(ElementType type);
dnnl::memory::dims dims(const rust::Vec<std::int64_t>& values);
dnnl::memory::desc descriptor(const TensorDesc& tensor);

// The same extents and element type, the format left to oneDNN.
dnnl::memory::desc any_format(const TensorDesc& tensor);

// One number per channel of `rank` axes, or nothing where the type is Absent.
dnnl::memory::desc vector_descriptor(ElementType type, std::int64_t length);

// The algorithm of a post-op with an operand, or of one without; `undef` if it is of the other sort.
dnnl::algorithm binary_algorithm(PostKind kind);
dnnl::algorithm eltwise_algorithm(PostKind kind);

// Post-ops, scales and zero points, a scratchpad of ours, and f32 that is never computed in less.
dnnl::primitive_attr attributes(const Options& options);

// Appends the scales and zero points that the options ask for to the inputs of a product with these weights.
void append_quantization(const Options& options, const dnnl::memory::desc& weights,
                         std::vector<std::pair<int, dnnl::memory::desc>>& inputs);

}  // namespace neurenix::cpu

namespace rust::behavior {

// Puts oneDNN's status before its message: "unimplemented: could not create a primitive".
template <typename Try, typename Fail>
static void trycatch(Try&& attempt, Fail&& fail) noexcept try {
    attempt();
} catch (const dnnl::error& error) {
    fail(std::string(dnnl_status2str(error.status)) + ": " + error.what());
} catch (const std::exception& error) {
    fail(error.what());
}

}  // namespace rust::behavior
