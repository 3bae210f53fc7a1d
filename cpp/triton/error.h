// Errors: exceptions inside of the backend, TRITONSERVER_Error at its edges.
#ifndef NEURENIX_TRITON_ERROR_H_
#define NEURENIX_TRITON_ERROR_H_

#include <new>
#include <optional>
#include <stdexcept>
#include <string>

#include "neurenix/neurenix.h"
#include "triton/core/tritonserver.h"

namespace neurenix::triton {

// What went wrong, with Triton's code for it.
class Failure : public std::runtime_error {
  public:
    Failure(TRITONSERVER_Error_Code code, const std::string& text) : std::runtime_error(text), code_(code) {}

    TRITONSERVER_Error_Code code() const { return code_; }
    // For Triton, who owns it then.
    TRITONSERVER_Error* error() const { return TRITONSERVER_ErrorNew(code_, what()); }

  private:
    TRITONSERVER_Error_Code code_;
};

// A request or a configuration that does not fit.
inline Failure invalid(const std::string& text) { return {TRITONSERVER_ERROR_INVALID_ARG, text}; }
inline Failure unsupported(const std::string& text) { return {TRITONSERVER_ERROR_UNSUPPORTED, text}; }

// Throws where a function of Triton's failed.
void check(TRITONSERVER_Error* error);
// Throws where a function of Neurenix failed.
void check(nrx_status status);

void log(TRITONSERVER_LogLevel level, const std::string& text);
// For functions that nothing can be done about when they fail.
void log_failure(TRITONSERVER_Error* error);

// Runs what stands behind a function of the backend's: nothing is thrown into Triton.
template <typename Work>
TRITONSERVER_Error* guarded(const Work& work) {
    try {
        work();
        return nullptr;
    } catch (const Failure& failure) {
        return failure.error();
    } catch (const std::bad_alloc&) {
        return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_UNAVAILABLE, "neurenix: there is not enough memory");
    } catch (const std::exception& error) {
        return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_INTERNAL, error.what());
    }
}

// What went wrong in something, for those who answer with it later.
template <typename Work>
std::optional<Failure> failure_of(const Work& work) {
    TRITONSERVER_Error* error = guarded(work);
    if (error == nullptr) return std::nullopt;
    const Failure failure(TRITONSERVER_ErrorCode(error), TRITONSERVER_ErrorMessage(error));
    TRITONSERVER_ErrorDelete(error);
    return failure;
}

}  // namespace neurenix::triton

#endif  // NEURENIX_TRITON_ERROR_H_
