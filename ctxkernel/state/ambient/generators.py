"""Generators of random numbers. They are asked after every cell, and their state is slow to read: memory is the stamp.

Rule: a look at memory is believed only where it was seen to tell draws apart, on a generator of our own.
"""

from __future__ import annotations

import contextlib
import random
import struct
import sys
from typing import Any

from ctxkernel.state.ambient.part import Part

string_at: Any = None
with contextlib.suppress(ImportError):
    from ctypes import string_at


class PythonRandom(Part):
    """The generator behind the functions of `random`."""

    name = "random"
    about = "the generator of the module random"

    def __init__(self) -> None:
        self._exact: bool | None = None

    def capture(self) -> Any:
        """Return version, the 625 words as bytes, and the kept Gaussian number."""
        version, words, gauss = random.getstate()
        return (version, struct.pack(f"<{len(words)}I", *words), gauss)

    def restore(self, value: Any) -> None:
        """Set the state."""
        version, raw, gauss = value
        random.setstate((version, struct.unpack(f"<{len(raw) // 4}I", raw), gauss))

    def stamp(self) -> object:
        """Return the memory of the generator: reading its words one by one takes a hundred times as long."""
        if self._exact is None:
            self._exact = string_at is not None and self._works()
        instance = getattr(random.random, "__self__", None)
        if not self._exact or type(instance) is not random.Random:  # somebody replaced the functions
            return self.capture()
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


class NumpyRandom(Part):
    """NumPy's global generator, which `np.random.rand` and its kin draw from."""

    name = "numpy random"
    about = "the global generator of numpy.random"
    needs = "numpy"

    def __init__(self) -> None:
        self._exact: bool | None = None

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

    def stamp(self) -> object:
        """Return the memory of the generator and of what it has drawn ahead."""
        state = getattr(sys.modules.get("numpy.random.mtrand"), "_rand", None)
        if self._exact is None:
            self._exact = string_at is not None and state is not None and self._works()
        return _numpy_memory(state) if self._exact else self.capture()

    def _works(self) -> bool:
        sample = sys.modules["numpy"].random.RandomState(1)
        seen = [_numpy_memory(sample)]
        for _ in range(3):  # the second draw only takes the number that the first one kept
            sample.standard_normal()
            seen.append(_numpy_memory(sample))
        return len(set(seen)) == len(seen) and _numpy_memory(sample) == seen[-1]


def _numpy_memory(state: Any) -> object:
    generator = state._bit_generator
    head = object.__basicsize__
    own = string_at(id(state) + head, type(state).__basicsize__ - head)
    if type(generator).__name__ != "MT19937":
        return own, repr(generator.state)
    return own, string_at(generator.ctypes.state_address, 4 * 625)


class TorchRandom(Part):
    """PyTorch's generators, and what its results depend on besides."""

    name = "torch random"
    about = "the generators of torch (CPU; CUDA where it is in use), default type, gradients on or off"
    needs = "torch"

    def capture(self) -> Any:
        """Return states as bytes."""
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

    def restore(self, value: Any) -> None:
        """Set the states."""
        torch = sys.modules["torch"]

        def tensor(raw: bytes) -> Any:
            return torch.frombuffer(bytearray(raw), dtype=torch.uint8)

        torch.set_rng_state(tensor(value["cpu"]))
        torch.set_default_dtype(getattr(torch, value["dtype"].removeprefix("torch.")))
        torch.set_grad_enabled(value["grad"])
        torch.use_deterministic_algorithms(value["deterministic"])
        if value.get("cuda"):
            torch.cuda.set_rng_state_all([tensor(raw) for raw in value["cuda"]])


PARTS: list[Part] = [PythonRandom(), NumpyRandom(), TorchRandom()]
