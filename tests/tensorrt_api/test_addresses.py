"""Addresses that the processor can't reach are errors of a call, not its end."""

from __future__ import annotations

import ctypes
import errno
import mmap
from typing import Any

import numpy as np
import pytest

import neurenix.hardware.tensorrt as trt
from neurenix import addresses
from tests.tensorrt_api.made import Grown, Kept, engine_of

SIZE = mmap.PAGESIZE
NOWHERE = 0x7F00_0000_0000
NOTHING, READ, WRITE = 0, mmap.PROT_READ, mmap.PROT_READ | mmap.PROT_WRITE


class Pages:
    """Pages of memory with the rights that each shall have."""

    def __init__(self, *rights: int) -> None:
        self.memory = mmap.mmap(-1, SIZE * len(rights))
        self.begin = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
        protect = ctypes.CDLL(None, use_errno=True).mprotect
        for index, right in enumerate(rights):
            assert protect(ctypes.c_void_p(self.begin + SIZE * index), ctypes.c_size_t(SIZE), right) == 0


def relu(network: trt.INetworkDefinition) -> Any:
    y = network.add_activation(network.add_input("x", trt.float32, (2, 3)), trt.ActivationType.RELU).get_output(0)
    y.name = "y"
    return y


def places(network: trt.INetworkDefinition) -> Any:
    y = network.add_non_zero(network.add_input("x", trt.float32, (2, 3))).get_output(0)
    y.name = "y"
    return y


@pytest.mark.parametrize("way", ["call", "list", "sandbox"])
def test_what_can_be_reached(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(*arguments: Any) -> int:
        ctypes.set_errno(errno.EPERM)
        return -1

    for name in ("_READ", "_WRITE") if way != "call" else ():
        monkeypatch.setattr(addresses, name, forbidden if way == "sandbox" else None)
    pages = Pages(WRITE, READ, NOTHING)
    pages.memory[0], pages.memory[SIZE - 1] = 7, 9
    own, fixed, closed = (pages.begin + SIZE * index for index in range(3))
    for given, read, written in (
        ([], 0, 0),
        ([own, own + SIZE - 1, fixed, closed], 3, 2),
        ([fixed - 1, fixed], 2, 1),
        ([closed, own], 0, 0),
        ([own, 0, own], 1, 1),
        ([own, -8], 1, 1),
        ([own, 1 << 64], 1, 1),
        ([NOWHERE], 0, 0),
        ([own] * 2000 + [closed], 2000, 2000),
    ):
        assert addresses.reachable(given) == read
        assert addresses.reachable(given, write=True) == written
    assert addresses.is_readable(own, closed) and addresses.is_readable(own, own)
    assert not addresses.is_readable(own, closed + 1) and not addresses.is_readable(0, 8)
    assert (pages.memory[0], pages.memory[SIZE - 1]) == (7, 9)


@pytest.mark.parametrize("build", [relu, places])
def test_an_input_that_can_not_be_read(build: Any) -> None:
    logger = Kept()
    context = engine_of(build, logger=logger).create_execution_context()
    grown, x = Grown(), np.ones((2, 3), np.float32)
    context.set_output_allocator("y", grown)
    pages = Pages(READ, NOTHING)
    # The last one begins in a page that can be read, and ends behind it.
    for address in (NOWHERE, 8, pages.begin + SIZE, pages.begin + SIZE - 20):
        assert context.set_tensor_address("x", address)
        assert not context.execute_async_v3(0)
        assert "the processor can't read\n  tensor: x\n  expected: 24 bytes" in logger.errors[-1]
    for address in (x.ctypes.data, pages.begin + SIZE - 24):
        assert context.set_tensor_address("x", address)
        assert context.execute_async_v3(0), trt.last_error()


def test_an_output_that_can_not_be_written() -> None:
    logger = Kept()
    context = engine_of(relu, logger=logger).create_execution_context()
    x, y = np.float32([[-1, 2, 3], [4, -5, 6]]), np.zeros((2, 3), np.float32)
    pages = Pages(WRITE, READ)
    context.set_tensor_address("x", x.ctypes.data)
    for address in (NOWHERE, pages.begin + SIZE, pages.begin + SIZE - 20):
        assert context.set_tensor_address("y", address)
        assert not context.execute_async_v3(0) and not context.execute_v2([x.ctypes.data, address])
        assert "the processor can't write to\n  tensor: y\n  expected: 24 bytes" in logger.errors[-1]
    for address in (y.ctypes.data, pages.begin, y.ctypes.data):
        assert context.execute_v2([x.ctypes.data, address])
    np.testing.assert_array_equal(y, np.maximum(x, 0))
    np.testing.assert_array_equal(np.frombuffer(pages.memory[:24], np.float32).reshape(2, 3), y)


@pytest.mark.parametrize("build", [relu, places])
def test_an_allocator_that_gives_what_can_not_be_written(build: Any) -> None:
    class Wrong(Grown):
        def reallocate_output_async(self, *arguments: Any) -> int:
            return NOWHERE

    logger = Kept()
    context = engine_of(build, logger=logger).create_execution_context()
    x = np.ones((2, 3), np.float32)
    context.set_tensor_address("x", x.ctypes.data)
    context.set_output_allocator("y", Wrong())
    assert not context.execute_async_v3(0)
    assert "the processor can't write to\n  tensor: y" in logger.errors[-1]
