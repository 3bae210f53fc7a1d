#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "tensorrt/flavours.h"

namespace neurenix::tensorrt {

// One of NVIDIA's libraries, opened, and the flavour whose headers describe it. It stays open as long as the process
// lives.
class Library {
  public:
    // Opens a file or a name; `opened` only finds what the process has open already. Throws if it can't be opened, is
    // no TensorRT, or no flavour of this build describes it.
    static std::unique_ptr<Library> open(const std::string& name, bool opened);

    rust::String path() const;
    std::int32_t version() const { return version_; }
    bool rtx() const { return flavour_.rtx; }
    rust::Str flavour() const { return flavour_.name; }
    std::unique_ptr<Session> session(rust::Box<Sink> sink) const;
    // Opens a plan, which is native code.
    std::unique_ptr<Engine> engine(rust::Slice<const std::uint8_t> plan, rust::Box<Sink> sink) const;

  private:
    Library(void* handle, std::int32_t version, Flavour flavour);

    void* handle_;
    void* create_builder_;
    std::int32_t version_;
    Flavour flavour_;
};

}  // namespace neurenix::tensorrt
