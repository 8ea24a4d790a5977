"""Generators of random numbers: those behind the functions of `random` and `numpy.random`, and those of torch."""

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


def _python_state() -> Any:
    """Return version, the 625 words as bytes, and the kept Gaussian number."""
    version, words, gauss = random.getstate()
    return (version, struct.pack(f"<{len(words)}I", *words), gauss)


def _set_python_state(value: Any) -> None:
    version, raw, gauss = value
    random.setstate((version, struct.unpack(f"<{len(raw) // 4}I", raw), gauss))


class _Numpy(Part):
    """The generator behind the functions of `numpy.random`.

    Its memory is the stamp: reading its state takes fifty times as long. Rule: memory is believed only where it told
    draws apart on a generator of our own.
    """

    name = "numpy random"
    needs = "numpy"
    _exact: bool | None = None

    def stamp(self) -> object:
        generator = getattr(sys.modules.get("numpy.random.mtrand"), "_rand", None)
        if self._exact is None and generator is not None:
            self._exact = string_at is not None and _memory_tells_draws(sys.modules["numpy"].random.RandomState(1))
        return _memory(generator) if self._exact and generator is not None else self.capture()

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


def _memory(generator: Any) -> object:
    bits, head = generator._bit_generator, object.__basicsize__
    own = string_at(id(generator) + head, type(generator).__basicsize__ - head)
    if type(bits).__name__ != "MT19937":
        return own, repr(bits.state)
    return own, string_at(bits.ctypes.state_address, 4 * 625)


def _memory_tells_draws(sample: Any) -> bool:
    seen = [_memory(sample)]
    for _ in range(3):
        sample.standard_normal()  # the second draw only takes the number that the first one kept
        seen.append(_memory(sample))
    return len(set(seen)) == len(seen) and _memory(sample) == seen[-1]


def _default_device(torch: Any) -> str:
    return str(torch.get_default_device()) if hasattr(torch, "get_default_device") else "cpu"  # from 2.3 on


def _torch_state() -> Any:
    """Return states of generators (CPU; CUDA where it is in use) as bytes, and other settings that affect results."""
    torch = sys.modules["torch"]
    value = {
        "cpu": torch.get_rng_state().numpy().tobytes(),
        "dtype": str(torch.get_default_dtype()),
        "grad": torch.is_grad_enabled(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "precision": torch.get_float32_matmul_precision(),
        "anomaly": (torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()),
        "threads": torch.get_num_threads(),
        "device": _default_device(torch),
    }
    if "torch.cuda" in sys.modules and torch.cuda.is_initialized():
        value["cuda"] = [state.cpu().numpy().tobytes() for state in torch.cuda.get_rng_state_all()]
    return value


def _set_torch_state(value: Any) -> None:
    torch = sys.modules["torch"]

    def tensor(raw: bytes) -> Any:
        with torch.device("cpu"):  # whatever the default is
            return torch.frombuffer(bytearray(raw), dtype=torch.uint8)

    torch.set_rng_state(tensor(value["cpu"]))
    torch.set_default_dtype(getattr(torch, value["dtype"].removeprefix("torch.")))
    torch.set_grad_enabled(value["grad"])
    torch.use_deterministic_algorithms(value["deterministic"])
    if "precision" in value:  # else of an earlier version
        torch.set_float32_matmul_precision(value["precision"])
        torch.autograd.set_detect_anomaly(*value["anomaly"])
        if torch.get_num_threads() != value["threads"]:
            torch.set_num_threads(value["threads"])
        if _default_device(torch) != value["device"]:
            torch.set_default_device(None if value["device"] == "cpu" else value["device"])
    if value.get("cuda"):
        torch.cuda.set_rng_state_all([tensor(raw) for raw in value["cuda"]])
    elif "torch.cuda" in sys.modules and torch.cuda.is_initialized():
        torch.cuda.manual_seed_all(torch.initial_seed())  # as the first use of a device does after `manual_seed`


PARTS: list[Part] = [
    Setting("random", _python_state, _set_python_state),
    _Numpy(),
    Setting("torch random", _torch_state, _set_torch_state, needs="torch"),
]
