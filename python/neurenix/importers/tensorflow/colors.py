"""Colors of images."""

from __future__ import annotations

from typing import Any

from neurenix.importers.tensorflow.writer import Writer


def adjust_saturation(context: Any, node: Any, name: str, args: Any) -> None:
    """AdjustSaturation: channels move from the largest one, by the ratio of the new chroma to the old.

    tf2onnx sorts the channels, and gives some of them back in the wrong order.
    """
    make = Writer(context, node)
    image, factor = make.cast(node.input[0]), make.cast(node.input[1])
    zero, last = make.const(0, make.numpy), make.const([-1])
    value = make.add("ReduceMax", image, last, keepdims=1)
    chroma = make.add("Sub", value, make.add("ReduceMin", image, last, keepdims=1))
    wanted = make.add("Max", make.add("Mul", chroma, factor), zero)
    wanted = make.add("Min", wanted, make.add("Max", value, zero))
    grey = make.add("Equal", chroma, zero)
    ratio = make.add("Div", wanted, make.add("Where", grey, make.const(1, make.numpy), chroma))
    make.replace("Sub", [value, make.add("Mul", make.add("Sub", value, image), ratio)])
