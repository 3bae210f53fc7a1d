"""Kernels of plugins on threads of the processor (`emulated.h`)."""

from __future__ import annotations

import ctypes
import hashlib
import subprocess
from pathlib import Path
from typing import Any

import numpy as np

import neurenix.hardware.tensorrt as trt

#: What reads and rounds halves on a GPU, and here.
HALVES = {
    'asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));': "value = wide_half(bits);",
    'asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));': "bits = narrow_half(value);",
}
TYPES = {int: ("int", ctypes.c_int), float: ("float", ctypes.c_float)}


def run(plugin: Any, inputs: list[np.ndarray], folder: Path) -> list[np.ndarray]:
    """The outputs of a plugin by its `cuda_source`."""
    shapes = plugin.get_output_shape([x.shape for x in inputs])
    dtypes = [
        trt.nptype(t) if isinstance(t, trt.DataType) else t for t in plugin.get_output_dtypes([x.dtype for x in inputs])
    ]
    outputs = [np.full(shape, 77, dtype) for shape, dtype in zip(shapes, dtypes, strict=True)]
    descriptions = [[trt.PluginTensorDesc(x.dtype, x.shape) for x in group] for group in (inputs, outputs)]
    source = plugin.cuda_source(*descriptions)
    code = source.code
    for there, here in HALVES.items():
        code = code.replace(there, here)
    kinds = [TYPES[type(value)] for value in source.arguments]
    given = [f"void* p{i}" for i in range(len(inputs) + len(outputs))]
    given += [f"{kind} n{i}" for i, (kind, _) in enumerate(kinds)]
    element = [f"(std::tuple_element_t<{i}, Types>)p{i}" for i in range(len(inputs) + len(outputs))]
    passed = ", ".join(element + [f"n{i}" for i in range(len(kinds))])
    code += f"""
#include <tuple>
template <typename... A> std::tuple<A...> types_of(void (*)(A...));
using Types = decltype(types_of({source.entry}));
extern "C" void run_emulated(unsigned blocks, unsigned threads, {", ".join(given)}) {{
    launch(blocks, threads, [=] {{ {source.entry}({passed}); }});
}}
"""
    library = folder / f"{hashlib.sha256(code.encode()).hexdigest()[:16]}.so"
    if not library.exists():
        text = library.with_suffix(".cc")
        text.write_text(code)
        header = Path(__file__).with_name("emulated.h")
        options = ["-std=c++20", "-O1", "-ffp-contract=off", "-shared", "-fPIC", "-pthread", "-include", str(header)]
        subprocess.run(["c++", *options, str(text), "-o", str(library)], check=True, capture_output=True, text=True)
    function = ctypes.CDLL(str(library)).run_emulated
    pointers = [ctypes.c_void_p(array.ctypes.data) for array in [*inputs, *outputs]]
    numbers = [kind(value) for value, (_, kind) in zip(source.arguments, kinds, strict=True)]
    grid, block = (value if isinstance(value, int) else value[0] for value in (source.grid, source.block))
    function(ctypes.c_uint(grid), ctypes.c_uint(block), *pointers, *numbers)
    return outputs
