// The functions that Triton calls: libtriton_neurenix.so.

// What this header declares is seen from outside, and nothing else.
#pragma GCC visibility push(default)
#include "triton/core/tritonbackend.h"
#pragma GCC visibility pop

#include <memory>
#include <string>

#include "error.h"
#include "instance.h"
#include "model.h"

namespace neurenix::triton {

namespace {

// The oldest backend API that has all that is used here: that of Triton 23.10.
constexpr uint32_t kMajor = 1;
constexpr uint32_t kMinor = 16;

void check_versions() {
    uint32_t major = 0, minor = 0;
    check(TRITONBACKEND_ApiVersion(&major, &minor));
    if (major != kMajor || minor < kMinor) {
        throw unsupported("this backend needs Triton's backend API " + std::to_string(kMajor) + "." +
                          std::to_string(kMinor) + " (Triton 23.10) or newer; this server has " +
                          std::to_string(major) + "." + std::to_string(minor));
    }
    if (nrx_abi_version() < NRX_ABI_VERSION) {
        throw unsupported(std::string("this backend needs a newer libneurenix.so.1 than ") + nrx_version());
    }
}

void tell(void*, nrx_log_level level, const char* text) {
    log(level == NRX_LOG_WARNING ? TRITONSERVER_LOG_WARN : TRITONSERVER_LOG_INFO, text);
}

template <typename T>
T* state_of(TRITONSERVER_Error* error, void* state) {
    check(error);
    return static_cast<T*>(state);
}

Model* model_of(TRITONBACKEND_Model* model) {
    void* state = nullptr;
    TRITONSERVER_Error* error = TRITONBACKEND_ModelState(model, &state);
    return state_of<Model>(error, state);
}

Instance* instance_of(TRITONBACKEND_ModelInstance* instance) {
    void* state = nullptr;
    TRITONSERVER_Error* error = TRITONBACKEND_ModelInstanceState(instance, &state);
    return state_of<Instance>(error, state);
}

}  // namespace

}  // namespace neurenix::triton

namespace here = neurenix::triton;

extern "C" {

TRITONBACKEND_ISPEC TRITONSERVER_Error* TRITONBACKEND_Initialize(TRITONBACKEND_Backend*) {
    return here::guarded([] {
        here::check_versions();
        here::check(nrx_set_log(here::tell, nullptr));
        here::log(TRITONSERVER_LOG_INFO, std::string("neurenix ") + nrx_version());
    });
}

TRITONBACKEND_ISPEC TRITONSERVER_Error* TRITONBACKEND_Finalize(TRITONBACKEND_Backend*) {
    return here::guarded([] { here::check(nrx_set_log(nullptr, nullptr)); });
}

// KIND_AUTO is a GPU where there is one, else the processor.
TRITONBACKEND_ISPEC TRITONSERVER_Error* TRITONBACKEND_GetBackendAttribute(TRITONBACKEND_Backend*,
                                                                          TRITONBACKEND_BackendAttribute* attributes) {
    return here::guarded([&] {
        for (const auto kind : {TRITONSERVER_INSTANCEGROUPKIND_GPU, TRITONSERVER_INSTANCEGROUPKIND_CPU}) {
            here::check(TRITONBACKEND_BackendAttributeAddPreferredInstanceGroup(attributes, kind, 0, nullptr, 0));
        }
    });
}

TRITONBACKEND_ISPEC TRITONSERVER_Error* TRITONBACKEND_ModelInitialize(TRITONBACKEND_Model* model) {
    return here::guarded([&] {
        auto made = std::make_unique<here::Model>(model);
        here::check(TRITONBACKEND_ModelSetState(model, made.get()));
        made.release();
    });
}

TRITONBACKEND_ISPEC TRITONSERVER_Error* TRITONBACKEND_ModelFinalize(TRITONBACKEND_Model* model) {
    return here::guarded([&] { delete here::model_of(model); });
}

TRITONBACKEND_ISPEC TRITONSERVER_Error* TRITONBACKEND_ModelInstanceInitialize(TRITONBACKEND_ModelInstance* instance) {
    return here::guarded([&] {
        TRITONBACKEND_Model* model = nullptr;
        here::check(TRITONBACKEND_ModelInstanceModel(instance, &model));
        auto made = std::make_unique<here::Instance>(instance, *here::model_of(model));
        here::check(TRITONBACKEND_ModelInstanceSetState(instance, made.get()));
        made.release();
    });
}

TRITONBACKEND_ISPEC TRITONSERVER_Error* TRITONBACKEND_ModelInstanceFinalize(TRITONBACKEND_ModelInstance* instance) {
    return here::guarded([&] { delete here::instance_of(instance); });
}

TRITONBACKEND_ISPEC TRITONSERVER_Error* TRITONBACKEND_ModelInstanceExecute(TRITONBACKEND_ModelInstance* instance,
                                                                           TRITONBACKEND_Request** requests,
                                                                           const uint32_t request_count) {
    return here::guarded([&] { here::instance_of(instance)->execute(requests, request_count); });
}

}  // extern "C"
