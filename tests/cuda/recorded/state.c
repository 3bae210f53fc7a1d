// The state of the recorded device: counts, faults, handles, memory, and what was written down.

#include "state.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "recorded.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static __thread int locked;

static void lock(void) {
    if (locked++ == 0) pthread_mutex_lock(&mutex);
}

static void unlock(void) {
    if (--locked == 0) pthread_mutex_unlock(&mutex);
}

// Named numbers.

struct Number {
    char name[64];
    long value;
};
struct Numbers {
    struct Number all[512];
    int count;
};

static struct Numbers counts;
static struct Numbers properties = {
    .all = {{"devices", 1}, {"capability", 90}, {"total_memory", 143771L << 20}, {"elapsed_us", 160}},
    .count = 4,
};

static long* number(struct Numbers* numbers, const char* name) {
    for (int i = 0; i < numbers->count; i++) {
        if (strcmp(numbers->all[i].name, name) == 0) return &numbers->all[i].value;
    }
    if (numbers->count == 512) abort();
    struct Number* made = &numbers->all[numbers->count++];
    snprintf(made->name, sizeof made->name, "%s", name);
    return &made->value;
}

long recorded_count(const char* name) {
    lock();
    const long value = *number(&counts, name);
    unlock();
    return value;
}

void recorded_add(const char* name, long amount) { *number(&counts, name) += amount; }

long recorded_property(const char* name) { return *number(&properties, name); }

void recorded_set(const char* name, long value) {
    lock();
    *number(&properties, name) = value;
    unlock();
}

// Texts.

struct Text {
    char* text;
    size_t length, room;
};
static struct Text misuse, launches;

static struct Text* text_of(const char* heading) { return strcmp(heading, "misuse") == 0 ? &misuse : &launches; }

void recorded_write(const char* heading, const char* format, ...) {
    char line[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof line - 1, format, arguments);
    va_end(arguments);
    strcat(line, "\n");
    struct Text* text = text_of(heading);
    const size_t length = strlen(line), most = 1 << 22;
    if (text->length + length > most) return;
    if (text->length + length + 1 > text->room) {
        text->room = 2 * (text->length + length) + 1;
        text->text = realloc(text->text, text->room);
    }
    memcpy(text->text + text->length, line, length + 1);
    text->length += length;
}

const char* recorded_text(const char* heading) {
    const struct Text* text = text_of(heading);
    return text->length ? text->text : "";
}

void recorded_forget(const char* heading) {
    lock();
    text_of(heading)->length = 0;
    unlock();
}

// Faults.

struct Fault {
    char function[64];
    long after;
    int status;
};
static struct Fault faults[32];
static int fault_count;
static int lost_by;

static bool is_lasting(int status) {
    // Illegal address, launch timeout, hardware stack error to misaligned address, unspecified launch failure.
    return status == 700 || status == 702 || (status >= 714 && status <= 719);
}

void recorded_fail(const char* function, long after, int status) {
    lock();
    for (int i = 0; i < 32; i++) {
        if (strcmp(faults[i].function, function) == 0) faults[i].status = 0;
    }
    struct Fault* fault = &faults[fault_count++ % 32];
    snprintf(fault->function, sizeof fault->function, "%s", function);
    fault->after = after;
    fault->status = status;
    unlock();
}

static int fault_of(const char* function) {
    for (int i = 0; i < 32; i++) {
        struct Fault* fault = &faults[i];
        if (fault->status == 0 || strcmp(fault->function, function) != 0 || fault->after-- > 0) continue;
        const int status = fault->status;
        fault->status = 0;
        return status;
    }
    return 0;
}

int recorded_enter(const char* function, int flags, int lost) {
    lock();
    recorded_add(function, 1);
    recorded_add("calls", 1);
    const int fault = fault_of(function);
    if (is_lasting(fault)) lost_by = fault;
    if (lost_by && !(flags & SURVIVES)) return lost ? lost : lost_by;
    if (fault) return fault;
    if ((flags & NEEDS_CONTEXT) && !state_has_context()) {
        MISUSE("%s without a current context", function);
        return 201;
    }
    if ((flags & UNSAFE_IN_CAPTURE) && state_refuse_capture()) {
        MISUSE("%s while the thread captures", function);
        return 900;
    }
    return 0;
}

void recorded_leave(const int* entered) {
    (void)entered;
    unlock();
}

// Handles.

static char* gauge(const char* kind) {
    static __thread char name[64];
    snprintf(name, sizeof name, "live %s", kind);
    return name;
}

void* recorded_make(const char* kind, size_t bytes) {
    struct Handle* handle = calloc(1, bytes);
    handle->kind = kind;
    handle->alive = true;
    recorded_add(gauge(kind), 1);
    return handle;
}

bool recorded_is(const void* handle, const char* kind, const char* function) {
    const struct Handle* found = handle;
    if (found && strcmp(found->kind, kind) == 0 && found->alive) return true;
    MISUSE("%s is given %s %s where it wants a %s", function, !found || found->alive ? "a" : "a dead",
           found ? found->kind : "null", kind);
    return false;
}

void recorded_destroy(void* handle) {
    struct Handle* found = handle;
    found->alive = false;
    recorded_add(gauge(found->kind), -1);
}

// Memory. The GPU's addresses lie in a range that nobody may touch, so that who follows one on the processor crashes as
// on a real machine. None is given twice, so that each use of freed memory is seen; but where the property
// `reuses_addresses` is set, what was allocated last gives its address back, as drivers do.

struct Allocation {
    uint64_t address, bytes;
    char* backing;
    // Which one it is of all that there ever were.
    long number;
};
struct Allocations {
    struct Allocation* all;
    int count, room;
};
// Ascending by address.
static struct Allocations device, host;
static uint64_t next_address, last_address;
static long allocated;

static void insert(struct Allocations* list, struct Allocation made) {
    if (list->count == list->room) {
        list->room = 2 * list->room + 64;
        list->all = realloc(list->all, list->room * sizeof made);
    }
    int at = list->count++;
    for (; at > 0 && list->all[at - 1].address > made.address; at--) list->all[at] = list->all[at - 1];
    made.number = ++allocated;
    list->all[at] = made;
}

// The allocation that an address is in; the address behind its last byte counts as inside.
static struct Allocation* around(const struct Allocations* list, uint64_t address) {
    int low = 0, high = list->count;
    while (low < high) {
        const int middle = (low + high) / 2;
        if (list->all[middle].address <= address)
            low = middle + 1;
        else
            high = middle;
    }
    struct Allocation* found = low ? &list->all[low - 1] : NULL;
    return found && address <= found->address + found->bytes ? found : NULL;
}

static void take_out(struct Allocations* list, struct Allocation* gone) {
    free(gone->backing);
    list->count--;
    memmove(gone, gone + 1, (list->all + list->count - gone) * sizeof *gone);
}

static uint64_t free_bytes(void) {
    const long left = recorded_property("total_memory") - *number(&counts, "live_bytes");
    return left > 0 ? left : 0;
}

void state_memory(size_t* unused, size_t* total) {
    *unused = free_bytes();
    *total = recorded_property("total_memory");
}

static void count_bytes(long bytes) {
    recorded_add("live_bytes", bytes);
    recorded_add("allocations", bytes > 0 ? 1 : -1);
    long* peak = number(&counts, "peak_bytes");
    const long live = *number(&counts, "live_bytes");
    if (live > *peak) *peak = live;
}

enum { ALIGNMENT = 512 };

// From one allocation to the next, with a gap between them.
static uint64_t step_of(size_t bytes) { return (bytes / ALIGNMENT + 2) * ALIGNMENT; }

int state_allocate(uint64_t* address, size_t bytes) {
    const uint64_t space = 1ull << 40;
    if (!next_address) {
        void* range = mmap(NULL, space, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (range == MAP_FAILED) return 2;
        next_address = ((uint64_t)range + ALIGNMENT) / ALIGNMENT * ALIGNMENT;
        last_address = (uint64_t)range + space;
    }
    const uint64_t step = step_of(bytes);
    if (bytes > free_bytes() || step > last_address - next_address) return 2;
    char* backing = calloc(1, bytes);
    if (!backing) return 2;
    *address = next_address;
    next_address += step;
    insert(&device, (struct Allocation){.address = *address, .bytes = bytes, .backing = backing});
    count_bytes(bytes);
    return 0;
}

int state_free(uint64_t address) {
    struct Allocation* found = around(&device, address);
    if (!found || found->address != address) {
        MISUSE("cuMemFree of %#lx, which is no live allocation", address);
        return 1;
    }
    count_bytes(-(long)found->bytes);
    const bool is_last = address + step_of(found->bytes) == next_address;
    if (is_last && recorded_property("reuses_addresses")) next_address = address;
    take_out(&device, found);
    return 0;
}

int state_allocate_host(void** address, size_t bytes) {
    const size_t page = 4096;
    char* made = aligned_alloc(page, (bytes + page - 1) / page * page);
    if (!made) return 2;
    memset(made, 0, bytes);
    insert(&host, (struct Allocation){.address = (uint64_t)made, .bytes = bytes, .backing = made});
    recorded_add("host_allocations", 1);
    *address = made;
    return 0;
}

int state_free_host(void* address) {
    struct Allocation* found = around(&host, (uint64_t)address);
    if (!found || found->address != (uint64_t)address) {
        MISUSE("cuMemFreeHost of %p, which is no live allocation", address);
        return 1;
    }
    take_out(&host, found);
    recorded_add("host_allocations", -1);
    return 0;
}

bool recorded_reaches(uint64_t address, uint64_t bytes) {
    const struct Allocation* found = around(&device, address);
    if (!found) found = around(&host, address);
    return found && bytes <= found->address + found->bytes - address;
}

long state_allocation(uint64_t address) {
    const struct Allocation* found = around(&device, address);
    if (!found) found = around(&host, address);
    return found ? found->number : 0;
}

char* recorded_backing(uint64_t address, uint64_t bytes) {
    const struct Allocation* found = around(&device, address);
    const bool inside = found && bytes <= found->address + found->bytes - address;
    return inside ? found->backing + (address - found->address) : NULL;
}

bool state_is_device(uint64_t address) { return address >= last_address - (1ull << 40) && address < last_address; }

// What the environment says before anybody can call.
__attribute__((constructor)) static void read_environment(void) {
    char name[64];
    long value;
    int status, used;
    for (const char* rest = getenv("RECORDED_SET"); rest && sscanf(rest, "%63[^=]=%ld%n", name, &value, &used) == 2;) {
        recorded_set(name, value);
        rest += used;
        if (*rest++ != ',') break;
    }
    for (const char* rest = getenv("RECORDED_FAIL");
         rest && sscanf(rest, "%63[^:]:%ld:%d%n", name, &value, &status, &used) == 3;) {
        recorded_fail(name, value, status);
        rest += used;
        if (*rest++ != ',') break;
    }
}
