#include "cpu/version.h"

#include <string>

#include "dnnl.hpp"

namespace neurenix::cpu {

rust::String onednn_version() {
    const dnnl_version_t* version = dnnl::version();
    return std::to_string(version->major) + "." + std::to_string(version->minor) + "." + std::to_string(version->patch);
}

}  // namespace neurenix::cpu
