"""Torch as a source: a tensor that the processor sees is the array that it is, any other its facts; and a network.

Rule 1: nothing is copied but a few elements, which of a tensor on a device are asked for when it is rendered only:
        a tensor's stamp is made of identity, address and torch's own count of changes.
Rule 2: a subclass's `__torch_function__` is not run.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any

from ctxkernel.core.descriptions import brief
from ctxkernel.core.reflection import attributes, type_name
from ctxkernel.core.text import format_size, one_line, plural
from ctxkernel.sources.base.rendering import BaseSource, titled
from ctxkernel.sources.objects.facts import FactsSource, array_line
from ctxkernel.sources.tables.arrays import ArraySource

_FIRST = 6
_MODULES = 500


def open_tensor(target: Any, label: str) -> BaseSource:
    """Return the source for a tensor."""
    torch = sys.modules["torch"]
    with torch._C.DisableTorchFunctionSubclass():
        try:
            target.detach().numpy()
        except Exception:  # on a device, sparse, quantized, of a type that NumPy has not, conjugated
            return FarTensorSource(target, label)
    return TensorSource(target, label)


class TensorSource(ArraySource):
    """A tensor that lies in the processor's memory."""

    kind = "tensor"

    def _array(self) -> Any:
        with sys.modules["torch"]._C.DisableTorchFunctionSubclass():
            return self.target.detach().numpy()  # the same memory

    def stamp(self) -> str:
        """Return the array's stamp, and what torch knows beside."""
        return f"{super().stamp()} {_grad(self.target)}"

    def _headline(self, array: Any) -> str:
        grad = _grad(self.target)
        with sys.modules["torch"]._C.DisableTorchFunctionSubclass():
            device = str(self.target.device)
        return f"{super()._headline(array)} · {device}{f' · {grad}' if grad else ''}"


class FarTensorSource(FactsSource):
    """A tensor on a device, or of a layout that is no array."""

    kind = "tensor"

    def headline(self) -> str:
        """Return label, type, shape, dtype, device and size."""
        tensor = self.target
        with sys.modules["torch"]._C.DisableTorchFunctionSubclass():
            shape = " × ".join(f"{side:,}" for side in tensor.shape) or "scalar"
            size = format_size(tensor.element_size() * tensor.nelement())
            return f"{titled(self.label, tensor)} · {shape} · {_word(tensor.dtype)} · {tensor.device} · {size}"

    def stamp(self) -> str:
        """Return identity, address and count of changes: no element is looked at. Never raises."""
        tensor = self.target
        parts = [f"{id(tensor):x}"]
        with sys.modules["torch"]._C.DisableTorchFunctionSubclass():
            for ask in (lambda: tensor._version, tensor.data_ptr, lambda: (*tensor.shape, tensor.dtype, tensor.device)):
                try:
                    parts.append(str(ask()))
                except Exception:  # sparse and meta tensors have no address, inference tensors count nothing
                    parts.append("-")
        return " ".join([*parts, _grad(tensor)])

    def structure(self) -> list[str]:
        """Return layout, strides and gradient."""
        tensor = self.target
        with sys.modules["torch"]._C.DisableTorchFunctionSubclass():
            lines = [f"layout: {_word(tensor.layout)}"]
            if _word(tensor.layout) == "strided" and tensor.ndim:
                lines.append(f"strides: {', '.join(map(str, tensor.stride()))}")
            elif _word(tensor.layout) == "sparse_coo":
                lines.append(f"stored: {tensor._nnz():,} of {tensor.nelement():,} elements")
            made_by = tensor.grad_fn
        grad = _grad(tensor)
        lines += [f"gradient: {grad}"] if grad else []
        return [*lines, *([f"made by {type_name(type(made_by))}"] if made_by is not None else [])]

    def value(self) -> list[str]:
        """Return the first elements, the only ones that are fetched, and how often it was changed in place."""
        tensor = self.target
        try:
            with sys.modules["torch"]._C.DisableTorchFunctionSubclass():
                changes = f"changed in place {tensor._version:,} times"
        except RuntimeError:
            changes = "changes are not counted"
        try:
            with sys.modules["torch"]._C.DisableTorchFunctionSubclass():
                part = tensor.detach()
                while part.ndim > 1:
                    part = part[0]
                first = part[:_FIRST].tolist() if part.ndim else [part.item()]
            return [f"first elements: {brief(first, 160)}{', …' if tensor.nelement() > len(first) else ''}", changes]
        except Exception as fault:  # meta: no data; sparse: no first ones
            return [f"elements are not shown ({type(fault).__name__})", changes]

    def summary(self) -> list[str]:
        """Return why there are no statistics."""
        return [f"- {line}" for line in [*self.structure(), *self.value()]] + [
            "- no statistics: they are computed of what NumPy can look into only"
        ]


class NetworkSource(FactsSource):
    """A `torch.nn.Module`. 0: its parameters with values; 1: the modules in it; 2: how many of each. It is not run."""

    kind = "network"

    def headline(self) -> str:
        """Return label, type, number of parameters, and size."""
        tensors = [tensor for _, module in _modules(self.target) for _, tensor in _tensors(module, "_parameters")]
        with sys.modules["torch"]._C.DisableTorchFunctionSubclass():
            count = sum(tensor.nelement() for tensor in tensors)
            size = format_size(sum(tensor.element_size() * tensor.nelement() for tensor in tensors))
        return f"{titled(self.label, self.target)} · {plural(count, 'parameters')} · {size}"

    def value(self) -> list[str]:
        """Return a line a parameter or buffer."""
        found: list[str] = []
        for path, module in _modules(self.target):
            for what in ("_parameters", "_buffers"):
                for name, tensor in _tensors(module, what):
                    found.append(f"{'.'.join((*path, name))}: {_values(tensor)}")
        return found or ["no parameters"]

    def structure(self) -> list[str]:
        """Return the tree of modules, with the shapes of their parameters."""
        found: list[str] = []
        for path, module in _modules(self.target):
            own = [f"{name} {_shape(tensor)}" for name, tensor in _tensors(module, "_parameters")]
            name = f"{path[-1]}: " if path else ""
            kind = type_name(type(module)).rpartition(".")[2]
            found.append(" · ".join([f"{'  ' * len(path)}{name}{kind}", *([", ".join(own)] if own else [])]))
        return found

    def summary(self) -> list[str]:
        """Return how many modules of each kind there are, and what is trained."""
        modules = list(_modules(self.target))
        kinds = Counter(type_name(type(module)).rpartition(".")[2] for path, module in modules if path)
        with sys.modules["torch"]._C.DisableTorchFunctionSubclass():
            tensors = [tensor for _, module in modules for _, tensor in _tensors(module, "_parameters")]
            trained = sum(tensor.nelement() for tensor in tensors if tensor.requires_grad)
            places = sorted({str(tensor.device) for tensor in tensors})
        mode = "training" if attributes(self.target).get("training") else "evaluation"
        return [
            *([f"- {', '.join(f'{count} {kind}' for kind, count in kinds.most_common(20))}"] if kinds else []),
            f"- {plural(trained, 'parameters')} with a gradient; in {mode} mode",
            *([f"- on {', '.join(places)}"] if places else []),
        ]


def _modules(root: Any) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield each module with its path, outer ones first; one that stands in two places once."""
    seen: set[int] = set()
    waiting: list[tuple[tuple[str, ...], Any]] = [((), root)]
    while waiting and len(seen) < _MODULES:
        path, module = waiting.pop()
        if id(module) in seen:
            continue
        seen.add(id(module))
        yield path, module
        inner: dict[str, Any] = attributes(module).get("_modules") or {}
        waiting += [((*path, one_line(name, 40)), one) for name, one in reversed(inner.items()) if one is not None]


def _tensors(module: Any, what: str) -> list[tuple[str, Any]]:
    found: dict[str, Any] = attributes(module).get(what) or {}
    return [(one_line(name, 40), tensor) for name, tensor in found.items() if tensor is not None]


def _shape(tensor: Any) -> str:
    with sys.modules["torch"]._C.DisableTorchFunctionSubclass():
        return " × ".join(str(side) for side in tensor.shape) or "scalar"


def _values(tensor: Any) -> str:
    with sys.modules["torch"]._C.DisableTorchFunctionSubclass():
        try:
            if tensor.device.type == "cpu":
                return array_line(tensor.detach().numpy())
        except (RuntimeError, TypeError):  # of a kind that NumPy has not
            pass
        return f"{_shape(tensor)} {_word(tensor.dtype)} on {tensor.device}"


def _word(value: Any) -> str:
    return str(value).removeprefix("torch.")


def _grad(tensor: Any) -> str:
    with sys.modules["torch"]._C.DisableTorchFunctionSubclass():
        held = tensor.is_leaf and tensor.grad is not None
        return f"requires_grad{', grad is set' if held else ''}" if tensor.requires_grad else ""
