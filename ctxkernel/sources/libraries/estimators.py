"""A scikit-learn estimator as a source: 0 what was set and learnt, 1 every parameter and fitted attribute, 2 in short.

Rule 1: nothing of the estimator is called: parameters are those of its class's `__init__`, values those of its dict.
Rule 2: of an array the first values are shown, and a hash of all, so that a diff sees any change.
"""

from __future__ import annotations

import inspect
import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any

from ctxkernel.core.descriptions import brief
from ctxkernel.core.reflection import attributes, is_a, type_name
from ctxkernel.core.text import one_line, plural
from ctxkernel.sources.base.rendering import titled
from ctxkernel.sources.objects.facts import FactsSource, array_line, is_array
from ctxkernel.sources.tables.columns import cell, modules

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
        return list(_lines(self.target, "", every=False))

    def structure(self) -> list[str]:
        """Return every parameter with its default, and every fitted attribute by shape."""
        return list(_lines(self.target, "", every=True))

    def summary(self) -> list[str]:
        """Return what it was fitted on, what was set, and its parts."""
        own = attributes(self.target)
        learnt = [name for name in own if name in _fitted(self.target)]
        doc = (inspect.getdoc(type(self.target)) or "").split("\n", 1)[0]
        names = own.get("feature_names_in_")
        lines = [f"- {one_line(doc, 120)}"] if doc else []
        if (count := own.get("n_features_in_")) is not None:
            features = f": {one_line(', '.join(map(str, names[:20])), 160)}" if is_array(names) else ""
            lines.append(f"- fitted on {plural(int(count), 'features')}{features}")
        rows = [(name, value) for name, value, default in _parameters(self.target) if not _is_default(value, default)]
        given = [f"{name}={_shown(value, short=True)}" for name, value in rows if not _holds_parts(value)]
        said = f"{plural(len(given), 'parameters')} set: {one_line(', '.join(given), 200)}"
        if given or not _parts(self.target):
            lines.append(f"- {said}" if given else "- every parameter is the default")
        lines += [f"- part {name}: {type_name(type(part))}" for name, part in _parts(self.target)]
        if learnt:
            lines.append(f"- {plural(len(learnt), 'fitted attributes')}: {one_line(', '.join(learnt), 200)}")
        return lines


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
        elif is_a(value, list, tuple):
            found += [(brief(item[0])[1:-1], item[1]) for item in value[:_PARTS] if _is_part(item)]
    return found


def _lines(target: Any, indent: str, *, every: bool, depth: int = 0) -> Iterator[str]:
    for name, value, default in _parameters(target):
        if _is_estimator(value) or _holds_parts(value):
            continue
        same = _is_default(value, default)
        if every or not same:
            told = (
                " (default)" if same else "" if default is inspect.Parameter.empty else f" (default {brief(default)})"
            )
            yield f"{indent}{name} = {_shown(value, short=every)}{told}"
    for name in attributes(target):
        if name.endswith("_") and not name.startswith("_"):
            yield f"{indent}{name}: {_shown(attributes(target)[name], short=every)}"
    for name, part in _parts(target):
        yield f"{indent}{name}: {type_name(type(part)).rpartition('.')[2]}"
        if depth < _DEEPEST:
            yield from _lines(part, indent + "  ", every=every, depth=depth + 1)


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
        return one_line(f"{type_name(type(value)).rpartition('.')[2]}({', '.join(changed)})", 160)
    if is_a(value, list, tuple) and value and all(_is_estimator(item) for item in value[:_PARTS]):
        kinds = Counter(type_name(type(item)).rpartition(".")[2] for item in value)
        return ", ".join(f"{count:,} × {kind}" for kind, count in sorted(kinds.items()))
    return brief(value, 160)
