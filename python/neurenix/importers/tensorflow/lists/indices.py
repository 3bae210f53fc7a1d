"""Lists that a loop of tf2onnx's stacks: its own ones, and further ones for the indices that it writes at."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from neurenix.importers.tensorflow.lists.bodies import VARIANT


def reserved(graph: Any, scope: str, element: Sequence[int] | None, dtype: int) -> str:
    """A list for one loop alone: tf2onnx takes it away from all that read it. `element`: the shape of one."""
    from tf2onnx import utils

    def const(value: Any) -> str:
        return str(graph.make_const(utils.make_name(f"{scope}/list"), np.array(value, np.int32)).output[0])

    node = graph.make_node(
        "TensorListReserve", [const(-1 if element is None else element), const(0)], attr={"element_dtype": dtype},
        name=utils.make_name(f"{scope}/list"), dtypes=[VARIANT], shapes=[[]], skip_conversion=False,
    )  # fmt: skip
    return str(node.output[0])


class Indices:
    """Further lists of a loop, of the indices that it writes at.

    `outputs`: the names of the loop's outputs that have them, by those of the indices in its body.
    """

    def __init__(self, loop: Any, body: Any, cond: Any) -> None:
        self.outputs: dict[str, str] = {}
        self._loop, self._body, self._cond = loop, body, cond

    def add(self, index: str) -> None:
        """Lets each step give an index."""
        from onnx import TensorProto
        from tf2onnx import utils

        if index in self.outputs:
            return
        self.outputs[index] = f"{self._loop.name}:{len(self._loop.output) + len(self.outputs)}"
        names = [utils.make_name("indices") + ":0" for _ in range(2)]
        for graph, name in zip((self._body, self._cond), names, strict=True):
            graph.add_graph_input(name, VARIANT, [])
        # What a loop stacks may have no other name in it, so that the index is read through an Identity.
        item = self._body.make_node("Identity", [index], dtypes=[TensorProto.INT32], shapes=[[]])
        node = self._body.make_node(
            "TensorListSetItem", [names[0], index, item.output[0]], dtypes=[VARIANT], shapes=[[]]
        )
        self._body.outputs.append(node.output[0])
