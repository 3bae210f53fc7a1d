#pragma once
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <thread>

#include "neurenix/src/providers/tensorrt/bridge.rs.h"
#include "tensorrt/flavour/version.h"

namespace neurenix::tensorrt::NEURENIX_FLAVOUR {

// Hands on what TensorRT says, from whichever thread, and keeps the errors for the exception that follows.
class Logger : public nvinfer1::ILogger {
  public:
    explicit Logger(rust::Box<Sink> sink) : sink_(std::move(sink)) {}

    void log(Severity severity, const char* text) noexcept override;

    // What was said as an error since this thread last asked: in this thread, or else in threads of TensorRT's own;
    // `otherwise` where nothing was.
    std::string errors(const std::string& otherwise);

    const Sink& sink() const { return *sink_; }

  private:
    rust::Box<Sink> sink_;
    std::mutex lock_;
    // By thread, so that calls at the same time do not take each other's words.
    std::map<std::thread::id, std::string> errors_;
    // The threads that have asked.
    std::set<std::thread::id> callers_;
};

#if NEURENIX_SHAPE >= 10
// Tells how far a build is, and ends it when the other side wants that.
class Monitor : public nvinfer1::IProgressMonitor {
  public:
    explicit Monitor(const Sink& sink) : sink_(sink) {}

    void phaseStart(const char* phase, const char* parent, std::int32_t steps) noexcept override;
    bool stepComplete(const char* phase, std::int32_t step) noexcept override;
    void phaseFinish(const char* phase) noexcept override;
    bool cancelled() const { return cancelled_; }

  private:
    const Sink& sink_;
    bool cancelled_ = false;
};
#endif

}  // namespace neurenix::tensorrt::NEURENIX_FLAVOUR
