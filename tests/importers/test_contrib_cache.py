"""GroupQueryAttention against ONNX Runtime's kernel."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

import neurenix as nx
from neurenix.hardware.tensorrt import TensorRTBackend
from neurenix.importers import from_onnx
from tests.importers.single import Array, feeds, model_of, ours, theirs

RNG = np.random.default_rng(3)
HEADS, GROUPS, SIZE = 4, 2, 16


def normal(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float32)


def given(new: int, ends: list[int], past: int | None, packed: bool = False, **more: Array | None) -> dict[str, Any]:
    """The inputs of a node: so many new tokens, behind which each sample ends, and a cache of so many rows."""
    batch, total = len(ends), max(ends)
    q, k, v = normal(batch, new, HEADS * SIZE), normal(batch, new, GROUPS * SIZE), normal(batch, new, GROUPS * SIZE)
    cache = None if past is None else [normal(batch, GROUPS, past, SIZE) for _ in "kv"]
    inputs: dict[str, Any] = {
        "q": np.concatenate([q, k, v], axis=2) if packed else q,
        "k": None if packed else k,
        "v": None if packed else v,
        "past_k": cache and cache[0],
        "past_v": cache and cache[1],
        "ends": np.asarray(ends, np.int32) - 1,
        "total": np.asarray(total, np.int32),
    }
    names = ["cos", "sin", "ids", "bias", "sink", "k_scale", "v_scale", "q_norm", "k_norm", "news"]
    while names and names[-1] not in more:
        names.pop()
    return {**inputs, **{name: more.get(name) for name in names}}


def tables(rows: int, width: int = SIZE) -> dict[str, Array]:
    angles = RNG.uniform(-3, 3, (rows, width // 2))
    return {"cos": np.cos(angles).astype(np.float32), "sin": np.sin(angles).astype(np.float32)}


def agree(
    inputs: dict[str, Any], valid: list[int] | None = None, constants: tuple[str, ...] = (), **attrs: Any
) -> None:
    """Both give the same in the rows that mean something: so many new ones of each sample, and its cache to the end."""
    options = {"num_heads": HEADS, "kv_num_heads": GROUPS, **attrs}
    model = model_of("GroupQueryAttention", inputs, ["y", "key", "value"], constants, domain="com.microsoft", **options)
    got, want = ours(model, feeds(model, inputs)), theirs(model, feeds(model, inputs))
    for name in want:
        assert got[name].shape == want[name].shape and got[name].dtype == want[name].dtype, name
    new = inputs["q"].shape[1]
    for sample, end in enumerate(inputs["ends"] + 1):
        rows = valid[sample] if valid else min(new, end)
        close(got["y"][sample, :rows], want["y"][sample, :rows])
        for name in ("key", "value"):
            close(got[name][sample, :, :end], want[name][sample, :, :end])


def close(got: Array, want: Array) -> None:
    np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("rotary", [None, 0, 1])
@pytest.mark.parametrize("window", [-1, 3])
def test_a_first_prompt(packed: bool, rotary: int | None, window: int) -> None:
    """Without a cache, and with samples of different lengths."""
    more = {} if rotary is None else tables(16)
    attrs = {} if rotary is None else {"do_rotary": 1, "rotary_interleaved": rotary}
    agree(given(6, [6, 4], None, packed, **more), local_window_size=window, **attrs)


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("rotary", [None, 0, 1])
@pytest.mark.parametrize("window", [-1, 1, 3])
@pytest.mark.parametrize("room", [0, 4])
def test_the_next_token(packed: bool, rotary: int | None, window: int, room: int) -> None:
    """With a cache that grows, or has room; samples of different lengths."""
    more = {} if rotary is None else tables(16)
    attrs = {} if rotary is None else {"do_rotary": 1, "rotary_interleaved": rotary}
    agree(given(1, [6, 4], 5 + room, packed, **more), local_window_size=window, **attrs)


@pytest.mark.parametrize("past", [4, 9])
def test_several_tokens_behind_others(past: int) -> None:
    agree(given(3, [7], past, **tables(16)), do_rotary=1)
    if past > 6:
        # A first prompt in a cache that has room.
        agree(given(6, [6, 5], past, **tables(16)), do_rotary=1)


def test_a_part_of_each_head_is_turned() -> None:
    size = 32
    q, k, v = normal(1, 3, HEADS * size), normal(1, 3, GROUPS * size), normal(1, 3, GROUPS * size)
    inputs = given(3, [3], None, **tables(8, 16)) | {"q": q, "k": k, "v": v}
    agree(inputs, do_rotary=1)


def test_positions_that_are_given() -> None:
    agree(given(1, [6, 4], 5, **tables(16), ids=np.asarray([[7], [2]])), do_rotary=1)
    agree(given(3, [7], 4, **tables(16), ids=np.asarray([[7, 2, 5]])), do_rotary=1)
    # Of a first prompt, the first one counts.
    agree(given(3, [3, 3], None, **tables(16), ids=np.asarray([[7, 2, 5], [1, 2, 3]])), do_rotary=1)
    agree(given(3, [3], 8, **tables(16), ids=np.asarray([[7, 2, 5]])), do_rotary=1)


@pytest.mark.parametrize("room", [0, 3])
@pytest.mark.parametrize("shape", [(2, HEADS), (1, HEADS), (2, 1), (1, 1)])
def test_a_bias(shape: tuple[int, int], room: int) -> None:
    agree(given(1, [6, 4], 5 + room, bias=normal(*shape, 1, 6)))


@pytest.mark.parametrize("past", [None, 5])
@pytest.mark.parametrize("smooth", [True, False])
@pytest.mark.parametrize("window", [-1, 2])
def test_a_sink(past: int | None, smooth: bool, window: int) -> None:
    inputs = given(6 if past is None else 1, [6, 6], past, **({} if smooth else {"sink": normal(HEADS)}))
    agree(inputs, local_window_size=window, smooth_softmax=int(smooth))


@pytest.mark.parametrize("past", [None, 5])
def test_scale_and_softcap(past: int | None) -> None:
    agree(given(6 if past is None else 1, [6, 4], past), scale=0.2, softcap=1.5)


@pytest.mark.parametrize("past", [None, 4])
def test_every_key_is_seen(past: int | None) -> None:
    agree(given(3, [3 + (past or 0)], past), causal=0)


def test_chunks_that_are_filled_up() -> None:
    news = np.asarray([3, 1], np.int32)
    agree(given(4, [5, 4], 12, **tables(16), news=news), [3, 1], do_rotary=1)


def test_heads_that_are_normalized() -> None:
    """ONNX Runtime's kernel for processors lacks it: it gets the heads normalized."""
    weights = {"q_norm": normal(SIZE), "k_norm": normal(SIZE)}
    inputs = given(3, [3, 3], None, **weights)

    def unit(x: Array, weight: Array) -> Array:
        heads = x.reshape(*x.shape[:2], -1, SIZE)
        return (heads / np.sqrt((heads**2).mean(-1, keepdims=True) + 1e-5) * weight).reshape(x.shape)

    options = {"domain": "com.microsoft", "num_heads": HEADS, "kv_num_heads": GROUPS}
    model = model_of("GroupQueryAttention", inputs, ["y"], qk_norm_epsilon=1e-5, **options)
    plain = {name: value for name, value in inputs.items() if "norm" not in name and "scale" not in name}
    plain |= {"q": unit(inputs["q"], weights["q_norm"]), "k": unit(inputs["k"], weights["k_norm"])}
    other = model_of("GroupQueryAttention", plain, ["y"], **options)
    close(ours(model, feeds(model, inputs))["y"], theirs(other, feeds(other, plain))["y"])


def test_what_nobody_wrote_into_a_cache_is_kept_out() -> None:
    inputs = given(1, [6, 4], 9, **tables(16))
    for name in ("past_k", "past_v"):
        inputs[name][0, :, 5:], inputs[name][1, :, 3:] = np.nan, np.inf
    agree(inputs, do_rotary=1)


@pytest.mark.parametrize("capacity", [4, 5, 7])
@pytest.mark.parametrize("rotary", [True, False])
@pytest.mark.parametrize("steps", [[6, 1, 1, 1, 1, 1, 1], [1] * 9, [2, 3, 4, 1], [12, 1]])
def test_a_cache_as_long_as_the_window(capacity: int, rotary: bool, steps: list[int]) -> None:
    """Tokens come in several steps, each with the cache of the one before."""
    window, total = 4, 0
    more = tables(32) if rotary else {}
    caches = {name: np.full((1, GROUPS, capacity, SIZE), np.nan, np.float32) for name in ("past_k", "past_v")}
    options = {"num_heads": HEADS, "kv_num_heads": GROUPS, "local_window_size": window, "sliding_window_cache": 1}
    options["do_rotary"] = int(rotary)
    for new in steps:
        total += new
        inputs = given(new, [total], capacity, **more) | caches
        model = model_of(
            "GroupQueryAttention",
            inputs,
            ["y", "key", "value"],
            domain="com.microsoft",
            **options,
        )
        got, want = ours(model, feeds(model, inputs)), theirs(model, feeds(model, inputs))
        drop = capacity - window + 1
        held = total if total <= capacity else total - drop * -(-(total - capacity) // drop)
        close(got["y"], want["y"])
        for name in ("key", "value"):
            assert got[name].shape == want[name].shape
            close(got[name][:, :, :held], want[name][:, :, :held])
        caches = {"past_k": want["key"], "past_v": want["value"]}


def test_samples_of_other_lengths_in_caches_as_long_as_the_window() -> None:
    inputs = given(1, [9, 3], 5, **tables(32))
    attrs = {"local_window_size": 4, "sliding_window_cache": 1, "do_rotary": 1, "smooth_softmax": 1}
    options = {"num_heads": HEADS, "kv_num_heads": GROUPS, **attrs}
    model = model_of("GroupQueryAttention", inputs, ["y", "key", "value"], domain="com.microsoft", **options)
    got, want = ours(model, feeds(model, inputs)), theirs(model, feeds(model, inputs))
    close(got["y"], want["y"])
    for name in ("key", "value"):
        close(got[name][0], want[name][0])
        close(got[name][1, :, :3], want[name][1, :, :3])


def test_a_prompt_and_the_tokens_behind_it_in_one_engine() -> None:
    """As exporters write a decoder: a mask tells how long each sample is, and every size is open."""
    text = """<ir_version: 8, opset_import: ["": 18, "com.microsoft": 1]>
        decoder (float[batch, new, 128] qkv, int64[batch, total] mask, float[batch, 2, past, 16] key0,
                 float[batch, 2, past, 16] value0, float[64, 8] cos, float[64, 8] sin)
            => (float[batch, new, 64] y, float[batch, 2, total, 16] key, float[batch, 2, total, 16] value) {
        one = Constant<value = int64[1] {1}>() place = Constant<value = int64 {1}>()
        long = ReduceSum<keepdims = 0>(mask, one) ends = Sub(long, one) ends32 = Cast<to = 6>(ends)
        shape = Shape(mask) total = Gather(shape, place) total32 = Cast<to = 6>(total)
        y, key, value = com.microsoft.GroupQueryAttention<num_heads = 4, kv_num_heads = 2, do_rotary = 1,
            local_window_size = 5>(qkv, , , key0, value0, ends32, total32, cos, sin)
    }"""
    model = onnx.parser.parse_model(text)
    engine = TensorRTBackend(threads=1, optimization_level=0, timing_cache=False).optimize_model(
        model,
        {
            "qkv": nx.Shape((1, 1, 128), (2, 4, 128), (2, 8, 128)),
            "mask": nx.Shape((1, 1), (2, 8), (2, 16)),
            "key0": nx.Shape((1, 2, 0, 16), (2, 2, 4, 16), (2, 2, 16, 16)),
            "value0": nx.Shape((1, 2, 0, 16), (2, 2, 4, 16), (2, 2, 16, 16)),
            "cos": (64, 8),
            "sin": (64, 8),
        },
    )
    cache = {"key0": normal(2, 2, 0, 16), "value0": normal(2, 2, 0, 16)}
    turns = tables(64)
    for step, new in enumerate((4, 1, 1, 1)):
        given = {"qkv": normal(2, new, 128), "mask": np.ones((2, 4 + step), np.int64), **cache, **turns}
        got, want = engine.run(given), theirs(model, given)
        for name in want:
            close(got[name], want[name])
        cache = {"key0": want["key"], "value0": want["value"]}


@pytest.mark.parametrize(
    ("attrs", "more", "text"),
    [
        ({"k_quant_type": "PER_TENSOR"}, {}, "attribute 'k_quant_type' is not supported"),
        ({}, {"k_scale": normal(1), "v_scale": normal(1)}, "a cache of quantized keys and values"),
    ],
)
def test_caches_of_other_forms_are_refused_by_name(attrs: dict[str, Any], more: dict[str, Any], text: str) -> None:
    inputs = given(1, [6], 5, **more)
    options = {"num_heads": HEADS, "kv_num_heads": GROUPS, **attrs}
    with pytest.raises(nx.UnsupportedError, match=text) as caught:
        from_onnx(model_of("GroupQueryAttention", inputs, ["y", "a", "b"], domain="com.microsoft", **options))
    assert caught.value.layer == "node (GroupQueryAttention)"
