#include "cpu/isa.h"

#include <cpuid.h>

#include <mutex>

#include "dnnl.hpp"

namespace neurenix::cpu {

namespace {

// Intel SDM, volume 2A, CPUID: leaf 1DH, sub-leaf 0, EAX is the greatest palette of the tile unit.
unsigned max_tile_palette() {
    unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
    return __get_cpuid_count(0x1d, 0, &eax, &ebx, &ecx, &edx) != 0 ? eax : 0;
}

// Leaf 7, sub-leaf 0, EDX bit 24.
bool names_amx() {
    unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
    return __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0 && ((edx >> 24) & 1U) != 0;
}

}  // namespace

void limit_isa() {
    static std::once_flag once;
    std::call_once(once, [] {
        // Some hypervisors pass AMX on but hide the leaf that says how its tiles are configured. oneDNN then configures
        // palette 0, and the first tile instruction raises SIGILL.
        if (names_amx() && max_tile_palette() == 0) {
            // It refuses once a primitive exists; the limit was then set by an earlier call of ours.
            dnnl_set_max_cpu_isa(dnnl_cpu_isa_avx512_core_bf16);
        }
    });
}

}  // namespace neurenix::cpu
