"""Reducers and constructors of objects that belong to the process, such as locks, and of plain library types.

Rule 1: some objects cannot be copied without a side effect or a loss. They are not stored: they exist only in this
process.
Rule 2: an object that is made anew instead of restored is named (`PackState.note`).
"""

from __future__ import annotations

import builtins
import collections
import contextvars
import datetime as dt
import decimal
import fractions
import gc
import importlib
import io
import itertools
import logging
import operator
import pathlib
import random
import re
import struct
import threading
import types
import uuid
import warnings
import weakref
from collections.abc import Callable
from typing import Any

from ctxkernel.core.reflection import HEAP_TYPE, class_of, dict_items, is_kind, loaded
from ctxkernel.state.types.file_objects import STANDARD
from ctxkernel.state.types.instances import careful, class_defines, instance_or, reducer_of
from ctxkernel.state.types.pack_state import Kind, PackState
from ctxkernel.state.types.parts import PARTS, Lost, Reduction, StreamConstructors

_B: Any = builtins
_C: Any = collections
_DATES = (dt.date, dt.datetime, dt.time, dt.timedelta, dt.timezone)
_PATHS = (pathlib.PosixPath, pathlib.WindowsPath, pathlib.PurePosixPath, pathlib.PureWindowsPath)
PLAIN: tuple[type, ...] = (
    *(complex, range, slice, type(Ellipsis), type(NotImplemented), re.Pattern, decimal.Decimal, fractions.Fraction),
    *(uuid.UUID, *_DATES, *_PATHS, collections.defaultdict, collections.Counter),
    *(collections.deque, types.SimpleNamespace, types.GenericAlias, types.UnionType),
    *(operator.itemgetter, operator.attrgetter, operator.methodcaller),
)
"""Exact types that the pickler stores right by itself, and without code of the user's."""


def _live(reason: str) -> Callable[[PackState, Any], Reduction]:
    return lambda pack, obj: pack.refuse(obj, reason)


_RUNS = "it is running code, which has no stored form"


def _running(pack: PackState, obj: Any) -> Reduction:
    """A generator or coroutine: alive only. Its position and its objects show whether it ran on."""
    frame = next((one for name in ("gi_frame", "cr_frame", "ag_frame") if (one := getattr(obj, name, None))), None)
    referents = itertools.pairwise((None, *gc.get_referents(obj)))
    # A dict right after the frame is its `f_locals`, which is there once somebody has asked for it.
    referents = (one for before, one in referents if before is not frame or class_of(one) is not dict)
    held = [one for one in referents if class_of(one) not in (types.FrameType, types.CodeType)]
    return pack.refuse(obj, _RUNS, [-2 if frame is None else frame.f_lasti, held])


def _lock(pack: PackState, obj: Any) -> Reduction:
    pack.note("lock: a new, open one")
    held = None
    if repr(obj).startswith("<locked"):  # that one, while it lives: no code would release a new one
        token = pack.packer.token(obj)
        pack.live[token] = obj
        held = pack.label(f"live:{token}")
        pack.left_out.append((obj, "a held lock"))
    return PARTS.lock, ("RLock" if class_of(obj) is _RLOCK else "Lock", held)


_RLOCK = type(threading.RLock())


def _thread_local(pack: PackState, obj: Any) -> Reduction:
    """A `threading.local`: by the attributes that it has in this thread, where no other thread has some."""
    members: dict[str, Any] = obj.__dict__
    args, *given, spaces = [one for one in gc.get_referents(obj) if class_of(one) in (tuple, dict)]
    if given or pack.plan(class_of(obj)).slots or [*map(id, spaces.values())] != [id(members)]:
        return pack.refuse(obj, "other threads have values in it", [args, *given, *spaces.values()])
    return PARTS.new, (class_of(obj), *args), members or None, None, None, PARTS.update_dict


def _context_variable(pack: PackState, obj: Any) -> Reduction:
    """A variable of the context, alive only: whether its value or default changed is seen."""
    return pack.refuse(obj, _PROCESS, [obj.get(None), gc.get_referents(obj)])


def _arithmetic(pack: PackState, obj: decimal.Context) -> Reduction:
    """A context of `decimal`. The settings of the current one are a part of the process, its flags are not."""
    if obj is not decimal.getcontext():
        return careful(pack, obj)
    flags = [signal.__name__ for signal, raised in obj.flags.items() if raised]
    return PARTS.found, ("decimal", "getcontext", True), flags, None, None, PARTS.fill_flags


def ordered(pack: PackState, obj: collections.OrderedDict[Any, Any]) -> Reduction:
    """An OrderedDict: that of the dict below is another order once something was moved."""
    order: list[Any] = [*_C.OrderedDict.__iter__(obj)]
    if all(map(operator.is_, order, _B.dict.__iter__(obj))):
        return NotImplemented
    return PARTS.ordered, (), (dict(dict_items(obj)), order), None, None, PARTS.fill_ordered


def _weakly(pack: PackState, obj: Any, target: Any, part: Any, *callback: Any) -> Reduction:
    """A weak reference or proxy: restored where its target is in this pack."""
    if target is not None:
        pack.targets.append(target)
    if target is None or pack.members is None:
        return PARTS.weak, (None, None)
    if id(target) not in pack.members:
        return pack.refuse(obj, "it refers weakly to something outside of what is stored with it")
    return part, (target, *callback)


def _weak_proxy(pack: PackState, obj: Any) -> Reduction:
    return _weakly(pack, obj, obj.__repr__.__self__, PARTS.weak_proxy)


def weak_method(pack: PackState, obj: Any) -> Reduction:
    """A weakref.WeakMethod."""
    if (bound := obj()) is not None:
        pack.targets.append(bound.__self__)
        if id(bound.__self__) in (pack.members or ()):
            return PARTS.weak_method, (bound,)
    return PARTS.weak, (None, None)


def weak_container(pack: PackState, obj: Any) -> Reduction:
    """A weak set or dict: with those of its items that are in this pack."""
    items: list[Any] = [(one, None) for one in obj] if is_kind(class_of(obj), weakref.WeakSet) else list(obj.items())
    watched = [pair[is_kind(class_of(obj), weakref.WeakValueDictionary)] for pair in items]
    pack.targets.extend(watched)
    known = pack.members or ()
    kept = [pair for pair, one in zip(items, watched, strict=True) if id(one) in known]
    if pack.members is not None and len(kept) < len(items):
        pack.inexact = True  # it comes back without what only others hold
    return PARTS.weak_container, (class_of(obj),), kept, None, None, PARTS.fill_weak_container


def signal(pack: PackState, obj: Any) -> Reduction:
    """A signal of psygnal: without the listeners that it refers to weakly, which psygnal does not store."""
    made, args, state, *_ = obj.__reduce_ex__(5)
    listeners = [one.dereference() for one in obj._slots]
    pack.inexact |= len(state["_slots"]) < len(listeners)
    return made, args, (state, listeners), None, None, PARTS.fill_signal


_DICT_ITERATORS: dict[type, str] = {type(iter(getattr({}, name)())): name for name in ("keys", "values", "items")}


def dict_iterator(pack: PackState, obj: Any) -> Reduction:
    """An iterator of a dict: the dict, and how far it went. Raises RuntimeError where that has another size now."""
    held = next((one for one in gc.get_referents(obj) if is_kind(class_of(one), dict)), dict[Any, Any]())
    left = operator.length_hint(obj)
    if not left:
        obj.__reduce__()
    size = _B.dict.__len__(held)
    return PARTS.dict_iterator, (held, _DICT_ITERATORS[class_of(obj)], size - left, size)


def _list_iterator(pack: PackState, obj: Any) -> Reduction:
    """An iterator of a list, which may lie in that list, or stand where the list has no items any more."""
    made, args, *index = obj.__reduce__()
    return (made, args, *index, None, None, PARTS.position) if index else (made, args)


def iterator(pack: PackState, obj: Any) -> Reduction:
    """An iterator of itertools. The interpreter warns that later ones cannot be stored: not the user's concern."""
    with warnings.catch_warnings(action="ignore"):
        return careful(pack, obj)


def _grouping(pack: PackState, obj: Any) -> Reduction:
    """A `groupby` or one of its groups, alive only: within a group, the form of the interpreter lacks the key."""
    return pack.refuse(obj, "its place in a group cannot be stored", gc.get_referents(obj))


_field_kind = instance_or(
    *(("dataclasses", "_FIELD"), ("dataclasses", "_FIELD_CLASSVAR"), ("dataclasses", "_FIELD_INITVAR")),
    *(("dataclasses", "MISSING"), ("dataclasses", "KW_ONLY"), ("dataclasses", "_HAS_DEFAULT_FACTORY")),
)


def exception(pack: PackState, obj: BaseException) -> Reduction:
    """An exception with its cause and context, without the frames of its traceback."""
    cls = class_of(obj)
    if class_defines(cls, "__reduce__", "__reduce_ex__", "__getstate__"):
        return careful(pack, obj)
    traced = obj.__traceback__ is not None
    if traced:
        pack.left_out.append((obj, f"the traceback of a {cls.__name__}"))
    native: Any = next(base for base in cls.__mro__ if not base.__flags__ & HEAP_TYPE)
    args = native.__reduce__(obj)[1]
    plan = pack.plan(cls)
    chained = obj.__cause__, obj.__context__, obj.__suppress_context__
    state = (plan.dict_of(obj) or None, plan.slots_of(obj) or None, *chained, obj.args)
    known = (traced,) if traced and not pack.plain else ()  # one that was loaded without its traceback is another
    return PARTS.exception, (native, cls, args, *known), state, None, None, PARTS.fill_exception


def is_stored_handler(obj: Any, own: bool) -> bool:
    """Return whether a handler of logging is stored by its attributes: the user's own, or one that writes to memory."""
    stream = obj.__dict__.get("stream")
    buffers = loaded("logging.handlers").get("BufferingHandler")
    if class_of(stream) in (io.BytesIO, io.StringIO) or (buffers is not None and is_kind(class_of(obj), buffers)):
        return True
    return own and (stream is None or any(stream is loaded(module).get(name) for module, name in STANDARD))


def _handler(pack: PackState, obj: Any) -> Reduction:
    """A handler of logging: by attributes, or alive only; then its attributes say whether it changed."""
    cls = class_of(obj)
    plan = pack.plan(cls)
    own = plan.own or cls.__module__ in pack.packer.own_modules
    if is_stored_handler(obj, own) and (reduce := reducer_of(pack, cls, plan)) is not None:
        return reduce(pack, obj)
    held = {name: one for name, one in obj.__dict__.items() if name != "lock"}
    return pack.refuse(obj, "a handler of logging belongs to this process", held)


def _logger(pack: PackState, obj: Any) -> Reduction:
    """A logger: found by its name; its configuration and attributes are put back by the ambient part of logging."""
    pack.uses_module("logging")
    if logging.getLogger(obj.name) is obj:
        return careful(pack, obj)
    members = {name: one for name, one in obj.__dict__.items() if name not in ("_cache", "manager")}
    return PARTS.new, (class_of(obj),), {**members, "_cache": {}}, None, None, PARTS.update_dict


_GROUP = type(next(itertools.groupby("a"))[1])
_ITERTOOLS = tuple(one for one in vars(itertools).values() if isinstance(one, type))

KINDS: dict[Any, Kind] = {
    type(threading.Lock()): _lock,
    _RLOCK: _lock,
    contextvars.ContextVar: _context_variable,
    contextvars.Token: lambda pack, obj: pack.refuse(obj, _PROCESS, [obj.var, obj.old_value]),
    collections.OrderedDict: ordered,
    decimal.Context: _arithmetic,
    random.Random: instance_or(("random", "_inst")),
    random.SystemRandom: lambda pack, obj: (random.SystemRandom, ()),
    Lost: lambda pack, obj: (PARTS.stand_in, obj.__reduce__()[1]),
    struct.Struct: lambda pack, obj: (struct.Struct, (obj.format,)),
    weakref.ref: lambda pack, obj: _weakly(pack, obj, obj(), PARTS.weak, obj.__callback__),
    weakref.WeakMethod: weak_method,
    **dict.fromkeys((weakref.ProxyType, weakref.CallableProxyType), _weak_proxy),
    **dict.fromkeys((weakref.WeakSet, weakref.WeakKeyDictionary, weakref.WeakValueDictionary), weak_container),
    weakref.finalize: lambda pack, obj: pack.refuse(obj, "it is registered with this process", obj.peek()),
    **dict.fromkeys((types.GeneratorType, types.CoroutineType, types.AsyncGeneratorType), _running),
    types.FrameType: _live(_RUNS),
    types.TracebackType: _live("it holds frames of code that ran"),
    **dict.fromkeys(_ITERTOOLS, iterator),
    **dict.fromkeys((itertools.groupby, _GROUP), _grouping),
    **dict.fromkeys(_DICT_ITERATORS, dict_iterator),
    **dict.fromkeys((class_of(iter([])), class_of(reversed(list[Any]()))), _list_iterator),
}

BELOW: dict[Any, Kind] = {
    logging.Logger: _logger,
    BaseException: exception,
    threading.local: _thread_local,
    # It lets go of its function when it ends, at any time.
    threading.Thread: lambda pack, obj: pack.refuse(obj, "a thread", []),
}

_PROCESS = "it belongs to this process"
# The second half is the kernel's own: a copy would replace the objects on which a new kernel runs.
_OF_THE_PROCESS = """
asyncio.AbstractEventLoop concurrent.futures.Executor concurrent.futures.Future multiprocessing.managers.BaseManager
multiprocessing.pool.Pool multiprocessing.process.BaseProcess multiprocessing.shared_memory.SharedMemory
selectors.BaseSelector socket.socket subprocess.Popen

comm.base_comm.BaseComm comm.base_comm.CommManager ctxkernel.kernel.runtime.Runtime ipykernel.iostream.IOPubThread
ipykernel.kernelbase.Kernel jupyter_client.session.Session tornado.ioloop.IOLoop zmq.eventloop.zmqstream.ZMQStream
traitlets.config.application.Application zmq.sugar.context.Context zmq.sugar.socket.Socket
"""
_ALIVE_ONLY = {
    _PROCESS: _OF_THE_PROCESS,
    "it deletes its file when it goes": "tempfile._TemporaryFileWrapper tempfile.SpooledTemporaryFile",
    "it deletes its folder when it goes": "tempfile.TemporaryDirectory",
    "it is an open archive": "bz2.BZ2File gzip.GzipFile lzma.LZMAFile tarfile.TarFile zipfile.ZipFile",
    # A copy with a stand-in for that memory would crash the process.
    "its content is memory of compiled code": "numba.typed.typeddict.Dict numba.typed.typedlist.List",
}
"""By reason, the classes whose instances have no stored form."""
TABLE: tuple[tuple[str, str, Kind], ...] = (
    ("psygnal", "SignalInstance", signal),
    *(("dataclasses", name, _field_kind) for name in ("_FIELD_BASE", "_MISSING_TYPE", "_KW_ONLY_TYPE")),
    ("dataclasses", "_HAS_DEFAULT_FACTORY_CLASS", _field_kind),
    ("os", "_Environ", instance_or(("os", "environ"), ("os", "environb"))),
    ("logging", "Handler", _handler),
    ("_queue", "SimpleQueue", lambda pack, obj: pack.refuse(obj, _PROCESS, gc.get_referents(obj))),
    *(
        (module, name, _live(reason))
        for reason, listed in _ALIVE_ONLY.items()
        for module, _, name in (one.rpartition(".") for one in listed.split())
    ),
    # Closing a file also closes its datasets and groups.
    ("h5py", "HLObject", lambda pack, obj: pack.refuse(obj, "it is an open file", [bool(obj)])),
    ("ipykernel.iostream", "OutStream", instance_or(*STANDARD, otherwise=_live(_PROCESS))),
    ("matplotlib", "RcParams", instance_or(("matplotlib", "rcParams"), ("matplotlib", "rcParamsDefault"))),
)


class ThingParts(StreamConstructors):
    """The constructors of objects that belong to the process."""

    ordered = collections.OrderedDict
    weak_container = operator.call
    weak_method = weakref.WeakMethod
    weak_proxy = weakref.proxy

    def found(self, module: str, name: str, call: bool = False) -> Any:
        """Return the object that a module has under a name, or the result of calling it."""
        one = operator.attrgetter(name)(importlib.import_module(module))
        return one() if call else one

    def in_shell(self, *path: str) -> Any:
        """Return the part of the shell of this process that has a path."""
        one: Any = self.found("IPython", "get_ipython", True)
        for step in path:
            one = one[step] if is_kind(class_of(one), dict) else getattr(one, step)
        return one

    def fill_flags(self, context: decimal.Context, raised: list[str]) -> None:
        """Give the current context of `decimal` its flags."""
        if not self.trial:
            for signal in context.flags:
                context.flags[signal] = signal.__name__ in raised

    def lock(self, kind: str, held: int | None = None) -> Any:
        """Return a new, open lock; where the stored one was held, that one as long as it lives."""
        made = None if held is None else self.living(held)
        if made is None:
            made = getattr(threading, kind)()
            if held is not None:
                self.said.append("a lock that was held comes back open")
                if not self.trial:  # the stored one is this one from now on, and the same once it is held
                    self.packer.tokens.replace(self.labels[held].removeprefix("live:"), made)
        return made

    def fill_signal(self, obj: Any, state: tuple[Any, Any]) -> None:
        """Set the state of a signal of psygnal; the listeners were stored only to find changes of them."""
        obj.__setstate__(state[0])

    def dict_iterator(self, held: dict[Any, Any], kind: str, steps: int, size: int = 0) -> Any:
        """Return an iterator of a dict that went so far."""
        made = iter(getattr(dict, kind)(held))
        if sum(1 for _ in itertools.islice(made, steps)) < steps or len(held) < size:
            self.said.append("an iterator of a dict that holds the iterator comes back at its end")
        return made

    def position(self, made: Any, index: int) -> None:
        """Have an iterator of a list go on at an index; it takes none that the list has not, so the list gets that."""
        held = next(one for one in gc.get_referents(made) if is_kind(class_of(one), list))
        size = _B.list.__len__(held)
        _B.list.extend(held, [None] * (index + 1 - size))
        made.__setstate__(index)
        _B.list.__delitem__(held, slice(size, None))

    def fill_ordered(self, made: Any, state: tuple[dict[Any, Any], list[Any]]) -> None:
        """Give an OrderedDict its items, and their order."""
        items, order = state
        made.update(items)
        for key in order:
            made.move_to_end(key)

    def weak(self, target: Any, callback: Any) -> Any:
        """Return a weak reference; to something that is gone where there is no target."""
        return weakref.ref(set[Any]() if target is None else target, callback)

    def fill_weak_container(self, made: Any, pairs: list[tuple[Any, Any]]) -> None:
        """Give a weak set or dict its items."""
        made.update([key for key, _ in pairs] if isinstance(made, weakref.WeakSet) else pairs)

    def exception(self, native: Any, cls: Any, args: tuple[Any, ...], _: bool = False) -> Any:
        """Return an exception as its built-in base makes it."""
        made = native.__new__(cls, *args)
        native.__init__(made, *args)
        return made

    def fill_exception(self, obj: Any, state: tuple[Any, ...]) -> None:
        """Give an exception its attributes, cause and context."""
        members, slots, cause, context, suppress, args = state
        if members:
            obj.__dict__.update(members)
        for name, value in slots or ():
            object.__setattr__(obj, name, value)
        obj.__cause__, obj.__context__, obj.__suppress_context__ = cause, context, suppress
        obj.args = args
