// Element types of the two sides.
#ifndef NEURENIX_TRITON_DTYPES_H_
#define NEURENIX_TRITON_DTYPES_H_

#include <optional>
#include <string>

#include "neurenix/neurenix.h"
#include "triton/core/tritonserver.h"

namespace neurenix::triton {

struct DType {
    nrx_dtype ours;
    TRITONSERVER_DataType theirs;
    // As configurations have it.
    const char* name;
};

inline constexpr DType kDTypes[] = {
    {NRX_BOOL, TRITONSERVER_TYPE_BOOL, "TYPE_BOOL"},       {NRX_UINT8, TRITONSERVER_TYPE_UINT8, "TYPE_UINT8"},
    {NRX_UINT16, TRITONSERVER_TYPE_UINT16, "TYPE_UINT16"}, {NRX_UINT32, TRITONSERVER_TYPE_UINT32, "TYPE_UINT32"},
    {NRX_UINT64, TRITONSERVER_TYPE_UINT64, "TYPE_UINT64"}, {NRX_INT8, TRITONSERVER_TYPE_INT8, "TYPE_INT8"},
    {NRX_INT16, TRITONSERVER_TYPE_INT16, "TYPE_INT16"},    {NRX_INT32, TRITONSERVER_TYPE_INT32, "TYPE_INT32"},
    {NRX_INT64, TRITONSERVER_TYPE_INT64, "TYPE_INT64"},    {NRX_FLOAT16, TRITONSERVER_TYPE_FP16, "TYPE_FP16"},
    {NRX_FLOAT32, TRITONSERVER_TYPE_FP32, "TYPE_FP32"},    {NRX_FLOAT64, TRITONSERVER_TYPE_FP64, "TYPE_FP64"},
    {NRX_BFLOAT16, TRITONSERVER_TYPE_BF16, "TYPE_BF16"},
};

inline std::optional<DType> dtype_of(nrx_dtype ours) {
    for (const DType& dtype : kDTypes) {
        if (dtype.ours == ours) return dtype;
    }
    return std::nullopt;
}

}  // namespace neurenix::triton

#endif  // NEURENIX_TRITON_DTYPES_H_
