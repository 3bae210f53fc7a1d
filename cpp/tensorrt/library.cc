#include "tensorrt/library.h"

#include <dlfcn.h>

#include <stdexcept>

#include "neurenix/src/providers/tensorrt/bridge.rs.h"

namespace neurenix::tensorrt {
namespace {

void* symbol(void* handle, const char* name) {
    void* found = dlsym(handle, name);
    if (found == nullptr) throw std::runtime_error(std::string("it has no function ") + name);
    return found;
}

// The newest headers that describe the library.
Flavour fitting(std::int32_t version) {
    const auto all = flavours();
    const Flavour* best = nullptr;
    std::string names;
    for (const Flavour& flavour : all) {
        names += (names.empty() ? "" : ", ") + std::string(flavour.name);
        if (flavour.fits(version) && (best == nullptr || flavour.version > best->version)) best = &flavour;
    }
    if (best != nullptr) return *best;
    if (names.empty()) names = "none";
    throw std::runtime_error("it is version " + std::to_string(version) + ", and this build has the headers of " +
                             names + ": build with TENSORRT_ROOT naming that version's");
}

}  // namespace

std::unique_ptr<Library> Library::open(const std::string& name, bool opened) {
    void* handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL | (opened ? RTLD_NOLOAD : 0));
    if (handle == nullptr) {
        const char* why = dlerror();
        throw std::runtime_error(opened || why == nullptr ? "not open in this process" : why);
    }
    // NVIDIA's libraries do not survive being closed while their threads run: the handle is kept for good.
    const auto version = reinterpret_cast<std::int32_t (*)()>(symbol(handle, "getInferLibVersion"))();
    return std::unique_ptr<Library>(new Library(handle, version, fitting(version)));
}

Library::Library(void* handle, std::int32_t version, Flavour flavour)
    : handle_(handle),
      create_builder_(symbol(handle, "createInferBuilder_INTERNAL")),
      version_(version),
      flavour_(flavour) {}

rust::String Library::path() const {
    Dl_info info{};
    const bool known = dladdr(create_builder_, &info) != 0 && info.dli_fname != nullptr;
    return known ? rust::String::lossy(info.dli_fname) : rust::String();
}

std::unique_ptr<Session> Library::session(rust::Box<Sink> sink) const {
    return flavour_.open(create_builder_, std::move(sink));
}

std::unique_ptr<Engine> Library::engine(rust::Slice<const std::uint8_t> plan, rust::Box<Sink> sink) const {
    return flavour_.run(symbol(handle_, "createInferRuntime_INTERNAL"), dlsym(handle_, "createInferRefitter_INTERNAL"),
                        plan, std::move(sink));
}

}  // namespace neurenix::tensorrt
