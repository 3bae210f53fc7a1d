// A recorded H200: what the stand-ins for NVIDIA's libraries share. libcuda.so.1 holds the state, the others link to
// it.
//
// Kernels do not run. Memory, streams, captured graphs and descriptors are real, and what a program does wrong with
// them is written down (`recorded_text("misuse")`): tests ask for that in the end.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define API __attribute__((visibility("default")))

// For tests.

// How often a function was called, or a gauge: calls (of all functions), live_bytes, peak_bytes, allocations, nodes,
// unfinished, and the live handles of a kind ("live stream").
API long recorded_count(const char* name);
// Sets a property of the device: devices, capability (10 x major + minor), total_memory, elapsed_us (between any two
// events), reuses_addresses and reuses_streams (what is given back comes again).
API void recorded_set(const char* name, long value);
// Lets a function give a status, once, after so many more calls; 0 takes that back. A status that real contexts do not
// survive stays.
API void recorded_fail(const char* function, long after, int status);
// What was written down under a heading, a line each: "misuse", or "launches". Valid until more is written.
API const char* recorded_text(const char* heading);
API void recorded_forget(const char* heading);

// For the libraries.

enum Flags {
    NEEDS_CONTEXT = 1,
    // The driver refuses it to a thread that captures.
    UNSAFE_IN_CAPTURE = 2,
    // It works in a lost context too.
    SURVIVES = 4,
};

// Locks the device, counts the call, and gives the status to answer at once: 0, an injected one, or `lost` (0: the
// driver's own) where the context is lost.
API int recorded_enter(const char* function, int flags, int lost);
API void recorded_leave(const int* entered);

#define ENTER_AS(flags, lost)                                                                           \
    __attribute__((cleanup(recorded_leave))) const int entered = recorded_enter(__func__, flags, lost); \
    if (entered) return entered
#define ENTER(flags) ENTER_AS(flags, 0)

__attribute__((format(printf, 2, 3))) API void recorded_write(const char* heading, const char* format, ...);
#define MISUSE(...) recorded_write("misuse", __VA_ARGS__)

// Adds to a gauge.
API void recorded_add(const char* name, long amount);

// A property of the device.
API long recorded_property(const char* name);

// A handle, which stays readable when it is dead, so that its use is seen.
struct Handle {
    const char* kind;
    bool alive;
};
API void* recorded_make(const char* kind, size_t bytes);
// Whether a handle is a live one of this kind; writes it down if not.
API bool recorded_is(const void* handle, const char* kind, const char* function);
API void recorded_destroy(void* handle);

// Whether so many bytes from an address on are memory that the GPU reaches.
API bool recorded_reaches(uint64_t address, uint64_t bytes);
// Where such bytes are in this process; null where they are not the GPU's.
API char* recorded_backing(uint64_t address, uint64_t bytes);

// One address that work reads or writes.
struct Range {
    uint64_t address, bytes;
};
// Puts work into a stream, or, while it is captured, into its graph. False if the stream is none.
API bool recorded_work(void* stream, const char* what, const struct Range* ranges, int count);
// The same for what a function does, on the processor: at once, or at each launch of the graph that captures it.
API bool recorded_task(void* stream, const char* what, void (*run)(void*), void* data);
