"""Two values of one name compared by their content: the one comparer for re-runs, `%ctx diff`, the panel and exports.

Rule 1: no code of the user's is called: attributes are read through the interpreter's own descriptors, containers by
        their built-in methods, frames and arrays by their libraries.
Rule 2: the work is bounded by `ITEMS` and by `expired()`; what was not compared is pending or unknown, and says why.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from ctxkernel.core.descriptions import brief, describe, with_type
from ctxkernel.core.reflection import (
    NUMBERS,
    SEQUENCES,
    SETS,
    Classes,
    attributes,
    class_module,
    class_name,
    class_of,
    dict_items,
    is_any,
    is_kind,
    loaded,
)
from ctxkernel.core.text import format_size, join_names, plural
from ctxkernel.core.text_diff import changes, unified
from ctxkernel.core.value_difference import ValueDifference, differing, unknown_difference
from ctxkernel.replay.array_values import ArrayComparer
from ctxkernel.replay.column_cells import arrow, pair
from ctxkernel.replay.frame_values import FrameComparer
from ctxkernel.replay.text_comparison import Tolerance

ITEMS = 20_000
"""Most items, attributes and values that one comparison looks at, one by one."""
PARTS = 20
"""Most parts of one value that are listed."""
DEPTH = 8
LINES = 60
"""Most lines of a unified diff."""
TEXT = 20_000_000
"""Most characters of a text that is compared line by line."""
_SHOWN = 60
_SCALARS = Classes(type(None), bool, int, float, complex, str, bytes, bytearray, range, type(Ellipsis))
_CODE = Classes(types.FunctionType, type)


def never() -> bool:
    """Return that time is left."""
    return False


def no_source(value: Any) -> str:
    """Return that the source of a function is not known."""
    return ""


class ValueComparer:
    """Compares values. `source(function)` returns the source of a function or class, or an empty text."""

    def __init__(
        self,
        *,
        tolerance: Tolerance | None = None,
        expired: Callable[[], bool] = never,
        source: Callable[[Any], str] = no_source,
    ) -> None:
        self._tolerance = tolerance or Tolerance()
        self._expired = expired
        self._source = source
        self._left = ITEMS
        self._seen: dict[tuple[int, int], tuple[Any, Any]] = {}
        """Pairs that were compared, or are being compared, held so that their ids stay theirs."""

    def compare(self, name: str, old: Any, new: Any) -> ValueDifference:
        """Return how `new` differs from `old`."""
        self._left, self._seen = ITEMS, {}
        try:
            return self._compare(name, old, new, 0)
        except RecursionError:
            return unknown_difference(name, _kind(new), "it is nested too deeply to be compared")
        except Exception as fault:  # a library's own method failed on one of the values
            return unknown_difference(name, _kind(new), f"the comparison failed: {type(fault).__name__}: {fault}"[:200])

    def _compare(self, name: str, old: Any, new: Any, depth: int) -> ValueDifference:
        self._left -= 1
        if self._left < 0 or depth > DEPTH:
            return unknown_difference(name, _kind(new), f"it is large: only {ITEMS:,} items were compared", "pending")
        if old is new or (id(old), id(new)) in self._seen:  # one object, a cycle, or a pair that is told elsewhere
            return ValueDifference(name, "the same", differs=False)
        if self._expired():
            return unknown_difference(name, _kind(new), "no time was left to compare it", "pending")
        kind = class_of(old)
        if kind is not class_of(new):
            return self._other_types(name, old, new)
        if kind in _SCALARS:
            return self._scalars(name, old, new)
        self._seen[id(old), id(new)] = old, new
        if kind in SEQUENCES:
            return self._sequences(name, old, new, depth)
        if kind is dict:
            return self._dicts(name, dict(dict_items(old)), dict(dict_items(new)), depth)
        if kind in SETS:
            return self._sets(name, old, new)
        if (found := self._library(name, old, new)) is not None:
            return found
        if kind in _CODE or is_kind(kind, type):
            return self._code(name, old, new)
        return self._instances(name, old, new, depth)

    # -- scalars and texts --------------------------------------------------------------------------

    def _other_types(self, name: str, old: Any, new: Any) -> ValueDifference:
        one, two = class_of(old), class_of(new)
        if one in NUMBERS and two in NUMBERS and self._tolerance.same(old, new):
            return ValueDifference(name, f"{one.__name__} → {two.__name__}: {brief(new, _SHOWN)}")
        if class_name(one) == class_name(two) and class_module(one) == class_module(two):
            return self._instances(name, old, new, 1) if not is_kind(one, type) else self._code(name, old, new)
        return ValueDifference(name, f"{_told(old)} → {_told(new)}")

    def _scalars(self, name: str, old: Any, new: Any) -> ValueDifference:
        kind: Any = class_of(old)
        if kind is float and self._tolerance.same(old, new):
            return ValueDifference(name, "the same within the tolerance", differs=False)
        if kind is complex and self._tolerance.same(old.real, new.real) and self._tolerance.same(old.imag, new.imag):
            return ValueDifference(name, "the same within the tolerance", differs=False)
        if old == new:
            return ValueDifference(name, "the same", differs=False)
        if kind is str and ("\n" in old or "\n" in new):
            return self._texts(name, old, new)
        if kind in (bytes, bytearray) and max(len(old), len(new)) > 40:
            sizes = arrow(format_size(len(old)), format_size(len(new)))
            return ValueDifference(name, f"{kind.__name__} {sizes}: differs from byte {_first_other(old, new):,} on")
        before, after = pair(old, new) if kind in (int, float, complex) else (brief(old, 80), brief(new, 80))
        told = f"{kind.__name__} {before} → {after}"
        if kind in (int, float) and kind is not bool and abs(old) < 1e300 and abs(new) < 1e300:
            told += f" ({new - old:+.4g})"
        elif kind is str and before == after:
            told = f"str of {len(old):,} → {len(new):,} characters, {_where(old, new)}"
        return ValueDifference(name, told)

    def _texts(self, name: str, old: str, new: str) -> ValueDifference:
        if len(old) + len(new) > TEXT:
            return ValueDifference(name, f"str of {len(old):,} → {len(new):,} characters, {_where(old, new)}")
        return _line_difference(name, "str", old, new)

    # -- containers -----------------------------------------------------------------------------------

    def _dicts(self, name: str, old: dict[Any, Any], new: dict[Any, Any], depth: int) -> ValueDifference:
        if not all(_is_key(key) for key in (*old, *new)):
            return unknown_difference(name, f"dict of {len(new):,} keys", "its keys are objects of other types")
        added = [brief(key, _SHOWN) for key in new if key not in old]
        removed = [brief(key, _SHOWN) for key in old if key not in new]
        parts = (
            self._compare(f"[{brief(key, 40)}]", one, new[key], depth + 1) for key, one in old.items() if key in new
        )
        counts = {"keys_added": len(added), "keys_removed": len(removed)}
        found = self._whole(
            name, f"dict {_count(old, new, 'keys')}", parts, len(old) - len(removed), added, removed, counts
        )
        if found.differs is False and list(old) != list(new):
            return ValueDifference(name, f"dict of {len(new):,} keys: the keys are in another order")
        return found

    def _sequences(self, name: str, old: Sequence[Any], new: Sequence[Any], depth: int) -> ValueDifference:
        kind = type(new).__name__
        plain = all(type(one) in _SCALARS for one in (*old[:ITEMS], *new[:ITEMS]))
        if plain and len(old) != len(new) and max(len(old), len(new)) <= ITEMS:
            return self._inserted(name, kind, old, new)
        parts = (self._compare(f"[{at}]", a, b, depth + 1) for at, (a, b) in enumerate(zip(old, new, strict=False)))
        added, removed = max(0, len(new) - len(old)), max(0, len(old) - len(new))
        counts = {"items_added": added, "items_removed": removed}
        tail = new[len(old) :] if added else old[len(new) :]
        told = [brief(one, 40) for one in tail]
        head, total = f"{kind} {_count(old, new, 'items')}", min(len(old), len(new))
        return self._whole(name, head, parts, total, told if added else [], told if removed else [], counts)

    def _inserted(self, name: str, kind: str, old: Sequence[Any], new: Sequence[Any]) -> ValueDifference:
        """Compare sequences of plain items of which some came or went."""
        before, after = ([f"{type(one).__name__} {brief(one, 200)}" for one in each] for each in (old, new))
        shown = [[line.partition(" ")[2] for line in each] for each in (before, after)]
        return _list_difference(name, kind, "items", before, after, unified(shown[0], shown[1]))

    def _sets(self, name: str, old: Any, new: Any) -> ValueDifference:
        if not all(_is_key(one) for one in (*old, *new)):
            return unknown_difference(name, f"set of {len(new):,} items", "its items are objects of other types")
        added, removed = (sorted(brief(one, 40) for one in each) for each in (new - old, old - new))
        counts = {"items_added": len(added), "items_removed": len(removed)}
        return self._whole(
            name, f"{type(new).__name__} {_count(old, new, 'items')}", iter(()), 0, added, removed, counts
        )

    def _whole(
        self,
        name: str,
        head: str,
        parts: Iterator[ValueDifference],
        total: int,
        added: Sequence[str],
        removed: Sequence[str],
        counts: Mapping[str, int],
    ) -> ValueDifference:
        """Return the difference of a value from those of its parts, of which it has `total`."""
        compared: list[ValueDifference] = []
        for one in parts:
            compared.append(one)
            # Describing each of a million other parts would take longer than all that was compared.
            if one.known == "pending" and (self._left < 0 or self._expired()):
                break
        left = total - len(compared)
        found = differing(compared)
        changed = [one for one in found if one.differs]
        still = [one for one in found if one.differs is None]
        told = [f"+{join_names(added, 4)}" if added else "", f"−{join_names(removed, 4)}" if removed else ""]
        told.append(
            f"{join_names([one.name for one in changed], 4)} differ{'s' * (len(changed) == 1)}" if changed else ""
        )
        told.append(f"{len(still) + left:,} not compared" if still or left else "")
        body = ", ".join(filter(None, told))
        differs = True if changed or added or removed else None if still else False
        waits = any(one.known == "pending" for one in found)
        # Thousands of items may be left for one reason.
        shown = [*changed, *{one.reason: one for one in reversed(still)}.values()][:PARTS]
        return ValueDifference(
            name,
            f"{head}: {body or 'the same'}",
            "pending" if waits else "unknown" if still else "complete",
            differs=differs,
            reason=next((f"{one.name}: {one.reason}" for one in still), ""),
            counts={**counts, "parts": len(changed)},
            parts=tuple(shown),
            more=len(found) + left - len(shown),
        )

    # -- libraries and instances ------------------------------------------------------------------------

    def _library(self, name: str, old: Any, new: Any) -> ValueDifference | None:
        """Compare frames, arrays and what has an array; None for other values."""
        kind = class_of(old)
        numpy: Any = loaded("numpy")
        if numpy and kind is numpy["ndarray"]:
            return self._arrays(name, old, new, "array")
        if numpy and is_kind(kind, numpy["generic"]):
            return self._numpy_scalars(name, old, new)
        pandas: Any = loaded("pandas")
        if pandas and kind in (pandas["DataFrame"], pandas["Series"]):
            return FrameComparer(name, old, new, self._tolerance, self._expired).compare()
        if pandas and is_kind(kind, pandas["Index"]):
            one, two = (pandas["Series"](each.array, name=str(each.name)) for each in (old, new))
            found = FrameComparer(name, one, two, self._tolerance, self._expired).compare()
            return _renamed(found, class_name(kind))
        if is_any(kind, ("polars", "DataFrame"), ("polars", "Series")):
            return self._polars(name, old, new)
        if is_any(kind, ("torch", "Tensor")):
            one, two = (each.detach().cpu().numpy() for each in (old, new))
            return self._arrays(name, one, two, "tensor")
        if is_any(kind, ("xarray", "DataArray")):
            told = f"DataArray ({', '.join(map(str, new.dims))})"
            if not (old.variable._in_memory and new.variable._in_memory):  # there may be more than memory can hold
                return unknown_difference(name, told, "its values are not loaded")
            return self._arrays(name, old.values, new.values, told)
        if class_module(kind).startswith("matplotlib."):
            return unknown_difference(name, _kind(new), "a figure is compared by its picture, among the outputs")
        if class_module(kind) == "sklearn.tree._tree" and class_name(kind) == "Tree":
            return self._dicts(name, old.__getstate__(), new.__getstate__(), 1)
        return None

    def _arrays(self, name: str, old: Any, new: Any, kind: str) -> ValueDifference:
        return ArrayComparer(name, old, new, self._tolerance, self._expired, kind).compare()

    def _numpy_scalars(self, name: str, old: Any, new: Any) -> ValueDifference:
        if old.dtype.kind in "biufc":
            return self._scalars(name, old.item(), new.item())
        same = old == new or (old.dtype.kind in "Mm" and str(old) == str(new))
        return ValueDifference(name, arrow(str(old)[:60], str(new)[:60]), differs=not same)

    def _polars(self, name: str, old: Any, new: Any) -> ValueDifference:
        pandas: Any = loaded("pandas")
        if not pandas:
            if old.equals(new):
                return ValueDifference(name, "the same", differs=False)
            shapes = arrow(*("×".join(map(str, each.shape)) for each in (old, new)))
            return ValueDifference(name, f"polars {class_name(class_of(new))} {shapes}: differs")
        frames = [each.to_frame() if not hasattr(each, "columns") else each for each in (old, new)]
        made = [
            pandas["DataFrame"]({name: pandas["Series"](each[name].to_numpy()) for name in each.columns})
            for each in frames
        ]
        found = FrameComparer(name, made[0], made[1], self._tolerance, self._expired).compare()
        types = [{name: str(each[name].dtype) for name in each.columns} for each in frames]
        notes = [f"{key}: {one} → {types[1][key]}" for key, one in types[0].items() if types[1].get(key, one) != one]
        return _renamed(found, f"polars {class_name(class_of(new))}", notes)

    def _code(self, name: str, old: Any, new: Any) -> ValueDifference:
        before, after = self._source(old), self._source(new)
        what = "class" if is_kind(class_of(new), type) else "function"
        if not (before and after):
            return unknown_difference(name, f"{what} {class_name_of(new)}", "its source is not known")
        if before == after:
            return unknown_difference(
                name, f"{what} {class_name_of(new)}", "its source is the same; what it refers to may differ"
            )
        return _line_difference(name, what, before, after)

    def _instances(self, name: str, old: Any, new: Any, depth: int) -> ValueDifference:
        cls = class_of(new)
        one, two = attributes(old), attributes(new)
        is_model = is_any(cls, ("sklearn.base", "BaseEstimator"))
        if is_model:  # its private attributes follow from the others
            one, two = ({key: v for key, v in each.items() if not key.startswith("_")} for each in (one, two))
        if not one and not two:
            return unknown_difference(name, _kind(new), f"objects of the type {class_name(cls)} are not compared")
        added = [f".{key}" for key in two if key not in one]
        removed = [f".{key}" for key in one if key not in two]
        parts = (self._compare(f".{key}", value, two[key], depth + 1) for key, value in one.items() if key in two)
        counts = {"attributes_added": len(added), "attributes_removed": len(removed)}
        found = self._whole(name, class_name(cls), parts, len(one) - len(removed), added, removed, counts)
        if is_model and found.parts:
            found = _model_summary(found, class_name(cls))
        return found


# -- small helpers -----------------------------------------------------------------------------------


def _model_summary(found: ValueDifference, kind: str) -> ValueDifference:
    """Return the difference of an estimator with its parameters first, then what it learnt (`coef_`)."""
    parts = sorted(found.parts, key=lambda one: one.name.endswith("_"))
    parameters = [one.name.lstrip(".") for one in parts if not one.name.endswith("_") and one.differs]
    fitted = [one.name.lstrip(".") for one in parts if one.name.endswith("_") and one.differs]
    told = [f"parameters {join_names(parameters, 4)}" if parameters else ""]
    told.append(f"fitted {join_names(fitted, 4)}" if fitted else "")
    body = "; ".join(filter(None, told))
    rest = found.summary.partition(": ")[2] if not body else f"{body} differ"
    counts = {**found.counts, "parameters": len(parameters), "fitted": len(fitted)}
    return replace(found, summary=f"{kind}: {rest}", parts=tuple(parts), counts=counts)


def _renamed(found: ValueDifference, kind: str, notes: Sequence[str] = ()) -> ValueDifference:
    """Return the difference of a frame that stands for a value of another type."""
    rest = found.summary.partition(" ")[2]
    differs = True if notes else found.differs
    known = "complete" if notes and found.differs is False else found.known
    return replace(found, summary=f"{kind} {rest}", notes=(*found.notes, *notes), differs=differs, known=known)


def _line_difference(name: str, kind: str, old: str, new: str) -> ValueDifference:
    before, after = old.split("\n"), new.split("\n")
    return _list_difference(name, kind, "lines", before, after, unified(before, after))


def _list_difference(
    name: str, kind: str, noun: str, old: Sequence[str], new: Sequence[str], diff: Sequence[str]
) -> ValueDifference:
    """Return how two lists of texts differ that are called `noun`: how many came and went, and their diff."""
    hunks = changes(old, new)
    added, removed = sum(d - c for _, _, c, d in hunks), sum(b - a for a, b, _, _ in hunks)
    told = [f"+{added:,}" if added else "", f"−{removed:,}" if removed else ""]
    return ValueDifference(
        name,
        f"{kind} {_count(old, new, noun)}: {' '.join(filter(None, told))} {noun}",
        counts={f"{noun}_added": added, f"{noun}_removed": removed},
        diff=_bounded(diff),
    )


def text_difference(name: str, old: str, new: str) -> ValueDifference:
    """Return how two texts differ, line by line."""
    if old == new:
        return ValueDifference(name, "the same", differs=False)
    return _line_difference(name, "text", old, new)


def _bounded(lines: Sequence[str]) -> tuple[str, ...]:
    shown = [line if len(line) <= 200 else line[:199] + "…" for line in lines[:LINES]]
    return (*shown, f"… {len(lines) - LINES:,} more lines") if len(lines) > LINES else tuple(shown)


def _count(old: Any, new: Any, noun: str) -> str:
    return f"of {plural(len(new), noun)}" if len(old) == len(new) else f"of {len(old):,} → {plural(len(new), noun)}"


def _first_other(old: Any, new: Any) -> int:
    """Return the first place at which two texts, or bytes, differ."""
    return next((n for n, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))


def _where(old: str, new: str) -> str:
    at = _first_other(old, new)
    return f"from character {at:,} on: {brief(old[at : at + 40], 44)} → {brief(new[at : at + 40], 44)}"


def _is_key(key: Any) -> bool:
    if type(key) is tuple:
        return all(map(_is_key, cast("tuple[Any, ...]", key)))
    return type(key) in (str, int, float, bool, bytes, type(None)) or class_module(class_of(key)) == "numpy"


def _kind(value: Any) -> str:
    return describe(value, 10).type


def _told(value: Any) -> str:
    return with_type(describe(value, _SHOWN))


def class_name_of(value: Any) -> str:
    """Return the name of a function or class."""
    return class_name(cast("type", value)) if is_kind(class_of(value), type) else str(value.__name__)
