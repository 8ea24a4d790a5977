"""Generators of random numbers: those behind the functions of `random` and `numpy.random`, and those of torch."""

from __future__ import annotations

import random
import struct
import sys
from typing import Any

from ctxkernel.state.ambient.part import Part, Setting


def _python_state() -> Any:
    """Return version, the 625 words as bytes, and the kept Gaussian number."""
    version, words, gauss = random.getstate()
    return (version, struct.pack(f"<{len(words)}I", *words), gauss)


def _set_python_state(value: Any) -> None:
    version, raw, gauss = value
    random.setstate((version, struct.unpack(f"<{len(raw) // 4}I", raw), gauss))


def _numpy_state() -> Any:
    """Return the state of the global generator as a dict with the key as bytes."""
    state = dict(sys.modules["numpy"].random.get_state(legacy=False))
    inner = dict(state["state"])
    if hasattr(inner.get("key"), "tobytes"):
        inner["key"] = ("uint32", inner["key"].astype("<u4").tobytes())
    return {**state, "state": inner}


def _set_numpy_state(value: Any) -> None:
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


PARTS: list[Part] = [
    Setting("random", _python_state, _set_python_state),
    Setting("numpy random", _numpy_state, _set_numpy_state, needs="numpy"),
    Setting("torch random", _torch_state, _set_torch_state, needs="torch"),
]
