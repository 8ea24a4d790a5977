"""A polars LazyFrame as a source.

Rule: the frame is never collected. A thread of its own asks polars for the plan, for at most `ASKED_SECONDS`: to know
the columns of a scan, polars reads the beginning of the file, which may hang.

A Dask collection, or an object of Ray, as a source: what it will be made of, as far as that is known already.

Rule 1: nothing is computed, fetched or read, nor asked for what would compute it: Dask's `npartitions` and
        `divisions` run a whole graph where an index was set, and Ray's `repr` runs a small one.
Rule 2: tokens are left out of names: they differ from process to process.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any

from ctxkernel.core.descriptions import brief
from ctxkernel.core.reflection import attributes, class_of, defines, is_a, type_name
from ctxkernel.core.text import format_size, one_line, plural
from ctxkernel.sources.base.amounts import Amounts, Line, more_lines
from ctxkernel.sources.base.rendering import short_type, titled
from ctxkernel.sources.objects.facts import FactsSource, within


class _Lazy(FactsSource):
    def stamp(self) -> str:
        """Return the identity: it never changes."""
        return f"{id(self.target):x}"


class LazyFrameSource(_Lazy):
    """A view of a LazyFrame. 0: its plan; 1: its columns and types; 2: counts; 3: what changed in plan and columns."""

    kind = "plan"

    def headline(self) -> str:
        """Return label and type."""
        return f"{titled(self.label, self.target)} (polars) · a plan, not computed"

    def covers(self, stamp: str) -> bool:
        """Return False: the files of the scan may not have answered."""
        return False

    def value(self) -> list[str]:
        """Return the plan as polars tells it."""
        return within(lambda: self.target.explain(optimized=False).splitlines())

    def structure(self) -> list[str]:
        """Return the columns that it would have."""
        return within(lambda: [f"{name}: {kind}" for name, kind in self.target.collect_schema().items()])

    def summary(self) -> list[str]:
        """Return how many columns and steps, and what is read."""
        plan = self.value()
        scans = [line.strip() for line in plan if " SCAN " in line or line.strip().startswith("DF [")]
        return [
            f"- {plural(len(self.structure()), 'columns')}, {plural(len(plan), 'lines')} of plan",
            *(f"- reads {one_line(scan, 160)}" for scan in scans),
        ]


_NODES = 300
_TOKEN = re.compile(r"-[0-9a-f]{16,32}\b|-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_PLUMBING = frozenset(
    (
        *("meta", "enforce_metadata", "transform_divisions", "clear_divisions", "align_dataframes"),
        *("sort", "pyarrow_strings_enabled"),
    )
)
# Expressions whose number of partitions follows from their operands alone.
_COUNTED = frozenset({"FromPandas", "FromArray", "FromDelayed", "FromMap", "FromGraph"})


class DaskFrameSource(_Lazy):
    """A Dask DataFrame, Series or Index. 0: its expressions; 1: columns and types; 2: both in short."""

    kind = "lazy"

    def headline(self) -> str:
        """Return label, type and partitions, where they are known."""
        return f"{titled(self.label, self.target)} (dask) · {_partitions(self.target)} · not computed"

    def value(self) -> list[str]:
        """Return the tree of expressions, a line each."""
        expression = attributes(self.target).get("_expr")
        return list(_tree(expression)) if expression is not None else ["[its expressions are not known]"]

    def structure(self) -> list[str]:
        """Return columns and types, by the empty frame that Dask keeps."""
        meta = self.target._meta
        kinds = getattr(meta, "dtypes", None)
        if getattr(meta, "columns", None) is None:
            name: Any = getattr(meta, "name", None)
            return [f"{'values' if name is None else one_line(str(name), 80)}: {meta.dtype}"]
        names = list(zip(map(str, meta.columns), map(str, kinds if kinds is not None else ()), strict=False))
        return [f"{one_line(name, 80)}: {kind}" for name, kind in names]

    def summary(self) -> list[str]:
        """Return numbers of columns and expressions, and where the data come from."""
        lines = self.value()
        leaves = [line.strip() for at, line in enumerate(lines) if not _has_deeper(lines, at)]
        leaves = [leaf for leaf in leaves if not leaf.startswith("[… ")]
        leaves = [leaf for leaf in leaves if not leaf.endswith("(as above)")]
        return [
            f"- {plural(len(self.structure()), 'columns')}, {_told(lines, 'expressions')}",
            *(f"- from {one_line(leaf, 160)}" for leaf in leaves),
        ]


def _told(lines: list[str], what: str) -> str:
    """Return how many `what` a list of lines stands for."""
    exact = all(line.exact for line in lines if isinstance(line, Line))
    count = Amounts(lines, what).count_after(0)
    return plural(count, what) if exact else f"{count:,}+ {what}"


def _has_deeper(lines: list[str], at: int) -> bool:
    def depth(line: str) -> int:
        return len(line) - len(line.lstrip())

    return at + 1 < len(lines) and depth(lines[at + 1]) > depth(lines[at])


def _tree(root: Any) -> Iterator[str]:
    seen: set[int] = set()
    waiting = [(root, 0)]
    while waiting:
        node, depth = waiting.pop()
        if len(seen) >= _NODES:
            yield from more_lines(len(waiting) + 1, "expressions", exact=False)
            return
        again = id(node) in seen
        seen.add(id(node))
        yield f"{'  ' * depth}{_expression(node)}{' (as above)' if again else ''}"
        if not again:
            waiting += [(part, depth + 1) for part in reversed(_inner(node))]


def _operands(node: Any) -> list[Any]:
    found: Any = attributes(node).get("operands")
    return list(found) if is_a(found, list, tuple) else []


def _inner(node: Any) -> list[Any]:
    return [part for part in _operands(node) if "operands" in attributes(part)]


def _expression(node: Any) -> str:
    kind: Any = class_of(node)
    names, defaults = getattr(kind, "_parameters", []), getattr(kind, "_defaults", {})
    told: list[str] = []
    for name, value in zip(names, _operands(node), strict=False):
        default = defaults.get(name, inspect.Parameter.empty)
        if name[:1] == "_" or name in _PLUMBING or "operands" in attributes(value):
            continue
        if value is None or brief(value) == brief(default) or type_name(class_of(value)).startswith("dask._task_spec"):
            continue
        held = attributes(value).get("_data") if name == "frame" else None
        told.append(f"{name}={brief(value if held is None else held, 60)}")
    return f"{short_type(node)}({', '.join(told)})"


def _partitions(target: Any) -> str:
    expression = attributes(target).get("_expr")
    waiting, seen = [expression], 0
    while waiting and expression is not None:
        node = waiting.pop()
        seen += 1
        inner = _inner(node)
        names = {base.__name__ for base in type(node).__mro__}
        known = names & _COUNTED if not inner else "Blockwise" in names
        if not known or seen > _NODES:
            break
        waiting += inner
    else:
        return plural(int(target.npartitions), "partitions")
    return "partitions not known yet"


class DaskSource(_Lazy):
    """A Dask Array, Bag or Delayed. 0: the layers of its graph; 1: shape and chunks; 2: in short."""

    kind = "lazy"

    def headline(self) -> str:
        """Return label and type, and of an array shape, type and size."""
        target, said = self.target, ""
        if defines(target, "chunks"):  # not hasattr: a Delayed has whatever is asked for
            shape = " × ".join(_side(side) for side in target.shape) or "scalar"
            size = format_size(int(target.nbytes)) if target.nbytes == target.nbytes else "size not known"
            said = f" · {shape} · {target.dtype} · {size}"
        return f"{titled(self.label, target)} (dask){said} · not computed"

    def value(self) -> list[str]:
        """Return the layers, in the order in which they were added."""
        graph = attributes(self.target).get("dask", attributes(self.target).get("_dask"))
        layers = list(getattr(graph, "layers", {}).items())
        needs = getattr(graph, "dependencies", {})
        lines = [
            f"{_plain(name)} · {type_name(class_of(layer)).rpartition('.')[2]}"
            + (f" · of {', '.join(sorted(_plain(one) for one in needs[name]))}" if needs.get(name) else "")
            for name, layer in layers[:_NODES]
        ]
        more = more_lines(len(layers) - _NODES, "layers")
        return [*lines, *more] or ["[its graph is not known]"]

    def structure(self) -> list[str]:
        """Return chunks or partitions."""
        target = self.target
        if defines(target, "chunks"):
            lines = [f"chunks of axis {at}: {_chunks(sizes)}" for at, sizes in enumerate(target.chunks)]
            return [*lines, f"{plural(int(target.npartitions), 'chunks')} of {type_name(class_of(target._meta))}"]
        if "npartitions" in attributes(target):
            return [plural(int(attributes(target)["npartitions"]), "partitions")]
        return [f"makes {_plain(str(attributes(target).get('_key', '')))}"]

    def summary(self) -> list[str]:
        """Return structure, and the number of layers."""
        return [*(f"- {line}" for line in self.structure()), f"- {_told(self.value(), 'layers')} of graph"]


def _plain(name: Any) -> str:
    return one_line(_TOKEN.sub("", str(name)), 80)


def _side(side: Any) -> str:
    return f"{int(side):,}" if side == side else "?"


def _chunks(sizes: tuple[Any, ...]) -> str:
    if len(set(sizes[:1000])) == 1 and len(sizes) <= 1000:
        return f"{len(sizes):,} of {_side(sizes[0])}"
    shown = ", ".join(_side(size) for size in sizes[:8])
    return shown + (f", … ({len(sizes):,} chunks)" if len(sizes) > 8 else "")


class RaySource(_Lazy):
    """A Ray ObjectRef or Dataset. 0: its plan; 1: columns, where they are known; 2: both."""

    kind = "lazy"

    def headline(self) -> str:
        """Return label and type."""
        return f"{titled(self.label, self.target)} (ray) · not fetched"

    def value(self) -> list[str]:
        """Return the steps of a dataset's plan, the last first; of a reference its id."""
        if hasattr(class_of(self.target), "hex"):
            return [f"id {self.target.hex()}", f"of task {self.target.task_id().hex()}"]
        plan = getattr(attributes(self.target).get("_logical_plan"), "dag", None)
        lines: list[str] = []
        waiting = [(plan, 0)] if plan is not None else []
        while waiting and len(lines) < _NODES:
            step, depth = waiting.pop()
            lines.append(f"{'  ' * depth}{one_line(str(step.name), 120)}")
            waiting += [(inner, depth + 1) for inner in step.input_dependencies]
        lines += more_lines(len(waiting), "steps", exact=False)
        return lines or ["[its plan is not known]"]

    def structure(self) -> list[str]:
        """Return columns and types, where Ray knows them without a run."""
        if hasattr(class_of(self.target), "hex"):
            return ["a reference: ray.get(…) fetches what it stands for"]
        return within(self._columns)

    def _columns(self) -> list[str]:
        schema = self.target.schema(fetch_if_missing=False)
        if schema is None:
            return ["columns are not known before it runs"]
        return [f"{name}: {kind}" for name, kind in zip(schema.names, schema.types, strict=False)]

    def summary(self) -> list[str]:
        """Return all that is known."""
        return [f"- {line.strip()}" for line in [*self.structure(), *self.value()]]


class ActorSource(_Lazy):
    """A handle of a Ray actor. 0: its class and id; 1: its methods; 2: both."""

    kind = "lazy"

    def headline(self) -> str:
        """Return label and type."""
        return f"{titled(self.label, self.target)} (ray)"

    def value(self) -> list[str]:
        """Return class and id."""
        own = attributes(self.target)
        found: Any = own.get("_ray_actor_id")
        name = getattr(own.get("_ray_actor_creation_function_descriptor"), "class_name", "not known")
        return [f"actor of class {one_line(str(name), 120)}", f"id {found.hex()}"]

    def structure(self) -> list[str]:
        """Return the names of its methods."""
        names = [name for name in attributes(self.target).get("_ray_method_signatures", ()) if name[:2] != "__"]
        return [f"methods: {', '.join(one_line(name, 60) for name in names)}"] if names else ["no methods"]

    def summary(self) -> list[str]:
        """Return all that is known."""
        return [f"- {line}" for line in [*self.value(), *self.structure()]]
