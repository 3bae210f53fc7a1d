"""
The extension module `neurenix._native`; users meet its contents through `neurenix`. Written by tools/stubs.py.
"""

from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, SupportsFloat, SupportsIndex, final

import numpy as np

_Array = np.ndarray[Any, Any]
_Shapes = tuple[Sequence[int], Sequence[int], Sequence[int]]

__version__: str
onednn_version: str

__all__ = [
    "Context",
    "Dim",
    "Engine",
    "Histogram",
    "Layer",
    "Network",
    "Replacement",
    "Tensor",
    "TensorRTContext",
    "TensorRTEngine",
    "TensorRTPlan",
    "TimingCache",
    "__version__",
    "allowed_providers",
    "cache_dir",
    "computes",
    "declared_fields",
    "default_threads",
    "deregister_plugin",
    "device",
    "dlpack",
    "end",
    "fingerprints",
    "gpu_count",
    "gpu_info",
    "integers_of",
    "knob",
    "knobs",
    "load_plugin_library",
    "look_in",
    "nearest",
    "onednn_version",
    "ops",
    "provider_states",
    "register_plugin",
    "register_provider",
    "registered_plugins",
    "resolve_plugin",
    "run_every_form",
    "tensorrt_library",
    "warm_up",
]

@final
class Context:
    """
    The state of one call at a time; use one per thread.
    """
    @property
    def engine(self, /) -> Engine:
        """
        The engine.
        """
    @property
    def profile(self, /) -> tuple[int, bool] | None:
        """
        The number of the profile of the last call, and whether its shapes lay inside.
        """
    def run(self, /, inputs: dict[str, Any]) -> dict[str, _Array]:
        """
        Runs on a dict of arrays by name and gives a dict of new numpy arrays.
        """

@final
class Dim:
    """
    The extent of a dimension that only a call tells: an expression of named sizes. It adds, subtracts and multiplies as
    an int does, has `//` and `%`, `ceildiv`, `minimum` and `maximum`; what no size is in any more is an int.
    """
    def __add__(self, other: object, /) -> Any: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __floordiv__(self, other: object, /) -> Any: ...
    def __ge__(self, other: object, /) -> bool: ...
    def __gt__(self, other: object, /) -> bool: ...
    def __hash__(self, /) -> int: ...
    def __index__(self, /) -> int: ...
    def __le__(self, other: object, /) -> bool: ...
    def __lt__(self, other: object, /) -> bool: ...
    def __mod__(self, other: object, /) -> Any: ...
    def __mul__(self, other: object, /) -> Any: ...
    def __ne__(self, other: object, /) -> bool: ...
    def __neg__(self, /) -> Any: ...
    def __new__(cls, /, text: str) -> Dim:
        """
        The dimension of an expression: "batch", "2*width + 1".
        """
    def __radd__(self, other: object, /) -> Any: ...
    def __repr__(self, /) -> str: ...
    def __rfloordiv__(self, other: object, /) -> Any: ...
    def __rmod__(self, other: object, /) -> Any: ...
    def __rmul__(self, other: object, /) -> Any: ...
    def __rsub__(self, other: object, /) -> Any: ...
    def __str__(self, /) -> str: ...
    def __sub__(self, other: object, /) -> Any: ...
    def ceildiv(self, /, divisor: Dim | SupportsIndex) -> int | Dim:
        """
        The quotient, rounded up.
        """
    def maximum(self, /, other: Dim | SupportsIndex) -> int | Dim:
        """
        The greater of two.
        """
    def minimum(self, /, other: Dim | SupportsIndex) -> int | Dim:
        """
        The lesser of two.
        """
    def operands(self, /) -> list[Any]:
        """
        The dimensions that are broadcast to give this one: more than one where each of them may be 1.
        """

@final
class Engine:
    """
    A network made ready to run; safe to call from any thread.
    """
    @staticmethod
    def build(network: Network, profiles: Sequence[Mapping[str, _Shapes]], options: dict[str, Any]) -> Engine:
        """
        Builds an engine. `profiles` has one dict per profile, from the name of an input to its (min, opt, max) shape;
        `options`: compute (dtype), tf32, io (dtype), threads, hint, optimization_level, deterministic, exclude,
        timing_cache, workspace, listener (as for a `TensorRTPlan`), strict, verify, providers, device (the number of a
        GPU), refittable, samples (batches for verification: an array for each input).
        """
    @property
    def calls(self, /) -> int:
        """
        Calls beside each other that keep the threads busy.
        """
    def create_context(self, /) -> Context:
        """
        A context of one's own, for one call at a time.
        """
    @property
    def degraded(self, /) -> str | None:
        """
        Why calls are slower than they could be, once one found that.
        """
    @property
    def devices(self, /) -> list[int]:
        """
        The GPUs whose memory it reaches; none where the sizes of outputs depend on data.
        """
    def dump(self, /) -> str:
        """
        The simplified network as text.
        """
    @property
    def inputs(self, /) -> list[tuple[str, np.dtype[Any], tuple[int | str, ...]]]:
        """
        The inputs: name, dtype, shape.
        """
    @staticmethod
    def load(path: str | PathLike[str], options: dict[str, Any]) -> Engine:
        """
        Opens an engine file, with options as `build` has them; what they leave out is as the file says.
        """
    @property
    def name(self, /) -> str:
        """
        The name of the network.
        """
    @property
    def notes(self, /) -> list[str]:
        """
        What the user should know of the build: fallbacks, precision that could not be had, ...
        """
    @property
    def outputs(self, /) -> list[tuple[str, np.dtype[Any], tuple[int | str, ...]]]:
        """
        The outputs: name, dtype, shape.
        """
    @property
    def outside(self, /) -> bool:
        """
        Whether some call had shapes outside of every profile.
        """
    @property
    def precision(self, /) -> str:
        """
        What was asked for: fp32, tf32, bf16 or fp16.
        """
    def prepare(self, /, shapes: Mapping[str, Sequence[int]]) -> tuple[dict[str, list[int]], int]:
        """
        The shapes of the outputs, and the bytes of activations and workspaces of one call, at these input shapes.
        """
    def profile(self, /, inputs: dict[str, Any]) -> list[tuple[str, str, int]]:
        """
        Runs once on a dict of arrays and gives, for each kernel in order: its layers, its implementation, nanoseconds.
        """
    @property
    def profiles(self, /) -> list[dict[str, tuple[int, int, int]]]:
        """
        The profiles: from the name of a symbol to its (min, opt, max).
        """
    def refit(self, /, weights: dict[str, Any], options: dict[str, Any]) -> Engine:
        """
        An engine with other weights, by name; this one stays as it is. `options` as `load` has them.
        """
    @property
    def refittable(self, /) -> bool:
        """
        Whether its weights can be replaced.
        """
    def report(self, /) -> str:
        """
        What the engine does at the opt shapes of its first profile, as JSON.
        """
    def run(self, /, inputs: dict[str, Any]) -> dict[str, _Array]:
        """
        Runs on a dict of arrays by name and gives a dict of new numpy arrays.
        """
    def run_at(
        self,
        /,
        inputs: Sequence[tuple[SupportsIndex, SupportsIndex | None]],
        shapes: Sequence[Sequence[SupportsIndex]],
        outputs: Sequence[tuple[SupportsIndex, SupportsIndex | None]],
        stream: tuple[SupportsIndex, SupportsIndex] | None,
        timed: bool = False,
        held: bool = False,
    ) -> list[tuple[str, str, int]]:
        """
        Runs on arrays at these addresses, each with the number of its GPU or None: dense, of the dtypes of the inputs,
        of these shapes. The outputs must have room for what `specs` says. `stream`: a GPU and the caller's stream of
        it; the call then returns before the work is done, where all arrays lie on that GPU or are small inputs of the
        processor.
        `timed`: it waits, and gives for each kernel in order its layers, its implementation, nanoseconds. `held`: a
        framework holds the memory of the arrays, so that the GPU is not asked whether there is any.
        """
    def save(self, /, path: str | PathLike[str]) -> None:
        """
        Saves the engine to a file, which appears whole or not at all.
        """
    def specs(self, /, shapes: Sequence[Sequence[SupportsIndex]]) -> list[tuple[np.dtype[Any], list[int]]]:
        """
        dtype and shape of each output for inputs of these shapes.
        """
    @property
    def staged(self, /) -> bool:
        """
        Whether sizes of outputs, or what runs, depend on data: it then works on arrays in the processor's memory.
        """
    def synchronize(self, /) -> None:
        """
        Waits for the work of calls on arrays of a GPU.
        """
    def time_on_device(self, /, inputs: dict[str, Any], calls: SupportsIndex = 1) -> int:
        """
        Nanoseconds of one of `calls` calls behind each other on arrays that are copied to the engine's device before.
        """
    def weight(self, /, name: str) -> Any | None:
        """
        The elements of a weight that can be replaced; None where there is none of this name.
        """
    @property
    def weights(self, /) -> list[tuple[str, np.dtype[Any], list[int]]]:
        """
        The weights that can be replaced: name, dtype, shape.
        """

@final
class Histogram:
    """
    How often magnitudes come in a tensor: 2048 bins over a range that doubles. What it holds does not depend on how the
    numbers were batched.
    """
    def __new__(cls, /) -> Histogram:
        """
        An empty one.
        """
    def add(self, /, array: Any) -> None:
        """
        Counts the numbers of an array of floats. Raises `InvalidArgumentError` if one is not finite.
        """
    @property
    def elements(self, /) -> int:
        """
        How many numbers were counted.
        """
    @property
    def ends(self, /) -> tuple[float, float]:
        """
        The least and the greatest number.
        """
    def join(
        self,
        /,
        counts: Any,
        exponent: SupportsIndex,
        least: SupportsFloat | SupportsIndex,
        greatest: SupportsFloat | SupportsIndex,
    ) -> None:
        """
        Adds what the op Histogram gives: counts as int32, the exponent of their range, and the least and the greatest
        number. Raises `InvalidArgumentError` if one was not finite.
        """
    def range(self, /, method: str, levels: SupportsIndex, percentile: float = 99.99) -> float:
        """
        The magnitude that the outermost of `levels` steps had better stand for, by "entropy", "minmax", "percentile" or
        "mse".
        """

@final
class Layer:
    """
    A layer of a network, as it was when it was asked for.
    """
    def __repr__(self, /) -> str: ...
    @property
    def attrs(self, /) -> dict[str, Any]:
        """
        Its attributes, defaults included.
        """
    @property
    def inputs(self, /) -> list[Tensor | None]:
        """
        What it reads; None for an input that is left out.
        """
    @property
    def name(self, /) -> str:
        """
        Its name, unique in the network.
        """
    @property
    def op(self, /) -> str:
        """
        The name of its op.
        """
    @property
    def outputs(self, /) -> list[Tensor]:
        """
        What it gives.
        """
    @property
    def sources(self, /) -> list[str]:
        """
        Names of the nodes of the source model that it stands for.
        """

@final
class Network:
    """
    A typed graph of layers with symbolic shapes. Importers build it, `Builder` turns it into an engine.
    """
    def __new__(cls, /, name: str = "") -> Network:
        """
        An empty network.
        """
    def __repr__(self, /) -> str: ...
    def add_constant(self, /, name: str, array: Any, copy: bool = True) -> Tensor:
        """
        Adds a constant: numpy, ml_dtypes, or anything with `__dlpack__` or `__array__`. `copy=False` shares the memory
        of a dense array on the CPU, which nobody may change any more.
        """
    def add_control(
        self,
        /,
        op: str,
        inputs: Sequence[Tensor | None],
        bodies: dict[str, tuple[Network, list[Tensor]]],
        attrs: dict[str, Any] | None = None,
        name: str = "",
    ) -> list[Tensor]:
        """
        Adds a layer that holds networks (If, Loop, Scan) and gives its outputs. `bodies` has, by attribute, each
        network with the tensors of this one for which its last inputs stand.
        """
    def add_input(self, /, name: str, dtype: Any, shape: Any) -> Tensor:
        """
        Adds an input of a dtype (numpy's words) and a shape of integers and expressions such as "batch".
        """
    def add_layer(
        self, /, op: str, inputs: Sequence[Tensor | None], attrs: dict[str, Any] | None = None, name: str = ""
    ) -> list[Tensor]:
        """
        Adds a layer and gives its outputs. Inputs that are left out are None; attributes have the op's names (`ops()`).
        """
    def add_plugin(
        self, /, inputs: Sequence[Tensor], plugin: Any, shape_inputs: SupportsIndex = 0, name: str = ""
    ) -> list[Tensor]:
        """
        Adds a layer of a plugin that is there already (an adapter) and gives its outputs. The last `shape_inputs`
        inputs only tell shapes.
        """
    def add_registered_plugin(
        self,
        /,
        inputs: Sequence[Tensor],
        plugin: tuple[str, str, str],
        fields: Mapping[str, tuple[str, Sequence[int], bytes]],
        shape_inputs: SupportsIndex = 0,
        name: str = "",
    ) -> list[Tensor]:
        """
        Adds a layer of a plugin of the registry (its name, version and namespace), made out of fields (kind, shape,
        bytes), and gives its outputs.
        """
    def capture(self, /, tensor: Tensor) -> Tensor:
        """
        Brings a tensor of the network around into this one, which becomes the body of a layer there (`add_control`): as
        a constant, as what the shapes determine, or as an input.
        """
    def copy(self, /, tensors: Sequence[Tensor]) -> tuple[Network, list[Tensor]]:
        """
        A network of its own with the same layers, and no results yet; `tensors` of this one stand for the tensors there
        that come second.
        """
    def dump(self, /) -> str:
        """
        The network as text, one layer a line.
        """
    def evaluate(self, /, inputs: dict[str, Any]) -> dict[str, _Array]:
        """
        Runs the network op by op in double precision: slow, exact, what tests compare with.
        """
    def in_full(self, /, refittable: bool = False) -> Network:
        """
        A copy behind the passes that come before those that lower the precision: what quantization is placed in. With
        `refittable`, constants that are equal stay apart.
        """
    @property
    def inputs(self, /) -> list[Tensor]:
        """
        The inputs, in order.
        """
    @property
    def layers(self, /) -> list[Layer]:
        """
        The layers, in the order in which they were added.
        """
    def mark_output(self, /, tensor: Tensor, name: str | None = None) -> None:
        """
        Makes a tensor a result, under a name (the tensor's own if none is given).
        """
    @property
    def name(self, /) -> str:
        """
        The name of the model.
        """
    @name.setter
    def name(self, /, name: str) -> None: ...
    @property
    def outputs(self, /) -> dict[str, Tensor]:
        """
        The results by name, in order.
        """
    def quantization_points(self, /, keep: Sequence[str] = ...) -> list[tuple[Tensor, str, float | None, str]]:
        """
        Of a network of `in_full`, the tensors whose ranges quantization looks at: each with its name in calibration
        caches, the least number that it can have (0 where that is more, None where it is not known), and what for:
        "operand" (it is read in 8 bits), "residual" (so too, by a sum), "mean" (so too, where its range is known) or
        "branch" (it is added to a residual, and has no 8 bits itself). What `keep` names, and what else takes no part,
        is left out.
        """
    def quantized(
        self,
        /,
        ranges: dict[str, float] | None = None,
        keep: Sequence[str] = ...,
        weights: str = "int8",
        refittable: bool = False,
        symmetric: bool = False,
        per_token: Sequence[str] = ...,
    ) -> Network:
        """
        A copy of a network of `in_full` with Quantize and Dequantize layers: weights as `weights` ("int8" or
        "float8_e4m3fn") with a scale for each channel; and, with `ranges` (by name, the greatest magnitude), what
        `quantization_points` finds. With `refittable`, scales of weights stay layers on the original weights;
        with `symmetric` there are no zero points, and biases stay floats, as TensorRT wants it. Matrix products that
        `per_token` names, which take no part in the ranges, find a scale for each token at each call.
        """
    def residuals_in_floats(
        self, /, ranges: dict[str, float], keep: Sequence[str] = ..., symmetric: bool = False
    ) -> list[str]:
        """
        Of a network of `in_full`, the sums of residuals that stay in floats with these ranges, by name, since 8 bits
        would round them by too much beside what is added.
        """
    def rewired(
        self, /, inputs: Sequence[tuple[str, SupportsIndex, Tensor]], outputs: Sequence[tuple[str, Tensor]] = ...
    ) -> Network:
        """
        A copy in which layers read other tensors of this network (the layer's name, the number of its input, the
        tensor), and results, by name, are other ones. Layers that read constants alone are folded into constants.
        """
    def set_range(self, /, symbol: str, min: SupportsIndex, opt: SupportsIndex, max: SupportsIndex) -> None:
        """
        Says that a symbol lies in min..=max, and for which value to optimise.
        """
    def simplify(self, /, dtype: Any | None = None, unsupported: Sequence[Any] = ...) -> dict[str, int]:
        """
        Brings the network into its simplest form, in place, as the builder does first; gives how often each pass found
        something. Lowerable float32 layers compute in `dtype`; layers in one of `unsupported` compute in float32.
        """
    @property
    def symbols(self, /) -> dict[str, tuple[int, int, int]]:
        """
        The symbols of its shapes with (min, opt, max).
        """
    def verify(self, /) -> None:
        """
        Checks that the network is well-formed.
        """

@final
class Replacement:
    """
    An empty file beside the one that it will replace, which is removed unless it is committed.
    """
    def __new__(cls, /, path: str | PathLike[str]) -> Replacement:
        """
        Creates the file; it has the owner and the rights of the one that is there.
        """
    def commit(self, /) -> None:
        """
        Puts it into its place.
        """
    def discard(self, /) -> None:
        """
        Removes it, unless it was committed.
        """
    @property
    def temporary(self, /) -> Path:
        """
        The path of the file.
        """

@final
class Tensor:
    """
    A tensor of a network: its name, element type and symbolic shape.
    """
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self, /) -> int: ...
    def __repr__(self, /) -> str: ...
    @property
    def dtype(self, /) -> np.dtype[Any]:
        """
        Its element type, as numpy has it.
        """
    def known(self, /) -> Any | None:
        """
        The elements of a small tensor that constants and fixed shapes determine; None for every other tensor.
        """
    @property
    def name(self, /) -> str:
        """
        Its name, unique in the network.
        """
    @property
    def network(self, /) -> Network:
        """
        The network that it belongs to.
        """
    def numpy(self, /) -> _Array | None:
        """
        The elements of a constant; None for every other tensor.
        """
    @property
    def shape(self, /) -> tuple[int | str, ...]:
        """
        Its extent along each dimension: an integer, or a text where symbols are in it.
        """
    @property
    def value(self, /) -> tuple[int | str, ...] | None:
        """
        The elements of a small integer tensor that the shapes determine, row-major; else None.
        """

@final
class TensorRTContext:
    """
    The state of one call of a plan; calls of several threads wait for each other.
    """
    def capturable(self, /, stream: SupportsIndex) -> bool:
        """
        Whether the next call can be captured in a CUDA graph.
        """
    def collect(self, /, output: str, allocate: Any, shape: Any) -> None:
        """
        Lets `allocate(current, bytes, alignment, stream)` give the address of an output whose size depends on data, and
        `shape(extents)` hear what it is.
        """
    def enqueue(self, /, stream: SupportsIndex) -> None:
        """
        Puts the call into a stream.
        """
    def infer(self, /) -> list[str]:
        """
        Works the shapes of the outputs out; gives the names of the inputs that are missing for it.
        """
    def memory(self, /) -> int:
        """
        The bytes of scratch memory for the shapes that are set.
        """
    def profile_layers(self, /, wanted: bool) -> None:
        """
        Whether the next calls are timed layer by layer.
        """
    def set_address(self, /, tensor: str, address: SupportsIndex) -> None:
        """
        Says where an input or output is.
        """
    def set_memory(self, /, address: SupportsIndex, bytes: SupportsIndex) -> None:
        """
        Says where the scratch memory is.
        """
    def set_profile(self, /, profile: SupportsIndex, stream: SupportsIndex) -> None:
        """
        Chooses a profile; shapes are set anew after it.
        """
    def set_shape(self, /, input: str, shape: Sequence[SupportsIndex]) -> None:
        """
        Sets the shape of an input.
        """
    def shape(self, /, tensor: str) -> list[int]:
        """
        The shape of an input or output; -1 where it depends on data, or is not known yet.
        """
    def times(self, /) -> list[tuple[str, float]]:
        """
        The milliseconds of each layer of the last call, for which the caller has waited.
        """

@final
class TensorRTEngine:
    """
    A plan that TensorRT has opened. It is native code for a GPU: opening one means to trust whoever built it.
    """
    def context(self, /) -> TensorRTContext:
        """
        A context.
        """
    def device_memory(self, /, profile: SupportsIndex) -> int:
        """
        The bytes of the GPU's memory that a context needs besides inputs and outputs, for all shapes of a profile.
        """
    def layers(self, /) -> str:
        """
        What TensorRT's inspector says, as JSON.
        """
    @staticmethod
    def open(plan: bytes, listener: Any | None = None) -> TensorRTEngine:
        """
        Opens a plan. `listener.say(severity, text)` gets messages.
        """
    @property
    def profiles(self, /) -> int:
        """
        How many profiles there are.
        """
    def refit(self, /, weights: Sequence[tuple[str, Any]]) -> None:
        """
        Replaces weights by name.
        """
    def set_weight_budget(self, /, bytes: SupportsIndex | None = None) -> None:
        """
        Lets weights take so many bytes of the GPU's memory; None is all of them.
        """
    @property
    def streamable_weights(self, /) -> int:
        """
        The bytes of weights that need not stay on the GPU.
        """
    @property
    def tensors(self, /) -> list[tuple[str, str, list[int], bool, bool, list[tuple[list[int], list[int], list[int]]]]]:
        """
        The inputs and outputs: name, dtype, shape, whether it is an input, whether it lies in the processor's memory,
        and for an input for each profile the least, expected and greatest shape.
        """
    @property
    def weight_names(self, /) -> list[str]:
        """
        The names of the weights that can be replaced.
        """

@final
class TensorRTPlan:
    """
    What TensorRT's builder made. Its bytes are code for a GPU: running them means to trust whoever built them.
    """
    @staticmethod
    def build(
        network: Network, profiles: Sequence[Mapping[str, _Shapes]], options: dict[str, Any], listener: Any
    ) -> TensorRTPlan:
        """
        Builds a plan. `profiles` as for an engine; `options`: compute (dtype), tf32, optimization_level, workspace,
        refittable, strip_weights, version_compatible, weight_streaming, targets, compatibility (none, ampere+, same),
        timing_cache, exclude, partial.
        `listener.say(severity, text)` gets messages, and `listener.step(phase, done, steps)` each step: false ends the
        build.
        """
    @property
    def data(self, /) -> bytes:
        """
        The plan, as TensorRT reads it.
        """
    @property
    def inputs(self, /) -> list[tuple[tuple[str, str, list[int]], list[tuple[list[int], list[int], list[int]]]]]:
        """
        The inputs: name, dtype, shape; and for each profile the least, expected and greatest shape.
        """
    @property
    def layers(self, /) -> tuple[int, int]:
        """
        How many layers of the simplified network are in it, and how many layers of TensorRT were written for them.
        """
    @property
    def library(self, /) -> tuple[str, str, str]:
        """
        The library that built it: its file, its version, the headers that describe it.
        """
    @property
    def outputs(self, /) -> list[tuple[str, str, list[int]]]:
        """
        The outputs: name, dtype, shape.
        """
    @property
    def refusals(self, /) -> list[tuple[str, str, str]]:
        """
        The layers that are not in it: name, reason, hint.
        """
    @property
    def timing_cache(self, /) -> bytes:
        """
        What the build measured, for the next one; empty where this TensorRT keeps nothing.
        """

@final
class TimingCache:
    """
    Times that callers of the builder measure, kept beside those of kernels: in the file that `options` (as of an
    `Engine`) name, if any, and for their providers on this machine.
    """
    def __new__(cls, /, options: dict[str, Any]) -> TimingCache:
        """
        Reads the file.
        """
    def add(self, /, times: dict[str, int]) -> None:
        """
        Keeps times in nanoseconds by name; those that are known stay. Raises `FileError` if it can't write.
        """
    def known(self, /, name: str) -> int | None:
        """
        The time of a name in nanoseconds, or None.
        """

def allowed_providers() -> list[str]:
    """
    The providers that may be used, the preferred one first: `NEURENIX_PROVIDERS`; without it those from outside too.
    """

def cache_dir() -> Path | None:
    """
    Where caches are kept; None where they are switched off.
    """

def computes(provider: str, dtype: Any) -> bool:
    """
    Whether a provider computes in a dtype, rather than in a wider one; "tf32" is none, and asks for products of it.
    """

def declared_fields(name: tuple[str, str, str]) -> list[tuple[str, int]]:
    """
    The fields that a plugin of the registry says it reads, with the numbers of their types.
    """

def default_threads() -> int:
    """
    The threads that the CPU provider uses when nobody says how many.
    """

def deregister_plugin(name: tuple[str, str, str]) -> bool:
    """
    Takes a creator out of the registry; says whether there was one.
    """

def device(provider: str) -> str:
    """
    What timings on a provider depend on: the device, its instruction sets, the versions of its libraries.
    """

def dlpack(
    owner: Any,
    address: SupportsIndex,
    dtype: Any,
    shape: Sequence[SupportsIndex],
    device: tuple[SupportsIndex, SupportsIndex],
) -> Any:
    """
    What `__dlpack__` gives for a dense array at an address, on a device as DLPack numbers it; `owner` is kept alive
    until the consumer is done.
    """

def end() -> None:
    """
    Says that the interpreter ends: calls of other threads are ended or waited for, and new ones do nothing.
    """

def fingerprints(addresses: Sequence[SupportsIndex], sizes: Sequence[SupportsIndex]) -> list[int]:
    """
    What a few words of each array in the processor's memory come to, by address and bytes that Python's side vouches
    for: another number where somebody wrote to it.
    """

def gpu_count() -> int:
    """
    How many GPUs the cuda provider sees; 0 where it can't be had.
    """

def gpu_info(device: SupportsIndex) -> dict[str, Any]:
    """
    What is known of the GPU of this number.
    """

def integers_of(
    most: SupportsFloat | SupportsIndex, least: SupportsFloat | SupportsIndex | None = None
) -> tuple[float, int, str]:
    """
    The step, the zero point and the dtype of integers of 8 bits for a tensor that holds numbers up to a magnitude: int8
    from -127 on, or uint8 where its least number is known and not far below zero.
    """

def knob(name: str) -> str | None:
    """
    What is set for the environment variable of this name, or None.
    """

def knobs() -> list[dict[str, Any]]:
    """
    Every environment variable that is read, with its default, its doc, and what is set now (or None).
    """

def load_plugin_library(path: str | PathLike[str]) -> list[tuple[str, str, str]]:
    """
    Opens a shared library of plugins and registers what it brings: name, version and namespace of each.
    """

def look_in(paths: Sequence[str | PathLike[str]]) -> None:
    """
    Tells where packages may lie that bring NVIDIA's libraries, in place of what `sys.path` was at the import.
    """

def nearest(name: str, names: Sequence[str]) -> str | None:
    """
    The one of `names` that is meant by `name`: the same in other letters, a synonym, one that is a few typing errors
    away, one of more or fewer words, or a longer or shorter form; None where it is none of these.
    """

def ops() -> list[dict[str, Any]]:
    """
    The declarations of all ops: name, doc, inputs ("x?" may be left out, "x*" may repeat), and attributes as a dict
    from name to (kind, default or None where it is required, doc).
    """

def provider_states(device: SupportsIndex = 0) -> list[tuple[str, str | None]]:
    """
    The providers that this build has, the preferred one first, with None or why one can't be had here, on the GPU of
    this number.
    """

def register_plugin(name: tuple[str, str, str], creator: Any) -> None:
    """
    Adds a creator of plugins to the registry, under a name, a version and a namespace.
    """

def register_provider(name: str, version: str, provider: Any) -> None:
    """
    Adds a provider under a name, for the life of the process (an adapter of `neurenix.hardware.provider`).
    """

def registered_plugins() -> list[tuple[str, str, str]]:
    """
    Name, version and namespace of every plugin in the registry, in order.
    """

def resolve_plugin(name: str, version: str | None = None, namespace: str = "") -> tuple[str, str, str]:
    """
    Which plugin a name stands for: without a version that of version "1", or the only one that there is.
    """

def run_every_form(
    network: Network, provider: str, inputs: dict[str, Any], tf32: bool = False, device: SupportsIndex = 0
) -> list[dict[str, Any]]:
    """
    Runs each kernel that a provider offers for a network in every form, on a dict of arrays by name, beside the
    reference evaluation. A dict for each: kernel, form, tactic, implementation, outputs (name, what it gave, what the
    reference gives) and fault, an exception or None.
    """

def tensorrt_library() -> tuple[tuple[str, str, str] | None, list[tuple[str, str]], list[str]]:
    """
    TensorRT's library, if there is one that this build can drive: its file, its version, the headers that describe
    it; every place that was looked at before, with what is wrong there; and the headers of this build.
    """

def warm_up(names: Sequence[str], device: SupportsIndex) -> None:
    """
    Lets providers, on the GPU of this number, set up what the first build of a process needs, and waits until they
    have. What goes wrong is found again by a build.
    """
