#pragma once
// What src/providers/tensorrt/bridge.rs sees.
#include "tensorrt/context.h"
#include "tensorrt/engine.h"
#include "tensorrt/library.h"
#include "tensorrt/session.h"

namespace neurenix::tensorrt {

inline std::unique_ptr<Library> open_library(rust::Str name, bool opened) {
    return Library::open(static_cast<std::string>(name), opened);
}

// The names of the headers that this build was compiled with.
inline rust::Vec<rust::String> flavour_names() {
    rust::Vec<rust::String> names;
    for (const Flavour& flavour : flavours()) names.push_back(flavour.name);
    return names;
}

}  // namespace neurenix::tensorrt
