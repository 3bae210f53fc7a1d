"""Examples for inputs of which only shapes are known, by the names that they have in `forward`."""

from __future__ import annotations

import enum
import re
from collections.abc import Sequence

import torch


class Kind(enum.Enum):
    """What an input holds."""

    NUMBERS = enum.auto()
    IDS = enum.auto()
    MASK = enum.auto()


_IDS = re.compile(r"(.+_)?(ids|idx|indices)")
_MASK = re.compile(r"(.+_)?mask")
#: These scale the heads of an attention.
_FACTORS = re.compile(r"(.+_)?head_mask")


def kind(name: str) -> Kind:
    """What an argument of this name holds."""
    if _IDS.fullmatch(name):
        return Kind.IDS
    return Kind.MASK if _MASK.fullmatch(name) and not _FACTORS.fullmatch(name) else Kind.NUMBERS


def dtypes(kinds: Sequence[Kind], floating: torch.dtype) -> list[list[torch.dtype]]:
    """The dtypes that inputs of these kinds may have, the likeliest first.

    Masks beside ids come from tokenizers, which give integers; other masks are as often numbers that are added.
    """
    masks = [torch.int64, torch.bool] if Kind.MASK in kinds else []
    plain = (floating, floating)
    if Kind.IDS in kinds:
        choices = [*((torch.int64, mask) for mask in (*masks, floating)), plain]
    else:
        choices = [plain, *((floating, mask) for mask in masks)]
    return [[{Kind.NUMBERS: floating, Kind.IDS: ids, Kind.MASK: mask}[one] for one in kinds] for ids, mask in choices]


def example(one: Kind, dtype: torch.dtype, dims: Sequence[int], device: torch.device) -> torch.Tensor:
    """Zeros, which are in the range of every table; a mask that does not add hides nothing."""
    shows = one is Kind.MASK and not dtype.is_floating_point
    return (torch.ones if shows else torch.zeros)(tuple(dims), dtype=dtype, device=device)
