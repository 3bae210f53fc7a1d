// A stand-in for libnvrtc.so.13: it compiles nothing, but finds the kernels of a source and their parameters. Sources
// are kept in the folder RECORDED_SOURCES, if it is set, for who has the compiler.

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "recorded.h"

enum { OUT_OF_MEMORY = 1, INVALID_INPUT = 3, INVALID_PROGRAM = 4, INVALID_OPTION = 5, COMPILATION = 6 };

struct Program {
    struct Handle handle;
    char* source;
    char code[8192], log[256];
};

API int nvrtcVersion(int* major, int* minor) {
    *major = 13;
    *minor = 0;
    return 0;
}

API int nvrtcCreateProgram(struct Program** program, const char* source, const char* name, int headers,
                           const char* const* texts, const char* const* names) {
    ENTER(SURVIVES);
    if (!source || !name || headers || texts || names) return INVALID_INPUT;
    *program = recorded_make("program", sizeof **program);
    (*program)->source = strdup(source);
    return 0;
}

API int nvrtcDestroyProgram(struct Program** program) {
    ENTER(SURVIVES);
    if (!recorded_is(*program, "program", __func__)) return INVALID_PROGRAM;
    free((*program)->source);
    recorded_destroy(*program);
    *program = NULL;
    return 0;
}

static void keep(const char* source, const char* options) {
    static int number;
    const char* folder = getenv("RECORDED_SOURCES");
    if (!folder) return;
    char path[1024];
    snprintf(path, sizeof path, "%s/%d-%d.cu", folder, (int)getpid(), number++);
    FILE* file = fopen(path, "w");
    if (!file) return;
    fprintf(file, "//%s\n%s", options, source);
    fclose(file);
}

static const char* blanks(const char* text) {
    while (isspace((unsigned char)*text)) text++;
    return text;
}

// Behind the bracket that closes the one at `text`.
static const char* closed(const char* text) {
    int open = 0;
    do {
        open += (*text == '(') - (*text == ')');
        text++;
    } while (open && *text);
    return text;
}

// Whether `extern "C"` stands before a place.
static bool is_entry(const char* source, const char* place) {
    while (place > source && isspace((unsigned char)place[-1])) place--;
    const char* word = "extern \"C\"";
    const long length = (long)strlen(word);
    return place - source >= length && strncmp(place - length, word, length) == 0;
}

static bool is_word(const char* text, const char* word) { return strncmp(text, word, strlen(word)) == 0; }

// Writes the name of the kernel whose declaration goes on at `text`, and a letter for each parameter.
static const char* describe(const char* text, char* name, char* parameters) {
    text = blanks(text);
    while (is_word(text, "void") || is_word(text, "__launch_bounds__") || is_word(text, "__cluster_dims__"))
        text = blanks(*text == 'v' ? text + 4 : closed(strchr(text, '(')));
    int length = 0;
    while ((isalnum((unsigned char)*text) || *text == '_') && length < 63) name[length++] = *text++;
    name[length] = 0;
    const char *open = strchr(text, '('), *end = open ? closed(open) : text;
    int count = 0, inside = 0;
    bool pointer = false, any = false, record = false;
    for (text = open ? open + 1 : end; text < end; text++) {
        // What stands between angle brackets are arguments of a template.
        inside += (*text == '<') - (*text == '>');
        if ((*text == ',' && !inside) || text == end - 1) {
            if (any && count < 62) parameters[count++] = pointer ? 'p' : record ? 's' : 'v';
            pointer = any = record = false;
        }
        pointer |= *text == '*';
        // Structs, which may hold addresses, have names with a capital.
        record |= isupper((unsigned char)*text) != 0;
        any |= isalnum((unsigned char)*text) != 0;
    }
    if (count == 0) parameters[count++] = '-';
    parameters[count] = 0;
    return end;
}

API int nvrtcCompileProgram(struct Program* program, int count, const char* const* options) {
    ENTER(SURVIVES);
    if (!recorded_is(program, "program", __func__)) return INVALID_PROGRAM;
    char all[1024] = "";
    const char* architecture = NULL;
    for (int i = 0; i < count; i++) {
        const char* prefix = "--gpu-architecture=";
        if (strncmp(options[i], prefix, strlen(prefix)) == 0) architecture = options[i] + strlen(prefix);
        if (strlen(all) + strlen(options[i]) + 2 > sizeof all) return INVALID_OPTION;
        strcat(strcat(all, " "), options[i]);
    }
    if (!architecture) return INVALID_OPTION;
    if (strstr(program->source, "#include")) {
        snprintf(program->log, sizeof program->log, "a source includes a file, and there is none");
        return COMPILATION;
    }
    keep(program->source, all);
    int used = snprintf(program->code, sizeof program->code, "RECORDED %s\n", architecture);
    const char *word = "__global__", *place = program->source;
    while ((place = strstr(place, word))) {
        const char* behind = place + strlen(word);
        char name[64], parameters[64];
        if (is_entry(program->source, place)) {
            behind = describe(behind, name, parameters);
            used += snprintf(program->code + used, sizeof program->code - used, "%s %s\n", name, parameters);
            if (used >= (int)sizeof program->code) return OUT_OF_MEMORY;
        }
        place = behind;
    }
    return 0;
}

static int text_of(struct Program* program, const char* text, size_t* size, char* copy, const char* function) {
    if (!recorded_is(program, "program", function)) return INVALID_PROGRAM;
    if (size) *size = strlen(text) + 1;
    if (copy) strcpy(copy, text);
    return 0;
}

API int nvrtcGetProgramLogSize(struct Program* program, size_t* size) {
    ENTER(SURVIVES);
    return text_of(program, program->log, size, NULL, __func__);
}

API int nvrtcGetProgramLog(struct Program* program, char* log) {
    ENTER(SURVIVES);
    return text_of(program, program->log, NULL, log, __func__);
}

API int nvrtcGetCUBINSize(struct Program* program, size_t* size) {
    ENTER(SURVIVES);
    return text_of(program, program->code, size, NULL, __func__);
}

API int nvrtcGetCUBIN(struct Program* program, char* code) {
    ENTER(SURVIVES);
    return text_of(program, program->code, NULL, code, __func__);
}
