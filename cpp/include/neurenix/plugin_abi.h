// What crosses between Neurenix and a library of plugins: plain C. Authors of plugins include neurenix/plugin.h.
//
// A library exports `neurenix_plugin_entry`, which gives a table. Its first number is the version of this file, in
// every version. No memory changes hands: who owns an object is the only one that frees it, and texts and bytes are put
// into an `neurenix_answers` of the caller's while a call lasts. No exception and no panic passes a function of either
// side.
#ifndef NEURENIX_PLUGIN_ABI_H_
#define NEURENIX_PLUGIN_ABI_H_

#include <stddef.h>
#include <stdint.h>

#define NEURENIX_PLUGIN_ABI_VERSION 1
#define NEURENIX_MAX_DIMS 8

// What a function of the table returns.
#define NEURENIX_OK 0
#define NEURENIX_FAILED 1
#define NEURENIX_OUT_OF_MEMORY 2

// What an answer is. The type of a declared field is added to NEURENIX_ANSWER_FIELD.
#define NEURENIX_ANSWER_ERROR 0
#define NEURENIX_ANSWER_NAME 1
#define NEURENIX_ANSWER_VERSION 2
#define NEURENIX_ANSWER_NAMESPACE 3
#define NEURENIX_ANSWER_BYTES 4
#define NEURENIX_ANSWER_FIELD 16

// Kinds of devices, as bits.
#define NEURENIX_DEVICE_HOST 1u
#define NEURENIX_DEVICE_CUDA 2u

#ifdef __cplusplus
extern "C" {
#endif

// Takes texts and bytes.
typedef struct neurenix_answers {
    void* host;
    void (*put)(void* host, int32_t what, const void* bytes, size_t size);
} neurenix_answers;

// A dimension: a number, or an expression that the host knows by `id`.
typedef struct neurenix_expr {
    int64_t constant;
    uint32_t id;
    int32_t is_constant;
} neurenix_expr;

typedef struct neurenix_shape {
    neurenix_expr dims[NEURENIX_MAX_DIMS];
    int32_t rank;
} neurenix_shape;

// Calculates with dimensions; the operations have TensorRT's numbers. The host keeps the reason of a failure.
typedef struct neurenix_exprs {
    void* host;
    int32_t (*constant)(void* host, int64_t value, neurenix_expr* made);
    int32_t (*operation)(void* host, int32_t operation, uint32_t first, uint32_t second, neurenix_expr* made);
} neurenix_exprs;

// A tensor: -1 stands for a dimension that only a call tells.
typedef struct neurenix_tensor {
    int64_t dims[NEURENIX_MAX_DIMS];
    int32_t rank;
    int32_t dtype;
} neurenix_tensor;

typedef struct neurenix_field {
    const char* name;
    const void* data;
    int32_t type;
    int32_t length;
} neurenix_field;

// Plugins are numbered by their creator and handed around as pointers that only the library looks behind.
typedef struct neurenix_plugin_table {
    uint32_t abi_version;
    uint32_t table_bytes;
    int32_t (*creators)(void);
    // Name, version, namespace and declared fields of a creator.
    int32_t (*describe)(int32_t creator, const neurenix_answers* answers);
    int32_t (*create)(int32_t creator, const char* layer, const neurenix_field* fields, int32_t count, void** plugin,
                      const neurenix_answers* answers);
    int32_t (*deserialize)(int32_t creator, const char* layer, const void* data, size_t size, void** plugin,
                           const neurenix_answers* answers);
    int32_t (*clone)(void* plugin, void** made, const neurenix_answers* answers);
    void (*destroy)(void* plugin);
    int32_t (*serialize)(void* plugin, const neurenix_answers* answers);
    int32_t (*traits)(void* plugin, int32_t* outputs, uint32_t* devices, int32_t* is_capturable,
                      const neurenix_answers* answers);
    int32_t (*infer)(void* plugin, int32_t output, const neurenix_shape* shapes, const int32_t* dtypes, int32_t inputs,
                     const neurenix_exprs* exprs, neurenix_shape* shape, int32_t* dtype,
                     const neurenix_answers* answers);
    int32_t (*supports)(void* plugin, int32_t at, const neurenix_tensor* tensors, int32_t inputs, int32_t outputs,
                        int32_t* is_supported, const neurenix_answers* answers);
    // Gets a clone ready for these shapes on a device; `enqueue` then runs it.
    int32_t (*prepare)(void* plugin, uint32_t device, int32_t ordinal, const neurenix_tensor* inputs,
                       int32_t input_count, const neurenix_tensor* outputs, int32_t output_count, size_t* workspace,
                       const neurenix_answers* answers);
    int32_t (*enqueue)(void* plugin, const void* const* inputs, void* const* outputs, void* workspace, void* stream,
                       const neurenix_answers* answers);
} neurenix_plugin_table;

#ifdef __cplusplus
}
#endif

#endif  // NEURENIX_PLUGIN_ABI_H_
