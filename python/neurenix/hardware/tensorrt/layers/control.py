"""Loops and conditionals: where they are begun, and where they become layers that hold networks."""

from __future__ import annotations

from neurenix._native import Network, Tensor
from neurenix.hardware.tensorrt.control_classes import Block
from neurenix.hardware.tensorrt.graph import Definition
from neurenix.hardware.tensorrt.layers.conditional import IIfConditional
from neurenix.hardware.tensorrt.layers.control_bodies import Bodies, Frame
from neurenix.hardware.tensorrt.layers.loop import ILoop


class ControlLayers(Definition):
    """Loops and conditionals.

    The draft of such a network has placeholders for what they give, which answer for shapes. The network that is built
    has layers in their place that hold what stands inside.
    """

    def __init__(self, name: str = "network") -> None:
        super().__init__(name)
        self._blocks: list[Block] = []

    def add_loop(self) -> ILoop:
        """Begins a loop: what stands inside is what depends on its recurrences and iterators.

        `to_network` and builds raise `InvalidArgumentError` for a loop without a limit, a recurrence without its next
        value, a stacked output without its length, and for a tensor of the inside that is read outside.
        """
        loop = ILoop(self, len(self._blocks))
        self._blocks.append(loop)
        return loop

    def add_if_conditional(self) -> IIfConditional:
        """Begins a conditional: what stands inside is what depends on its inputs; the rest runs whatever holds.

        `to_network` and builds raise `InvalidArgumentError` for one without a condition, and for a tensor of the inside
        that is read outside.
        """
        conditional = IIfConditional(self, len(self._blocks))
        self._blocks.append(conditional)
        return conditional

    def _finished(self) -> tuple[Network, list[Tensor]]:
        if not self._blocks:
            return super()._finished()
        frame = Frame(*self._begun())
        return frame.network, Bodies(self._outputs).fill(frame, None, self._outputs)
