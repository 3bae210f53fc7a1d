"""What Torch-TensorRT calls inputs, dtypes and devices."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Any

import torch

from neurenix.errors import InvalidArgumentError, ShapeError, UnsupportedError


class dtype(enum.Enum):
    """Dtypes, by Torch-TensorRT's names."""

    unknown = "unknown"
    uint8 = "uint8"
    int8 = "int8"
    int32 = "int32"
    int64 = "int64"
    float16 = "float16"
    float32 = "float32"
    float64 = "float64"
    bool = "bool"
    bfloat16 = "bfloat16"
    fp8 = "float8_e4m3fn"
    # Other names of the same.
    u8 = "uint8"
    i8 = "int8"
    i32 = "int32"
    i64 = "int64"
    f16 = "float16"
    half = "float16"
    fp16 = "float16"
    f32 = "float32"
    float = "float32"
    fp32 = "float32"
    f64 = "float64"
    double = "float64"
    b = "bool"
    bf16 = "bfloat16"
    long = "int64"
    int = "int32"

    @classmethod
    def _from(cls, value: Any) -> dtype:
        """The one that means a dtype of torch or numpy."""
        if isinstance(value, cls):
            return value
        word = (
            str(value).removeprefix("torch.") if isinstance(value, torch.dtype) else str(getattr(value, "name", value))
        )
        try:
            return cls(word)
        except ValueError:
            raise InvalidArgumentError("this is no dtype of an input", got=repr(value)) from None

    def to_torch(self) -> torch.dtype:
        """torch's dtype."""
        found = getattr(torch, self.value, None)
        if not isinstance(found, torch.dtype):
            raise InvalidArgumentError("torch has no such dtype", got=self.value)
        return found

    def to(self, target: Any, use_default: Any = False) -> Any:
        """The dtype as `torch.dtype`."""
        if target is not torch.dtype:
            raise UnsupportedError("dtypes are given as torch's alone", expected="torch.dtype", got=repr(target))
        return self.to_torch()


class DeviceType(enum.Enum):
    """Kinds of devices."""

    UNKNOWN = "unknown"
    GPU = "gpu"
    DLA = "dla"


class EngineCapability(enum.Enum):
    """What an engine may use; all mean the same here."""

    STANDARD = "standard"
    SAFETY = "safety"
    DLA_STANDALONE = "dla_standalone"


class memory_format(enum.Enum):
    """How the elements of an input lie; whatever comes is read as it lies."""

    contiguous = "contiguous"
    linear = "contiguous"
    channels_last = "channels_last"


class Device:
    """A GPU, by its number: `Device("cuda:0")`, `Device(gpu_id=0)`."""

    def __init__(
        self, *args: Any, gpu_id: Any = 0, dla_core: Any = -1, allow_gpu_fallback: Any = True, **_: Any
    ) -> None:
        name = args[0] if args else None
        if "dla" in str(name).lower() or dla_core not in (-1, None):
            raise UnsupportedError("there is no DLA", hint="leave dla_core out")
        self.gpu_id = int(str(name).rpartition(":")[2]) if name is not None and ":" in str(name) else int(gpu_id)
        self.device_type = DeviceType.GPU
        self.allow_gpu_fallback = bool(allow_gpu_fallback)

    def __repr__(self) -> str:
        return f"Device(gpu_id={self.gpu_id})"


class Input:
    """The shape and the dtype of an input: `Input(shape=[1, 3, 224, 224])`, or a range of shapes.

    `Input(min_shape=, opt_shape=, max_shape=, dtype=)` is optimised for `opt_shape`. A tensor, `Input.from_tensor(x)`,
    stands for its shape and dtype, and is what the module is traced with.

    Raises `InvalidArgumentError` and `ShapeError` for shapes that do not go together.
    """

    def __init__(
        self,
        *args: Any,
        shape: Any = None,
        min_shape: Any = None,
        opt_shape: Any = None,
        max_shape: Any = None,
        dtype: Any = None,
        format: Any = None,
        tensor_domain: Any = None,
        torch_tensor: torch.Tensor | None = None,
        name: str = "",
        is_shape_tensor: Any = False,
    ) -> None:
        if len(args) > 1:
            raise InvalidArgumentError("an input has one shape", expected="Input(shape)", got=f"{len(args)} arguments")
        if args:
            shape = args[0]
        self.torch_tensor = torch_tensor
        if torch_tensor is not None and shape is None and opt_shape is None:
            shape, dtype = tuple(torch_tensor.shape), dtype or torch_tensor.dtype
        given = (min_shape, opt_shape, max_shape)
        if (shape is None) == all(one is None for one in given):
            raise InvalidArgumentError(
                "an input has a shape or a range of shapes",
                expected="shape=, or min_shape=, opt_shape= and max_shape=",
                got="both" if shape is not None else "neither",
            )
        if shape is None and any(one is None for one in given):
            raise InvalidArgumentError("a range has three shapes", expected="min_shape=, opt_shape= and max_shape=")
        self.min_shape, self.opt_shape, self.max_shape = (
            _dims(one) for one in ((shape, shape, shape) if shape is not None else given)
        )
        self._check()
        self.shape: Any = (
            self.opt_shape
            if shape is not None
            else {
                "min_shape": self.min_shape,
                "opt_shape": self.opt_shape,
                "max_shape": self.max_shape,
            }
        )
        self.dtype = dtype_of(dtype) if dtype is not None else torch.float32
        self.format = format
        self.name = name
        self.tensor_domain = tensor_domain
        self.is_shape_tensor = is_shape_tensor

    def _check(self) -> None:
        ranks = {len(one) for one in (self.min_shape, self.opt_shape, self.max_shape)}
        if len(ranks) != 1:
            raise ShapeError("the shapes of a range differ in rank", got=self._range())
        extents = zip(self.min_shape, self.opt_shape, self.max_shape, strict=True)
        if not all(0 <= low <= opt <= high for low, opt, high in extents):
            raise ShapeError("a range of shapes is not in order", expected="min <= opt <= max", got=self._range())

    def _range(self) -> str:
        return f"{list(self.min_shape)}, {list(self.opt_shape)}, {list(self.max_shape)}"

    @classmethod
    def from_tensor(cls, tensor: torch.Tensor, disable_memory_format_check: Any = False) -> Input:
        """The input that a tensor is."""
        return cls(torch_tensor=tensor)

    @classmethod
    def from_tensors(cls, tensors: Sequence[torch.Tensor], disable_memory_format_check: Any = False) -> list[Input]:
        """The inputs that tensors are."""
        return [cls.from_tensor(tensor) for tensor in tensors]

    @property
    def dynamic_axes(self) -> list[Any]:
        """The axes of which the extent may vary."""
        pairs = zip(self.min_shape, self.max_shape, strict=True)
        return [axis for axis, (low, high) in enumerate(pairs) if low != high]

    def example_tensor(self, optimization_profile_field: str | None = None) -> torch.Tensor:
        """A tensor of the shape to optimise for: random numbers, zeros for integers."""
        if self.torch_tensor is not None and optimization_profile_field is None:
            return self.torch_tensor
        dims = getattr(self, optimization_profile_field or "opt_shape")
        if self.dtype.is_floating_point:
            return torch.randn(dims).to(self.dtype)
        return torch.zeros(dims, dtype=self.dtype)

    def __repr__(self) -> str:
        shape = self.shape if not isinstance(self.shape, dict) else self._range()
        return f"Input(shape={shape}, dtype={self.dtype})"


def dtype_of(value: Any) -> torch.dtype:
    """torch's dtype for one of torch, of Torch-TensorRT, or of numpy."""
    return value if isinstance(value, torch.dtype) else dtype._from(value).to_torch()


def _dims(shape: Any) -> tuple[int, ...]:
    try:
        return tuple(int(extent) for extent in shape)
    except (TypeError, ValueError):
        raise InvalidArgumentError("this is no shape", expected="integers", got=repr(shape)) from None
