#include "tensorrt/flavours.h"

#include "neurenix/src/providers/tensorrt/bridge.rs.h"

// build.rs lists the flavours that it compiles: NEURENIX_FLAVOURS is FLAVOUR(enterprise_11_4) FLAVOUR(rtx_1_7) ...
#ifndef NEURENIX_FLAVOURS
#define NEURENIX_FLAVOURS
#endif

namespace neurenix::tensorrt {

#define FLAVOUR(name)  \
    namespace name {   \
    Flavour flavour(); \
    }
NEURENIX_FLAVOURS
#undef FLAVOUR

std::vector<Flavour> flavours() {
#define FLAVOUR(name) name::flavour(),
    return {NEURENIX_FLAVOURS};
#undef FLAVOUR
}

}  // namespace neurenix::tensorrt
