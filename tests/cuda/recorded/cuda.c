// A stand-in for libcuda.so.1, answering as the driver of an H200 does.

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "recorded.h"
#include "state.h"

struct Error {
    int status;
    const char *name, *meaning;
};
static const struct Error errors[] = {
    {0, "CUDA_SUCCESS", "no error"},
    {1, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {2, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {3, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {100, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {101, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {200, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"},
    {201, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {209, "CUDA_ERROR_NO_BINARY_FOR_GPU", "no kernel image is available for execution on the device"},
    {400, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {401, "CUDA_ERROR_ILLEGAL_STATE", "the operation cannot be performed in the present state"},
    {500, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {600, "CUDA_ERROR_NOT_READY", "device not ready"},
    {700, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {716, "CUDA_ERROR_MISALIGNED_ADDRESS", "misaligned address"},
    {719, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {900, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "operation not permitted when stream is capturing"},
    {901, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED", "operation failed due to a previous error during capture"},
    {903, "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED", "the capture was not initiated in this stream"},
    {904, "CUDA_ERROR_STREAM_CAPTURE_UNJOINED", "the capture sequence contains a fork that was not joined"},
    {905, "CUDA_ERROR_STREAM_CAPTURE_ISOLATION", "dependency created on uncaptured work in another stream"},
    {908, "CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD", "attempt to terminate a thread-local capture from another thread"},
};

static const struct Error* error_of(int status) {
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) {
        if (errors[i].status == status) return &errors[i];
    }
    return NULL;
}

API int cuGetErrorName(int status, const char** text) {
    const struct Error* error = error_of(status);
    *text = error ? error->name : NULL;
    return error ? 0 : INVALID_VALUE;
}

API int cuGetErrorString(int status, const char** text) {
    const struct Error* error = error_of(status);
    *text = error ? error->meaning : NULL;
    return error ? 0 : INVALID_VALUE;
}

// The device.

static bool initialised;

API int cuInit(unsigned flags) {
    ENTER(SURVIVES);
    if (flags) return INVALID_VALUE;
    if (recorded_property("devices") == 0) return NO_DEVICE;
    initialised = true;
    return 0;
}

API int cuDriverGetVersion(int* version) {
    ENTER(SURVIVES);
    *version = 13000;
    return 0;
}

API int cuDeviceGetCount(int* count) {
    ENTER(SURVIVES);
    if (!initialised) return NOT_INITIALIZED;
    *count = (int)recorded_property("devices");
    return 0;
}

API int cuDeviceGet(int* device, int ordinal) {
    ENTER(SURVIVES);
    if (ordinal < 0 || ordinal >= recorded_property("devices")) return INVALID_DEVICE;
    *device = ordinal;
    return 0;
}

API int cuDeviceGetName(char* name, int length, int device) {
    ENTER(SURVIVES);
    (void)device;
    snprintf(name, length, "NVIDIA H200");
    return 0;
}

API int cuDeviceGetAttribute(int* value, int attribute, int device) {
    ENTER(SURVIVES);
    (void)device;
    const long capability = recorded_property("capability");
    switch (attribute) {
        case 16:
            *value = 132;
            return 0;
        case 38:
            *value = 62914560;
            return 0;
        case 75:
            *value = (int)(capability / 10);
            return 0;
        case 76:
            *value = (int)(capability % 10);
            return 0;
        case 97:
            *value = 232448;
            return 0;
        // Pools of memory, for which libraries of others ask.
        case 115:
            *value = 0;
            return 0;
    }
    MISUSE("the attribute %d of the device was not recorded", attribute);
    return INVALID_VALUE;
}

API int cuDeviceTotalMem_v2(size_t* bytes, int device) {
    ENTER(SURVIVES);
    (void)device;
    *bytes = recorded_property("total_memory");
    return 0;
}

// Contexts: the primary one alone.

static struct Handle primary = {"context", true};
static __thread void* stack[64];
static __thread int depth;

bool state_has_context(void) { return depth > 0 && stack[depth - 1]; }

API int cuDevicePrimaryCtxRetain(void** context, int device) {
    ENTER(0);
    if (device != 0 || !initialised) return INVALID_DEVICE;
    *context = &primary;
    return 0;
}

API int cuCtxGetCurrent(void** context) {
    ENTER(SURVIVES);
    *context = depth ? stack[depth - 1] : NULL;
    return 0;
}

API int cuCtxPushCurrent_v2(void* context) {
    ENTER(SURVIVES);
    if (context != &primary || depth == 64) return INVALID_CONTEXT;
    stack[depth++] = context;
    return 0;
}

API int cuCtxGetDevice(int* device) {
    ENTER(NEEDS_CONTEXT);
    *device = 0;
    return 0;
}

API int cuCtxPopCurrent_v2(void** context) {
    ENTER(SURVIVES);
    if (depth == 0) return INVALID_CONTEXT;
    *context = stack[--depth];
    return 0;
}

// Memory.

API int cuMemGetInfo_v2(size_t* unused, size_t* total) {
    ENTER(NEEDS_CONTEXT);
    state_memory(unused, total);
    return 0;
}

API int cuMemAlloc_v2(Address* address, size_t bytes) {
    ENTER(NEEDS_CONTEXT | UNSAFE_IN_CAPTURE);
    return bytes ? state_allocate(address, bytes) : INVALID_VALUE;
}

API int cuMemFree_v2(Address address) {
    ENTER(NEEDS_CONTEXT | UNSAFE_IN_CAPTURE);
    return address ? state_free(address) : 0;
}

API int cuMemHostAlloc(void** address, size_t bytes, unsigned flags) {
    ENTER(NEEDS_CONTEXT | UNSAFE_IN_CAPTURE);
    return bytes && flags <= 7 ? state_allocate_host(address, bytes) : INVALID_VALUE;
}

API int cuMemFreeHost(void* address) {
    ENTER(NEEDS_CONTEXT | UNSAFE_IN_CAPTURE);
    return state_free_host(address);
}

API int cuPointerGetAttribute(void* to, int attribute, Address address) {
    ENTER(0);
    const long number = state_allocation(address);
    if ((attribute != 2 && attribute != 7) || !number) return INVALID_VALUE;
    if (attribute == 2) *(unsigned*)to = 2;
    if (attribute == 7) *(uint64_t*)to = number;
    return 0;
}

// Modules: NVRTC's stand-in writes the architecture, then a line for each kernel with a letter for each parameter.

struct Function {
    struct Handle handle;
    char name[64], parameters[64];
    unsigned shared;
};
struct Module {
    struct Handle handle;
    struct Function* functions[64];
    int count;
};

API int cuModuleLoadData(void** module, const void* image) {
    ENTER(NEEDS_CONTEXT | UNSAFE_IN_CAPTURE);
    char architecture[32], own[32];
    int used;
    if (sscanf(image, "RECORDED %31s\n%n", architecture, &used) != 1) return INVALID_IMAGE;
    const long capability = recorded_property("capability");
    snprintf(own, sizeof own, "sm_%ld%s", capability, capability >= 90 ? "a" : "");
    if (strcmp(own, architecture) != 0) return NO_BINARY;
    struct Module* made = recorded_make("module", sizeof *made);
    const char* line = (const char*)image + used;
    char name[64], parameters[64];
    while (made->count < 64 && sscanf(line, "%63s %63s\n%n", name, parameters, &used) == 2) {
        struct Function* function = made->functions[made->count++] = calloc(1, sizeof *function);
        function->handle = (struct Handle){"function", true};
        memcpy(function->name, name, sizeof name);
        memcpy(function->parameters, parameters, sizeof parameters);
        function->shared = 48 << 10;
        line += used;
    }
    *module = made;
    return 0;
}

API int cuModuleUnload(void* module) {
    ENTER(NEEDS_CONTEXT);
    if (!recorded_is(module, "module", __func__)) return INVALID_HANDLE;
    const struct Module* gone = module;
    for (int i = 0; i < gone->count; i++) gone->functions[i]->handle.alive = false;
    recorded_destroy(module);
    return 0;
}

API int cuModuleGetFunction(void** function, void* module, const char* name) {
    ENTER(NEEDS_CONTEXT);
    if (!recorded_is(module, "module", __func__)) return INVALID_HANDLE;
    const struct Module* from = module;
    for (int i = 0; i < from->count; i++) {
        *function = from->functions[i];
        if (strcmp(from->functions[i]->name, name) == 0) return 0;
    }
    MISUSE("a module has no kernel %s", name);
    return NOT_FOUND;
}

API int cuFuncSetAttribute(void* function, int attribute, int value) {
    ENTER(NEEDS_CONTEXT);
    if (!recorded_is(function, "function", __func__)) return INVALID_HANDLE;
    if (attribute != 8 || value < 0 || value > 232448) return INVALID_VALUE;
    ((struct Function*)function)->shared = value;
    return 0;
}

// What maps of tensors have in common: 16-bit floats, and rows of 128, 64 or 32 bytes in patterns of their own.
static bool is_map(const uint64_t* map, int dtype, Address address, unsigned row, int interleave, int swizzle,
                   int promotion, int fill) {
    const bool rows = (swizzle == 3 && row == 64) || (swizzle == 2 && row == 32) || (swizzle == 1 && row == 16);
    const bool how = (dtype == 6 || dtype == 9) && interleave == 0 && promotion >= 0 && promotion <= 3 && fill == 0;
    return rows && how && (uint64_t)map % 64 == 0 && address % 16 == 0;
}

// Maps of tensors of three to five axes.
API int cuTensorMapEncodeTiled(uint64_t* map, int dtype, unsigned rank, Address address, const uint64_t* extents,
                               const uint64_t* strides, const unsigned* box, const unsigned* steps, int interleave,
                               int swizzle, int promotion, int fill) {
    ENTER(SURVIVES);
    if (!is_map(map, dtype, address, box[0], interleave, swizzle, promotion, fill) || rank < 3 || rank > 5) {
        MISUSE("a map of a tensor at %lx of type %d in boxes of %u", address, dtype, box[0]);
        return INVALID_VALUE;
    }
    for (unsigned axis = 0; axis < rank; axis++) {
        const bool even = axis == 0 || (strides[axis - 1] && strides[axis - 1] % 16 == 0);
        if (!extents[axis] || !box[axis] || box[axis] > 256 || steps[axis] != 1 || !even) {
            MISUSE("axis %u of the map of a tensor is %lu long, in boxes of %u", axis, extents[axis], box[axis]);
            return INVALID_VALUE;
        }
    }
    memset(map, 0, 128);
    map[0] = address;
    return 0;
}

// Maps of images of channels, columns and rows.
API int cuTensorMapEncodeIm2col(uint64_t* map, int dtype, unsigned rank, Address address, const uint64_t* extents,
                                const uint64_t* strides, const int* lower, const int* upper, unsigned channels,
                                unsigned pixels, const unsigned* steps, int interleave, int swizzle, int promotion,
                                int fill) {
    ENTER(SURVIVES);
    const bool shape = rank == 4 && pixels && pixels <= 1024 && steps[0] == 1 && steps[3] == 1;
    if (!is_map(map, dtype, address, channels, interleave, swizzle, promotion, fill) || !shape) {
        MISUSE("a map of images at %lx of type %d, %u channels of %u pixels at once", address, dtype, channels, pixels);
        return INVALID_VALUE;
    }
    for (int axis = 0; axis < 2; axis++) {
        const long seen = (long)extents[axis + 1] + upper[axis] - lower[axis];
        const bool corners = lower[axis] >= -128 && lower[axis] < 128 && upper[axis] >= -128 && upper[axis] < 128;
        if (!corners || seen < 1 || !steps[axis + 1] || steps[axis + 1] > 8) {
            MISUSE("corners of a map of images: %d and %d of %lu", lower[axis], upper[axis], extents[axis + 1]);
            return INVALID_VALUE;
        }
    }
    for (int axis = 0; axis < 4; axis++) {
        if (!extents[axis] || (axis && (!strides[axis - 1] || strides[axis - 1] % 16))) {
            MISUSE("axis %d of a map of images is %lu long", axis, extents[axis]);
            return INVALID_VALUE;
        }
    }
    memset(map, 0, 128);
    map[0] = address;
    return 0;
}

// The addresses among the arguments of a launch. The values lie one after another: where they do not, there are fewer
// of them than the kernel has parameters.
static int arguments_of(const struct Function* function, void** arguments, struct Range* ranges) {
    int count = 0;
    for (int i = 0; function->parameters[i] && function->parameters[i] != '-'; i++) {
        const char *value = arguments[i], *before = i ? arguments[i - 1] : NULL;
        if (before && (value <= before || value > before + 4096)) {
            MISUSE("%s has %zu parameters and is given %d arguments", function->name, strlen(function->parameters), i);
            break;
        }
        Address address;
        memcpy(&address, value, sizeof address);
        if (function->parameters[i] == 's') continue;
        if (function->parameters[i] == 'v') {
            if (state_is_device(address)) MISUSE("%s is given an address as number %d", function->name, i);
        } else if (address) {
            // An operand that is left out is null.
            ranges[count++] = (struct Range){address, 0};
        }
    }
    return count;
}

struct Config {
    unsigned grid[3], block[3], shared;
    void* stream;
    const int* attributes;
    unsigned count;
};

API int cuLaunchKernelEx(const struct Config* config, void* function, void** parameters, void** extra) {
    ENTER(NEEDS_CONTEXT);
    if (!recorded_is(function, "function", __func__)) return INVALID_HANDLE;
    const struct Function* launched = function;
    const char* name = launched->name;
    const unsigned *of = config->grid, *each = config->block;
    const bool grid = of[0] && of[1] && of[2] && of[0] <= 0x7fffffff && of[1] <= 65535 && of[2] <= 65535;
    const uint64_t threads = (uint64_t)each[0] * each[1] * each[2];
    if (!grid || !threads || threads > 1024 || each[2] > 64 || config->shared > launched->shared || extra) {
        MISUSE("%s is launched on a grid of %u x %u x %u blocks of %lu threads with %u bytes of shared memory", name,
               of[0], of[1], of[2], threads, config->shared);
        return INVALID_VALUE;
    }
    // Starting ahead is the only attribute, from Hopper on.
    const bool ahead = config->count == 1 && config->attributes[0] == 6 && config->attributes[2] == 1;
    if (config->count && (!ahead || recorded_property("capability") < 90)) {
        MISUSE("%s is launched with %u attributes, the first of them %d", name, config->count, config->attributes[0]);
        return INVALID_VALUE;
    }
    struct Range ranges[64];
    const int count = arguments_of(launched, parameters, ranges);
    if (!recorded_work(config->stream, name, ranges, count)) return INVALID_HANDLE;
    recorded_write("launches", "%s %u %u %u %lu", name, of[0], of[1], of[2], threads);
    return 0;
}
