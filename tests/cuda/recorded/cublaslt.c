// A stand-in for libcublasLt.so.13: products are checked, and put into the stream as they are.

#include <stdio.h>
#include <string.h>

#include "recorded.h"

enum { ALLOC_FAILED = 3, INVALID_VALUE = 7, EXECUTION_FAILED = 13, NOT_SUPPORTED = 15 };

// Every call fails so in a lost context.
#define BEGIN(flags) ENTER_AS(flags, EXECUTION_FAILED)

struct Descriptor {
    struct Handle handle;
    int compute, scale, transposed[2], epilogue;
    uint64_t bias;
};
struct Layout {
    struct Handle handle;
    int type, batches;
    uint64_t rows, columns;
    int64_t leading, stride;
};
struct Preference {
    struct Handle handle;
    size_t workspace;
    // Of A, B, C and D.
    uint32_t alignment[4];
};
struct Algorithm {
    // A mark, the workspace, and the alignments that it was chosen for.
    uint64_t mark, workspace;
    uint32_t alignment[4];
    uint64_t unused[4];
};
struct Result {
    struct Algorithm algorithm;
    size_t workspace;
    int status;
    float waves;
    int reserved[4];
};
static const uint64_t MARK = 0x7265636f72646564;

API size_t cublasLtGetVersion(void) { return 130000; }

API const char* cublasLtGetStatusString(int status) {
    switch (status) {
        case ALLOC_FAILED:
            return "CUBLAS_STATUS_ALLOC_FAILED";
        case INVALID_VALUE:
            return "CUBLAS_STATUS_INVALID_VALUE";
        case EXECUTION_FAILED:
            return "CUBLAS_STATUS_EXECUTION_FAILED";
        case NOT_SUPPORTED:
            return "CUBLAS_STATUS_NOT_SUPPORTED";
    }
    return "CUBLAS_STATUS_INTERNAL_ERROR";
}

API int cublasLtCreate(void** handle) {
    BEGIN(NEEDS_CONTEXT | UNSAFE_IN_CAPTURE);
    *handle = recorded_make("blas", sizeof(struct Handle));
    return 0;
}

static int destroy(void* handle, const char* kind, const char* function) {
    if (!recorded_is(handle, kind, function)) return INVALID_VALUE;
    recorded_destroy(handle);
    return 0;
}

// Copies an attribute, whose size must be the one that the guide says.
static int set(void* to, size_t wanted, const void* from, size_t bytes, const char* function, int attribute) {
    if (bytes != wanted) {
        MISUSE("%s sets attribute %d to %zu bytes, and it has %zu", function, attribute, bytes, wanted);
        return INVALID_VALUE;
    }
    memcpy(to, from, bytes);
    return 0;
}

static int unknown(const char* function, int attribute) {
    MISUSE("%s: attribute %d was not recorded", function, attribute);
    return INVALID_VALUE;
}

API int cublasLtMatmulDescCreate(void** handle, int compute, int scale) {
    BEGIN(SURVIVES);
    struct Descriptor* made = recorded_make("product", sizeof *made);
    made->compute = compute;
    made->scale = scale;
    made->epilogue = 1;
    *handle = made;
    return 0;
}

API int cublasLtMatmulDescSetAttribute(void* handle, int attribute, const void* value, size_t bytes) {
    BEGIN(SURVIVES);
    if (!recorded_is(handle, "product", __func__)) return INVALID_VALUE;
    struct Descriptor* to = handle;
    switch (attribute) {
        case 3:
        case 4:
            return set(&to->transposed[attribute - 3], sizeof(int), value, bytes, __func__, attribute);
        case 7:
            return set(&to->epilogue, sizeof(int), value, bytes, __func__, attribute);
        case 8:
            return set(&to->bias, sizeof(uint64_t), value, bytes, __func__, attribute);
    }
    return unknown(__func__, attribute);
}

API int cublasLtMatmulDescDestroy(void* handle) {
    BEGIN(SURVIVES);
    return destroy(handle, "product", __func__);
}

API int cublasLtMatrixLayoutCreate(void** handle, int type, uint64_t rows, uint64_t columns, int64_t leading) {
    BEGIN(SURVIVES);
    struct Layout* made = recorded_make("matrix", sizeof *made);
    made->type = type;
    made->rows = rows;
    made->columns = columns;
    made->leading = leading;
    made->batches = 1;
    *handle = made;
    return 0;
}

API int cublasLtMatrixLayoutSetAttribute(void* handle, int attribute, const void* value, size_t bytes) {
    BEGIN(SURVIVES);
    if (!recorded_is(handle, "matrix", __func__)) return INVALID_VALUE;
    struct Layout* to = handle;
    switch (attribute) {
        case 5:
            return set(&to->batches, sizeof(int), value, bytes, __func__, attribute);
        case 6:
            return set(&to->stride, sizeof(int64_t), value, bytes, __func__, attribute);
    }
    return unknown(__func__, attribute);
}

API int cublasLtMatrixLayoutDestroy(void* handle) {
    BEGIN(SURVIVES);
    return destroy(handle, "matrix", __func__);
}

API int cublasLtMatmulPreferenceCreate(void** handle) {
    BEGIN(SURVIVES);
    struct Preference* made = recorded_make("preference", sizeof *made);
    for (int i = 0; i < 4; i++) made->alignment[i] = 256;
    *handle = made;
    return 0;
}

API int cublasLtMatmulPreferenceSetAttribute(void* handle, int attribute, const void* value, size_t bytes) {
    BEGIN(SURVIVES);
    if (!recorded_is(handle, "preference", __func__)) return INVALID_VALUE;
    struct Preference* to = handle;
    if (attribute == 1) return set(&to->workspace, sizeof(size_t), value, bytes, __func__, attribute);
    if (attribute >= 5 && attribute <= 8)
        return set(&to->alignment[attribute - 5], sizeof(uint32_t), value, bytes, __func__, attribute);
    return unknown(__func__, attribute);
}

API int cublasLtMatmulPreferenceDestroy(void* handle) {
    BEGIN(SURVIVES);
    return destroy(handle, "preference", __func__);
}

static uint64_t element_bytes(int type) {
    switch (type) {
        case 0:
        case 10:
            return 4;
        case 1:
            return 8;
        case 2:
        case 14:
            return 2;
        case 3:
            return 1;
    }
    return 0;
}

// Why a matrix is none; null if it is one.
static const char* wrong_matrix(const struct Layout* matrix) {
    if (!element_bytes(matrix->type)) return "its type was not recorded";
    if (!matrix->rows || !matrix->columns) return "it is empty";
    if (matrix->leading < (int64_t)matrix->rows) return "its columns overlap";
    if (matrix->batches < 1 || matrix->stride < 0) return "its batches make no sense";
    return NULL;
}

// Whether D = op(A) op(B) + C can be computed.
static bool fits(const struct Descriptor* product, const struct Layout* const matrices[4]) {
    for (int i = 0; i < 4; i++) {
        const char* wrong = wrong_matrix(matrices[i]);
        if (wrong || matrices[i]->batches != matrices[0]->batches) {
            MISUSE("matrix %c of a product: %s", "ABCD"[i], wrong ? wrong : "it has other batches");
            return false;
        }
    }
    const struct Layout *a = matrices[0], *b = matrices[1], *c = matrices[2], *d = matrices[3];
    const bool* turns = (const bool[]){product->transposed[0] != 0, product->transposed[1] != 0};
    const uint64_t m = turns[0] ? a->columns : a->rows, left = turns[0] ? a->rows : a->columns;
    const uint64_t n = turns[1] ? b->rows : b->columns, right = turns[1] ? b->columns : b->rows;
    const bool sizes = left == right && d->rows == m && d->columns == n && c->rows == m && c->columns == n;
    const int scale = product->compute == 70 ? 1 : 0;
    // Operands may be rounded to tf32 where they are float32.
    const bool known_type = product->compute == 68 || product->compute == 70 || (product->compute == 77 && !a->type);
    const bool types = known_type && product->scale == scale;
    if (!sizes || !types) {
        MISUSE("a product of %lu x %lu and %lu x %lu matrices gives %lu x %lu, compute type %d, scale type %d", m, left,
               right, n, d->rows, d->columns, product->compute, product->scale);
        return false;
    }
    if (d->batches > 1 && d->stride < (int64_t)((d->columns - 1) * d->leading + d->rows)) {
        MISUSE("the results of a product overlap");
        return false;
    }
    const int known[] = {1, 2, 4, 6, 32, 36};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (known[i] == product->epilogue) return true;
    }
    MISUSE("the epilogue %d was not recorded", product->epilogue);
    return false;
}

static bool are_alive(const void* handle, const void* product, const void* const matrices[4], const char* function) {
    bool alive = recorded_is(handle, "blas", function) && recorded_is(product, "product", function);
    for (int i = 0; i < 4; i++) alive = alive && recorded_is(matrices[i], "matrix", function);
    return alive;
}

API int cublasLtMatmulAlgoGetHeuristic(void* handle, void* product, void* a, void* b, void* c, void* d,
                                       void* preference, int room, struct Result* results, int* count) {
    BEGIN(NEEDS_CONTEXT | SURVIVES);
    const void* const matrices[4] = {a, b, c, d};
    if (!are_alive(handle, product, matrices, __func__) || !recorded_is(preference, "preference", __func__))
        return INVALID_VALUE;
    if (!fits(product, (const struct Layout* const*)matrices)) return INVALID_VALUE;
    static const size_t workspaces[] = {0, 1 << 20, 4 << 20, 16 << 20, 32 << 20, 64 << 20};
    const struct Preference* wish = preference;
    *count = 0;
    for (size_t i = 0; i < sizeof workspaces / sizeof *workspaces && *count < room; i++) {
        if (workspaces[i] > wish->workspace) break;
        struct Result* result = &results[(*count)++];
        *result = (struct Result){.algorithm = {MARK, workspaces[i]}, .workspace = workspaces[i], .waves = 1};
        memcpy(result->algorithm.alignment, wish->alignment, sizeof wish->alignment);
    }
    return *count ? 0 : NOT_SUPPORTED;
}

static struct Range range_of(const void* address, const struct Layout* matrix) {
    const uint64_t one = (matrix->columns - 1) * matrix->leading + matrix->rows;
    return (struct Range){(uint64_t)address,
                          (one + matrix->stride * (matrix->batches - 1)) * element_bytes(matrix->type)};
}

API int cublasLtMatmul(void* handle, void* product, const void* alpha, const void* a, void* a_layout, const void* b,
                       void* b_layout, const void* beta, const void* c, void* c_layout, void* d, void* d_layout,
                       const struct Algorithm* algorithm, void* workspace, size_t bytes, void* stream) {
    BEGIN(NEEDS_CONTEXT);
    const void* const matrices[4] = {a_layout, b_layout, c_layout, d_layout};
    const void* const addresses[4] = {a, b, c, d};
    if (!are_alive(handle, product, matrices, __func__) || !alpha || !beta) return INVALID_VALUE;
    const struct Descriptor* operation = product;
    if (!fits(operation, (const struct Layout* const*)matrices)) return INVALID_VALUE;
    if (!algorithm || algorithm->mark != MARK || algorithm->workspace > bytes) {
        MISUSE("a product is given an algorithm that no heuristic gave, or too small a workspace: %zu bytes", bytes);
        return INVALID_VALUE;
    }
    const bool adds = operation->scale == 1 ? *(const double*)beta != 0 : *(const float*)beta != 0;
    struct Range ranges[6];
    int count = 0;
    for (int i = 0; i < 4; i++) {
        if (i == 2 && !adds) continue;
        ranges[count++] = range_of(addresses[i], matrices[i]);
        if ((uint64_t)addresses[i] % algorithm->alignment[i])
            MISUSE("matrix %c of a product lies at %p, not aligned to %u bytes", "ABCD"[i], addresses[i],
                   algorithm->alignment[i]);
    }
    const struct Layout* result = d_layout;
    if (operation->epilogue & 4)
        ranges[count++] = (struct Range){operation->bias, result->rows * element_bytes(result->type)};
    if (algorithm->workspace) ranges[count++] = (struct Range){(uint64_t)workspace, algorithm->workspace};
    if (!recorded_work(stream, "cublasLtMatmul", ranges, count)) return INVALID_VALUE;
    char line[96];
    snprintf(line, sizeof line, "cublasLtMatmul %lu %lu %d epilogue %d%s", result->columns, result->rows,
             result->batches, operation->epilogue, operation->compute == 77 ? " in tf32" : "");
    recorded_write("launches", "%s", line);
    return 0;
}
