// Blocks of a CUDA kernel on threads of the processor, one block after another: what CUDA C++ computes, without a GPU.
#pragma once
#include <barrier>
#include <cmath>
#include <cstring>
#include <thread>
#include <vector>

#define __device__
#define __global__
#define __forceinline__ inline
#define __launch_bounds__(threads)
#define __shared__ static

struct Index {
    unsigned x;
};
inline thread_local Index threadIdx, blockIdx;
inline std::barrier<>* block = nullptr;

inline void __syncthreads() { block->arrive_and_wait(); }
inline int atomicAdd(int* at, int by) { return __atomic_fetch_add(at, by, __ATOMIC_RELAXED); }
inline unsigned __float_as_uint(float value) {
    unsigned bits;
    std::memcpy(&bits, &value, sizeof bits);
    return bits;
}
// Compiled without contraction, each of these is rounded by itself.
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float wide_half(unsigned short bits) {
    _Float16 half;
    std::memcpy(&half, &bits, sizeof half);
    return static_cast<float>(half);
}
inline unsigned short narrow_half(float value) {
    const _Float16 half = static_cast<_Float16>(value);
    unsigned short bits;
    std::memcpy(&bits, &half, sizeof bits);
    return bits;
}

template <typename Kernel>
void launch(unsigned blocks, unsigned threads, Kernel kernel) {
    for (unsigned at = 0; at < blocks; ++at) {
        std::barrier<> all(threads);
        block = &all;
        std::vector<std::thread> team;
        for (unsigned thread = 0; thread < threads; ++thread) {
            team.emplace_back([=] {
                blockIdx.x = at, threadIdx.x = thread;
                kernel();
            });
        }
        for (std::thread& one : team) one.join();
    }
}
