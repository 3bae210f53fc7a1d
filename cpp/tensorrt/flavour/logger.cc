#include "tensorrt/flavour/logger.h"

#include <utility>

namespace neurenix::tensorrt::NEURENIX_FLAVOUR {
namespace {

const char* name_of(nvinfer1::ILogger::Severity severity) {
    using Severity = nvinfer1::ILogger::Severity;
    switch (severity) {
        case Severity::kINTERNAL_ERROR:
            return "INTERNAL_ERROR";
        case Severity::kERROR:
            return "ERROR";
        case Severity::kWARNING:
            return "WARNING";
        case Severity::kINFO:
            return "INFO";
        case Severity::kVERBOSE:
            return "VERBOSE";
    }
    return "VERBOSE";
}

// Longer chains of errors repeat themselves.
constexpr std::size_t kLongest = 2000;

rust::String lossy(const char* text) { return rust::String::lossy(text == nullptr ? "" : text); }

}  // namespace

void Logger::log(Severity severity, const char* text) noexcept {
    if (severity <= Severity::kERROR && text != nullptr) {
        const std::lock_guard<std::mutex> held(lock_);
        std::string& said = errors_[std::this_thread::get_id()];
        if (said.size() < kLongest) said += (said.empty() ? "" : "; ") + std::string(text);
    }
    if (severity <= Severity::kINFO) say(*sink_, name_of(severity), lossy(text));
}

std::string Logger::errors(const std::string& otherwise) {
    const std::lock_guard<std::mutex> held(lock_);
    callers_.insert(std::this_thread::get_id());
    const auto own = errors_.find(std::this_thread::get_id());
    std::string said = own == errors_.end() ? "" : own->second;
    if (own != errors_.end()) errors_.erase(own);
    for (auto other = errors_.begin(); other != errors_.end();) {
        const bool of_caller = callers_.count(other->first) != 0;
        if (!of_caller) said += (said.empty() ? "" : "; ") + other->second;
        other = of_caller ? std::next(other) : errors_.erase(other);
    }
    return said.empty() ? otherwise : said;
}

#if NEURENIX_SHAPE >= 10
void Monitor::phaseStart(const char* phase, const char*, std::int32_t steps) noexcept {
    if (!step(sink_, lossy(phase), 0, steps)) cancelled_ = true;
}

bool Monitor::stepComplete(const char* phase, std::int32_t at) noexcept {
    if (!step(sink_, lossy(phase), at + 1, 0)) cancelled_ = true;
    return !cancelled_;
}

void Monitor::phaseFinish(const char*) noexcept {}
#endif

}  // namespace neurenix::tensorrt::NEURENIX_FLAVOUR
