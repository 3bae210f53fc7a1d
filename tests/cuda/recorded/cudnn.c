// A stand-in for libcudnn.so.9's backend API, as far as convolutions and products with what follows them go.

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "recorded.h"

enum { BAD_PARAM = 2000, NOT_SUPPORTED = 3000, EXECUTION_FAILED = 5000, ALLOC_FAILED = 4001 };

#define BEGIN(flags) ENTER_AS(flags, EXECUTION_FAILED)

enum Kind {
    POINTWISE = 0,
    CONVOLUTION = 1,
    ENGINE = 2,
    CONFIG = 3,
    HEURISTIC = 4,
    PLAN = 5,
    KNOB_CHOICE = 7,
    FORWARD = 10,
    BACKWARD = 12,
    OPERATION_POINTWISE = 13,
    GRAPH = 15,
    PACK = 16,
    TENSOR = 17,
    MATMUL = 18,
    PRODUCT = 19,
};
enum Type {
    HANDLE = 0,
    DATA_TYPE = 1,
    BOOLEAN = 2,
    INT64 = 3,
    FLOAT = 4,
    DOUBLE = 5,
    POINTER = 6,
    CONVOLUTION_MODE = 7,
    HEURISTIC_MODE = 8,
    KNOB = 9,
    NAN_PROPAGATION = 10,
    NOTE = 11,
    POINTWISE_MODE = 14,
    DESCRIPTOR = 15,
    BEHAVIOR = 19,
};

static size_t type_bytes(int type) {
    switch (type) {
        case BOOLEAN:
            return 1;
        case HANDLE:
        case INT64:
        case DOUBLE:
        case POINTER:
        case DESCRIPTOR:
            return 8;
    }
    return 4;
}

// The attributes that a descriptor takes: name, type, the fewest and the most values, and whether it is needed.
struct Rule {
    int kind, name, type, fewest, most;
    bool needed;
};
static const struct Rule rules[] = {
    {POINTWISE, 0, POINTWISE_MODE, 1, 1, true},
    {POINTWISE, 1, DATA_TYPE, 1, 1, true},
    {POINTWISE, 2, NAN_PROPAGATION, 1, 1, false},
    {POINTWISE, 5, DOUBLE, 1, 1, false},
    {CONVOLUTION, 100, DATA_TYPE, 1, 1, true},
    {CONVOLUTION, 101, CONVOLUTION_MODE, 1, 1, true},
    {CONVOLUTION, 102, INT64, 2, 3, true},
    {CONVOLUTION, 103, INT64, 2, 3, true},
    {CONVOLUTION, 104, INT64, 2, 3, true},
    {CONVOLUTION, 105, INT64, 2, 3, true},
    {CONVOLUTION, 106, INT64, 1, 1, true},
    {HEURISTIC, 200, HEURISTIC_MODE, 1, 1, true},
    {HEURISTIC, 201, DESCRIPTOR, 1, 1, true},
    {CONFIG, 300, DESCRIPTOR, 1, 1, true},
    {CONFIG, 302, DESCRIPTOR, 1, 16, false},
    {KNOB_CHOICE, 600, KNOB, 1, 1, true},
    {KNOB_CHOICE, 601, INT64, 1, 1, true},
    {ENGINE, 1300, DESCRIPTOR, 1, 1, true},
    {ENGINE, 1301, INT64, 1, 1, true},
    {PLAN, 400, HANDLE, 1, 1, true},
    {PLAN, 401, DESCRIPTOR, 1, 1, true},
    {FORWARD, 700, FLOAT, 1, 1, false},
    {FORWARD, 700, DOUBLE, 1, 1, false},
    {FORWARD, 701, FLOAT, 1, 1, false},
    {FORWARD, 701, DOUBLE, 1, 1, false},
    {FORWARD, 702, DESCRIPTOR, 1, 1, true},
    {FORWARD, 703, DESCRIPTOR, 1, 1, true},
    {FORWARD, 704, DESCRIPTOR, 1, 1, true},
    {FORWARD, 705, DESCRIPTOR, 1, 1, true},
    {BACKWARD, 706, FLOAT, 1, 1, false},
    {BACKWARD, 706, DOUBLE, 1, 1, false},
    {BACKWARD, 707, FLOAT, 1, 1, false},
    {BACKWARD, 707, DOUBLE, 1, 1, false},
    {BACKWARD, 708, DESCRIPTOR, 1, 1, true},
    {BACKWARD, 709, DESCRIPTOR, 1, 1, true},
    {BACKWARD, 710, DESCRIPTOR, 1, 1, true},
    {BACKWARD, 711, DESCRIPTOR, 1, 1, true},
    {OPERATION_POINTWISE, 750, DESCRIPTOR, 1, 1, true},
    {OPERATION_POINTWISE, 751, DESCRIPTOR, 1, 1, true},
    {OPERATION_POINTWISE, 752, DESCRIPTOR, 1, 1, false},
    {OPERATION_POINTWISE, 753, DESCRIPTOR, 1, 1, true},
    {GRAPH, 800, HANDLE, 1, 1, true},
    {GRAPH, 801, DESCRIPTOR, 1, 17, true},
    {PACK, 1000, INT64, 1, 16, true},
    {PACK, 1001, POINTER, 1, 16, true},
    {PACK, 1003, POINTER, 1, 1, true},
    {TENSOR, 900, INT64, 1, 1, true},
    {TENSOR, 901, DATA_TYPE, 1, 1, true},
    {TENSOR, 902, INT64, 3, 8, true},
    {TENSOR, 903, INT64, 3, 8, true},
    {TENSOR, 906, INT64, 1, 1, true},
    {TENSOR, 907, BOOLEAN, 1, 1, false},
    {MATMUL, 1500, DATA_TYPE, 1, 1, true},
    {PRODUCT, 1520, DESCRIPTOR, 1, 1, true},
    {PRODUCT, 1521, DESCRIPTOR, 1, 1, true},
    {PRODUCT, 1522, DESCRIPTOR, 1, 1, true},
    {PRODUCT, 1523, DESCRIPTOR, 1, 1, true},
};
enum { RULES = sizeof rules / sizeof *rules };

struct Value {
    int count;
    char bytes[8 * 17];
};

// A tensor that lies in memory, as a plan knows it.
struct Operand {
    int64_t id, alignment;
    uint64_t bytes;
};
// What is known of a graph behind it: it is copied from descriptor to descriptor.
struct Summary {
    struct Operand operands[16];
    int count, operations, type;
    // Whether some tensor has gaps; whether a Relu keeps NaNs; whether one has a slope below 0.
    bool strided, keeps_nan, leaks;
};

struct Descriptor {
    struct Handle handle;
    int kind;
    bool finished;
    struct Value values[RULES];
    struct Summary summary;
    // Of an engine, a configuration and a plan.
    int engine;
};
struct Dnn {
    struct Handle handle;
    void* stream;
};

API size_t cudnnGetVersion(void) { return 91400; }

API const char* cudnnGetErrorString(int status) {
    switch (status) {
        case BAD_PARAM:
            return "CUDNN_STATUS_BAD_PARAM";
        case NOT_SUPPORTED:
            return "CUDNN_STATUS_NOT_SUPPORTED";
        case ALLOC_FAILED:
            return "CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED";
        case EXECUTION_FAILED:
            return "CUDNN_STATUS_EXECUTION_FAILED";
    }
    return "CUDNN_STATUS_INTERNAL_ERROR";
}

API int cudnnCreate(void** handle) {
    BEGIN(NEEDS_CONTEXT | UNSAFE_IN_CAPTURE);
    *handle = recorded_make("dnn", sizeof(struct Dnn));
    return 0;
}

API int cudnnSetStream(void* handle, void* stream) {
    BEGIN(SURVIVES);
    if (!recorded_is(handle, "dnn", __func__)) return BAD_PARAM;
    ((struct Dnn*)handle)->stream = stream;
    return 0;
}

API int cudnnBackendCreateDescriptor(int kind, void** descriptor) {
    BEGIN(SURVIVES);
    struct Descriptor* made = recorded_make("descriptor", sizeof *made);
    made->kind = kind;
    *descriptor = made;
    return 0;
}

API int cudnnBackendDestroyDescriptor(void* descriptor) {
    BEGIN(SURVIVES);
    if (!recorded_is(descriptor, "descriptor", __func__)) return BAD_PARAM;
    recorded_destroy(descriptor);
    return 0;
}

API int cudnnBackendSetAttribute(void* descriptor, int name, int type, int64_t count, const void* values) {
    BEGIN(SURVIVES);
    if (!recorded_is(descriptor, "descriptor", __func__)) return BAD_PARAM;
    struct Descriptor* to = descriptor;
    for (int i = 0; i < RULES; i++) {
        const struct Rule* rule = &rules[i];
        if (rule->kind != to->kind || rule->name != name || rule->type != type) continue;
        if (to->finished || count < rule->fewest || count > rule->most) break;
        to->values[i].count = (int)count;
        memcpy(to->values[i].bytes, values, count * type_bytes(type));
        return 0;
    }
    MISUSE("cuDNN: attribute %d of kind %d is set to %ld values of type %d%s", name, to->kind, count, type,
           to->finished ? ", after it was finalized" : "");
    return BAD_PARAM;
}

static const struct Value* value(const struct Descriptor* of, int name) {
    for (int i = 0; i < RULES; i++) {
        if (rules[i].kind == of->kind && rules[i].name == name && of->values[i].count) return &of->values[i];
    }
    return NULL;
}

static int64_t integer(const struct Descriptor* of, int name, int at) {
    int64_t found = 0;
    const struct Value* held = value(of, name);
    if (held) memcpy(&found, held->bytes + 8 * at, 8);
    return found;
}

static int word(const struct Descriptor* of, int name) {
    int found = 0;
    const struct Value* held = value(of, name);
    if (held) memcpy(&found, held->bytes, 4);
    return found;
}

static bool is_inside(const struct Descriptor* tensor) {
    const struct Value* held = value(tensor, 907);
    return held && held->bytes[0];
}

// The finished descriptor of a kind that an attribute names; null, and written down, if it is none.
static struct Descriptor* linked(const struct Descriptor* of, int name, int at, int kind) {
    struct Descriptor* found = NULL;
    const struct Value* held = value(of, name);
    if (held && at < held->count) memcpy(&found, held->bytes + 8 * at, 8);
    if (recorded_is(found, "descriptor", "cuDNN") && found->kind == kind && found->finished) return found;
    MISUSE("cuDNN: attribute %d of kind %d names no finished descriptor of kind %d", name, of->kind, kind);
    return NULL;
}

// What each kind must be when it is finalized. Each gives a status.

static int finish_tensor(struct Descriptor* tensor) {
    const int rank = value(tensor, 902)->count;
    const int64_t alignment = integer(tensor, 900, 0);
    if (rank != value(tensor, 903)->count || rank < 3 || rank > 5 || alignment <= 0) return BAD_PARAM;
    static const uint64_t bytes[] = {4, 8, 2, 1, 4};
    const int type = word(tensor, 901);
    if ((type < 0 || type > 4) && type != 9) return BAD_PARAM;
    uint64_t last = 0, elements = 1;
    for (int i = 0; i < rank; i++) {
        const int64_t size = integer(tensor, 902, i), stride = integer(tensor, 903, i);
        if (size < 1 || stride < 1) return BAD_PARAM;
        last += (size - 1) * stride;
        elements *= size;
    }
    tensor->summary.strided = last + 1 > elements;
    tensor->summary.operands[0] =
        (struct Operand){integer(tensor, 906, 0), alignment, (last + 1) * (type == 9 ? 2 : bytes[type])};
    tensor->summary.type = type;
    return 0;
}

static int finish_convolution(struct Descriptor* convolution) {
    const int64_t axes = integer(convolution, 106, 0);
    for (int name = 102; name <= 105; name++) {
        if (value(convolution, name)->count != axes) return BAD_PARAM;
    }
    return 0;
}

// A convolution of x to y, or of y back to the gradient of x: their attributes follow each other from `first` on.
static int finish_convolving(struct Descriptor* operation, int first) {
    const struct Descriptor* convolution = linked(operation, first + 2, 0, CONVOLUTION);
    const struct Descriptor* w = linked(operation, first + 3, 0, TENSOR);
    const struct Descriptor* x = linked(operation, first + 4, 0, TENSOR);
    const struct Descriptor* y = linked(operation, first + 5, 0, TENSOR);
    if (!convolution || !w || !x || !y || !value(operation, first) || !value(operation, first + 1)) return BAD_PARAM;
    const int64_t axes = integer(convolution, 106, 0);
    if (value(x, 902)->count != axes + 2 || value(w, 902)->count != axes + 2 || value(y, 902)->count != axes + 2)
        return BAD_PARAM;
    const int64_t channels = integer(x, 902, 1), of_group = integer(w, 902, 1), results = integer(w, 902, 0);
    if (channels % of_group || results % (channels / of_group) || integer(y, 902, 1) != results) return BAD_PARAM;
    if (integer(x, 902, 0) != integer(y, 902, 0)) return BAD_PARAM;
    for (int i = 0; i < axes; i++) {
        const int64_t dilation = integer(convolution, 102, i), stride = integer(convolution, 103, i);
        const int64_t padding = integer(convolution, 104, i) + integer(convolution, 105, i);
        const int64_t seen = dilation * (integer(w, 902, i + 2) - 1) + 1;
        if ((integer(x, 902, i + 2) + padding - seen) / stride + 1 != integer(y, 902, i + 2)) return BAD_PARAM;
    }
    return 0;
}

// A product of rows and columns in a batch, in which one side may be the same for all.
static int finish_product(struct Descriptor* operation) {
    const struct Descriptor *a = linked(operation, 1520, 0, TENSOR), *b = linked(operation, 1521, 0, TENSOR);
    const struct Descriptor* c = linked(operation, 1522, 0, TENSOR);
    if (!a || !b || !c || !linked(operation, 1523, 0, MATMUL)) return BAD_PARAM;
    if (value(a, 902)->count != 3 || value(b, 902)->count != 3 || value(c, 902)->count != 3) return BAD_PARAM;
    const int64_t batches = integer(c, 902, 0), left = integer(a, 902, 0), right = integer(b, 902, 0);
    if ((left != 1 && left != batches) || (right != 1 && right != batches)) return BAD_PARAM;
    const bool sums = integer(a, 902, 2) == integer(b, 902, 1);
    return sums && integer(a, 902, 1) == integer(c, 902, 1) && integer(b, 902, 2) == integer(c, 902, 2) ? 0 : BAD_PARAM;
}

static int finish_pointwise(struct Descriptor* operation) {
    const struct Descriptor* function = linked(operation, 750, 0, POINTWISE);
    const struct Descriptor *x = linked(operation, 751, 0, TENSOR), *y = linked(operation, 753, 0, TENSOR);
    if (!function || !x || !y) return BAD_PARAM;
    // Functions of one number begin at 100.
    const bool two = word(function, 0) < 100;
    const struct Descriptor* b = two ? linked(operation, 752, 0, TENSOR) : NULL;
    if (two != (value(operation, 752) != NULL) || (two && !b)) return BAD_PARAM;
    for (int i = 0; i < value(x, 902)->count; i++) {
        if (integer(x, 902, i) != integer(y, 902, i)) return BAD_PARAM;
        if (b && integer(b, 902, i) != 1 && integer(b, 902, i) != integer(y, 902, i)) return BAD_PARAM;
    }
    return 0;
}

// Adds the tensors of an operation that lie in memory, and what is to be known of a Relu.
static int gather(struct Summary* summary, const struct Descriptor* operation) {
    if (operation->kind == OPERATION_POINTWISE) {
        const struct Descriptor* function = linked(operation, 750, 0, POINTWISE);
        if (!function || (value(function, 2) && word(function, 0) != 100)) return BAD_PARAM;
        summary->keeps_nan |= word(function, 2) == 1;
        summary->leaks |= value(function, 5) != NULL;
    }
    static const int names[] = {703, 704, 705, 709, 710, 711, 751, 752, 753, 1520, 1521, 1522};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (!value(operation, names[i])) continue;
        const struct Descriptor* tensor = linked(operation, names[i], 0, TENSOR);
        if (!tensor) return BAD_PARAM;
        if (is_inside(tensor)) continue;
        const struct Operand* found = &tensor->summary.operands[0];
        for (int other = 0; other < summary->count; other++) {
            if (summary->operands[other].id == found->id) {
                MISUSE("cuDNN: two tensors of a graph have the number %ld", found->id);
                return BAD_PARAM;
            }
        }
        summary->operands[summary->count++] = *found;
        summary->type = tensor->summary.type;
        summary->strided |= tensor->summary.strided;
    }
    return 0;
}

static int finish_graph(struct Descriptor* graph) {
    struct Descriptor* handle;
    memcpy(&handle, value(graph, 800)->bytes, 8);
    if (!recorded_is(handle, "dnn", "cuDNN")) return BAD_PARAM;
    struct Summary* summary = &graph->summary;
    summary->operations = value(graph, 801)->count;
    for (int i = 0; i < summary->operations; i++) {
        const struct Descriptor* first = *(struct Descriptor**)value(graph, 801)->bytes;
        const bool known = first->kind == BACKWARD || first->kind == PRODUCT;
        const struct Descriptor* operation = linked(graph, 801, i,
                                                    i       ? OPERATION_POINTWISE
                                                    : known ? first->kind
                                                            : FORWARD);
        const int status = operation ? gather(summary, operation) : BAD_PARAM;
        if (status) return status;
    }
    return 0;
}

static int finish_heuristic(struct Descriptor* heuristic) {
    const struct Descriptor* graph = linked(heuristic, 201, 0, GRAPH);
    if (!graph) return BAD_PARAM;
    heuristic->summary = graph->summary;
    const struct Summary* asked = &graph->summary;
    // No engine of doubles does anything behind the convolution, and none keeps NaNs where a Relu has a slope.
    const bool wide = asked->type == 1 && asked->operations > 1;
    return wide || (asked->keeps_nan && asked->leaks) ? NOT_SUPPORTED : 0;
}

static int finish_engine(struct Descriptor* engine) {
    const struct Descriptor* graph = linked(engine, 1300, 0, GRAPH);
    const int64_t index = integer(engine, 1301, 0);
    if (!graph || index < 0 || index > 4) return BAD_PARAM;
    engine->summary = graph->summary;
    engine->engine = (int)index;
    return 0;
}

// An engine is set as it was proposed.
static int finish_config(struct Descriptor* config) {
    const struct Descriptor* engine = linked(config, 300, 0, ENGINE);
    const struct Descriptor* choice = linked(config, 302, 0, KNOB_CHOICE);
    if (!engine || !choice || word(choice, 600) || integer(choice, 601, 0) != engine->engine % 2) return BAD_PARAM;
    config->summary = engine->summary;
    config->engine = engine->engine;
    return 0;
}

static int finish_plan(struct Descriptor* plan) {
    struct Descriptor* handle;
    memcpy(&handle, value(plan, 400)->bytes, 8);
    const struct Descriptor* config = linked(plan, 401, 0, CONFIG);
    if (!config || !recorded_is(handle, "dnn", "cuDNN")) return BAD_PARAM;
    plan->summary = config->summary;
    plan->engine = config->engine;
    // Some engine always finds that it can't after all.
    return config->engine == 2 ? NOT_SUPPORTED : 0;
}

static int finish_pack(struct Descriptor* pack) {
    return value(pack, 1000)->count == value(pack, 1001)->count ? 0 : BAD_PARAM;
}

API int cudnnBackendFinalize(void* descriptor) {
    BEGIN(NEEDS_CONTEXT);
    if (!recorded_is(descriptor, "descriptor", __func__)) return BAD_PARAM;
    struct Descriptor* done = descriptor;
    for (int i = 0; i < RULES; i++) {
        if (rules[i].kind != done->kind || !rules[i].needed || done->values[i].count) continue;
        MISUSE("cuDNN: kind %d is finalized without attribute %d", done->kind, rules[i].name);
        return BAD_PARAM;
    }
    int status = 0;
    switch (done->kind) {
        case POINTWISE:
        case MATMUL:
        case KNOB_CHOICE:
            break;
        case ENGINE:
            status = finish_engine(done);
            break;
        case CONFIG:
            status = finish_config(done);
            break;
        case TENSOR:
            status = finish_tensor(done);
            break;
        case CONVOLUTION:
            status = finish_convolution(done);
            break;
        case FORWARD:
            status = finish_convolving(done, 700);
            break;
        case BACKWARD:
            status = finish_convolving(done, 706);
            break;
        case PRODUCT:
            status = finish_product(done);
            break;
        case OPERATION_POINTWISE:
            status = finish_pointwise(done);
            break;
        case GRAPH:
            status = finish_graph(done);
            break;
        case HEURISTIC:
            status = finish_heuristic(done);
            break;
        case PLAN:
            status = finish_plan(done);
            break;
        case PACK:
            status = finish_pack(done);
            break;
        default:
            status = BAD_PARAM;
    }
    if (status == BAD_PARAM) MISUSE("cuDNN: what kind %d is finalized with does not fit", done->kind);
    done->finished = status == 0;
    return status;
}

// Engines 0 to 3 are proposed for tensor cores or not, in another order where tensors have gaps; 4 always runs.
static int propose(const struct Descriptor* heuristic, int64_t room, int64_t* count, void* const* handles) {
    const int first = word(heuristic, 200) == 3 ? 0 : 4, behind = first ? 5 : 4;
    *count = 0;
    for (int engine = first; engine < behind && *count < room; engine++) {
        struct Descriptor* config = handles[(*count)++];
        if (!recorded_is(config, "descriptor", "cuDNN") || config->kind != CONFIG) return BAD_PARAM;
        config->summary = heuristic->summary;
        config->engine = heuristic->summary.strided ? first + behind - 1 - engine : engine;
        config->finished = true;
    }
    return 0;
}

API int cudnnBackendGetAttribute(void* descriptor, int name, int type, int64_t room, int64_t* count, void* values) {
    BEGIN(SURVIVES);
    if (!recorded_is(descriptor, "descriptor", __func__) || room < 1) return BAD_PARAM;
    const struct Descriptor* of = descriptor;
    *count = 1;
    if (of->finished && of->kind == HEURISTIC && name == 202 && type == DESCRIPTOR)
        return propose(of, room, count, values);
    if (of->finished && of->kind == CONFIG && name == 300 && type == DESCRIPTOR) {
        struct Descriptor* engine = *(void**)values;
        if (!recorded_is(engine, "descriptor", __func__) || engine->kind != ENGINE) return BAD_PARAM;
        engine->summary = of->summary;
        engine->engine = of->engine;
        engine->finished = true;
        return 0;
    }
    if (of->finished && of->kind == ENGINE && name == 1303 && type == NOTE) {
        // Tensor cores, which round operands of 32 bits; not the same at every run.
        static const int notes[] = {0, 4};
        *count = of->engine < 2;
        if (*count) *(int*)values = notes[of->engine];
        return 0;
    }
    if (of->finished && of->kind == CONFIG && name == 302 && type == DESCRIPTOR) {
        struct Descriptor* choice = *(void**)values;
        if (!recorded_is(choice, "descriptor", __func__) || choice->kind != KNOB_CHOICE) return BAD_PARAM;
        choice->engine = of->engine;
        choice->finished = true;
        return 0;
    }
    if (of->finished && of->kind == KNOB_CHOICE && name == 600 && type == KNOB) {
        *(int*)values = 0;
        return 0;
    }
    if (of->finished && of->kind == KNOB_CHOICE && name == 601 && type == INT64) {
        *(int64_t*)values = of->engine % 2;
        return 0;
    }
    if (of->finished && of->kind == ENGINE && name == 1301 && type == INT64) {
        *(int64_t*)values = of->engine;
        return 0;
    }
    if (of->finished && of->kind == ENGINE && name == 1305 && type == BEHAVIOR) {
        // One that is compiled for each plan.
        *count = of->engine == 3;
        if (*count) *(int*)values = 0;
        return 0;
    }
    if (of->finished && of->kind == PLAN && name == 402 && type == INT64) {
        *(int64_t*)values = (int64_t)of->engine << 20;
        return 0;
    }
    MISUSE("cuDNN: attribute %d of kind %d, type %d, can't be read", name, of->kind, type);
    return BAD_PARAM;
}

API int cudnnBackendExecute(void* handle, void* plan, void* pack) {
    BEGIN(NEEDS_CONTEXT);
    if (!recorded_is(handle, "dnn", __func__) || !recorded_is(plan, "descriptor", __func__) ||
        !recorded_is(pack, "descriptor", __func__))
        return BAD_PARAM;
    const struct Descriptor *run = plan, *given = pack;
    if (run->kind != PLAN || given->kind != PACK || !run->finished || !given->finished) return BAD_PARAM;
    struct Range ranges[17];
    int found = 0;
    const int count = value(given, 1000)->count;
    for (int i = 0; i < run->summary.count; i++) {
        const struct Operand* operand = &run->summary.operands[i];
        int at = 0;
        while (at < count && integer(given, 1000, at) != operand->id) at++;
        const uint64_t address = at < count ? integer(given, 1001, at) : 0;
        if (address % operand->alignment)
            MISUSE("tensor %ld of a graph lies at %#lx, not aligned", operand->id, address);
        ranges[found++] = (struct Range){address, operand->bytes};
    }
    if (count != run->summary.count) MISUSE("a graph has %d tensors and is given %d", run->summary.count, count);
    if (run->engine) ranges[found++] = (struct Range){integer(given, 1003, 0), (uint64_t)run->engine << 20};
    if (!recorded_work(((struct Dnn*)handle)->stream, "cudnnBackendExecute", ranges, found)) return BAD_PARAM;
    recorded_write("launches", "cudnnBackendExecute %d operations, engine %d%s", run->summary.operations, run->engine,
                   run->summary.keeps_nan ? ", NaNs kept" : "");
    return 0;
}
