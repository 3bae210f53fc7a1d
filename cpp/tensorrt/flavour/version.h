#pragma once
// TensorRT's headers, and what tells their versions apart. NEURENIX_FLAVOUR is the name of the one that is compiled
// for.
#include <NvInfer.h>

#ifdef TRT_MAJOR_RTX
#define NEURENIX_RTX 1
// TensorRT-RTX has the interfaces of TensorRT 11 from 1.5 on, and those of TensorRT 10 before.
#define NEURENIX_SHAPE (NV_TENSORRT_VERSION >= 10500 ? 11 : 10)
#else
#define NEURENIX_RTX 0
#define NEURENIX_SHAPE NV_TENSORRT_MAJOR
#endif

#if NEURENIX_RTX
#define NEURENIX_AT_LEAST(enterprise, rtx) (NV_TENSORRT_VERSION >= (rtx))
#else
#define NEURENIX_AT_LEAST(enterprise, rtx) (NV_TENSORRT_VERSION >= (enterprise))
#endif
