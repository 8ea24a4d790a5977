"""A pandas GroupBy as a source: 0 its groups with their sizes, 1 keys, columns and sizes, 2 in short.

Rule: nothing is computed in the GroupBy itself, which would keep it: sizes are counted from its keys, of more than
`_ROWS` rows from a sample of them, with a `~`. No function of the user's is called again.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ctxkernel.core.reflection import attributes, class_of
from ctxkernel.core.text import format_shape, one_line, plural
from ctxkernel.sources.base.amounts import more_lines
from ctxkernel.sources.base.column_lines import column_line
from ctxkernel.sources.objects.adapters import AdaptedSource, Adapter, Fact
from ctxkernel.sources.tables.columns import cell, labels_of, modules

_ROWS = 2_000_000
_SLOW_ROWS = 200_000
"""Rows that are counted of keys that are no numbers."""
_SHOWN = 500
_COLUMNS = 60


def _grouper(target: Any) -> Any:
    own = attributes(target)
    return own.get("_grouper", own.get("grouper"))


def _vectors(target: Any) -> list[Any]:
    return [one.grouping_vector for one in _grouper(target).groupings]


def _keys(target: Any) -> str:
    names = [one.name for one in _grouper(target).groupings]
    return ", ".join("a function or list" if name is None else one_line(str(name), 60) for name in names)


class _Groups:
    """The sizes of the groups, in the order of the GroupBy; of a sample of the rows where there are many."""

    def __init__(self, target: Any) -> None:
        numpy, pandas = modules()
        self.target = target
        own = attributes(target)
        vectors = _vectors(target)
        rows = len(vectors[0])
        numbers = all(isinstance(one, numpy.ndarray) and one.dtype.kind in "iuf" for one in vectors)
        most = _ROWS if numbers and len(vectors) == 1 else _SLOW_ROWS
        self.whole = rows <= most
        self.counted = min(rows, most)
        if not self.whole:
            # Any rows, the same ones each time: keys often come in a period.
            chosen = numpy.random.default_rng(0).integers(0, rows, _SLOW_ROWS)
            vectors, self.counted = [one[chosen] for one in vectors], _SLOW_ROWS
        keys = [pandas.Series(one) for one in vectors]
        self.categories = 0
        """The number of categories of a single key of which those without rows are groups too; 0 for any other."""
        if len(keys) == 1 and not own.get("observed", True) and isinstance(keys[0].dtype, pandas.CategoricalDtype):
            self.categories = len(keys[0].dtype.categories)
        options = {name: bool(own.get(name, True)) for name in ("sort", "dropna")}
        self.sizes: Any = keys[0].groupby(keys, observed=True, **options).size()

    def share(self, size: Any) -> str:
        """Return the size of a group; of a sample its share."""
        return f"{int(size):,}" if self.whole else f"~{100 * size / self.counted:.2g} %"


def _counted(found: _Groups) -> str:
    sizes = found.sizes
    if not len(sizes):
        return "none"
    if not found.whole:
        return f"~{len(sizes):,} or more, from {found.counted:,} rows"
    low, high = int(sizes.min()), int(sizes.max())
    span = f"{low:,} rows each" if low == high else f"{low:,} … {high:,} rows, median {sizes.median():,.10g}"
    empty, others = max(found.categories - len(sizes), 0), found.counted - int(sizes.sum())
    parts = [f"{empty:,} without rows, the others of {span}" if empty else f"of {span}"]
    parts += [f"{plural(others, 'rows')} in none"] if others else []
    return ", ".join([f"{len(sizes) + empty:,}", *parts])


def _largest(found: _Groups) -> str | None:
    top = found.sizes.sort_values(ascending=False, kind="stable")[:8]
    sign = "×" if found.whole else ""
    rows = zip(labels_of(top.index), top.to_numpy(), strict=True)
    return ", ".join(f"{label} {sign}{found.share(size)}" for label, size in rows) or None


def _groups(found: _Groups) -> Iterator[str]:
    sizes = found.sizes
    for label, size in zip(labels_of(sizes.index[:_SHOWN]), sizes.to_numpy()[:_SHOWN], strict=True):
        yield f"{label}: {plural(int(size), 'rows') if found.whole else f'{found.share(size)} of the rows'}"
    yield from more_lines(len(sizes) - _SHOWN, "groups")


def _columns(found: _Groups) -> list[str]:
    target = found.target
    obj = attributes(target)["obj"]
    if getattr(obj, "columns", None) is None:
        return [f"{one_line(str(obj.name), 80)}: {obj.dtype}"]
    chosen = attributes(target).get("_selection")
    left_out = attributes(target).get("exclusions", ())
    wanted: list[Any] | None = None if chosen is None else [*chosen] if class_of(chosen) in (list, tuple) else [chosen]
    pairs = [
        (name, kind)
        for name, kind in zip(obj.columns, obj.dtypes, strict=True)
        if (name in wanted if wanted is not None else name not in left_out)
    ]
    shown = [*pairs[: _COLUMNS - 1], *pairs[-1:]] if len(pairs) > _COLUMNS else pairs
    return [
        *(column_line(cell(name), str(kind), last=at == len(shown)) for at, (name, kind) in enumerate(shown, 1)),
        *more_lines(len(pairs) - len(shown), "columns"),
    ]


def _options(found: _Groups) -> str | None:
    own = attributes(found.target)
    usual = {"as_index": True, "sort": True, "group_keys": True, "dropna": True, "level": None}
    return (
        ", ".join(f"{name}={own[name]!r}" for name, default in usual.items() if own.get(name, default) != default)
        or None
    )


def _stamp(target: Any) -> str:
    """Return the shape of the frame: keys and groups of a GroupBy never change."""
    return f"{attributes(target)['obj'].shape} {_keys(target)}"


class GroupBySource(AdaptedSource):
    """A view of a DataFrameGroupBy or SeriesGroupBy."""

    kind = "groups"
    adapter = Adapter(
        head=lambda found: f"by {_keys(found.target)} · of {format_shape(attributes(found.target)['obj'].shape)}",
        facts=(
            Fact("groups", _counted, brief=True),
            Fact("largest", _largest, brief=True),
            Fact("columns", _columns, brief=True),
            Fact("options", _options),
        ),
        value=_groups,
        read=_Groups,
        stamp=_stamp,
    )
