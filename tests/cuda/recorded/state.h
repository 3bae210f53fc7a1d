// What the driver alone asks of the state.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef uint64_t Address;

enum {
    INVALID_VALUE = 1,
    NOT_INITIALIZED = 3,
    NO_DEVICE = 100,
    INVALID_DEVICE = 101,
    INVALID_IMAGE = 200,
    INVALID_CONTEXT = 201,
    NO_BINARY = 209,
    INVALID_HANDLE = 400,
    NOT_FOUND = 500,
    NOT_READY = 600,
    CAPTURE_UNSUPPORTED = 900,
    CAPTURE_INVALIDATED = 901,
    CAPTURE_UNMATCHED = 903,
    CAPTURE_UNJOINED = 904,
    CAPTURE_ISOLATION = 905,
    ILLEGAL_STATE = 401,
    CAPTURE_WRONG_THREAD = 908,
};

int state_allocate(uint64_t* address, size_t bytes);
int state_free(uint64_t address);
int state_allocate_host(void** address, size_t bytes);
int state_free_host(void* address);
void state_memory(size_t* unused, size_t* total);
// The number of the allocation that an address is in; 0 where it is in none.
long state_allocation(uint64_t address);
// Whether an address lies where the GPU's do, allocated or not.
bool state_is_device(uint64_t address);

// Answered by the driver: whether the thread has a current context; whether it captures, and then the capture is void.
bool state_has_context(void);
bool state_refuse_capture(void);
