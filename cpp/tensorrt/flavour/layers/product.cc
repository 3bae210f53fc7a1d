#include "tensorrt/flavour/layers.h"

namespace neurenix::tensorrt::NEURENIX_FLAVOUR {

using namespace nvinfer1;

ILayer* add_matrix_multiply(INetworkDefinition& network, const Call& call) {
    return network.addMatrixMultiply(call.tensor(0), call.value<MatrixOperation>("left"), call.tensor(1),
                                     call.value<MatrixOperation>("right"));
}

}  // namespace neurenix::tensorrt::NEURENIX_FLAVOUR
