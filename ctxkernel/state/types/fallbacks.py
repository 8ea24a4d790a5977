"""Slow fallbacks: a pickler without a limit of depth, and an unpickler that continues after a failure.

Both extend the picklers in Python of the standard library.
"""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import chain, islice
from typing import Any, ClassVar

from ctxkernel.core.reflection import class_dict, class_mro, class_of, class_qualname, is_kind
from ctxkernel.core.text import one_line
from ctxkernel.state.types.parts import said
from ctxkernel.state.types.restorer import StreamRestorer, find

_Base: Any = pickle._Pickler  # type: ignore[attr-defined]
_BaseLoader: Any = pickle._Unpickler  # type: ignore[attr-defined]
_SIZES = {1: pickle.TUPLE1, 2: pickle.TUPLE2, 3: pickle.TUPLE3}
_BATCH = 1000
_MOST_UNFINISHED = 100_000
"""An object inside of so many others that all need it to be made."""
_MOST_TIMES = 100
"""An object that needs itself to be made."""
Steps = Iterator[object]


class EndlessReduction(RecursionError):
    """To make `culprit`, objects are needed without end."""

    def __init__(self, culprit: object) -> None:
        super().__init__("what it is made from has no end")
        self.culprit = culprit


class DeepPickler(_Base):
    """Writes the same as the C pickler, with a stack of its own, to any depth."""

    reducer_override: Callable[[Any], Any]
    identity: Callable[[Any], int | None] | None = None
    """Gives the number of an object that is compared by identity."""

    def dump(self, obj: object) -> None:
        """Write `obj`. Raises EndlessReduction."""
        self.unfinished: list[object] = []
        self.times: Counter[int] = Counter()
        self.write(pickle.PROTO + bytes([self.proto]))
        self.framer.start_framing()
        self.save(obj)
        self.write(pickle.STOP)
        self.framer.end_framing()

    def save(self, obj: object, save_persistent_id: bool = True) -> None:
        """Write one object and all that it holds."""
        stack: list[Steps] = [iter((obj,))]
        while stack:
            for one in stack[-1]:
                steps = self._begin(one)
                if steps is not None:
                    stack.append(steps)
                    break
            else:
                stack.pop()

    def _begin(self, obj: Any) -> Steps | None:
        """Write an object without parts; return the steps of any other."""
        self.framer.commit_frame()
        if self.identity is not None and (number := self.identity(obj)) is not None:
            self.dispatch[int](self, number)
            self.write(pickle.BINPERSID)
            return None
        known = self.memo.get(id(obj))
        if known is not None:
            self.write(self.get(known[0]))
            return None
        inner = _INNER.get(class_of(obj))
        if inner is not None:
            return inner(self, obj)
        if class_of(obj) in _ATOMS:
            self.dispatch[class_of(obj)](self, obj)
            return None
        reduction = self.reducer_override(obj)
        if reduction is NotImplemented:
            if is_kind(class_of(obj), type):
                self.save_type(obj)
                return None
            if class_of(obj) in self.dispatch:
                self.dispatch[class_of(obj)](self, obj)  # a name, or a buffer
                return None
            reduction = obj.__reduce_ex__(5)
        if isinstance(reduction, str):
            self.save_global(obj, reduction)
            return None
        return self._reduced(obj, *reduction)

    def write_filled(self, obj: Any) -> Steps:
        """Write a list, dict or set, which may hold itself."""
        empty, one, many = _FILLED[class_of(obj)]
        self.write(empty)
        self.memoize(obj)
        pairs = class_of(obj) is dict
        yield from self._batches(iter(obj.items() if pairs else obj), one, many, pairs=pairs)

    def _batches(self, items: Iterator[Any], one: bytes, many: bytes, pairs: bool = False) -> Steps:
        while some := list(islice(items, _BATCH)):
            batch = len(some) > 1 or one == many
            if batch:
                self.write(pickle.MARK)
            yield from chain.from_iterable(some) if pairs else some
            self.write(many if batch else one)

    def write_immutable(self, obj: tuple[Any, ...] | frozenset[Any]) -> Steps:
        """Write a tuple or frozenset."""
        if obj == ():
            self.write(pickle.EMPTY_TUPLE)
            return
        made = _SIZES.get(len(obj)) if class_of(obj) is tuple else pickle.FROZENSET
        undo = pickle.POP * len(obj) if class_of(obj) is tuple and made else pickle.POP_MARK
        if undo == pickle.POP_MARK:
            self.write(pickle.MARK)
        yield from obj
        self._end(obj, made or pickle.TUPLE, undo)

    def _end(self, obj: object, made: bytes, undo: bytes) -> None:
        """Finish an object; one that was written meanwhile, as an item of one of its items, is taken from the memo."""
        known = self.memo.get(id(obj))
        self.write(made if known is None else undo + self.get(known[0]))
        if known is None:
            self.memoize(obj)

    def _reduced(
        self,
        obj: Any,
        func: Any,
        args: Any,
        state: Any = None,
        items: Any = None,
        pairs: Any = None,
        setter: Any = None,
    ) -> Steps:
        self.unfinished.append(obj)
        self.times[id(obj)] += 1
        if len(self.unfinished) > _MOST_UNFINISHED or self.times[id(obj)] > _MOST_TIMES:
            raise EndlessReduction(obj if self.times[id(obj)] > 1 else self.unfinished[0])
        name = getattr(func, "__name__", "")
        if name == "__newobj_ex__":
            yield from args
            made = pickle.NEWOBJ_EX
        elif name == "__newobj__":
            yield args[0]
            yield args[1:]
            made = pickle.NEWOBJ
        else:
            yield func
            yield args
            made = pickle.REDUCE
        self._end(obj, made, made + pickle.POP)
        self.times[id(self.unfinished.pop())] -= 1
        if items is not None:
            yield from self._batches(iter(items), pickle.APPEND, pickle.APPENDS)
        if pairs is not None:
            yield from self._batches(iter(pairs), pickle.SETITEM, pickle.SETITEMS, pairs=True)
        if state is not None:
            yield from (state,) if setter is None else (setter, obj, state)
            self.write(pickle.BUILD if setter is None else pickle.TUPLE2 + pickle.REDUCE + pickle.POP)


_FILLED = {
    list: (pickle.EMPTY_LIST, pickle.APPEND, pickle.APPENDS),
    dict: (pickle.EMPTY_DICT, pickle.SETITEM, pickle.SETITEMS),
    set: (pickle.EMPTY_SET, pickle.ADDITEMS, pickle.ADDITEMS),
}
_INNER: dict[type, Callable[[DeepPickler, Any], Steps]] = {
    **dict.fromkeys(_FILLED, DeepPickler.write_filled),
    **dict.fromkeys((frozenset, tuple), DeepPickler.write_immutable),
}
_ATOMS = frozenset((type(None), bool, int, float, str, bytes, bytearray, pickle.PickleBuffer))


class CarefulLoader(_BaseLoader):
    """Replaces an object that cannot be made by a stand-in, continues, and reports it to the restorer."""

    restorer: StreamRestorer
    dispatch: ClassVar[dict[int, Callable[..., None]]] = dict(_BaseLoader.dispatch)

    def find_class(self, module: str, name: str) -> Any:
        """Return the object that a module has under a name, or a stand-in."""
        try:
            base: Any = super()
            return find(self.restorer, base.find_class, module, name)
        except KeyboardInterrupt:
            raise
        except BaseException as fault:
            return self._lose(f"{module}.{name}", fault)

    def persistent_load(self, pid: Any) -> Any:
        """Return an object that is compared by identity, or a stand-in."""
        try:
            return self.restorer.identical(pid)
        except ImportError as fault:
            return self._lose(f"object {pid}", fault)

    def _lose(self, what: str, fault: BaseException | None = None) -> Any:
        return self.restorer.lose(_told(what, fault))

    def make_instance_with_keywords(self) -> None:
        """Carry out NEWOBJ_EX."""
        self.make_instance(**self.stack.pop())

    def is_lost(self, obj: object) -> bool:
        """Return whether an object is a stand-in."""
        return any(obj is one for one in self.restorer.stand_ins)

    def guard(self, what: str, make: Callable[..., Any], *args: Any) -> Any:
        """Return the result of `make(*args)`, or a stand-in where it raises."""
        try:
            return make(*args)
        except (KeyboardInterrupt, MemoryError):
            raise
        except BaseException as fault:
            return self._lose(what, fault)

    def add_items(self, what: str, load: Callable[..., None]) -> None:
        """Add items to an object, and report where that raises: no stand-in takes their place."""
        try:
            load(self)
        except (KeyboardInterrupt, MemoryError):
            raise
        except BaseException as fault:
            self.restorer.said.append(_told(what, fault))

    def reduce(self) -> None:
        """Carry out REDUCE."""
        args = self.stack.pop()
        func = self.stack[-1]
        if self.is_lost(func):
            return  # the stand-in of its maker stands for it
        self.stack[-1] = self.guard(_named(func, args), func, *args)

    def make_instance(self, **keywords: Any) -> None:
        """Carry out NEWOBJ."""
        args = self.stack.pop()
        cls = self.stack.pop()
        lost = self.is_lost(cls)
        self.append(cls if lost else self.guard(_named(cls, ()), lambda: _new(cls)(cls, *args, **keywords)))

    def build(self) -> None:
        """Carry out BUILD."""
        if self.is_lost(self.stack[-2]):
            self.stack.pop()
            return
        obj, depth = self.stack[-2], len(self.stack)
        lost = self.guard(f"the state of a {_named(class_of(obj), ())}", _BaseLoader.load_build, self)
        del self.stack[depth - 1 :]
        if lost is not None:
            # Half made: an object of C code would bring the process down when it is used.
            self.stack[-1] = lost
            for at in [at for at, one in self.memo.items() if one is obj]:
                self.memo[at] = lost


def _told(what: str, fault: BaseException | None) -> str:
    return one_line(what, 80) + (f" ({said(fault)})" if fault is not None else "")


def _new(cls: Any) -> Any:
    """Return `cls.__new__`, without asking a metaclass."""
    found = next(class_dict(base)["__new__"] for base in class_mro(cls) if "__new__" in class_dict(base))
    return found.__func__ if class_of(found) is staticmethod else found


def _named(func: Any, args: tuple[Any, ...]) -> str:
    """Return the name of the object that a call would have made."""
    first: Any = args[0] if args else None
    for one in (first, func):
        if is_kind(class_of(one), type):
            return class_qualname(one)
    return str(getattr(func, "__qualname__", class_of(func).__name__)).rpartition(".")[2]


def _item_loader(load: Callable[..., None], taken: int) -> Callable[..., None]:
    """Guard an opcode that adds items to an object; `taken`: the number of items, 0 for all down to the mark."""

    def guarded(self: CarefulLoader) -> None:
        if not taken:
            items = self.pop_mark()
            target = self.stack[-1]
            if not self.is_lost(target):
                self.metastack.append(self.stack)
                self.stack = items
                self.append = items.append
                self.add_items(f"items of a {class_of(target).__name__}", load)
            return
        below = self.stack[: len(self.stack) - taken]
        if not self.is_lost(below[-1]):
            self.add_items(f"an item of a {class_of(below[-1]).__name__}", load)
        del self.stack[len(below) :]

    return guarded


for _opcode, _load in (
    (pickle.REDUCE, CarefulLoader.reduce),
    (pickle.NEWOBJ, CarefulLoader.make_instance),
    (pickle.NEWOBJ_EX, CarefulLoader.make_instance_with_keywords),
    (pickle.BUILD, CarefulLoader.build),
    (pickle.APPENDS, _item_loader(_BaseLoader.load_appends, 0)),
    (pickle.SETITEMS, _item_loader(_BaseLoader.load_setitems, 0)),
    (pickle.ADDITEMS, _item_loader(_BaseLoader.load_additems, 0)),
    (pickle.APPEND, _item_loader(_BaseLoader.load_append, 1)),
    (pickle.SETITEM, _item_loader(_BaseLoader.load_setitem, 2)),
):
    CarefulLoader.dispatch[_opcode[0]] = _load
