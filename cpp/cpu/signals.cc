#include "cpu/signals.h"

#include <omp.h>
#include <pthread.h>

namespace neurenix::cpu {

namespace {

// All but those that report a fault of the running instruction: the kernel ends the process where these are blocked.
sigset_t all_but_faults() noexcept {
    sigset_t set;
    sigfillset(&set);
    for (const int fault : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP, SIGABRT, SIGSYS}) sigdelset(&set, fault);
    return set;
}

const sigset_t blocked = all_but_faults();

// A member does nothing but OpenMP's regions, so it stays as it is. OpenMP makes and ends members as the sizes of
// regions change: they are asked each time.
void block_for_good() noexcept {
    thread_local bool done = false;
    if (!done) done = pthread_sigmask(SIG_BLOCK, &blocked, nullptr) == 0;
}

}  // namespace

bool moves_stack_pointer(std::string_view implementation) noexcept {
    // As in "x64:gemm:jit", but not in "brgemm:avx512_core".
    for (auto at = implementation.find("gemm"); at != implementation.npos; at = implementation.find("gemm", at + 1)) {
        if (at < 2 || implementation.substr(at - 2, 2) != "br") return true;
    }
    return false;
}

SignalsBlocked::SignalsBlocked() noexcept {
    // First here: members that the region starts are born with what is blocked now.
    pthread_sigmask(SIG_BLOCK, &blocked, &before_);
    if (omp_get_max_threads() == 1) return;
#pragma omp parallel
    if (omp_get_thread_num() != 0) block_for_good();
}

SignalsBlocked::~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

}  // namespace neurenix::cpu
