"""TensorLists, which TensorArrays are in a graph, become tensors whose first axis is that of the elements.

tf2onnx stacks what each step of a loop writes, in the order of steps. `bodies` finds how a loop uses its lists,
`proofs` whether that order is that of the elements and none is left out, `loops` gives all others the indices too, or
the whole list as a loop variable, and `ops` writes what is done with lists outside of loops.
"""

from neurenix.importers.tensorflow.lists.rewriter import Rewriter

__all__ = ["Rewriter"]
