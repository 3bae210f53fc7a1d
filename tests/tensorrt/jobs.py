"""What the tests of the run time do in a process whose TensorRT is the double."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

import neurenix as nx
from neurenix import errors
from neurenix.hardware.tensorrt.plan import TensorRTPlan, build_plan
from neurenix.hardware.tensorrt.plan_engine import PlanContext, open_plan
from tests.tensorrt.doubled import address, aligned, call, double

Arrays = Mapping[str, np.ndarray[Any, Any]]
#: The shapes of `network`'s input.
RANGE = {"x": ((1, 6), (4, 6), (8, 6))}


def network() -> nx.Network:
    """y = relu(x w + b) of a batch, and z = the sum of its rows."""
    made = nx.Network("small")
    x = made.add_input("x", "float32", ["batch", 6])
    rng = np.random.default_rng(3)
    w, b = (made.add_constant(n, rng.standard_normal(s).astype("float32")) for n, s in (("w", (6, 5)), ("b", (5,))))
    h = made.add_layer("MatMul", [x, w], name="product")[0]
    y = made.add_layer("Relu", [made.add_layer("Add", [h, b], name="bias")[0]], name="cut")[0]
    made.mark_output(y, "y")
    made.mark_output(made.add_layer("ReduceSum", [y], {"axes": [1], "keepdims": 0}, name="rows")[0], "z")
    return made


def expected(x: np.ndarray[Any, Any]) -> dict[str, np.ndarray[Any, Any]]:
    """The same by numpy."""
    rng = np.random.default_rng(3)
    w, b = (rng.standard_normal(shape).astype("float32") for shape in ((6, 5), (5,)))
    y = np.maximum(x @ w + b, 0)
    return {"y": y, "z": y.sum(1)}


def batch(size: int, seed: int = 0) -> np.ndarray[Any, Any]:
    """An input."""
    return np.random.default_rng(seed).standard_normal((size, 6)).astype("float32")


def plan(**options: Any) -> TensorRTPlan:
    """A plan of `network`."""
    return build_plan(network(), options.pop("shapes", RANGE), targets=["8.6"], **options)


def is_right(context: PlanContext, size: int = 3, seed: int = 0) -> bool:
    """Whether a call gives numpy's numbers."""
    x = batch(size, seed)
    found, wanted = call(context, {"x": x}), expected(x)
    return all(np.allclose(found[name], wanted[name], rtol=1e-5, atol=1e-5) for name in wanted)


def of_file(path: str, shapes: Any, calls: Sequence[Arrays]) -> list[dict[str, Any]]:
    """The outputs of a model at each call of one context."""
    context = build_plan(path, shapes, targets=["8.6"]).open().context()
    return [call(context, feeds) for feeds in calls]


def described() -> tuple[list[tuple[Any, ...]], int, int, list[dict[str, str]]]:
    """What an engine tells: its tensors, profiles, memory, layers."""
    two = [RANGE, {"x": ((2, 6), (16, 6), (32, 6))}]
    engine = plan(shapes=two).open()
    return (
        [tuple(port) for port in engine.tensors],
        engine.num_profiles,
        engine.device_memory(1),
        engine.layers()["Layers"],
    )


def batches(sizes: Sequence[int]) -> list[bool]:
    """Whether one context gives numpy's numbers at each batch."""
    context = plan().open().context()
    return [is_right(context, size) for size in sizes]


def profiles() -> list[bool]:
    """Whether each profile gives them where the other one has no such shape."""
    context = plan(shapes=[RANGE, {"x": ((9, 6), (16, 6), (32, 6))}]).open().context()
    found = []
    for number, size in ((0, 8), (1, 32), (0, 1)):
        context.set_profile(number)
        found.append(is_right(context, size))
    return found


def refused(settings: Mapping[str, int], step: str) -> tuple[str, str, bool]:
    """The error of a step that the double refuses, its tensor, and whether a call is right after that."""
    twin = double()
    data = plan().data
    engine = open_plan(data, trust=True)
    context = engine.context()
    is_right(context)
    steps = {
        "open": lambda: open_plan(data, trust=True),
        "context": engine.context,
        "profile": lambda: context.set_profile(0),
        "layers": engine.layers,
        "call": lambda: is_right(context),
        "memory": context.memory_required,
        "infer": context.infer_shapes,
        "times": lambda: (context.time_layers(), context.layer_times()),
    }
    with twin.doing(**settings):
        try:
            steps[step]()
        except errors.Error as error:
            text, tensor = f"{type(error).__name__}: {error}", str(error.tensor)
        else:
            return "nothing was wrong", "", False
    return text, tensor, is_right(context)


def bad_bytes(data: bytes) -> str:
    """What opening these bytes gives."""
    try:
        open_plan(data, trust=True)
    except errors.Error as error:
        return f"{type(error).__name__}: {error}"
    return "opened"


def damaged() -> list[str]:
    """The same for a plan that was cut, and for one that was changed behind its header."""
    data = plan().data
    return [bad_bytes(data[:-1]), bad_bytes(data[: len(data) // 2]), bad_bytes(data[:-200] + b"\0" * 200)]


def misused() -> list[str]:
    """The errors of calls that are wrong before TensorRT hears of them."""
    context = plan().open().context()
    calls = (
        lambda: context.set_input_shape("x", (9, 6)),
        lambda: context.set_input_shape("x", (1, 5)),
        lambda: context.set_input_shape("y", (1, 5)),
        lambda: context.set_input_shape("no", (1,)),
        lambda: context.set_tensor_address("no", 0),
        lambda: context.set_profile(1),
        lambda: context.engine.device_memory(7),
        lambda: context.set_tensor_address("x", 8),
        context.execute_async,
        lambda: context.collected("y"),
        lambda: context.set_output_allocator("x", lambda *_: 0),
        lambda: context.engine.set_weight_budget(1 << 60),
    )
    found = []
    for wrong in calls:
        try:
            wrong()
        except errors.Error as error:
            found.append(f"{type(error).__name__}: {error}")
        else:
            found.append("nothing")
    return found


def missing() -> list[str]:
    """The inputs without which there are no shapes."""
    return plan().open().context().infer_shapes()


def collected(**settings: int) -> tuple[bool, list[int], tuple[int, ...], tuple[int, ...]]:
    """A call whose result asks for memory: whether it is right, the sizes asked for, its shape, the shape before."""
    context = plan().open().context()
    asked: list[int] = []
    given: list[np.ndarray[Any, Any]] = []

    def allocate(current: int, size: int, alignment: int, stream: int) -> int:
        asked.append(size)
        given.append(aligned((max(size, 1),), np.uint8))
        return address(given[-1])

    x = aligned((3, 6), np.float32)
    x[...] = batch(3)
    z = aligned((3,), np.float32)
    with double().doing(unknown=1, **settings):
        context.set_input_shape("x", x.shape)
        context.infer_shapes()
        before = context.get_tensor_shape("y")
        assert not context.is_capturable()
        context.set_tensor_address("x", address(x))
        context.set_tensor_address("z", address(z))
        context.set_output_allocator("y", allocate)
        scratch = aligned((context.memory_required(),), np.uint8)
        context.set_device_memory(address(scratch), scratch.size)
        context.execute_async()
    shape = context.collected("y")
    found = given[-1][: 4 * int(np.prod(shape))].view(np.float32).reshape(shape)
    return np.allclose(found, expected(batch(3))["y"], rtol=1e-5, atol=1e-5), asked, shape, before


def no_memory(kind: str) -> str:
    """The error of a call whose allocator gives nothing, raises, or gives an odd address."""
    context = plan().open().context()
    x = aligned((3, 6), np.float32)

    def allocate(current: int, size: int, alignment: int, stream: int) -> int:
        if kind == "raises":
            raise MemoryError("none left")
        return {"null": 0, "odd": 8}[kind]

    context.set_input_shape("x", x.shape)
    context.set_tensor_address("x", address(x))
    for name in ("y", "z"):
        context.set_output_allocator(name, allocate)
    scratch = aligned((context.memory_required(),), np.uint8)
    context.set_device_memory(address(scratch), scratch.size)
    try:
        context.execute_async()
    except errors.Error as error:
        return f"{type(error).__name__}: {error}"
    return "nothing was wrong"


def threads(count: int, calls: int) -> tuple[int, list[str]]:
    """So many threads, each with a context of its own: the calls that were right, and what went wrong."""
    engine = plan().open()
    right, wrong = [0] * count, []

    def work(number: int) -> None:
        try:
            context = engine.context()
            for at in range(calls):
                right[number] += is_right(context, 1 + (number + at) % 8, number * 100 + at)
        except BaseException as error:
            wrong.append(repr(error))

    running = [threading.Thread(target=work, args=(number,)) for number in range(count)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    return sum(right), wrong


def errors_of_threads(count: int) -> list[str]:
    """The errors of threads that fail at once, each at an input shape of its own."""
    engine = plan().open()
    found = [""] * count
    gate = threading.Barrier(count)

    def work(number: int) -> None:
        context = engine.context()
        gate.wait()
        try:
            context.execute_async() if number % 2 else context.set_tensor_address("x", 8)
        except errors.Error as error:
            found[number] = error.message

    running = [threading.Thread(target=work, args=(number,)) for number in range(count)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    return found


def leaves() -> dict[str, int]:
    """What is left of runtimes, engines and contexts when nobody holds them."""
    twin = double()
    kinds = ("runtime", "engine", "context")
    before = {kind: twin.count(f"live {kind}") - twin.count(f"dead {kind}") for kind in kinds}
    context = plan().open().context()
    assert is_right(context)
    del context
    return {kind: twin.count(f"live {kind}") - twin.count(f"dead {kind}") - before[kind] for kind in kinds}


def times() -> list[tuple[str, float]]:
    """The times of layers."""
    context = plan().open().context()
    context.time_layers()
    assert is_right(context)
    return context.layer_times()


def budget() -> tuple[int, int]:
    """The weights that may leave the GPU, and how often the double was told a budget."""
    twin = double()
    before = twin.count("budget")
    engine = plan(weight_streaming=True).open()
    for size in (0, engine.streamable_weights, None):
        engine.set_weight_budget(size)
    return engine.streamable_weights, twin.count("budget") - before


def refitted() -> tuple[list[str], list[str], int]:
    """The names of weights, the errors of what is wrong, and how often weights were replaced."""
    twin = double()
    for name in ("w", "b"):
        twin.weights(name)
    engine, w = plan(refittable=True).open(), np.zeros((6, 5), "float32")
    before, found = twin.count("refit"), []
    wrong: list[tuple[Any, dict[str, Any], dict[str, int]]] = [
        (engine, {"no": w}, {}),
        (engine, {"w": w}, {"together": 1}),
        (engine, {"w": w}, {"refit": 1}),
        (engine, {"w": w}, {"refitter": 1}),
        (engine, {"w": w.astype("float64")}, {}),
        (plan().open(), {"w": w}, {}),
    ]
    for opened, weights, settings in wrong:
        with twin.doing(**settings):
            try:
                opened.refit(weights)
            except errors.Error as error:
                found.append(f"{type(error).__name__}: {error}")
    engine.refit({"w": w, "b": np.zeros(5, "float32")})
    return engine.weight_names, found, twin.count("refit") - before
