#pragma once
#include <csignal>
#include <string_view>

namespace neurenix::cpu {

// Whether an implementation of oneDNN may point the stack pointer into a heap buffer while it runs: the kernel of its
// sgemm that does not copy what it multiplies does so for long sums. A signal handler would write below that buffer.
bool moves_stack_pointer(std::string_view implementation) noexcept;

// Keeps signal handlers off the calling thread for as long as it lives, and off the other members of its team for good.
// Faults are delivered as ever.
class SignalsBlocked {
  public:
    SignalsBlocked() noexcept;
    ~SignalsBlocked();
    SignalsBlocked(const SignalsBlocked&) = delete;
    SignalsBlocked& operator=(const SignalsBlocked&) = delete;

  private:
    sigset_t before_;
};

}  // namespace neurenix::cpu
