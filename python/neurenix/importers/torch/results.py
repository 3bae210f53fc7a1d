"""The dtypes of a program's results, where torch's exporter writes others."""

from __future__ import annotations

import onnx
import torch

#: What results of 16 bits are left in.
_WIDE = onnx.TensorProto.FLOAT
#: Floats of 16 bits, and ONNX's numbers of them.
NARROW = {torch.float16: onnx.TensorProto.FLOAT16, torch.bfloat16: onnx.TensorProto.BFLOAT16}


def in_16_bits(model: onnx.ModelProto, program: torch.export.ExportedProgram) -> onnx.ModelProto:
    """The model with its outputs in the dtypes of the program's results; changes it in place.

    The exporter computes sums and the like in float32, casts them back, and takes what stands before the cast for the
    output.
    """
    found = next(node for node in program.graph.nodes if node.op == "output").args[0]
    values = [getattr(node, "meta", {}).get("val") for node in found][-len(model.graph.output) :]
    for port, value in zip(model.graph.output, values, strict=False):
        narrow = NARROW.get(value.dtype) if isinstance(value, torch.Tensor) else None
        if narrow is not None and port.type.tensor_type.elem_type == _WIDE:
            name = f"{port.name}_in_16_bits"
            model.graph.node.append(onnx.helper.make_node("Cast", [port.name], [name], name=name, to=narrow))
            port.name, port.type.tensor_type.elem_type = name, narrow
    return model
