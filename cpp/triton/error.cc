#include "error.h"

namespace neurenix::triton {

namespace {

TRITONSERVER_Error_Code code_of(nrx_status status) {
    switch (status) {
        case NRX_INVALID_ARGUMENT:
        case NRX_SHAPE:
        case NRX_DTYPE:
        case NRX_FORMAT:
            return TRITONSERVER_ERROR_INVALID_ARG;
        case NRX_UNSUPPORTED:
        case NRX_PLUGIN:
            return TRITONSERVER_ERROR_UNSUPPORTED;
        case NRX_IO:
            return TRITONSERVER_ERROR_NOT_FOUND;
        case NRX_OUT_OF_MEMORY:
        case NRX_DEVICE:
            return TRITONSERVER_ERROR_UNAVAILABLE;
        case NRX_CANCELLED:
            return TRITONSERVER_ERROR_CANCELLED;
        default:
            return TRITONSERVER_ERROR_INTERNAL;
    }
}

}  // namespace

void check(TRITONSERVER_Error* error) {
    if (error == nullptr) return;
    Failure failure(TRITONSERVER_ErrorCode(error), TRITONSERVER_ErrorMessage(error));
    TRITONSERVER_ErrorDelete(error);
    throw failure;
}

void check(nrx_status status) {
    if (status != NRX_OK) throw Failure(code_of(status), std::string("neurenix: ") + nrx_last_error());
}

void log(TRITONSERVER_LogLevel level, const std::string& text) {
    TRITONSERVER_Error* error = TRITONSERVER_LogMessage(level, __FILE__, __LINE__, ("neurenix: " + text).c_str());
    if (error != nullptr) TRITONSERVER_ErrorDelete(error);
}

void log_failure(TRITONSERVER_Error* error) {
    if (error == nullptr) return;
    log(TRITONSERVER_LOG_ERROR, TRITONSERVER_ErrorMessage(error));
    TRITONSERVER_ErrorDelete(error);
}

}  // namespace neurenix::triton
