"""Objects of xarray as sources: 0 values, 1 dimensions, coordinates, variables and attributes, 2 ranges.

Rule 1: what lies in a file or in a Dask graph is named, and never loaded.
Rule 2: of an array in memory a hash of the content stands with it, so that a diff sees any change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ctxkernel.core.descriptions import brief, first_items
from ctxkernel.core.reflection import attributes, class_of, type_name
from ctxkernel.core.text import format_shape, format_size, one_line, plural
from ctxkernel.sources.base.amounts import Line, NamedLine, indented, more_lines
from ctxkernel.sources.base.rendering import Place, titled
from ctxkernel.sources.objects.facts import FactsSource, array_line, is_array
from ctxkernel.sources.tables.columns import modules, numbers
from ctxkernel.sources.tables.numpy_arrays import array_window, table_shape

_VARIABLES = 200
_ATTRIBUTES = 100
_ROWS = 1_000
_FEW_ROWS = 5
_COLUMNS = 20
_STATISTICS = 1_000_000
_LABELS = 10_000
_NODES = 200
_ADAPTERS = ("PandasIndexingAdapter", "PandasMultiIndexingAdapter")


class LabelledSource(FactsSource):
    """A view of a Dataset or DataArray."""

    kind = "labelled"

    @property
    def _is_array(self) -> bool:
        return not hasattr(self.target, "data_vars")

    def headline(self) -> str:
        """Return label, type, dimensions and size."""
        sides = " × ".join(f"{name} {side:,}" for name, side in self.target.sizes.items()) or "scalar"
        return f"{titled(self.label, self.target)} · {sides} · {format_size(int(self.target.nbytes))}"

    def _coordinates(self) -> dict[Any, Any]:
        return {name: self.target.coords[name].variable for name in self.target.coords}

    def _variables(self) -> dict[Any, Any]:
        if self._is_array:
            return {self.target.name if self.target.name is not None else "values": self.target.variable}
        return {name: self.target.variables[name] for name in self.target.data_vars}

    def value(self) -> list[str]:
        """Return rows of every variable: a DataArray's own, a few of each of a Dataset's."""
        rows = _ROWS if self._is_array else _FEW_ROWS
        found: list[str] = []
        everything = list({**self._variables(), **self._coordinates()}.items())
        for name, variable in everything[:_VARIABLES]:
            found.append(_line(name, variable))
            if (array := _in_memory(variable)) is not None and array.ndim and array.size > 6:
                found += indented(_rows(array, rows))
        return [*found, *more_lines(len(everything) - _VARIABLES, "variables")]

    def structure(self) -> list[str]:
        """Return coordinates, variables and attributes."""
        found: list[str] = []
        for what, variables in (("coordinates", self._coordinates()), ("variables", self._variables())):
            shown = list(variables.items())[:_VARIABLES]
            if shown:
                found += [Line(f"{what}:"), *(_named(name, variable, what, "  ") for name, variable in shown)]
            found += indented(more_lines(len(variables) - len(shown), what))
            for name, variable in shown:
                found += indented(_attributes(variable.attrs), f"  {name}.")
        if lines := list(_attributes(self.target.attrs)):
            found += [Line("attributes:", rank=2), *indented(lines)] if not self._is_array else []
        return found

    def summary(self) -> list[str]:
        """Return statistics of what is in memory."""
        found: list[str] = []
        for name, variable in list(self._variables().items())[:_VARIABLES]:
            array = _in_memory(variable)
            if array is None:
                found.append(_named(name, variable, "variables", "- "))
            elif array.dtype.kind in "iuf" and 0 < array.size <= _STATISTICS:
                there = array[array == array]
                nan = array.size - there.size
                said = numbers(there) if there.size else "no values"
                short = one_line(str(name), 80)
                text = f"- {short}: {said}{f', {nan:,} NaN' if nan else ''}"
                found.append(NamedLine(text, short, "variables", what="variables"))
            else:
                found.append(_named(name, variable, "variables", "- "))
        found += more_lines(len(self._variables()) - _VARIABLES, "variables")
        coordinates = list(self._coordinates().items())
        ends: list[str] = [_named(name, variable, "coordinates", "- ") for name, variable in coordinates[:_VARIABLES]]
        ends += more_lines(len(coordinates) - _VARIABLES, "coordinates")
        attrs = self.target.attrs
        title = attrs.get("title")
        told = [line.indented("- ") for line in _attributes({key: one for key, one in attrs.items() if key != "title"})]
        return [*([f"- {brief(title, 160)}"] if isinstance(title, str) else []), *found, *ends, *told]


class TreeSource(FactsSource):
    """A view of a DataTree: each of its datasets, by path."""

    kind = "labelled"

    def _nodes(self) -> list[LabelledSource]:
        waiting, found = [("/", self.target)], list[LabelledSource]()
        while waiting and len(found) < _NODES:
            path, node = waiting.pop()
            found.append(LabelledSource(node.to_dataset(inherit=False), path))
            inner = list(node.children.items())
            waiting += [(f"{path.rstrip('/')}/{one_line(name, 60)}", one) for name, one in reversed(inner)]
        return found

    def _of_all(self, lines: Callable[[LabelledSource], list[str]]) -> list[str]:
        found = [line for node in self._nodes() for line in (node.headline(), *indented(lines(node)))]
        return [*found, *more_lines(self._count() - _NODES, "nodes")]

    def _count(self) -> int:
        """Return the number of all nodes."""
        waiting, count = [self.target], 0
        while waiting:
            count += 1
            waiting += waiting.pop().children.values()
        return count

    def headline(self) -> str:
        """Return label, type and number of nodes."""
        return f"{titled(self.label, self.target)} · {plural(self._count(), 'nodes')}"

    def value(self) -> list[str]:
        """Return rows of every variable, by node."""
        return self._of_all(LabelledSource.value)

    def structure(self) -> list[str]:
        """Return coordinates, variables and attributes, by node."""
        return self._of_all(LabelledSource.structure)

    def summary(self) -> list[str]:
        """Return statistics of what is in memory, by node."""
        return self._of_all(LabelledSource.summary)


def _in_memory(variable: Any) -> Any:
    """Return the ndarray of a variable, or None where it would have to be loaded."""
    data = attributes(variable).get("_data")
    if is_array(data):
        return data
    held = attributes(data).get("array") if type_name(class_of(data)).endswith(_ADAPTERS) else None
    _, pandas = modules()
    if held is None or pandas is None or not isinstance(held, pandas.Index):
        return None
    if held.nlevels == 1:
        return held.to_numpy()
    level = attributes(data).get("level")  # of labels in several levels
    some = held[:_LABELS]
    return (some if level is None else some.get_level_values(level)).to_numpy() if len(held) <= _LABELS else None


def _named(name: Any, variable: Any, what: str, before: str) -> NamedLine:
    """Return the line of a variable, with its dimensions and type as the short form."""
    label, dims = one_line(str(name), 80), ", ".join(map(str, variable.dims))
    short = f"{before}{label} ({dims}): {format_shape(variable.shape)} {variable.dtype}"
    return NamedLine(f"{before}{_line(name, variable)}", label, what, what=what, short=short)


def _line(name: Any, variable: Any) -> str:
    dims = ", ".join(map(str, variable.dims))
    array = _in_memory(variable)
    if array is not None and not array.dtype.hasobject:
        return f"{one_line(str(name), 80)} ({dims}): {array_line(array)}"
    shape = format_shape(variable.shape)
    if array is not None:
        return f"{one_line(str(name), 80)} ({dims}): {shape} {variable.dtype} {brief(first_items(array, 6), 120)}"
    data: Any = attributes(variable).get("_data")
    kind = type_name(class_of(data))
    if kind.endswith(_ADAPTERS):
        return f"{one_line(str(name), 80)} ({dims}): {shape} {variable.dtype}, labels in several levels"
    where = kind.partition(".")[0]
    chunks = f", {plural(data.npartitions, 'chunks')}" if where == "dask" else ""
    return f"{one_line(str(name), 80)} ({dims}): {shape} {variable.dtype}, not loaded ({where}{chunks})"


def _rows(array: Any, most: int) -> Iterator[str]:
    """Yield the first rows of an array; where these are not all rows or columns, lines say so."""
    window = array_window(array, Place(), most, _COLUMNS)
    yield from window.lines(_COLUMNS)[1:]
    total, width = table_shape(array.shape)
    yield from more_lines(total - len(window.labels), "rows")
    yield from more_lines(width - len(window.names), "columns")


def _attributes(attrs: Mapping[Any, Any]) -> Iterator[Line]:
    for name, value in list(attrs.items())[:_ATTRIBUTES]:
        yield Line(f"{one_line(str(name), 60)} = {brief(value, 160)}", 1, "attributes", rank=2)
    yield from more_lines(len(attrs) - _ATTRIBUTES, "attributes")
