// What a test sets and reads, and the functions by which the library is entered.
#include <dlfcn.h>

#include <atomic>
#include <cstdlib>
#include <map>
#include <mutex>
#include <sstream>
#include <thread>

#include "double.h"

#define API extern "C" __attribute__((visibility("default")))

namespace tensorrt_double {
namespace {

std::mutex lock;
std::map<std::string, std::int64_t> settings, counts;
std::atomic<Run> runs{nullptr};
std::vector<std::string> weights;

// What the environment says before anybody can call.
__attribute__((constructor)) void read_environment() {
    const char* text = std::getenv("DOUBLE_SET");
    std::stringstream all(text == nullptr ? "" : text);
    for (std::string one; std::getline(all, one, ',');) {
        const auto at = one.find('=');
        settings[one.substr(0, at)] = at == std::string::npos ? 1 : std::atoll(one.c_str() + at + 1);
    }
}

}  // namespace

std::int64_t setting(const char* name) {
    const std::lock_guard<std::mutex> held(lock);
    const auto found = settings.find(name);
    return found == settings.end() ? 0 : found->second;
}

bool take(const char* name) {
    const std::lock_guard<std::mutex> held(lock);
    std::int64_t& left = settings[name];
    if (left > 0) return left-- > 0;
    return left < 0;
}

void count(const char* name) {
    const std::lock_guard<std::mutex> held(lock);
    ++counts[name];
}

Run run() { return runs; }

std::vector<std::string> weight_names() {
    const std::lock_guard<std::mutex> held(lock);
    return weights;
}

bool refuse(nvinfer1::ILogger& logger, const std::string& why) {
    const auto log = [&] { logger.log(nvinfer1::ILogger::Severity::kERROR, why.c_str()); };
    if (setting("silent") != 0) return false;
    if (setting("other_thread") != 0) {
        std::thread(log).join();
    } else {
        log();
    }
    return false;
}

}  // namespace tensorrt_double

using namespace tensorrt_double;

// Sets what goes wrong: a number of times, or -1 for always. The functions below name the settings.
API void double_set(const char* name, std::int64_t value) {
    const std::lock_guard<std::mutex> held(lock);
    settings[name] = value;
}

// How often something was done.
API std::int64_t double_count(const char* name) {
    const std::lock_guard<std::mutex> held(lock);
    return counts[name];
}

// Adds a name to those of the weights of refittable plans.
API void double_weights(const char* name) {
    const std::lock_guard<std::mutex> held(lock);
    weights.emplace_back(name);
}

API void double_run(Run function) { runs = function; }

API std::int32_t getInferLibVersion() noexcept {
    const auto other = setting("version");
    return other != 0 ? static_cast<std::int32_t>(other) : NV_TENSORRT_VERSION;
}

API void* createInferBuilder_INTERNAL(void* logger, std::int32_t version) noexcept {
    // REAL is the file of NVIDIA's library.
    static void* const handle = dlopen(REAL, RTLD_NOW | RTLD_LOCAL);
    auto& told = *static_cast<nvinfer1::ILogger*>(logger);
    if (handle == nullptr) {
        refuse(told, std::string("the double finds no ") + REAL);
        return nullptr;
    }
    const auto create = reinterpret_cast<void* (*)(void*, std::int32_t)>(dlsym(handle, "createInferBuilder_INTERNAL"));
    void* real = create(logger, version);
    return real == nullptr ? nullptr : make_builder(real, told);
}

API void* createInferRefitter_INTERNAL(void*, void* logger, std::int32_t) noexcept {
    return take("refitter") ? nullptr : make_refitter(*static_cast<nvinfer1::ILogger*>(logger));
}

API void* createInferRuntime_INTERNAL(void* logger, std::int32_t) noexcept {
    auto& told = *static_cast<nvinfer1::ILogger*>(logger);
    if (take("runtime")) {
        refuse(told, "the double gives no runtime");
        return nullptr;
    }
    return make_runtime(told);
}
