#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "tensorrt/engine.h"
#include "tensorrt/session.h"

namespace neurenix::tensorrt {

// The sources of `flavour/`, compiled with one version of TensorRT's headers.
struct Flavour {
    // "enterprise_11_4"
    const char* name;
    // As getInferLibVersion gives it.
    std::int32_t version;
    bool rtx;
    // Whether the virtual tables of a library of this version begin with those of the headers.
    bool (*fits)(std::int32_t library);
    // The function is createInferBuilder_INTERNAL of a library that fits.
    std::unique_ptr<Session> (*open)(void* create_builder, rust::Box<Sink> sink);
    // The functions are its createInferRuntime_INTERNAL, and createInferRefitter_INTERNAL or null.
    std::unique_ptr<Engine> (*run)(void* create_runtime, void* create_refitter, rust::Slice<const std::uint8_t> plan,
                                   rust::Box<Sink> sink);
};

// Every flavour of this build, in no order.
std::vector<Flavour> flavours();

}  // namespace neurenix::tensorrt
