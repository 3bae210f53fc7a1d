// Neurenix in C: engine files in, arrays by address through them. No Python is in the process.
//
// The library is libneurenix.so.1. Functions are never taken out of it and never change; structures grow at their end,
// and their first field says how much of them a caller knows (the _INIT macros set it; zeros mean the defaults). What
// this header needs of the library is asked by `nrx_abi_version() >= NRX_ABI_VERSION`.
//
// Each function that can fail gives a status, and `nrx_last_error` the text: what went wrong, what was expected, what
// came, and what to do. Handles are numbers in the shape of pointers: one that was closed is refused and never
// followed. Every function may be called from every thread; a context does one thing at a time, and refuses what comes
// meanwhile, but for `nrx_context_cancel`.
//
// Opening an engine executes nothing from it. Files come from `OptimizedModel.save` or `neurenix export`.
#ifndef NEURENIX_NEURENIX_H_
#define NEURENIX_NEURENIX_H_

#include <stddef.h>
#include <stdint.h>

#define NRX_ABI_VERSION 1u

#if defined(__GNUC__)
#define NRX_API __attribute__((visibility("default")))
#else
#define NRX_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

// An engine that is open, and the state of its calls: as many contexts as calls that go on at once.
typedef struct nrx_engine nrx_engine;
typedef struct nrx_context nrx_context;

typedef int32_t nrx_status;
enum {
    NRX_OK = 0,
    NRX_INVALID_ARGUMENT = 1,  // a handle, a null pointer, a number, an option
    NRX_SHAPE = 2,             // a shape or a number of bytes does not fit
    NRX_DTYPE = 3,
    NRX_UNSUPPORTED = 4,  // nothing here can run this
    NRX_FORMAT = 5,       // the file is damaged, too new, or no engine
    NRX_IO = 6,
    NRX_OUT_OF_MEMORY = 7,
    NRX_DEVICE = 8,  // a library, a driver or a GPU failed
    NRX_PLUGIN = 9,
    NRX_CANCELLED = 10,
    NRX_INTERNAL = 11  // a defect of Neurenix
};

// Element types. Each element takes whole bytes (`nrx_dtype_size`): those of 4 and 2 bits take one.
typedef int32_t nrx_dtype;
enum {
    NRX_FLOAT32 = 1,
    NRX_FLOAT64 = 2,
    NRX_FLOAT16 = 3,
    NRX_BFLOAT16 = 4,
    NRX_INT8 = 5,
    NRX_UINT8 = 6,
    NRX_INT16 = 7,
    NRX_UINT16 = 8,
    NRX_INT32 = 9,
    NRX_UINT32 = 10,
    NRX_INT64 = 11,
    NRX_UINT64 = 12,
    NRX_BOOL = 13,
    NRX_FLOAT8_E4M3FN = 14,
    NRX_FLOAT8_E4M3FNUZ = 15,
    NRX_FLOAT8_E5M2 = 16,
    NRX_FLOAT8_E5M2FNUZ = 17,
    NRX_FLOAT8_E8M0FNU = 18,
    NRX_FLOAT4_E2M1FN = 19,
    NRX_INT4 = 20,
    NRX_UINT4 = 21,
    NRX_INT2 = 22,
    NRX_UINT2 = 23
};

// Which side of an engine a tensor is on.
typedef int32_t nrx_side;
enum { NRX_INPUT = 0, NRX_OUTPUT = 1 };

// Which shape of a profile is meant.
typedef int32_t nrx_bound;
enum { NRX_MIN = 0, NRX_OPT = 1, NRX_MAX = 2 };

// Where an array lies: a number from 0 on is that of a GPU.
#define NRX_HOST (-1)

typedef int32_t nrx_log_level;
enum { NRX_LOG_ERROR = 1, NRX_LOG_WARNING = 2, NRX_LOG_INFO = 3, NRX_LOG_DEBUG = 4 };

// Takes a message. It may come from any thread, and must not unwind.
typedef void (*nrx_log)(void* user, nrx_log_level level, const char* text);

// How a file is opened. All zeros: as the file says, on the best provider that can run here.
typedef struct nrx_options {
    size_t struct_size;
    uint32_t threads;          // of the processor, for all calls together; 0: as the file says, or as many as there are
    uint32_t device;           // the number of the GPU, where there are several
    const char* providers;     // "cuda,cpu", preferred one first; NULL: NEURENIX_PROVIDERS, or "tensorrt,cuda,cpu"
    const char* timing_cache;  // a file of measured times; NULL: the one in the cache directory, "" none
} nrx_options;
#define NRX_OPTIONS_INIT {sizeof(nrx_options), 0, 0, NULL, NULL}

// What an engine is. Pointers are good until the engine is closed.
typedef struct nrx_engine_info {
    size_t struct_size;
    const char* name;       // of the network
    const char* precision;  // fp32, tf32, bf16 or fp16
    const char*
        notes;  // what the user should know, line by line: fall backs, what was planned anew; "" where all is well
    const int32_t* devices;  // the GPUs whose memory it reaches
    uint32_t device_count;
    uint32_t inputs;
    uint32_t outputs;
    uint32_t profiles;
    uint32_t calls;  // calls beside each other that keep what it runs on busy
    int32_t
        shapes_by_data;  // 1: the sizes of outputs show when it has run, and its arrays lie in the processor's memory
} nrx_engine_info;
#define NRX_ENGINE_INFO_INIT {sizeof(nrx_engine_info), NULL, NULL, NULL, NULL, 0, 0, 0, 0, 0, 0}

// An input or output. Pointers are good until the engine is closed.
typedef struct nrx_tensor_info {
    size_t struct_size;
    const char* name;
    const int64_t* dims;         // -1 for a dimension that calls give
    const char* const* symbols;  // of each dimension what it is called, an expression of symbols; NULL for a fixed one
    uint32_t rank;
    nrx_dtype dtype;
} nrx_tensor_info;
#define NRX_TENSOR_INFO_INIT {sizeof(nrx_tensor_info), NULL, NULL, NULL, 0, 0}

// An output of a context.
typedef struct nrx_array_info {
    size_t struct_size;
    void* data;           // where it is: in the caller's memory, in that of the context, or NULL before a run
    const int64_t* dims;  // good until the next call on this context
    size_t bytes;         // that its elements take
    uint32_t rank;
    nrx_dtype dtype;
    int32_t device;
} nrx_array_info;
#define NRX_ARRAY_INFO_INIT {sizeof(nrx_array_info), NULL, NULL, 0, 0, 0, NRX_HOST}

// What is known of the shapes that a context was prepared for or ran last.
typedef struct nrx_context_info {
    size_t struct_size;
    int32_t profile;  // -1 before, and where the sizes of outputs depend on data
    int32_t inside;   // 0: the shapes lie outside of every profile; it runs, but was not optimised for them
    size_t memory;    // bytes of activations and workspaces
} nrx_context_info;
#define NRX_CONTEXT_INFO_INIT {sizeof(nrx_context_info), -1, 0, 0}

// The library.

NRX_API uint32_t nrx_abi_version(void);
NRX_API const char* nrx_version(void);
// Names of numbers: "NRX_SHAPE", "float32"; NULL for a number that is none. `nrx_dtype_size` then gives 0.
NRX_API const char* nrx_status_name(nrx_status status);
NRX_API const char* nrx_dtype_name(nrx_dtype dtype);
NRX_API size_t nrx_dtype_size(nrx_dtype dtype);
// The text of the last failure in this thread, "" before; good until the next one.
NRX_API const char* nrx_last_error(void);
// Who gets messages, in place of stderr, which NEURENIX_LOG (off, error, warning, info, debug) bounds. NULL: stderr
// again. A message that is under way may still come to who got them before.
NRX_API nrx_status nrx_set_log(nrx_log log, void* user);
// Opens a library of plugins (neurenix/plugin.h) and registers them for the life of the process. This runs its code.
NRX_API nrx_status nrx_load_plugins(const char* path);

// Engines.

// Opens an engine file, whose weights are mapped, or its bytes, which are copied. `options` may be NULL. On a machine
// other than that of the build it is planned anew, which the notes say. `*engine` becomes NULL where it fails.
NRX_API nrx_status nrx_engine_open(const char* path, const nrx_options* options, nrx_engine** engine);
NRX_API nrx_status nrx_engine_open_memory(const void* data, size_t bytes, const nrx_options* options,
                                          nrx_engine** engine);
// Its contexts go on working until they are destroyed; what was described of it is gone.
NRX_API nrx_status nrx_engine_close(nrx_engine* engine);
NRX_API nrx_status nrx_engine_get_info(nrx_engine* engine, nrx_engine_info* info);
NRX_API nrx_status nrx_engine_get_tensor(nrx_engine* engine, nrx_side side, uint32_t index, nrx_tensor_info* info);
// The index of an input or output by its name; a failure says the names there are.
NRX_API nrx_status nrx_engine_find_tensor(nrx_engine* engine, nrx_side side, const char* name, uint32_t* index);
// The least, expected or greatest shape of an input in a profile, into room for `capacity` dimensions.
NRX_API nrx_status nrx_engine_get_profile_shape(nrx_engine* engine, uint32_t profile, uint32_t input, nrx_bound bound,
                                                int64_t* dims, size_t capacity);
// What the engine does, as JSON; good until it is closed.
NRX_API nrx_status nrx_engine_get_report(nrx_engine* engine, const char** json);

// Contexts.

NRX_API nrx_status nrx_context_create(nrx_engine* engine, nrx_context** context);
// Cancels what it does, and waits for that.
NRX_API nrx_status nrx_context_destroy(nrx_context* context);
// Binds an input: dense elements in row-major order, at an address that is a multiple of their size. `bytes` must be
// what dtype and dims say. `data` may be NULL as long as nothing is run. It stays bound, and is read when the context
// runs.
NRX_API nrx_status nrx_context_set_input(nrx_context* context, uint32_t index, nrx_dtype dtype, const int64_t* dims,
                                         size_t rank, const void* data, size_t bytes, int32_t device);
// Binds an output to room for at least so many bytes. NULL: the context brings memory of the processor's of its own.
NRX_API nrx_status nrx_context_set_output(nrx_context* context, uint32_t index, void* data, size_t bytes,
                                          int32_t device);
// Gets ready for the shapes of the inputs and for arrays where they are bound, so that the shapes of the outputs are
// known. A run does it too, and again where an array lies in other memory.
// NRX_UNSUPPORTED where they depend on data.
NRX_API nrx_status nrx_context_prepare(nrx_context* context);
// An output as it was prepared, or as the last run gave it.
NRX_API nrx_status nrx_context_get_output(nrx_context* context, uint32_t index, nrx_array_info* info);
// Runs, and returns when the outputs are there.
NRX_API nrx_status nrx_context_run(nrx_context* context);
// Puts the run into a stream of CUDA's on this GPU (a cudaStream_t or CUstream; NULL is the default stream). With all
// arrays on that GPU it returns before the work is done; what is wrong with the data is then told by the next call, or
// by `nrx_context_synchronize`.
NRX_API nrx_status nrx_context_enqueue(nrx_context* context, int32_t device, void* stream);
NRX_API nrx_status nrx_context_synchronize(nrx_context* context);
// Ends what the context does in another thread as soon as a kernel is over: that call gives NRX_CANCELLED, and its
// outputs are undefined. A later call is not affected.
NRX_API nrx_status nrx_context_cancel(nrx_context* context);
NRX_API nrx_status nrx_context_get_info(nrx_context* context, nrx_context_info* info);

#ifdef __cplusplus
}
#endif

#endif  // NEURENIX_NEURENIX_H_
