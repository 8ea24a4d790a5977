"""The state of one pack while its objects are reduced. Reducers receive it and add their findings to it."""

from __future__ import annotations

import collections
import gc
import io
import types
from collections.abc import Callable, Mapping
from typing import Any

from ctxkernel.core.dataclasses import dataclass, field
from ctxkernel.core.ports import Expired
from ctxkernel.core.reflection import AttributePlan, class_mro, class_of, is_own_class, loaded, methods_of, public_name
from ctxkernel.core.state_names import CLASS, MODULE, SHARED
from ctxkernel.core.text import one_line
from ctxkernel.state.base.own_modules import IN_PLACE
from ctxkernel.state.types import connections
from ctxkernel.state.types.memory_blocks import MemoryBlock, MemoryBlocks, memory_of
from ctxkernel.state.types.object_names import ObjectNames
from ctxkernel.state.types.parts import BEFORE_NAME, PARTS, SMALL, Reduction

Kind = Callable[["PackState", Any], Reduction] | None
"""A reducer; None leaves the object to the pickler."""
_MOST_REACHED = 100
_FILLED = (list, dict, set, bytearray, collections.deque)
"""Classes whose methods are called by objects of C."""


@dataclass(slots=True)
class PackFindings:
    """The findings of one pack."""

    buffers: list[memoryview] = field(default_factory=list[memoryview])
    """Memory of at least 64 KiB each, as bytes, where it lies."""
    faults: dict[str, str] = field(default_factory=dict[str, str])
    """Names that have no stored form, and why. Unpacking gives them while they are alive (`live`), and else not."""
    live: dict[str, object] = field(default_factory=dict[str, object])
    """By token, objects that are not stored but alive in this process."""
    shared: dict[str, object] = field(default_factory=dict[str, object])
    """By label, the objects that it refers to and that have packs of their own."""
    deps: set[str] = field(default_factory=set[str])
    """Global names that the code in it mentions; `module:<name>` for the user's own modules, `class:<uid>` for classes
    whose members it refers to by name."""
    noted: list[object] = field(default_factory=list[object])
    """Objects with an identity that matters, of other types than the pickler stores by itself."""
    unproven: list[tuple[object, str]] = field(default_factory=list[tuple[object, str]])
    """Objects of which it is not certain that all of them is stored, and why; see `state.checkpoints.copy_check`."""
    classes: dict[str, type] = field(default_factory=dict[str, type])
    """By uid, the classes of the user's that it refers to."""
    rebuilt: dict[str, None] = field(default_factory=dict[str, None])
    """Objects that are made anew rather than restored: `lock: a new, open one`."""
    inexact: bool = False
    """Whether a copy lacks something that cannot be stored, and that no name can be blamed for: memory that is shared
    with an object of a library, say."""
    runs: dict[str, None] = field(default_factory=dict[str, None])
    """Code of the user's that runs at unpacking, or at the end of an unpacked object: `Point.__setstate__`."""


class ObjectNotes(PackFindings):
    """Notes about single objects that one pack met: what is missing, and what the stream gives anew."""

    def __init__(self) -> None:
        super().__init__()
        self.missing: list[tuple[object, str]] = []
        """Objects that are not stored, with a description."""
        self.left_out: list[tuple[object, str]] = []
        """Objects that are stored without a part of them, and that part."""
        self.fault_names: list[str] = []
        """The names of `faults`, in the stream."""
        self.again: list[tuple[object, connections.Connection]] = []
        """Objects that are not stored, with the description from which they can be connected again."""
        self.members: set[int] | None = None
        """Ids of the targets of weak references that are in the pack; None until that is known."""
        self.targets: list[object] = []
        self.cells: dict[int, tuple[()] | tuple[type, str, int]] = {}
        """By id: cells whose content comes with a function; of a method, its class, name and the cell's place."""
        self.copied: dict[int, tuple[dict[str, Any], dict[str, Any] | None]] = {}
        """By id: copies of the namespace that are the globals of functions, and their substitutes; None for none."""
        self.exporters: list[object] = []
        """Objects of libraries whose memory arrays look into: one that is stored too comes back with other memory."""
        self.no_devices = ""
        """Why objects in the memory of a device are not stored here; empty where they are."""
        self.counting = False
        """Whether the memory of devices is only added up."""
        self.counted: dict[int, int] = {}
        """By address, its bytes."""
        self.named: frozenset[int] | None = None
        """Ids of the containers, arrays, frames and instances that are values of variables; None if not known yet."""
        self.by_attributes: list[object] = []
        """Instances stored by their attributes although their class has a `__getstate__`."""


class PackState(ObjectNotes):
    """The state of one pack: the findings so far, and the objects and memory that they refer to."""

    def __init__(
        self,
        packer: ObjectNames,
        values: Mapping[str, object],
        expired: Expired,
        *,
        plain: bool = False,
        claimed: bool = False,
    ) -> None:
        super().__init__()
        self.packer = packer
        self.namespace = packer.namespace
        self.module = packer.module
        self.expired = expired
        self.tops: dict[int, list[str]] = {}
        """By id of the value of a name: the names."""
        self.by_value: dict[int, str] = {}
        """By id: uids of the classes that this pack stores themselves."""
        self.methods: dict[int, tuple[Any, str]] = {}
        """By id: the methods of these classes, each with its class and its name."""
        self.roots: set[int] = set()
        """Ids of the objects that this pack stores itself although they are shared."""
        for name, value in values.items():
            self.tops.setdefault(id(value), []).append(name)
            if name.startswith(CLASS):
                self.by_value[id(value)] = name[6:]
                self.methods |= methods_of(value)
            elif name.startswith(SHARED):
                self.roots.add(id(value))
        self.plans: dict[int, AttributePlan] = {}
        self.blocks = MemoryBlocks()
        """Memory that is stored by itself: of arrays …"""
        self.constant = MemoryBlocks()
        """… and memory that is never written, so that sharing it makes no difference."""
        self.met_memory = False
        """Whether this pack met memory first that may be that of an array which it wrote before."""
        self.labels: dict[str, int] = {}
        """By label, the number in the stream of an object that the stream does not hold."""
        self.label_of: Callable[[object], str | None] = packer.labels.get
        """Returns the label of an object that has a pack of its own, None for any other."""
        self.own_way: set[int] = set()
        """Ids of classes of the user's that are stored by their `__getstate__`: their attributes alone cannot be."""
        self.plain = plain
        """Store instances by their attributes, whatever their classes say: to compare an object with its copy."""
        self.claimed = claimed
        """Store what the classes of libraries say is all, and none of their other attributes."""
        self.shallow = False
        """Store nothing of what refused objects hold."""

    def label(self, label: str) -> int:
        """Return the number by which the stream refers to something outside of it."""
        return self.labels.setdefault(label, len(self.labels))

    def refuse(
        self,
        obj: object,
        reason: str,
        held: object = None,
        found: connections.Description | str | None = None,
        *,
        more: str = "",
    ) -> Reduction:
        """Write a stand-in for `obj`; a restore in this process takes the object itself while it lives.

        `held` is stored only to find changes of it. `found`: its description, if it is known. `more` is said after the
        name of its class.
        """
        found = connections.REGISTRY.describe(obj) if found is None else found
        if isinstance(found, str) and found not in ("", connections.CLOSED):
            reason = f"{reason}; {found}"
        what = one_line(public_name(class_of(obj), self.module), 80) + more
        names = self.tops.get(id(obj), ())
        self.fault_names.extend(BEFORE_NAME + name for name in names)
        self.faults |= dict.fromkeys(names, reason if reason.startswith(what) else f"{what}: {reason}")
        self.missing.append((obj, what))
        if held is None:
            self.named = _ids_of_data(self.namespace, self.module) if self.named is None else self.named
            held = reached(self.namespace, obj, self.named) or None
        token = self.packer.token(obj)
        self.live[token] = obj
        if isinstance(found, connections.Description):
            text = repr(found.value)
            self.again.append((obj, connections.Connection(token, found.kind, text)))
            held = held, found.kind, text
        made = PARTS.live, (self.label(f"live:{token}"), f"{what} ({reason})")
        return made if held is None or self.shallow else (*made, held, None, None, PARTS.skip)

    def uses_module(self, name: str) -> None:
        """Note that a stored object can run code of a module, which may change the variables of an own module."""
        module = self.packer.own_modules.get(name)
        if module is not None or name in IN_PLACE:
            self.deps.add(f"{MODULE}{name}")
        if module is not None and module.reaches:
            self.deps.add("__main__")

    def note(self, text: str) -> None:
        """Note an object that is made anew rather than restored."""
        self.rebuilt.setdefault(text)

    def buffer(self, memory: memoryview) -> int:
        """Keep memory outside of the stream; returns its number."""
        self.buffers.append(memory)
        return len(self.buffers) - 1

    def data(self, memory: memoryview) -> bytes | int:
        """Return memory as the stream holds it: its bytes where it is small, else the number of a buffer."""
        return bytes(memory) if memory.nbytes < SMALL else self.buffer(memory)

    def memory(self, holder: Any, start: int, size: int) -> MemoryBlock:
        """Return the memory of a library's object. An array of it may have been written before: the next try knows."""
        known = len(self.blocks)
        held = memory_of(self.blocks, holder, start, size)
        self.met_memory |= len(self.blocks) > known
        return held

    def plan(self, cls: type) -> AttributePlan:
        """Return how instances of `cls` are read."""
        if id(cls) not in self.plans:
            self.plans[id(cls)] = AttributePlan(cls, is_own_class(cls, self.module))
        return self.plans[id(cls)]


def _ids_of_data(namespace: dict[str, Any], module: str) -> frozenset[int]:
    library = [loaded("numpy").get("ndarray"), *map(loaded("pandas").get, ("DataFrame", "Series"))]
    bases = frozenset((*map(id, _FILLED), *(id(one) for one in library if one is not None)))
    classes = {id(cls): cls for cls in map(class_of, namespace.values())}
    found = {
        key
        for key, cls in classes.items()
        if is_own_class(cls, module) or any(id(base) in bases for base in class_mro(cls))
    }
    return frozenset(id(one) for name, one in namespace.items() if name[:1] != "_" and id(class_of(one)) in found)


def reached(namespace: dict[str, Any], obj: Any, named: frozenset[int]) -> list[Any]:
    """Return the targets of an object without a stored form.

    These are files in memory, functions of the user's, `log.append`, and data of variables (`named`, by id).
    """
    found: list[Any] = []
    todo = gc.get_referents(obj)[:_MOST_REACHED]
    todo += [
        held for one in todo if class_of(one) in (dict, list, tuple) for held in gc.get_referents(one)[:_MOST_REACHED]
    ]
    for one in todo:
        kind = class_of(one)
        file = one.__self__ if kind is types.BuiltinMethodType else one
        func = one.__func__ if kind is types.MethodType else one
        if class_of(file) in (io.BytesIO, io.StringIO) or (file is not one and class_of(file) in _FILLED):
            found.append(file)
        elif id(one) in named or (class_of(func) is types.FunctionType and func.__globals__ is namespace):
            found.append(one)
    return found
