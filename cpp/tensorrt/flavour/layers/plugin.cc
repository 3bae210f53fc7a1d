#include "tensorrt/flavour/plugin.h"

#include <stdexcept>

#include "tensorrt/flavour/layers.h"

#if NEURENIX_PLUGINS
// The plugins of this process: src/providers/tensorrt/hosted.rs.
extern "C" const neurenix_plugin_table* neurenix_hosted_plugins();
#endif

namespace neurenix::tensorrt::NEURENIX_FLAVOUR {

#if NEURENIX_PLUGINS
bool register_hosted_plugins(nvinfer1::IPluginRegistry& registry) {
    return register_plugins(registry, *neurenix_hosted_plugins());
}
#endif

nvinfer1::ILayer* add_plugin([[maybe_unused]] nvinfer1::INetworkDefinition& network,
                             [[maybe_unused]] const Call& call) {
#if NEURENIX_PLUGINS
    std::vector<nvinfer1::ITensor*> inputs;
    for (std::size_t at = 0; at < call.inputs(); ++at) inputs.push_back(&call.tensor(at));
    register_hosted_plugins(network.getBuilder().getPluginRegistry());
    // The network takes a clone.
    const auto plugin = Plugin::copy(*neurenix_hosted_plugins(), reinterpret_cast<void*>(call.number("plugin")));
    return network.addPluginV3(inputs.data(), static_cast<std::int32_t>(inputs.size()), nullptr, 0, *plugin);
#else
    throw std::invalid_argument("this version of TensorRT takes no plugins");
#endif
}

}  // namespace neurenix::tensorrt::NEURENIX_FLAVOUR
