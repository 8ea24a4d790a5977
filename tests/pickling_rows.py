"""Cells whose names are packed and unpacked, as rows of data; and a notebook that does it."""

from __future__ import annotations

import sys
import textwrap
import types
from dataclasses import dataclass
from typing import Any

from ctxkernel.state.types.packer import Packed, Packer


class Box:
    """A namespace whose names are packed together and unpacked into another one."""

    def __init__(self, cell: str, **names: Any) -> None:
        # As IPython has it: attrs copies what `__main__` holds into its functions, and that of a test run is its own.
        self.main = types.ModuleType("__main__")
        self.namespace: dict[str, Any] = vars(self.main)
        self.namespace.update(names)
        self.packer = Packer(self.namespace)
        self.run(cell)

    def run(self, cell: str) -> None:
        code = compile(textwrap.dedent(cell), "<cell>", "exec", dont_inherit=True)
        before, sys.modules["__main__"] = sys.modules["__main__"], self.main
        try:
            exec(code, self.namespace)
        finally:
            sys.modules["__main__"] = before

    def values(self, *names: str) -> dict[str, Any]:
        return {
            name: value
            for name, value in self.namespace.items()
            if (name in names if names else not name.startswith("_") and name not in ("np", "pd"))
        }

    def pack(self, *names: str) -> Packed:
        return self.packer.pack(self.values(*names))

    def whole(self, *names: str) -> Packed:
        """Pack; nothing is left out."""
        packed = self.pack(*names)
        assert not packed.faults
        assert [part for part in packed.parts if "traceback" not in part] == []
        return packed

    def back(self, *names: str, **options: Any) -> dict[str, Any]:
        """Pack, and unpack in the same process."""
        packed = self.whole(*names)
        report: list[str] = []
        found = self.packer.unpack(packed.stream, packed.buffers, report=report, **options)
        assert not report, report
        return found

    def elsewhere(self, *names: str) -> dict[str, Any]:
        """Unpack as a new process would: with a new namespace, and classes from their own packs."""
        other = Elsewhere(self, self.whole(*names))
        found = other.load()
        assert not other.report, other.report
        return found


class Elsewhere:
    """What another process has: streams, copies of the buffers, no live object."""

    def __init__(self, box: Box, packed: Packed) -> None:
        self.streams: dict[str, tuple[bytes, list[bytearray]]] = {"": _frozen(packed)}
        wanted = dict(packed.classes)
        while wanted:
            uid, cls = wanted.popitem()
            if uid not in self.streams:
                one = box.packer.pack({f"class:{uid}": cls})
                assert not one.faults, one.faults
                self.streams[uid] = _frozen(one)
                wanted.update(one.classes)
        self.namespace: dict[str, Any] = {"__name__": "__main__"}
        self.packer = Packer(self.namespace)
        self.report: list[str] = []
        self.kept: list[Any] = []

    def load(self, what: str = "") -> dict[str, Any]:
        stream, buffers = self.streams[what]
        found = self.packer.unpack(stream, buffers, classes=self._class, report=self.report)
        if not what:
            self.namespace.update(found)
        return found

    def _class(self, uid: str) -> object:
        made = self.load(uid)[f"class:{uid}"]
        self.kept.append(made)
        return made


def _frozen(packed: Packed) -> tuple[bytes, list[bytearray]]:
    return packed.stream, [bytearray(one) for one in packed.buffers]


@dataclass(frozen=True)
class Row:
    """A cell, and expressions over the restored names that are true."""

    id: str
    cell: str
    holds: tuple[str, ...]


def rows(text: str) -> list[Row]:
    """Read rows: a title after `##`, a cell, and what holds of what comes back, each after `=>`."""
    found: list[Row] = []
    for block in text.split("\n## ")[1:]:
        title, *lines = block.strip("\n").split("\n")
        cell = "\n".join(line for line in lines if not line.startswith("=>"))
        found.append(Row(title, cell, tuple(line[2:].strip() for line in lines if line.startswith("=>"))))
    return found
