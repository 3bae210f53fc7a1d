// Streams, captured graphs, events and copies of the recorded device. Work is done when it is put into a stream; that
// somebody waits for it is watched all the same.

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "recorded.h"
#include "state.h"

struct Node {
    char what[64];
    // CU_GRAPH_NODE_TYPE_*: a kernel, a copy, a fill.
    enum { KERNEL, COPY, FILL } kind;
    struct Range* ranges;
    int count;
    // Of a copy.
    Address to, from;
    size_t bytes;
    // The allocations that it names.
    long target, source;
    // Of what a function does.
    void (*task)(void*);
    void* data;
};
struct Graph {
    struct Handle handle;
    struct Node* nodes;
    int count, room;
};
struct Stream {
    struct Handle handle;
    struct Graph* capture;
    // The thread that captures, and what that forbids.
    const void* owner;
    unsigned mode;
    bool invalid, unfinished;
    // How often work was put in.
    long works;
    // The stream whose capture it has joined, itself where that began on it; and the next one that joined.
    struct Stream *origin, *joined;
    // How often work was captured on it, and whether another stream has waited for the last of it.
    long nodes;
    bool awaited;
};
struct Instance {
    struct Handle handle;
    struct Graph* graph;
};
struct Event {
    struct Handle handle;
    struct Stream* stream;
    long works, nodes;
    bool captured, reached;
};

static struct Stream default_stream = {.handle = {"stream", true}};
// The one that was destroyed last. Where the property `reuses_streams` is set, another one has its handle then, as
// drivers give it again.
static struct Stream* gone;
static __thread struct Stream* captures;
static __thread char self;
// What the thread may do while it captures: 2 is anything.
static __thread int capture_mode;

// The stream that a caller names: null, 1 and 2 are default ones. Null if it is none.
static struct Stream* stream_of(void* stream, const char* function) {
    if ((uint64_t)stream <= 2) return &default_stream;
    return recorded_is(stream, "stream", function) ? stream : NULL;
}

// Where a capture of the calling thread is open, the driver refuses what might wait, and voids the capture. A thread
// may take leave to do so, which is for the captures of callers: those of the library hold nothing of the kind.
bool state_refuse_capture(void) {
    if (!captures || (capture_mode == 2 && captures->mode == 0)) return false;
    captures->invalid = true;
    return true;
}

static void finish(struct Stream* stream) {
    if (stream->unfinished) recorded_add("unfinished", -1);
    stream->unfinished = false;
}

static void begin(struct Stream* stream) {
    if (!stream->unfinished) recorded_add("unfinished", 1);
    stream->unfinished = true;
    stream->works++;
}

API int cuStreamCreate(void** stream, unsigned flags) {
    ENTER(NEEDS_CONTEXT);
    if (flags > 1) return INVALID_VALUE;
    struct Stream* made = gone;
    if (made && recorded_property("reuses_streams")) {
        *made = (struct Stream){.handle = {"stream", true}};
        recorded_add("live stream", 1);
        gone = NULL;
    } else {
        made = recorded_make("stream", sizeof *made);
    }
    *stream = made;
    return 0;
}

API int cuStreamDestroy_v2(void* stream) {
    ENTER(NEEDS_CONTEXT);
    if (!recorded_is(stream, "stream", __func__)) return INVALID_HANDLE;
    gone = stream;
    if (gone->capture) MISUSE("a stream is destroyed while it is captured");
    finish(gone);
    recorded_destroy(stream);
    return 0;
}

API int cuStreamSynchronize(void* stream) {
    ENTER(NEEDS_CONTEXT);
    struct Stream* waited = stream_of(stream, __func__);
    if (!waited) return INVALID_HANDLE;
    if (waited->capture) {
        MISUSE("cuStreamSynchronize of a stream that is captured");
        waited->invalid = true;
        return CAPTURE_UNSUPPORTED;
    }
    finish(waited);
    return 0;
}

// Graphs.

static struct Node* add_node(struct Graph* graph, const struct Node* like) {
    if (graph->count == graph->room) {
        graph->room = 2 * graph->room + 16;
        graph->nodes = realloc(graph->nodes, graph->room * sizeof *graph->nodes);
    }
    struct Node* node = &graph->nodes[graph->count++];
    *node = *like;
    node->ranges = malloc((like->count + 1) * sizeof *like->ranges);
    if (like->count) memcpy(node->ranges, like->ranges, like->count * sizeof *like->ranges);
    return node;
}

static void add_nodes(struct Graph* to, const struct Graph* from) {
    for (int i = 0; i < from->count; i++) add_node(to, &from->nodes[i]);
}

static void empty_graph(struct Graph* graph) {
    for (int i = 0; i < graph->count; i++) free(graph->nodes[i].ranges);
    free(graph->nodes);
    graph->nodes = NULL;
    graph->count = graph->room = 0;
}

API int cuStreamBeginCapture_v2(void* stream, unsigned mode) {
    ENTER(NEEDS_CONTEXT);
    struct Stream* captured = stream_of(stream, __func__);
    if (!captured) return INVALID_HANDLE;
    if (mode > 2 || captures) return INVALID_VALUE;
    if (captured->capture) return ILLEGAL_STATE;
    if (captured == &default_stream) return CAPTURE_UNSUPPORTED;
    captured->capture = recorded_make("graph", sizeof(struct Graph));
    captured->owner = &self;
    captured->invalid = false;
    captured->mode = mode;
    captured->origin = captured;
    captured->joined = NULL;
    captures = captured;
    return 0;
}

API int cuThreadExchangeStreamCaptureMode(int* mode) {
    ENTER(0);
    const int before = capture_mode;
    if (*mode < 0 || *mode > 2) return INVALID_VALUE;
    capture_mode = *mode;
    *mode = before;
    return 0;
}

API int cuStreamEndCapture(void* stream, void** graph) {
    ENTER(NEEDS_CONTEXT);
    struct Stream* captured = stream_of(stream, __func__);
    *graph = NULL;
    if (!captured) return INVALID_HANDLE;
    if (!captured->capture) return ILLEGAL_STATE;
    if (captured->origin != captured) return CAPTURE_UNMATCHED;
    if (captured->owner != &self) {
        MISUSE("a capture is ended by another thread");
        return CAPTURE_WRONG_THREAD;
    }
    captures = NULL;
    bool unjoined = false;
    for (struct Stream* member = captured->joined; member; member = member->joined) {
        member->capture = NULL;
        if (!member->awaited) {
            MISUSE("a capture ends before work on a stream that joined it");
            unjoined = true;
        }
    }
    struct Graph* made = captured->capture;
    captured->capture = NULL;
    if (captured->invalid || unjoined) {
        empty_graph(made);
        recorded_destroy(made);
        return unjoined ? CAPTURE_UNJOINED : CAPTURE_INVALIDATED;
    }
    *graph = made;
    return 0;
}

API int cuStreamIsCapturing(void* stream, int* status) {
    ENTER(NEEDS_CONTEXT);
    const struct Stream* asked = stream_of(stream, __func__);
    if (!asked) return INVALID_HANDLE;
    *status = !asked->capture ? 0 : asked->invalid ? 2 : 1;
    return 0;
}

// The nodes of a graph, or their number alone.
API int cuGraphGetNodes(void* graph, void** nodes, size_t* count) {
    ENTER(NEEDS_CONTEXT);
    if (!recorded_is(graph, "graph", __func__)) return INVALID_HANDLE;
    struct Graph* asked = graph;
    if (nodes && *count < (size_t)asked->count) return INVALID_VALUE;
    for (int i = 0; nodes && i < asked->count; i++) nodes[i] = &asked->nodes[i];
    *count = asked->count;
    return 0;
}

API int cuGraphNodeGetType(void* node, int* type) {
    ENTER(NEEDS_CONTEXT);
    *type = ((const struct Node*)node)->kind;
    return 0;
}

API int cuGraphInstantiateWithFlags(void** instance, void* graph, unsigned long long flags) {
    ENTER(NEEDS_CONTEXT);
    if (!recorded_is(graph, "graph", __func__)) return INVALID_HANDLE;
    if (flags) return INVALID_VALUE;
    struct Instance* made = recorded_make("instance", sizeof *made);
    made->graph = calloc(1, sizeof *made->graph);
    add_nodes(made->graph, graph);
    *instance = made;
    return 0;
}

API int cuGraphDestroy(void* graph) {
    ENTER(NEEDS_CONTEXT);
    if (!recorded_is(graph, "graph", __func__)) return INVALID_HANDLE;
    empty_graph(graph);
    recorded_destroy(graph);
    return 0;
}

API int cuGraphExecDestroy(void* instance) {
    ENTER(NEEDS_CONTEXT);
    if (!recorded_is(instance, "instance", __func__)) return INVALID_HANDLE;
    struct Graph* graph = ((struct Instance*)instance)->graph;
    empty_graph(graph);
    free(graph);
    recorded_destroy(instance);
    return 0;
}

// Work.

static void check_ranges(const char* what, const struct Range* ranges, int count) {
    for (int i = 0; i < count; i++) {
        if (!recorded_reaches(ranges[i].address, ranges[i].bytes))
            MISUSE("%s is given %lu bytes at %#lx (operand %d), which the GPU does not reach", what, ranges[i].bytes,
                   ranges[i].address, i);
    }
}

// Moves bytes, where each side is the GPU's memory or the processor's. False where a side is neither.
static bool move(Address to, Address from, size_t bytes) {
    char* target = state_is_device(to) ? recorded_backing(to, bytes) : (char*)to;
    const char* source = state_is_device(from) ? recorded_backing(from, bytes) : (const char*)from;
    if (!target || !source) {
        MISUSE("a copy of %zu bytes from %#lx to %#lx, which are not all allocated", bytes, from, to);
        return false;
    }
    memmove(target, source, bytes);
    return true;
}

// A captured copy is one of allocations, whatever lies at their addresses later.
static bool names_the_same(const struct Node* node) {
    if (!node->bytes) return true;
    if (state_allocation(node->to) == node->target && state_allocation(node->from) == node->source) return true;
    MISUSE("a graph copies %zu bytes between allocations that are gone", node->bytes);
    return false;
}

static bool run(const struct Node* node) {
    check_ranges(node->what, node->ranges, node->count);
    if (node->task) node->task(node->data);
    return !node->bytes || move(node->to, node->from, node->bytes);
}

// Nobody has waited for what was captured last.
static void captured(struct Stream* stream) {
    stream->nodes++;
    stream->awaited = false;
}

static bool put(void* stream, const struct Node* node) {
    struct Stream* used = stream_of(stream, node->what);
    if (!used) return false;
    if (used->capture) {
        check_ranges(node->what, node->ranges, node->count);
        add_node(used->capture, node);
        captured(used);
        return true;
    }
    begin(used);
    return run(node);
}

bool recorded_work(void* stream, const char* what, const struct Range* ranges, int count) {
    struct Node node = {.ranges = (struct Range*)ranges, .count = count};
    snprintf(node.what, sizeof node.what, "%s", what);
    return put(stream, &node);
}

bool recorded_task(void* stream, const char* what, void (*task)(void*), void* data) {
    struct Node node = {.task = task, .data = data};
    snprintf(node.what, sizeof node.what, "%s", what);
    const int entered = recorded_enter(__func__, NEEDS_CONTEXT, 0);
    const bool done = !entered && put(stream, &node);
    recorded_leave(&entered);
    return done;
}

API int cuMemcpyAsync(Address to, Address from, size_t bytes, void* stream) {
    ENTER(NEEDS_CONTEXT);
    const struct Node node = {.what = "a copy",
                              .kind = COPY,
                              .to = to,
                              .from = from,
                              .bytes = bytes,
                              .target = state_allocation(to),
                              .source = state_allocation(from)};
    return put(stream, &node) ? 0 : INVALID_VALUE;
}

API int cuMemsetD8Async(Address address, unsigned char byte, size_t bytes, void* stream) {
    ENTER(NEEDS_CONTEXT);
    struct Range range = {address, bytes};
    const struct Node node = {.what = "a fill", .kind = FILL, .ranges = &range, .count = 1};
    if (!put(stream, &node)) return INVALID_HANDLE;
    char* backing = recorded_backing(address, bytes);
    if (!backing) return INVALID_VALUE;
    // Large memory is filled to be timed, and nobody reads it here.
    if (bytes <= 1 << 20 && !stream_of(stream, __func__)->capture) memset(backing, byte, bytes);
    return 0;
}

API int cuGraphLaunch(void* instance, void* stream) {
    ENTER(NEEDS_CONTEXT);
    struct Stream* used = stream_of(stream, __func__);
    if (!used || !recorded_is(instance, "instance", __func__)) return INVALID_HANDLE;
    const struct Graph* graph = ((struct Instance*)instance)->graph;
    if (used->capture) {
        add_nodes(used->capture, graph);
        captured(used);
        return 0;
    }
    for (int i = 0; i < graph->count; i++) {
        if (!names_the_same(&graph->nodes[i])) return INVALID_VALUE;
    }
    begin(used);
    recorded_add("nodes", graph->count);
    for (int i = 0; i < graph->count; i++) run(&graph->nodes[i]);
    return 0;
}

// Events, whose times are the same at every run.

API int cuEventCreate(void** event, unsigned flags) {
    ENTER(NEEDS_CONTEXT);
    if (flags > 7) return INVALID_VALUE;
    *event = recorded_make("event", sizeof(struct Event));
    return 0;
}

API int cuEventDestroy_v2(void* event) {
    ENTER(NEEDS_CONTEXT);
    if (!recorded_is(event, "event", __func__)) return INVALID_HANDLE;
    recorded_destroy(event);
    return 0;
}

API int cuEventRecord(void* event, void* stream) {
    ENTER(NEEDS_CONTEXT);
    struct Stream* recorded = stream_of(stream, __func__);
    if (!recorded || !recorded_is(event, "event", __func__)) return INVALID_HANDLE;
    if (recorded == &default_stream) recorded_add("points in the default stream", 1);
    struct Event* set = event;
    set->stream = recorded;
    set->works = recorded->works;
    set->nodes = recorded->nodes;
    set->captured = recorded->capture != NULL;
    set->reached = false;
    return 0;
}

API int cuEventSynchronize(void* event) {
    ENTER(NEEDS_CONTEXT);
    if (!recorded_is(event, "event", __func__)) return INVALID_HANDLE;
    struct Event* waited = event;
    if (waited->captured) {
        MISUSE("cuEventSynchronize of an event that was captured");
        state_refuse_capture();
        return CAPTURE_UNSUPPORTED;
    }
    struct Stream* stream = waited->stream;
    if (stream && stream->handle.alive && stream->works == waited->works) finish(stream);
    waited->reached = true;
    return 0;
}

// A stream that waits for what is captured is captured too.
static void join(struct Stream* stream, struct Stream* origin) {
    stream->capture = origin->capture;
    stream->owner = origin->owner;
    stream->origin = origin;
    stream->joined = origin->joined;
    stream->awaited = false;
    origin->joined = stream;
}

API int cuStreamWaitEvent(void* stream, void* event, unsigned flags) {
    ENTER(NEEDS_CONTEXT);
    struct Stream* waits = stream_of(stream, __func__);
    if (!waits || !recorded_is(event, "event", __func__)) return INVALID_HANDLE;
    const struct Event* awaited = event;
    if (flags > 1) return INVALID_VALUE;
    struct Stream* other = awaited->stream;
    if (!other || (!awaited->captured && !waits->capture)) return 0;
    // A capture that waits for what is outside of it, or for another one; or an event of one that has ended.
    const bool apart = !awaited->captured || !other->capture || (waits->capture && waits->origin != other->origin);
    if (apart || waits == &default_stream) {
        MISUSE("cuStreamWaitEvent between a capture and what is outside of it");
        waits->invalid = true;
        return CAPTURE_ISOLATION;
    }
    if (!waits->capture) join(waits, other->origin);
    if (other->nodes == awaited->nodes) other->awaited = true;
    return 0;
}

API int cuEventElapsedTime(float* milliseconds, void* start, void* end) {
    ENTER(NEEDS_CONTEXT);
    if (!recorded_is(start, "event", __func__) || !recorded_is(end, "event", __func__)) return INVALID_HANDLE;
    const struct Event *first = start, *last = end;
    if (!first->stream || !last->stream) return INVALID_HANDLE;
    if (!last->reached) return NOT_READY;
    *milliseconds = (float)recorded_property("elapsed_us") / 1000;
    return 0;
}
