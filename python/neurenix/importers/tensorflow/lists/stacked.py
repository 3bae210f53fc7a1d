"""What a loop wrote to a list: elements that come stacked in the order of steps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from neurenix.importers.tensorflow.lists.values import Blank, List, Tensors


@dataclass
class Stacked:
    """The stacked elements, and how they become the list.

    `index`: of a step, in the body; `before`: the list in front of the loop; `in_order`: whether step i writes element
    i; `all_written`: whether no element is left out then.
    """

    items: str
    index: str
    resize: bool
    before: List
    dtype: int
    in_order: bool
    all_written: bool

    def result(self, make: Tensors, indices: Mapping[str, str]) -> str:
        """The tensor of all elements. `indices`: those of all steps, by that of one."""
        if not isinstance(self.before, Blank) or not self.in_order:
            return self._placed(make, indices[self.index])
        if self.all_written:
            return self.items
        return make.grown(self.items, make.sizes(self.before.count), self._element(make), self.dtype)

    def _element(self, make: Tensors) -> str | list[int]:
        shape = self.before.shape if isinstance(self.before, Blank) else None
        return make.dims(self.items, 1) if shape is None else shape

    def _placed(self, make: Tensors, indices: str) -> str:
        """The elements at their indices, and what was there before at all others."""
        places, base = make.sizes(indices), make.dense(self.before, self._element(make))
        if self.resize:
            count = make.after(places, make.dims(base, 0, 1))
            base = make.grown(base, count, self._element(make), self.dtype)
        return make.written(base, places, self.items, self.dtype)
