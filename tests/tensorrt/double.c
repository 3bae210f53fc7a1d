/* A double of NVIDIA's library, which has a version and no objects. */
#include <stdint.h>
#include <stdlib.h>

int32_t getInferLibVersion(void) { return VERSION; }

/* Whoever asks for an object of a library of another shape has crashed already. */
void* createInferBuilder_INTERNAL(void* logger, int32_t version) {
    (void)logger;
    (void)version;
    if (getenv("NEURENIX_TEST_DOUBLE_GIVES_NULL") == NULL) abort();
    return NULL;
}
