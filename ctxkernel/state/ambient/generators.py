"""Generators of random numbers: those behind the functions of `random` and `numpy.random`, and those of torch.

They are asked after every cell, and their state is slow to read: memory is the stamp.

Rule: a look at memory is believed only where it was seen to tell draws apart, on a generator of our own.
"""

from __future__ import annotations

import contextlib
import random
import struct
import sys
from collections.abc import Callable
from typing import Any

from ctxkernel.state.ambient.part import Part, Setting

string_at: Any = None
with contextlib.suppress(ImportError):
    from ctypes import string_at


class _Generator(Part):
    """A part with a generator. Its memory is the stamp: reading its state takes a hundred times as long."""

    _find: Callable[[], Any]
    """Returns the generator, None where it is not as expected."""
    _sample: Callable[[], tuple[Any, Callable[[], object]]]
    """Returns a generator of our own, and what draws from it."""
    _memory: Callable[[Any], object]
    _exact: bool | None = None

    def stamp(self) -> object:
        generator = self._find()
        if self._exact is None and generator is not None:
            self._exact = string_at is not None and self._works()
        return self._memory(generator) if self._exact and generator is not None else self.capture()

    def _works(self) -> bool:
        generator, draw = self._sample()
        seen = [self._memory(generator)]
        for _ in range(3):
            draw()
            seen.append(self._memory(generator))
        return len(set(seen)) == len(seen) and self._memory(generator) == seen[-1]


class _Python(_Generator):
    name = "random"

    def _find(self) -> Any:
        generator = getattr(random.random, "__self__", None)
        return generator if type(generator) is random.Random else None  # else somebody replaced the functions

    def _sample(self) -> tuple[Any, Callable[[], object]]:
        generator = random.Random(1)
        return generator, generator.random

    def _memory(self, generator: Any) -> object:
        return string_at(id(generator) + object.__basicsize__, 4 * 625), generator.gauss_next

    def capture(self) -> Any:
        """Return version, the 625 words as bytes, and the kept Gaussian number."""
        version, words, gauss = random.getstate()
        return (version, struct.pack(f"<{len(words)}I", *words), gauss)

    def restore(self, value: Any) -> None:
        version, raw, gauss = value
        random.setstate((version, struct.unpack(f"<{len(raw) // 4}I", raw), gauss))


class _Numpy(_Generator):
    name = "numpy random"
    needs = "numpy"

    def _find(self) -> Any:
        return getattr(sys.modules.get("numpy.random.mtrand"), "_rand", None)

    def _sample(self) -> tuple[Any, Callable[[], object]]:
        generator = sys.modules["numpy"].random.RandomState(1)
        return generator, generator.standard_normal  # the second draw only takes the number that the first one kept

    def _memory(self, generator: Any) -> object:
        bits, head = generator._bit_generator, object.__basicsize__
        own = string_at(id(generator) + head, type(generator).__basicsize__ - head)
        if type(bits).__name__ != "MT19937":
            return own, repr(bits.state)
        return own, string_at(bits.ctypes.state_address, 4 * 625)

    def capture(self) -> Any:
        """Return the state of the global generator as a dict with the key as bytes."""
        state = dict(sys.modules["numpy"].random.get_state(legacy=False))
        inner = dict(state["state"])
        if hasattr(inner.get("key"), "tobytes"):
            inner["key"] = ("uint32", inner["key"].astype("<u4").tobytes())
        return {**state, "state": inner}

    def restore(self, value: Any) -> None:
        """Set the state. A global generator of another kind than then is an error."""
        numpy = sys.modules["numpy"]
        inner = dict(value["state"])
        if isinstance(inner.get("key"), tuple):
            inner["key"] = numpy.frombuffer(inner["key"][1], dtype="<u4").astype("uint32")
        numpy.random.set_state({**value, "state": inner})


def _torch_state() -> Any:
    """Return states of generators (CPU; CUDA where it is in use) as bytes, and what results depend on besides."""
    torch = sys.modules["torch"]
    value = {
        "cpu": torch.get_rng_state().numpy().tobytes(),
        "dtype": str(torch.get_default_dtype()),
        "grad": torch.is_grad_enabled(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
    }
    if "torch.cuda" in sys.modules and torch.cuda.is_initialized():
        value["cuda"] = [state.cpu().numpy().tobytes() for state in torch.cuda.get_rng_state_all()]
    return value


def _set_torch_state(value: Any) -> None:
    torch = sys.modules["torch"]

    def tensor(raw: bytes) -> Any:
        return torch.frombuffer(bytearray(raw), dtype=torch.uint8)

    torch.set_rng_state(tensor(value["cpu"]))
    torch.set_default_dtype(getattr(torch, value["dtype"].removeprefix("torch.")))
    torch.set_grad_enabled(value["grad"])
    torch.use_deterministic_algorithms(value["deterministic"])
    if value.get("cuda"):
        torch.cuda.set_rng_state_all([tensor(raw) for raw in value["cuda"]])


PARTS: list[Part] = [_Python(), _Numpy(), Setting("torch random", _torch_state, _set_torch_state, needs="torch")]
