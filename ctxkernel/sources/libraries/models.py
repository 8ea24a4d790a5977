"""A scikit-learn estimator as a source: 0 what was set and learnt, 1 every parameter and fitted attribute, 2 in short.

Rule 1: nothing of the estimator is called: parameters are those of its class's `__init__`, values those of its dict.
Rule 2: of an array the first values are shown, and a hash of all, so that a diff sees any change.

Objects of torch as sources: a tensor in the processor's memory is shown as an array, any other tensor by its facts, and
a network by its modules.

Rule 1: only a few elements are copied. Those of a tensor on a device are fetched only when it is rendered: its stamp
        consists of its identity, its address and torch's count of changes.
Rule 2: a subclass's `__torch_function__` is not run.
"""

from __future__ import annotations

import inspect
import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any

from ctxkernel.core.descriptions import brief
from ctxkernel.core.reflection import attributes, class_of, is_a, type_name
from ctxkernel.core.text import format_shape, format_size, join_names, one_line, plural
from ctxkernel.sources.base.amounts import NamedLine, more_lines
from ctxkernel.sources.base.rendering import BaseSource, short_type, titled
from ctxkernel.sources.objects.facts import FactsSource, array_line, is_array
from ctxkernel.sources.tables.columns import cell, modules
from ctxkernel.sources.tables.numpy_arrays import ArraySource

_DEEPEST = 4
_PARTS = 50


class EstimatorSource(FactsSource):
    """A view of an estimator, a pipeline or a search."""

    kind = "estimator"

    def headline(self) -> str:
        """Return label, class, and whether it was fitted."""
        return f"{titled(self.label, self.target)} · {'fitted' if _fitted(self.target) else 'not fitted'}"

    def value(self) -> list[str]:
        """Return the parameters that were set, and what was learnt, of each part."""
        return list(_lines(self.target, every=False))

    def structure(self) -> list[str]:
        """Return every parameter with its default, and every fitted attribute by shape."""
        return list(_lines(self.target, every=True))

    def summary(self) -> list[str]:
        """Return what it was fitted on, what was set, and its parts."""
        own = attributes(self.target)
        learnt = [name for name in own if name in _fitted(self.target)]
        doc = (inspect.getdoc(class_of(self.target)) or "").split("\n", 1)[0]
        names = own.get("feature_names_in_")
        lines = [f"- {one_line(doc, 120)}"] if doc else []
        if (count := own.get("n_features_in_")) is not None:
            features = f": {one_line(join_names(list(map(str, names)), 20), 160)}" if is_array(names) else ""
            lines.append(f"- fitted on {plural(int(count), 'features')}{features}")
        given = list(_given(self.target))
        said = f"{plural(len(given), 'parameters')} set: {one_line(', '.join(given), 200)}"
        if given or not _parts(self.target):
            lines.append(f"- {said}" if given else "- every parameter is the default")
        lines += _part_lines(self.target)
        if learnt:
            lines.append(f"- {plural(len(learnt), 'fitted attributes')}: {one_line(', '.join(learnt), 200)}")
        return lines


def _given(target: Any) -> Iterator[str]:
    """Yield the parameters that were set."""
    for name, value, default in _parameters(target):
        if not (_is_default(value, default) or _is_estimator(value) or _holds_parts(value)):
            yield f"{name} = {_shown(value, short=True)}"


def _part_lines(target: Any, depth: int = 0) -> Iterator[str]:
    """Yield a line for each part, and those in it, with the parameters that were set."""
    for name, part in _parts(target):
        given = one_line(", ".join(_given(part)), 200)
        yield f"{'  ' * depth}- part {name}: {short_type(part)}{f' ({given})' if given else ''}"
        if depth < _DEEPEST:
            yield from _part_lines(part, depth + 1)


def _is_estimator(value: Any) -> bool:
    base = getattr(sys.modules.get("sklearn.base"), "BaseEstimator", None)
    return base is not None and is_a(value, base)


def _parameters(target: Any) -> Iterator[tuple[str, Any, Any]]:
    """Yield (name, value, default); the default is `Parameter.empty` where there is none."""
    try:
        signature = inspect.signature(type(target).__init__)
    except (TypeError, ValueError):
        return
    own = attributes(target)
    for name, parameter in list(signature.parameters.items())[1:]:
        if name in own:
            yield name, own[name], parameter.default


def _is_default(value: Any, default: Any) -> bool:
    return value is default or (type(value) is type(default) and brief(value, 200) == brief(default, 200))


def _fitted(target: Any) -> list[str]:
    found = [name for name in attributes(target) if name.endswith("_") and not name.startswith("_")]
    return found or [name for _, part in _parts(target) for name in _fitted(part)][:1]


def _parts(target: Any) -> list[tuple[str, Any]]:
    """Return the estimators that a parameter is or holds: steps of a pipeline, what a search tries."""
    found: list[tuple[str, Any]] = []
    for name, value, _ in _parameters(target):
        if _is_estimator(value):
            found.append((name, value))
        elif _holds_parts(value):
            found += [(brief(item[0])[1:-1], item[1]) for item in value if _is_part(item)]
    return found


def _lines(target: Any, within: tuple[str, ...] = (), *, every: bool) -> Iterator[str]:
    """Yield lines of parts, set parameters, learnt attributes and defaults; the budget goes to them in this order."""
    depth, part_of = len(within), f" of {'.'.join(within)}" if within else ""
    indent = "  " * depth
    for name, value, default in _parameters(target):
        if _is_estimator(value) or _holds_parts(value):
            continue
        same, shown = _is_default(value, default), f"{name} = {_shown(value, short=every)}"
        if same and every:
            told, rank = f"default{part_of}", depth + 3
            yield NamedLine(f"{indent}{shown} (default)", shown, told, what="parameters", depth=depth, rank=rank)
        elif not same:
            told = "" if default is inspect.Parameter.empty else f" (default {brief(default)})"
            short = f"{indent}{shown}"
            yield NamedLine(f"{short}{told}", what="parameters", short=told and short, depth=depth, rank=depth)
    for name in attributes(target):
        if name.endswith("_") and not name.startswith("_"):
            text = f"{indent}{name}: {_shown(attributes(target)[name], short=every)}"
            yield NamedLine(text, name, f"learnt{part_of}", what="attributes", depth=depth, rank=depth + 1)
    for name, part in _parts(target):
        text = f"{indent}{name}: {type_name(class_of(part)).rpartition('.')[2]}"
        yield NamedLine(text, what="parts", depth=depth, worth=1)
        if depth < _DEEPEST:
            yield from _lines(part, (*within, name), every=every)


def _holds_parts(value: Any) -> bool:
    return is_a(value, list, tuple) and any(_is_part(item) for item in value[:_PARTS])


def _is_part(item: Any) -> bool:
    return is_a(item, tuple) and len(item) > 1 and _is_estimator(item[1])


def _shown(value: Any, *, short: bool) -> str:
    if is_array(value) and not value.dtype.hasobject:
        if short:
            return f"{' × '.join(map(str, value.shape)) or 'scalar'} {value.dtype}"
        return array_line(value)
    numpy, _ = modules()
    if numpy is not None and is_a(value, numpy.generic):
        return cell(value)
    if _is_estimator(value):
        changed = [f"{name}={brief(item, 40)}" for name, item, old in _parameters(value) if not _is_default(item, old)]
        return one_line(f"{type_name(class_of(value)).rpartition('.')[2]}({', '.join(changed)})", 160)
    if is_a(value, list, tuple) and value and all(_is_estimator(item) for item in value[:_PARTS]):
        kinds = Counter(short_type(item) for item in value)
        return ", ".join(f"{count:,} × {kind}" for kind, count in sorted(kinds.items()))
    return brief(value, 160)


_FIRST = 6
_MODULES = 500
"""Modules of a network that have a line; the others are counted."""
_HELD = ("_parameters", "_buffers")


def open_tensor(target: Any, label: str) -> BaseSource:
    """Return the source for a tensor."""
    torch = sys.modules["torch"]
    with torch._C.DisableTorchFunctionSubclass():
        try:
            target.detach().numpy()
        except Exception:  # on a device, sparse, quantized, conjugated, or of a type that NumPy does not have
            return FarTensorSource(target, label)
    return TensorSource(target, label)


class TensorSource(ArraySource):
    """A tensor that lies in the processor's memory."""

    kind = "tensor"

    def array(self) -> Any:
        """Return the tensor's memory as an array."""
        with sys.modules["torch"]._C.DisableTorchFunctionSubclass():
            return self.target.detach().numpy()  # the same memory

    def stamp(self) -> str:
        """Return the array's stamp, and that of the gradient."""
        return f"{super().stamp()} {_grad(self.target)}"

    def headline(self) -> str:
        """Return the array's headline, and device and gradient."""
        grad = _grad(self.target)
        with sys.modules["torch"]._C.DisableTorchFunctionSubclass():
            device = str(self.target.device)
        return f"{super().headline()} · {device}{f' · {grad}' if grad else ''}"


class FarTensorSource(FactsSource):
    """A tensor on a device, or of a layout that is no array."""

    kind = "tensor"

    def headline(self) -> str:
        """Return label, type, shape, dtype, device and size."""
        tensor = self.target
        with sys.modules["torch"]._C.DisableTorchFunctionSubclass():
            shape = format_shape(tensor.shape)
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
        return [*lines, *([f"made by {type_name(class_of(made_by))}"] if made_by is not None else [])]

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
        tensors = self._parameters()
        with sys.modules["torch"]._C.DisableTorchFunctionSubclass():
            count = sum(tensor.nelement() for tensor in tensors)
            size = format_size(sum(tensor.element_size() * tensor.nelement() for tensor in tensors))
        return f"{titled(self.label, self.target)} · {plural(count, 'parameters')} · {size}"

    def _parameters(self) -> list[Any]:
        """Return the parameters; one that several modules share is in the list once."""
        found = (tensor for _, module in _modules(self.target) for _, tensor in _tensors(module, "_parameters"))
        return list({id(tensor): tensor for tensor in found}.values())

    def value(self) -> list[str]:
        """Return a line a parameter or buffer."""
        modules = list(_modules(self.target))
        found = [
            f"{'.'.join((*path, name))}: {tensor_line(tensor)}"
            for path, module in modules[:_MODULES]
            for name, tensor in _tensors(module, *_HELD)
        ]
        others = sum(len(_tensors(module, *_HELD)) for _, module in modules[_MODULES:])
        return [*found, *more_lines(others, "parameters and buffers")] or ["no parameters"]

    def structure(self) -> list[str]:
        """Return the tree of modules, with the shapes of their parameters."""
        found: list[str] = []
        modules = list(_modules(self.target))
        for path, module in modules[:_MODULES]:
            own = [f"{name} {tensor_shape(tensor)}" for name, tensor in _tensors(module, "_parameters")]
            name = f"{path[-1]}: " if path else ""
            kind = short_type(module)
            text = " · ".join([f"{'  ' * len(path)}{name}{kind}", *([", ".join(own)] if own else [])])
            found.append(NamedLine(text, ".".join(path), kind, what="modules", rank=len(path)))
        return [*found, *more_lines(len(modules) - _MODULES, "modules")]

    def summary(self) -> list[str]:
        """Return how many modules of each kind there are, and what is trained."""
        modules = list(_modules(self.target))
        kinds = Counter(short_type(module) for path, module in modules if path)
        with sys.modules["torch"]._C.DisableTorchFunctionSubclass():
            tensors = self._parameters()
            trained = sum(tensor.nelement() for tensor in tensors if tensor.requires_grad)
            places = sorted({str(tensor.device) for tensor in tensors})
        mode = "training" if attributes(self.target).get("training") else "evaluation"
        return [
            *([f"- {join_names([f'{count} {kind}' for kind, count in kinds.most_common()], 20)}"] if kinds else []),
            f"- {plural(trained, 'parameters')} with a gradient; in {mode} mode",
            *([f"- on {', '.join(places)}"] if places else []),
        ]


def _modules(root: Any) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield each module with its path, outer ones first; one that is used in two places is yielded once."""
    seen: set[int] = set()
    waiting: list[tuple[tuple[str, ...], Any]] = [((), root)]
    while waiting:
        path, module = waiting.pop()
        if id(module) in seen:
            continue
        seen.add(id(module))
        yield path, module
        inner: dict[str, Any] = attributes(module).get("_modules") or {}
        waiting += [((*path, one_line(name, 40)), one) for name, one in reversed(inner.items()) if one is not None]


def _tensors(module: Any, *kinds: str) -> list[tuple[str, Any]]:
    held: list[dict[str, Any]] = [attributes(module).get(kind) or {} for kind in kinds]
    return [(one_line(name, 40), tensor) for one in held for name, tensor in one.items() if tensor is not None]


def tensor_shape(tensor: Any) -> str:
    """Return the shape of a tensor."""
    with sys.modules["torch"]._C.DisableTorchFunctionSubclass():
        return " × ".join(str(side) for side in tensor.shape) or "scalar"


def tensor_line(tensor: Any, **how: Any) -> str:
    """Return shape, type and first values of a tensor, as `array_line`; of one on a device, the device."""
    with sys.modules["torch"]._C.DisableTorchFunctionSubclass():
        try:
            if tensor.device.type == "cpu":
                return array_line(tensor.detach().numpy(), **how)
        except (RuntimeError, TypeError):  # of a type that NumPy does not have
            pass
        return f"{tensor_shape(tensor)} {_word(tensor.dtype)} on {tensor.device}"


def _word(value: Any) -> str:
    return str(value).removeprefix("torch.")


def _grad(tensor: Any) -> str:
    with sys.modules["torch"]._C.DisableTorchFunctionSubclass():
        held = tensor.is_leaf and tensor.grad is not None
        return f"requires_grad{', grad is set' if held else ''}" if tensor.requires_grad else ""
