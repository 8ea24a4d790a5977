"""A checkpoint of torch in memory (a `state_dict`, or a dict that holds some) as a source.

0: a line a tensor; 1: modules with the shapes of their tensors, and what else is in it; 2: parameters, types, devices.

Rule: of a tensor on a device no element is fetched; nothing is copied but a few elements.
"""

from __future__ import annotations

import sys
from collections import Counter, OrderedDict
from collections.abc import Iterator
from itertools import islice
from typing import Any

from ctxkernel.core.descriptions import brief
from ctxkernel.core.reflection import class_of, is_a
from ctxkernel.core.text import format_size, plural
from ctxkernel.sources.base.amounts import NamedLine, more_lines
from ctxkernel.sources.libraries.models import tensor_line, tensor_shape
from ctxkernel.sources.objects.adapters import AdaptedSource, Adapter, Fact
from ctxkernel.sources.objects.fields import first, key_name

_DEPTH = 4
_LOOKED_AT = 50
_TENSORS = 20_000
_LISTED = 300
_OTHERS = 60
_LARGE = 8 << 20
"""Bytes of a checkpoint of which no ranges are looked for …"""
_HASHED = 1 << 16
"""… and so many bytes of each tensor are hashed."""
_DICTS = (dict, OrderedDict)


def is_checkpoint(target: Any) -> bool:
    """Return whether it is a dict that holds tensors of torch, itself or in a dict that it holds."""
    kind = getattr(sys.modules.get("torch"), "Tensor", None)
    if kind is None or class_of(target) not in _DICTS:
        return False
    some = first(target.values(), _LOOKED_AT)
    inner = [one for item in some if class_of(item) in _DICTS for one in first(item.values(), _LOOKED_AT)]
    return any(is_a(one, kind) for one in (*some, *inner))


class _Checkpoint:
    """The tensors by their path, and everything else."""

    def __init__(self, target: Any) -> None:
        self.tensors: list[tuple[str, Any]] = []
        self.rest: list[tuple[str, Any]] = []
        self._walk(target, "", 0)
        with sys.modules["torch"]._C.DisableTorchFunctionSubclass():
            self.count = sum(tensor.nelement() for _, tensor in self.tensors)
            self.bytes = sum(tensor.nelement() * tensor.element_size() for _, tensor in self.tensors)
            self.kinds = Counter(str(tensor.dtype).removeprefix("torch.") for _, tensor in self.tensors)
            self.devices = Counter(str(tensor.device) for _, tensor in self.tensors)

    def _walk(self, value: Any, path: str, depth: int) -> None:
        kind = sys.modules["torch"].Tensor
        for key, item in islice(value.items(), _TENSORS):
            name = f"{path}.{key_name(key)}" if path else key_name(key)
            if is_a(item, kind):
                self.tensors.append((name, item))
            elif class_of(item) in _DICTS and item and depth < _DEPTH:
                self._walk(item, name, depth + 1)
            else:
                self.rest.append((name, item))


def _values(found: _Checkpoint) -> Iterator[str]:
    yield from (f"{name} = {brief(value, 160)}" for name, value in found.rest[:_LISTED])
    how: dict[str, Any] = {"limit": _HASHED, "ranged": False} if found.bytes > _LARGE else {}
    yield from (f"{name}: {tensor_line(tensor, **how)}" for name, tensor in found.tensors[:_LISTED])
    yield from more_lines(len(found.tensors) - _LISTED, "tensors")


def _others(found: _Checkpoint) -> Iterator[str]:
    for name, value in found.rest[:_OTHERS]:
        yield NamedLine(f"{name} = {brief(value, 160)}", name, "values", what="values")
    yield from more_lines(len(found.rest) - _OTHERS, "values")


def _modules(found: _Checkpoint) -> Iterator[str]:
    """Yield a line a module: its tensors with their shapes."""
    modules: dict[str, list[str]] = {}
    for name, tensor in found.tensors:
        module, _, own = name.rpartition(".")
        modules.setdefault(module, []).append(f"{own} {tensor_shape(tensor)}")
    for name, own in islice(modules.items(), _LISTED):
        yield NamedLine(f"{name or '(top)'}: {', '.join(own)}", name or "(top)", "modules", what="modules", rank=1)
    yield from more_lines(len(modules) - _LISTED, "modules")


def _largest(found: _Checkpoint) -> str | None:
    with sys.modules["torch"]._C.DisableTorchFunctionSubclass():
        top = sorted(found.tensors, key=lambda row: (-row[1].nelement(), row[0]))[:5]
    return ", ".join(f"{name} {tensor_shape(tensor)}" for name, tensor in top) or None


def _counted(counts: Counter[str]) -> str:
    return ", ".join(f"{name} ({often:,})" for name, often in counts.most_common(8))


def _stamp(target: Any) -> str:
    """Return identity, address and count of changes of the first tensors, and the other values."""
    found = _Checkpoint(target)
    parts = [f"{name} {brief(value, 160)}" for name, value in found.rest[:_LISTED]]
    with sys.modules["torch"]._C.DisableTorchFunctionSubclass():
        for name, tensor in found.tensors[:_LISTED]:
            try:
                parts.append(f"{name} {id(tensor):x} {tensor._version}")
            except RuntimeError:  # inference tensors count no changes
                parts.append(f"{name} {id(tensor):x} ~")
    return f"{'~' if len(found.tensors) > _LISTED else ''}{' '.join(parts)}"


class CheckpointSource(AdaptedSource):
    """A view of a checkpoint."""

    kind = "checkpoint"
    adapter = Adapter(
        head=lambda found: (
            f"{plural(len(found.tensors), 'tensors')}, {found.count:,} elements, {format_size(found.bytes)}"
        ),
        facts=(
            Fact("also", _others, brief=True),
            Fact("types", lambda found: _counted(found.kinds), brief=True),
            Fact("devices", lambda found: _counted(found.devices), brief=True),
            Fact("largest", _largest, brief=True),
            Fact("modules", _modules),
        ),
        value=_values,
        read=_Checkpoint,
        stamp=_stamp,
    )
