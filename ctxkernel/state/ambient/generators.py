"""Generators of random numbers. They are asked after every cell, and their state is slow to read: memory is the stamp.

Rule: a look at memory is believed only where it was seen to tell draws apart, on a generator of our own.
"""

from __future__ import annotations

import contextlib
import random
import struct
import sys
from typing import Any

from ctxkernel.state.ambient.part import Part, Setting

string_at: Any = None
with contextlib.suppress(ImportError):
    from ctypes import string_at


class _Generator(Part):
    """A generator whose memory is the stamp, where that was seen to tell draws apart."""

    def __init__(self) -> None:
        self._exact: bool | None = None

    def _memory(self) -> object:
        """Return the memory of the generator; None where it is of another kind."""
        raise NotImplementedError

    def _works(self) -> bool:
        """Return whether the memory of a generator of our own tells its draws apart."""
        raise NotImplementedError

    def stamp(self) -> object:
        if self._exact is None:
            self._exact = string_at is not None and self._works()
        memory = self._memory() if self._exact else None
        return self.capture() if memory is None else memory


class PythonRandom(_Generator):
    """The generator behind the functions of `random`."""

    name = "random"

    def capture(self) -> Any:
        """Return version, the 625 words as bytes, and the kept Gaussian number."""
        version, words, gauss = random.getstate()
        return (version, struct.pack(f"<{len(words)}I", *words), gauss)

    def restore(self, value: Any) -> None:
        """Set the state."""
        version, raw, gauss = value
        random.setstate((version, struct.unpack(f"<{len(raw) // 4}I", raw), gauss))

    def _memory(self) -> object:
        # Reading its words one by one takes a hundred times as long.
        instance = getattr(random.random, "__self__", None)
        if type(instance) is not random.Random:  # somebody replaced the functions
            return None
        return _python_memory(instance), instance.gauss_next  # type: ignore[attr-defined]

    def _works(self) -> bool:
        sample = random.Random(1)
        seen = [_python_memory(sample)]
        sample.random()
        seen.append(_python_memory(sample))
        sample.seed(1)
        return seen[0] == _python_memory(sample) != seen[1]


def _python_memory(generator: random.Random) -> bytes:
    return string_at(id(generator) + object.__basicsize__, 4 * 625)


class NumpyRandom(_Generator):
    """NumPy's global generator, which `np.random.rand` and its kin draw from."""

    name = "numpy random"
    needs = "numpy"

    def capture(self) -> Any:
        """Return the state as a dict with the key as bytes."""
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

    def _global(self) -> Any:
        return getattr(sys.modules.get("numpy.random.mtrand"), "_rand", None)

    def _memory(self) -> object:
        return _numpy_memory(self._global())

    def _works(self) -> bool:
        sample = sys.modules["numpy"].random.RandomState(1)
        seen = [_numpy_memory(sample)]
        for _ in range(3):  # the second draw only takes the number that the first one kept
            sample.standard_normal()
            seen.append(_numpy_memory(sample))
        return self._global() is not None and len(set(seen)) == len(seen) and _numpy_memory(sample) == seen[-1]


def _numpy_memory(state: Any) -> object:
    """Return the memory of a generator of NumPy and of what it has drawn ahead."""
    generator = state._bit_generator
    head = object.__basicsize__
    own = string_at(id(state) + head, type(state).__basicsize__ - head)
    if type(generator).__name__ != "MT19937":
        return own, repr(generator.state)
    return own, string_at(generator.ctypes.state_address, 4 * 625)


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


PARTS: list[Part] = [
    PythonRandom(),
    NumpyRandom(),
    Setting("torch random", _torch_state, _set_torch_state, needs="torch"),
]
