/* Uses the C API as C99 and as C++17: `probe COMMAND ENGINE ARGUMENTS...`; ends with 0 where all was as it should be.
 */
#define _POSIX_C_SOURCE 200809L
#include <neurenix/neurenix.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static int failures = 0;

#define CHECK(condition)                                                                          \
    do {                                                                                          \
        if (!(condition)) {                                                                       \
            fprintf(stderr, "%s:%d: %s\n%s\n", __FILE__, __LINE__, #condition, nrx_last_error()); \
            exit(1);                                                                              \
        }                                                                                         \
    } while (0)
#define OK(call) CHECK((call) == NRX_OK)

static void expect(int line, nrx_status want, const char* text, nrx_status got) {
    if (got == want && strstr(nrx_last_error(), text) != NULL) return;
    fprintf(stderr, "line %d: expected %s and '%s', got %s and:\n%s\n", line, nrx_status_name(want), text,
            nrx_status_name(got), nrx_last_error());
    ++failures;
}
#define REFUSED(want, text, call) expect(__LINE__, want, text, call)

static void* room(size_t bytes) {
    void* made = calloc(bytes > 0 ? bytes : 1, 1);
    CHECK(made != NULL);
    return made;
}

static nrx_engine* open_file(const char* path) {
    nrx_engine* engine = NULL;
    OK(nrx_engine_open(path, NULL, &engine));
    return engine;
}

static nrx_context* context_of(nrx_engine* engine) {
    nrx_context* context = NULL;
    OK(nrx_context_create(engine, &context));
    return context;
}

static void* read_file(const char* path, size_t* bytes) {
    FILE* file = fopen(path, "rb");
    void* data;
    CHECK(file != NULL && fseek(file, 0, SEEK_END) == 0);
    *bytes = (size_t)ftell(file);
    rewind(file);
    data = room(*bytes);
    CHECK(fread(data, 1, *bytes, file) == *bytes);
    fclose(file);
    return data;
}

/* "3x16" */
static size_t parse_shape(const char* text, int64_t* dims) {
    size_t rank = 0;
    while (*text != '\0') {
        char* end;
        dims[rank++] = strtoll(text, &end, 10);
        text = *end == 'x' ? end + 1 : end;
    }
    return rank;
}

static nrx_tensor_info tensor(nrx_engine* engine, nrx_side side, uint32_t index) {
    nrx_tensor_info info = NRX_TENSOR_INFO_INIT;
    OK(nrx_engine_get_tensor(engine, side, index, &info));
    return info;
}

/* run ENGINE FOLDER BOUND SHAPE...: reads FOLDER/input.N, writes FOLDER/output.N, and prints dtype and shape of each
 * output. With BOUND the outputs go to memory of ours, else to that of the context; the second run is the one that
 * counts. */
static void run(nrx_engine* engine, int count, char** arguments) {
    const char* folder = arguments[0];
    const int bound = atoi(arguments[1]);
    nrx_engine_info info = NRX_ENGINE_INFO_INIT;
    nrx_context* context = context_of(engine);
    char path[4096];
    uint32_t at;
    int again;
    OK(nrx_engine_get_info(engine, &info));
    CHECK(info.inputs == (uint32_t)(count - 2));
    for (at = 0; at < info.inputs; ++at) {
        int64_t dims[16];
        size_t bytes, rank = parse_shape(arguments[2 + at], dims);
        void* data;
        snprintf(path, sizeof path, "%s/input.%u", folder, at);
        data = read_file(path, &bytes);
        OK(nrx_context_set_input(context, at, tensor(engine, NRX_INPUT, at).dtype, dims, rank, data, bytes, NRX_HOST));
    }
    if (bound) {
        if (!info.shapes_by_data) OK(nrx_context_prepare(context));
        for (at = 0; at < info.outputs; ++at) {
            nrx_array_info output = NRX_ARRAY_INFO_INIT;
            if (!info.shapes_by_data) OK(nrx_context_get_output(context, at, &output));
            if (info.shapes_by_data) output.bytes = 1 << 16;
            OK(nrx_context_set_output(context, at, room(output.bytes), output.bytes, NRX_HOST));
        }
    }
    for (again = 0; again < 2; ++again) OK(nrx_context_run(context));
    for (at = 0; at < info.outputs; ++at) {
        nrx_array_info output = NRX_ARRAY_INFO_INIT;
        FILE* file;
        uint32_t axis;
        OK(nrx_context_get_output(context, at, &output));
        CHECK(output.device == NRX_HOST && (output.data != NULL || output.bytes == 0));
        snprintf(path, sizeof path, "%s/output.%u", folder, at);
        file = fopen(path, "wb");
        CHECK(file != NULL && fwrite(output.data, 1, output.bytes, file) == output.bytes);
        fclose(file);
        printf("%s", nrx_dtype_name(output.dtype));
        for (axis = 0; axis < output.rank; ++axis) printf(" %lld", (long long)output.dims[axis]);
        printf("\n");
    }
    OK(nrx_context_destroy(context));
}

/* Prints what is known of an engine. */
static void describe(nrx_engine* engine) {
    nrx_engine_info info = NRX_ENGINE_INFO_INIT;
    nrx_side side;
    uint32_t profile, at, axis;
    const char* report = NULL;
    OK(nrx_engine_get_info(engine, &info));
    printf("%s %s %u\n", info.name, info.precision, info.profiles);
    for (side = NRX_INPUT; side <= NRX_OUTPUT; ++side) {
        for (at = 0; at < (side == NRX_INPUT ? info.inputs : info.outputs); ++at) {
            const nrx_tensor_info port = tensor(engine, side, at);
            uint32_t found = 99;
            OK(nrx_engine_find_tensor(engine, side, port.name, &found));
            CHECK(found == at);
            printf("%s %s", port.name, nrx_dtype_name(port.dtype));
            for (axis = 0; axis < port.rank; ++axis) {
                CHECK((port.dims[axis] == -1) == (port.symbols[axis] != NULL));
                if (port.symbols[axis] != NULL) printf(" %s", port.symbols[axis]);
                if (port.symbols[axis] == NULL) printf(" %lld", (long long)port.dims[axis]);
            }
            printf("\n");
        }
    }
    for (profile = 0; profile < info.profiles; ++profile) {
        nrx_bound bound;
        for (bound = NRX_MIN; bound <= NRX_MAX; ++bound) {
            int64_t dims[16];
            OK(nrx_engine_get_profile_shape(engine, profile, 0, bound, dims, 16));
            printf("%lld ", (long long)dims[0]);
        }
    }
    printf("\n");
    OK(nrx_engine_get_report(engine, &report));
    CHECK(strstr(report, "\"kernels\"") != NULL);
}

typedef struct {
    int64_t dims[2];
    float x[16 * 16], y[16 * 4];
} toy;

static void bind_toy(nrx_context* context, toy* call, int64_t rows) {
    call->dims[0] = rows;
    call->dims[1] = 16;
    OK(nrx_context_set_input(context, 0, NRX_FLOAT32, call->dims, 2, call->x, (size_t)rows * 64, NRX_HOST));
    OK(nrx_context_set_output(context, 0, call->y, sizeof call->y, NRX_HOST));
}

static void misuse(nrx_engine* engine, const char* path) {
    nrx_context* context = context_of(engine);
    nrx_engine* other = engine;
    nrx_engine_info info = NRX_ENGINE_INFO_INIT;
    nrx_tensor_info port = NRX_TENSOR_INFO_INIT;
    nrx_array_info array = NRX_ARRAY_INFO_INIT;
    nrx_options options = NRX_OPTIONS_INIT;
    const int64_t dims[2] = {3, 16}, negative[2] = {-3, 16}, wide[2] = {3, 17}, huge[2] = {INT64_MAX, INT64_MAX};
    static toy call;
    uint32_t index;
    struct {
        nrx_options known;
        uint64_t newer;
    } newer = {NRX_OPTIONS_INIT, 1};

    REFUSED(NRX_INVALID_ARGUMENT, "`engine` is NULL", nrx_engine_open(path, NULL, NULL));
    REFUSED(NRX_INVALID_ARGUMENT, "`path` is NULL", nrx_engine_open(NULL, NULL, &other));
    CHECK(other == NULL);
    REFUSED(NRX_IO, "/nowhere/at.all", nrx_engine_open("/nowhere/at.all", NULL, &other));
    REFUSED(NRX_FORMAT, "a folder", nrx_engine_open("/tmp", NULL, &other));
    REFUSED(NRX_FORMAT, "a device or a pipe", nrx_engine_open("/dev/null", NULL, &other));
    REFUSED(NRX_FORMAT, "not an engine file", nrx_engine_open_memory("abc", 3, NULL, &other));
    REFUSED(NRX_INVALID_ARGUMENT, "`data` is NULL", nrx_engine_open_memory(NULL, 3, NULL, &other));
    options.struct_size = 0;
    REFUSED(NRX_INVALID_ARGUMENT, "NRX_OPTIONS_INIT", nrx_engine_open(path, &options, &other));
    options.struct_size = sizeof options;
    options.providers = "";
    REFUSED(NRX_INVALID_ARGUMENT, "`providers` names none", nrx_engine_open(path, &options, &other));
    options.providers = "gpu";
    REFUSED(NRX_DEVICE, "there is no provider \"gpu\"", nrx_engine_open(path, &options, &other));
    options.providers = "cpu\xff";
    REFUSED(NRX_INVALID_ARGUMENT, "not UTF-8", nrx_engine_open(path, &options, &other));
    options.providers = NULL;
    options.threads = 1u << 30;
    REFUSED(NRX_INVALID_ARGUMENT, "`threads`", nrx_engine_open(path, &options, &other));
    newer.known.struct_size = sizeof newer;
    REFUSED(NRX_UNSUPPORTED, "compiled for a newer", nrx_engine_open(path, &newer.known, &other));

    REFUSED(NRX_INVALID_ARGUMENT, "got: NULL", nrx_engine_get_info(NULL, &info));
    REFUSED(NRX_INVALID_ARGUMENT, "got: a context", nrx_engine_get_info((nrx_engine*)context, &info));
    REFUSED(NRX_INVALID_ARGUMENT, "got: an engine", nrx_context_run((nrx_context*)engine));
    REFUSED(NRX_INVALID_ARGUMENT, "`nrx_engine_info` is NULL", nrx_engine_get_info(engine, NULL));
    REFUSED(NRX_INVALID_ARGUMENT, "0 to 0", nrx_engine_get_tensor(engine, NRX_INPUT, 1, &port));
    REFUSED(NRX_INVALID_ARGUMENT, "no such side", nrx_engine_get_tensor(engine, 7, 0, &port));
    REFUSED(NRX_INVALID_ARGUMENT, "has no input \"X\"", nrx_engine_find_tensor(engine, NRX_INPUT, "X", &index));
    REFUSED(NRX_INVALID_ARGUMENT, "profile of this number",
            nrx_engine_get_profile_shape(engine, 5, 0, 0, call.dims, 2));
    REFUSED(NRX_SHAPE, "expected: 2 or more", nrx_engine_get_profile_shape(engine, 0, 0, 0, call.dims, 1));
    REFUSED(NRX_INVALID_ARGUMENT, "`dims` is NULL", nrx_engine_get_profile_shape(engine, 0, 0, 0, NULL, 2));
    REFUSED(NRX_INVALID_ARGUMENT, "NRX_MIN (0)", nrx_engine_get_profile_shape(engine, 0, 0, 9, call.dims, 2));

    REFUSED(NRX_INVALID_ARGUMENT, "an input has no array", nrx_context_run(context));
    REFUSED(NRX_INVALID_ARGUMENT, "an input is missing", nrx_context_prepare(context));
    REFUSED(NRX_INVALID_ARGUMENT, "not known yet", nrx_context_get_output(context, 0, &array));
#define SET(dtype, shape, rank, data, bytes, device) \
    nrx_context_set_input(context, 0, dtype, shape, rank, data, bytes, device)
    REFUSED(NRX_DTYPE, "expected: float32", SET(NRX_FLOAT64, dims, 2, call.x, 384, NRX_HOST));
    REFUSED(NRX_DTYPE, "no dtype of this number", SET(77, dims, 2, call.x, 192, NRX_HOST));
    REFUSED(NRX_SHAPE, "expected: 192 bytes", SET(NRX_FLOAT32, dims, 2, call.x, 191, NRX_HOST));
    REFUSED(NRX_SHAPE, "negative", SET(NRX_FLOAT32, negative, 2, call.x, 192, NRX_HOST));
    REFUSED(NRX_SHAPE, "too large", SET(NRX_FLOAT32, huge, 2, call.x, 192, NRX_HOST));
    REFUSED(NRX_INVALID_ARGUMENT, "`dims` is NULL", SET(NRX_FLOAT32, NULL, 2, call.x, 192, NRX_HOST));
    REFUSED(NRX_INVALID_ARGUMENT, "too many elements", SET(NRX_FLOAT32, dims, 9999, call.x, 192, NRX_HOST));
    REFUSED(NRX_INVALID_ARGUMENT, "not aligned", SET(NRX_FLOAT32, dims, 2, (char*)call.x + 1, 192, NRX_HOST));
    REFUSED(NRX_INVALID_ARGUMENT, "beyond the last address",
            SET(NRX_FLOAT32, dims, 2, (void*)(UINTPTR_MAX - 63), 192, NRX_HOST));
    REFUSED(NRX_INVALID_ARGUMENT, "NRX_HOST (-1)", SET(NRX_FLOAT32, dims, 2, call.x, 192, -2));
    REFUSED(NRX_INVALID_ARGUMENT, "no input of this number",
            nrx_context_set_input(context, 9, NRX_FLOAT32, dims, 2, call.x, 192, NRX_HOST));
    OK(SET(NRX_FLOAT32, dims, 2, NULL, 192, NRX_HOST));
    OK(nrx_context_prepare(context));
    REFUSED(NRX_INVALID_ARGUMENT, "tensor: x", nrx_context_run(context));
    OK(SET(NRX_FLOAT32, wide, 2, call.x, 204, NRX_HOST));
    REFUSED(NRX_SHAPE, "dimension 1 is fixed", nrx_context_run(context));
    OK(SET(NRX_FLOAT32, dims, 1, call.x, 12, NRX_HOST));
    REFUSED(NRX_SHAPE, "number of dimensions", nrx_context_run(context));
    OK(SET(NRX_FLOAT32, dims, 2, call.x, 192, 0));
    REFUSED(NRX_INVALID_ARGUMENT, "no provider of this engine reaches", nrx_context_run(context));

    bind_toy(context, &call, 3);
    OK(nrx_context_set_output(context, 0, call.y, 47, NRX_HOST));
    REFUSED(NRX_SHAPE, "expected: 48 bytes or more", nrx_context_run(context));
    REFUSED(NRX_INVALID_ARGUMENT, "not aligned", nrx_context_set_output(context, 0, (char*)call.y + 2, 48, NRX_HOST));
    REFUSED(NRX_INVALID_ARGUMENT, "no output of this number", nrx_context_set_output(context, 1, call.y, 48, NRX_HOST));
    OK(nrx_context_set_output(context, 0, call.x + 4, 48, NRX_HOST));
    REFUSED(NRX_INVALID_ARGUMENT, "lies over another array", nrx_context_run(context));
    REFUSED(NRX_INVALID_ARGUMENT, "nrx_context_run", nrx_context_enqueue(context, 0, NULL));
    REFUSED(NRX_INVALID_ARGUMENT, "NRX_ARRAY_INFO_INIT",
            (array.struct_size = 3, nrx_context_get_output(context, 0, &array)));
    REFUSED(NRX_IO, "plugin library", nrx_load_plugins("/nowhere/libplugin.so"));

    bind_toy(context, &call, 3);
    OK(nrx_engine_close(engine));
    REFUSED(NRX_INVALID_ARGUMENT, "closed before", nrx_engine_close(engine));
    REFUSED(NRX_INVALID_ARGUMENT, "closed before", nrx_engine_get_info(engine, &info));
    /* Its contexts go on. */
    OK(nrx_context_run(context));
    OK(nrx_context_cancel(context));
    OK(nrx_context_run(context));
    OK(nrx_context_destroy(context));
    REFUSED(NRX_INVALID_ARGUMENT, "closed before", nrx_context_destroy(context));
    REFUSED(NRX_INVALID_ARGUMENT, "closed before", nrx_context_run(context));
    CHECK(nrx_status_name(99) == NULL && nrx_dtype_name(0) == NULL && nrx_dtype_size(-5) == 0);
}

/* Every length of a file that was cut off, and a byte that was changed. */
static void damaged(const char* path) {
    size_t bytes, cut;
    char* data = (char*)read_file(path, &bytes);
    nrx_engine* engine = NULL;
    for (cut = 0; cut < bytes; cut += 1 + cut / 7) {
        REFUSED(NRX_FORMAT, "the engine in memory", nrx_engine_open_memory(data, cut, NULL, &engine));
        CHECK(engine == NULL);
    }
    for (cut = 0; cut < bytes; cut += 1 + bytes / 50) {
        data[cut] ^= 1;
        CHECK(nrx_engine_open_memory(data, bytes, NULL, &engine) == NRX_FORMAT && engine == NULL);
        data[cut] ^= 1;
    }
    OK(nrx_engine_open_memory(data, bytes, NULL, &engine));
    memset(data, 0, bytes);
    free(data);
    OK(nrx_context_destroy(context_of(engine)));
    OK(nrx_engine_close(engine));
}

static nrx_engine* shared;
static toy right[16][16];

static void fill_toy(toy* call, unsigned seed) {
    size_t at;
    for (at = 0; at < sizeof call->x / sizeof call->x[0]; ++at) call->x[at] = (float)((at * 7 + seed * 13) % 31) / 8;
}

static void* worker(void* number) {
    const unsigned mine = *(unsigned*)number;
    toy call;
    nrx_context* context = context_of(shared);
    int round;
    fill_toy(&call, mine);
    for (round = 0; round < 200; ++round) {
        const int64_t rows = 1 + (round + (int)mine) % 16;
        memset(call.y, 0, sizeof call.y);
        bind_toy(context, &call, rows);
        OK(nrx_context_run(context));
        CHECK(memcmp(call.y, right[mine][rows - 1].y, (size_t)rows * 16) == 0);
    }
    OK(nrx_context_destroy(context));
    return NULL;
}

/* 16 threads, each with a context, at changing sizes, give the bits of one thread at those sizes. */
static void threads(nrx_engine* engine) {
    pthread_t started[16];
    unsigned numbers[16], at;
    nrx_context* context = context_of(engine);
    shared = engine;
    for (at = 0; at < 16; ++at) {
        int64_t rows;
        for (rows = 1; rows <= 16; ++rows) {
            toy* call = &right[at][rows - 1];
            fill_toy(call, at);
            bind_toy(context, call, rows);
            OK(nrx_context_run(context));
        }
    }
    for (at = 0; at < 16; ++at) {
        numbers[at] = at;
        CHECK(pthread_create(&started[at], NULL, worker, &numbers[at]) == 0);
    }
    for (at = 0; at < 16; ++at) CHECK(pthread_join(started[at], NULL) == 0);
    OK(nrx_context_destroy(context));
}

static long resident(void) {
    long pages = 0, found = 0;
    FILE* file = fopen("/proc/self/statm", "r");
    CHECK(file != NULL && fscanf(file, "%ld %ld", &pages, &found) == 2);
    fclose(file);
    return found * (sysconf(_SC_PAGESIZE) / 1024);
}

/* Engines, contexts, runs and failures do not add up: at most 2 MB over 300 rounds, after as many to begin with. */
static void leaks(const char* path) {
    long before = 0;
    int round;
    toy call;
    for (round = 0; round < 600; ++round) {
        nrx_engine* engine = open_file(path);
        nrx_context* context = context_of(engine);
        nrx_engine* none;
        bind_toy(context, &call, 1 + round % 16);
        OK(nrx_context_run(context));
        CHECK(nrx_engine_open("/nowhere", NULL, &none) == NRX_IO);
        CHECK(nrx_context_set_output(context, 3, NULL, 0, NRX_HOST) == NRX_INVALID_ARGUMENT);
        OK(nrx_context_destroy(context));
        OK(nrx_engine_close(engine));
        if (round == 300) before = resident();
    }
    printf("%ld kB, then %ld kB\n", before, resident());
    CHECK(resident() - before < 2048);
}

typedef struct {
    nrx_context* context;
    nrx_status status;
} long_run;

static void* running(void* given) {
    long_run* call = (long_run*)given;
    call->status = nrx_context_run(call->context);
    return NULL;
}

static double seconds(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

/* An engine that takes long, ended from here; a context in use is refused meanwhile, and runs again. */
static void cancel(nrx_engine* engine) {
    const int64_t dims[2] = {256, 1024};
    const size_t bytes = sizeof(float) * 256 * 1024;
    const struct timespec moment = {0, 20000000};
    long_run call = {context_of(engine), NRX_OK};
    pthread_t started;
    double begun, whole, ended;
    OK(nrx_context_set_input(call.context, 0, NRX_FLOAT32, dims, 2, room(bytes), bytes, NRX_HOST));
    OK(nrx_context_run(call.context));
    begun = seconds();
    OK(nrx_context_run(call.context));
    whole = seconds() - begun;
    begun = seconds();
    CHECK(pthread_create(&started, NULL, running, &call) == 0);
    nanosleep(&moment, NULL);
    REFUSED(NRX_INVALID_ARGUMENT, "in use by another thread", nrx_context_run(call.context));
    OK(nrx_context_cancel(call.context));
    CHECK(pthread_join(started, NULL) == 0);
    ended = seconds() - begun;
    printf("%.3f s, cancelled after %.3f s\n", whole, ended);
    CHECK(call.status == NRX_CANCELLED && ended < 0.8 * whole);
    OK(nrx_context_run(call.context));
    /* Destroyed while it runs: the run ends first. */
    CHECK(pthread_create(&started, NULL, running, &call) == 0);
    nanosleep(&moment, NULL);
    OK(nrx_context_destroy(call.context));
    CHECK(pthread_join(started, NULL) == 0 && call.status == NRX_CANCELLED);
}

static int told = 0;

static void take(void* user, nrx_log_level level, const char* text) {
    CHECK(user == &told && level == NRX_LOG_WARNING && strstr(text, "outside of every profile") != NULL);
    ++told;
}

/* Sizes beyond the profiles run, and are told of once. */
static void outside(nrx_engine* engine) {
    static float x[40 * 16];
    const int64_t dims[2] = {40, 16};
    nrx_context* context = context_of(engine);
    nrx_context_info info = NRX_CONTEXT_INFO_INIT;
    OK(nrx_set_log(take, &told));
    OK(nrx_context_set_input(context, 0, NRX_FLOAT32, dims, 2, x, sizeof x, NRX_HOST));
    OK(nrx_context_run(context));
    OK(nrx_context_run(context));
    OK(nrx_context_get_info(context, &info));
    CHECK(told == 1 && info.inside == 0 && info.profile == 0);
    OK(nrx_set_log(NULL, NULL));
    OK(nrx_context_destroy(context));
}

/* Prints every name and number of the header that the library knows. */
static void names(void) {
    int32_t number;
    CHECK(nrx_abi_version() == NRX_ABI_VERSION);
    printf("%s\n", nrx_version());
    for (number = NRX_FLOAT32; number <= NRX_UINT2; ++number) {
        printf("%d %s %d\n", (int)number, nrx_dtype_name(number), (int)nrx_dtype_size(number));
    }
    for (number = NRX_OK; number <= NRX_INTERNAL; ++number) printf("%s ", nrx_status_name(number));
    printf("\n");
}

int main(int count, char** arguments) {
    const char* command = count > 1 ? arguments[1] : "";
    const char* path = count > 2 ? arguments[2] : "";
    if (strcmp(command, "names") == 0) {
        names();
    } else if (strcmp(command, "damaged") == 0) {
        damaged(path);
    } else if (strcmp(command, "leaks") == 0) {
        leaks(path);
    } else {
        nrx_engine* engine = open_file(path);
        if (strcmp(command, "run") == 0) run(engine, count - 3, arguments + 3);
        if (strcmp(command, "describe") == 0) describe(engine);
        if (strcmp(command, "threads") == 0) threads(engine);
        if (strcmp(command, "cancel") == 0) cancel(engine);
        if (strcmp(command, "outside") == 0) outside(engine);
        if (strcmp(command, "misuse") == 0) {
            misuse(engine, path);
        } else {
            OK(nrx_engine_close(engine));
        }
    }
    return failures > 0 ? 1 : 0;
}
